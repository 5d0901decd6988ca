package foreign

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"
)

// maxStuck is how many looks may be stuck, each with a thread, before there are no more.
const maxStuck = 256

// readTimeout is how long ReadFile waits. A process that does not hold anything up is read in microseconds.
const readTimeout = time.Second

var (
	errStuck   = errors.New("too many processes do not let their memory be read")
	errTimeout = errors.New("the process does not let its memory be read")
)

// Looks reads what other processes can hold up: their memory, and the files in /proc that are made of it, or need the lock on it
// (environ, cmdline, mem, maps, smaps in proc(5)). A page of theirs may be on a FUSE file system or belong to userfaultfd(2); then reading
// it takes as long as they like. The zero value of Looks is ready.
type Looks struct{ stuck atomic.Int64 }

// Look returns what f returns, or the cause of ctx's end if that comes first. Then f goes on alone, and what it returns is dropped.
// While 256 of one Looks go on so, f is not called and the error says that.
func Look[T any](ctx context.Context, l *Looks, f func() T) (T, error) {
	var none T
	if l.stuck.Load() >= maxStuck {
		return none, errStuck
	}
	result := make(chan T, 1)
	go func() { result <- f() }()
	select {
	case v := <-result:
		return v, nil
	case <-ctx.Done():
		l.stuck.Add(1)
		go func() {
			<-result
			l.stuck.Add(-1)
		}()
		return none, context.Cause(ctx)
	}
}

// ReadFile is os.ReadFile for a file in /proc that another process can hold up. It waits for a second at most.
func (l *Looks) ReadFile(path string) ([]byte, error) {
	type answer struct {
		data []byte
		err  error
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), readTimeout, errTimeout)
	defer cancel()
	a, err := Look(ctx, l, func() answer {
		data, err := os.ReadFile(path)
		return answer{data, err}
	})
	return a.data, errors.Join(err, a.err)
}
