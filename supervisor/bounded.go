package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.org/supervisord/internal/foreign"
)

// readTimeout is how long the files that a reload needs may take. A disk that does not answer must not hold up every later reload,
// or the end.
const readTimeout = time.Minute

// maxStuck is how many calls of one kind may hang at a time. A further one fails at once.
const maxStuck = 4

// bounded returns what f returns, or an error when that takes longer than readTimeout, or ctx has ended. what says what f does, for the
// program of this name ("": for all).
func bounded[T any](ctx context.Context, disks *foreign.Looks, name, what string, f func() (T, error)) (result T, err error) {
	late := fmt.Errorf("%s has not ended within %s: see whether a file system does not answer", what, readTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, readTimeout, late)
	defer cancel()
	finish, err := foreign.Look(ctx, disks, [2]string{name, what}, func() func() (T, error) {
		result, err := f()
		return func() (T, error) { return result, err }
	})
	switch {
	case errors.Is(err, foreign.ErrStuck):
		return result, fmt.Errorf("%s: %d earlier attempts still hang: see whether a file system does not answer", what, disks.Each)
	case err != nil:
		return result, err
	}
	return finish()
}
