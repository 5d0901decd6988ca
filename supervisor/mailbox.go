package supervisor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"example.org/supervisord/internal/foreign"
)

// readTimeout bounds how long reading the files for a reload may take: a disk that does not answer must not hold up
// later reloads, or the end.
const readTimeout = time.Minute

// maxStuck is how many calls of one kind may hang at a time. The next one fails at once.
const maxStuck = 4

// bounded returns what f returns, or an error when that takes longer than readTimeout, or ctx has ended. what says what
// f does, for the program of this name ("": for all).
func bounded[T any](ctx context.Context, disks *foreign.Looks, name, what string, f func() (T, error)) (result T,
	err error) {
	late := fmt.Errorf("%s has not ended within %s: see whether a file system does not answer", what, readTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, readTimeout, late)
	defer cancel()
	finish, err := foreign.Look(ctx, disks, [2]string{name, what}, func() func() (T, error) {
		result, err := f()
		return func() (T, error) { return result, err }
	})
	switch {
	case errors.Is(err, foreign.ErrStuck):
		return result, fmt.Errorf("%s: %d earlier attempts still hang: see whether a file system does not answer", what,
			disks.Each)
	case err != nil:
		return result, err
	}
	return finish()
}

// mailbox is how everything reaches the loop: a call waits in the channel until the loop makes it. The loop itself must
// not use post, which would wait for the loop.
type mailbox struct {
	calls   chan func()   // for the loop to call
	done    chan struct{} // closed when the loop reads no more calls
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup // the goroutines that Run waits for
}

func newMailbox() *mailbox {
	ctx, cancel := context.WithCancel(context.Background())
	return &mailbox{calls: make(chan func()), done: make(chan struct{}), ctx: ctx, cancel: cancel}
}

// post has the loop call f. It is for every goroutine except the loop's own.
func (m *mailbox) post(f func()) {
	select {
	case m.calls <- f:
	case <-m.done:
	}
}

// later calls work in a goroutine of its own, and has the loop call what work returned.
func (m *mailbox) later(work func() func()) {
	m.running.Go(func() { m.post(work()) })
}

// after has the loop call f when d has passed.
func (m *mailbox) after(d time.Duration, f func()) *time.Timer {
	return time.AfterFunc(d, func() { m.post(f) })
}

// awaitRunning waits until no goroutine is running, and reports whether that took less than limit.
func (m *mailbox) awaitRunning(limit time.Duration) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.running.Wait()
	}()
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-done:
		return true
	case <-timeout.C:
		return false
	}
}

// ask has the loop call f and waits until f, or something that f has begun, replies. Errors: ErrStopping, or the cause
// of ctx.
func ask[T any](ctx context.Context, m *mailbox, f func(reply func(T, error))) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	answers := make(chan answer, 1) // the loop never waits for the caller
	call := func() { f(func(v T, err error) { answers <- answer{v, err} }) }
	select {
	case m.calls <- call:
	case <-m.done:
		return none, ErrStopping
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	select {
	case a := <-answers:
		return a.value, a.err
	case <-m.done:
		return none, ErrStopping
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// askNow is ask for an f that replies before it returns.
func askNow[T any](ctx context.Context, m *mailbox, f func() (T, error)) (T, error) {
	return ask(ctx, m, func(reply func(T, error)) { reply(f()) })
}

// askOf is askNow about one program. Errors: ErrNoProgram, too.
func askOf[T any](ctx context.Context, s *Supervisor, name string, f func(*runner) (T, error)) (T, error) {
	return askNow(ctx, s.mailbox, func() (T, error) {
		p := s.programs[name]
		if p == nil {
			var none T
			return none, noProgram(name, s.programs.names())
		}
		return f(p)
	})
}
