package foreign

import (
	"context"
	"errors"
	"sync"
	"time"
)

// maxStuck limits how many looks may be stuck, each with a thread.
const maxStuck = 256

// readTimeout is how long Read waits. An ordinary process is read in microseconds.
const readTimeout = time.Second

// ErrStuck is returned by Look instead of one more look that may be stuck.
var ErrStuck = errors.New("this process, or too many, did not let its memory be read before")

var errTimeout = errors.New("the process does not let its memory be read")

// Looks reads what other processes and disks can delay: the memory of a process, and the files in /proc that are made
// of it or need the lock on it (environ, cmdline, mem, maps, smaps in proc(5)), of which a page may be on a FUSE file
// system or belong to userfaultfd(2); or files on a file system that does not answer. The zero value is ready to use.
type Looks struct {
	Each int // how many looks with the same key may be stuck; 0: one

	mu    sync.Mutex
	stuck map[any]int // looks that continue alone, by key
	all   int
}

// Look returns what f returns, or the cause of ctx's end if that comes first. Then f continues alone, and its result is
// dropped. While as many as may be stuck continue alone, of this key or 256 in all, Look calls no f and returns
// ErrStuck.
func Look[T any](ctx context.Context, l *Looks, key any, f func() T) (T, error) {
	var none T
	if !l.may(key) {
		return none, ErrStuck
	}
	result := make(chan T, 1)
	go quiet(func() { result <- f() })
	select {
	case v := <-result:
		return v, nil
	case <-ctx.Done():
		l.count(key, 1)
		go func() {
			<-result
			l.count(key, -1)
		}()
		return none, context.Cause(ctx)
	}
}

func (l *Looks) may(key any) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stuck[key] < max(1, l.Each) && l.all < maxStuck
}

func (l *Looks) count(key any, change int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stuck == nil {
		l.stuck = map[any]int{}
	}
	l.all += change
	if l.stuck[key] += change; l.stuck[key] == 0 {
		delete(l.stuck, key)
	}
}

// Read returns what read returns, which reads what another process can delay. It waits for at most a second.
func (l *Looks) Read(key any, read func() ([]byte, error)) ([]byte, error) {
	type answer struct {
		data []byte
		err  error
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), readTimeout, errTimeout)
	defer cancel()
	a, err := Look(ctx, l, key, func() (a answer) {
		a.data, a.err = read()
		return a
	})
	return a.data, errors.Join(err, a.err)
}
