package graceful

import (
	"context"
	"fmt"
	"time"
)

// Work runs something without a socket: a queue's consumer, a scheduler. ctx ends as the stop begins: do should then take
// nothing new, finish the job in hand and return nil. A do that returns earlier has ended by itself: with an error the
// stop begins, with nil the others go on. One that has not returned at the deadline is left to the end of the process.
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
