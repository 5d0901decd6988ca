package supervisor

import (
	"context"
	"fmt"
	"time"
)

// readTimeout is how long the files that a reload needs may take. A disk that does not answer must not hold up every later reload,
// or the end.
const readTimeout = time.Minute

// maxStuck is how many calls of one kind may hang at a time. A further one fails at once.
const maxStuck = 4

// calls bounds calls that may never return, such as those that read a file.
type calls chan struct{}

func newCalls() calls { return make(calls, maxStuck) }

// bounded returns what f returns, or an error when that takes longer than readTimeout, or ctx has ended. Then f continues by itself,
// and its result is dropped.
func bounded[T any](ctx context.Context, c calls, what string, f func() (T, error)) (T, error) {
	var none T
	select {
	case c <- struct{}{}:
	default:
		return none, fmt.Errorf("%s: %d earlier attempts still hang: see whether a file system does not answer", what, cap(c))
	}
	var result T
	var err error
	done := make(chan struct{})
	go func() {
		defer func() { <-c }()
		defer close(done)
		result, err = f()
	}()
	timeout := time.NewTimer(readTimeout)
	defer timeout.Stop()
	select {
	case <-done:
		return result, err
	case <-timeout.C:
		return none, fmt.Errorf("%s has not ended within %s: see whether a file system does not answer", what, readTimeout)
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}
