package supervisor

import (
	"context"
	"fmt"
	"time"
)

// readTimeout is how long files may take that a reload needs. A disk that does not answer must not keep every later reload,
// or the end, waiting.
const readTimeout = time.Minute

// maxStuck is how many calls of one kind may hang at a time. A further one fails at once.
const maxStuck = 4

// calls bounds calls that may never return, such as those that read a file.
type calls chan struct{}

func newCalls() calls { return make(calls, maxStuck) }

// bounded calls f and returns what it returned; or an error when that took too long, or ctx has ended. Then f goes on by itself,
// and what it returns is dropped.
func bounded[T any](ctx context.Context, c calls, limit time.Duration, what string, f func() T) (T, error) {
	var none T
	select {
	case c <- struct{}{}:
	default:
		return none, fmt.Errorf("%s: %d earlier attempts still hang: see whether a file system does not answer", what, cap(c))
	}
	result := make(chan T, 1)
	go func() {
		defer func() { <-c }()
		result <- f()
	}()
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case r := <-result:
		return r, nil
	case <-timeout.C:
		return none, fmt.Errorf("%s has not ended within %s: see whether a file system does not answer", what, limit)
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}
