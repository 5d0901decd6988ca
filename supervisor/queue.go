package supervisor

import "context"

// note is a message in the loop's queue.
type note interface{ note() }

// call is a note that the loop answers by calling it.
type call func()

func (call) note() {}

// post has the loop call f. It is for every goroutine except the loop's own.
func (s *Supervisor) post(f func()) { s.put(call(f)) }

func (s *Supervisor) put(n note) {
	select {
	case s.queue <- n:
	case <-s.done:
	}
}

// later calls work in a goroutine of its own, which Run waits for, and has the loop call what work returned.
func (s *Supervisor) later(work func() func()) {
	s.running.Go(func() { s.post(work()) })
}

// ask has the loop call f and waits until f, or something that f has begun, replies. Errors: ErrStopping, or the cause of ctx.
func ask[T any](ctx context.Context, s *Supervisor, f func(reply func(T, error))) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	answers := make(chan answer, 1) // the loop never waits for the caller
	n := call(func() { f(func(v T, err error) { answers <- answer{v, err} }) })
	select {
	case s.queue <- n:
	case <-s.done:
		return none, ErrStopping
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	select {
	case a := <-answers:
		return a.value, a.err
	case <-s.done:
		return none, ErrStopping
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// askNow is ask for an f that replies before it returns.
func askNow[T any](ctx context.Context, s *Supervisor, f func() (T, error)) (T, error) {
	return ask(ctx, s, func(reply func(T, error)) { reply(f()) })
}
