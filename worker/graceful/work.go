package graceful

import (
	"context"
	"fmt"
	"time"
)

// Work runs something without a socket: a queue consumer, a scheduler. ctx ends when the stop begins: do should then
// start nothing new, finish its current job and return nil. If do returns before the stop, an error begins the stop,
// and nil lets the other servers continue. If do has not returned at the deadline, it ends with the process.
func Work(do func(ctx context.Context) error) Server { return work(do) }

type work func(context.Context) error

func (w work) run(st *stop, accepting func()) error {
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	done := make(chan error, 1)
	go func() { done <- w(ctx) }()
	accepting()
	select {
	case err := <-done:
		return named(err)
	case <-st.begun:
	}
	leave()
	select {
	case err := <-done:
		return named(err)
	case <-st.over:
		return &CutOff{After: time.Since(st.at), Work: 1}
	}
}

func named(err error) error {
	if err != nil {
		return fmt.Errorf("the work ended: %w", err)
	}
	return nil
}
