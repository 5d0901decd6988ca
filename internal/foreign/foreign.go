// Package foreign keeps other processes from holding up this one.
//
// A descriptor that another process sends over a unix socket (SCM_RIGHTS in unix(7)) may be the last reference to a file whose release
// makes the caller wait for as long as the sender likes: a TCP socket with SO_LINGER, for example. Whoever closes the descriptor waits,
// and so does whoever reads or closes the socket in which the descriptor is queued. O_NONBLOCK changes nothing.
//
// The remedy is not to receive such descriptors at all, to let the kernel drop them on a thread where nobody waits, and to interrupt that
// thread. Nothing here ever operates on a foreign descriptor, not even setsockopt(2): its sender may hold the locks that this needs.
package foreign

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// interruptAfter is how long the thread of Apart may wait in the kernel before a signal interrupts it, again and again.
const interruptAfter = 20 * time.Millisecond

// Apart calls f on a locked thread, by Quiet, and returns when f does. Every 20 ms a signal interrupts what the thread waits for, so that a
// socket that lingers goes on doing so without it. What is not to be interrupted, such as a FUSE or NFS server that does not answer, may still
// keep the thread: never call Apart where somebody waits, nor with a lock.
func Apart(f func()) {
	Quiet(func() {
		done := make(chan struct{})
		var interrupts sync.WaitGroup
		defer interrupts.Wait()
		defer close(done)
		thread := unix.Gettid()
		interrupts.Go(func() { interrupt(thread, done) })
		f()
	})
}

func interrupt(thread int, done <-chan struct{}) {
	again := time.NewTicker(interruptAfter)
	defer again.Stop()
	for {
		select {
		case <-done:
			return
		case <-again.C:
			unix.Tgkill(os.Getpid(), thread, unix.SIGURG) //nolint:errcheck // the thread lives; the Go runtime sends itself SIGURG, too, and expects strays
		}
	}
}

// Quiet calls f on a thread that takes no signals which are for the process. The kernel gives such a signal to one thread, for SIGCHLD the
// one that has forked if possible, even if that thread waits for a disk; then no other one gets it. So whatever can be stuck in the
// kernel without end has to be called this way, or supervisord may not hear that a worker has ended or that it is to stop.
func Quiet(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.Sigset_t
	blocked := asynchronous()
	if unix.PthreadSigmask(unix.SIG_BLOCK, &blocked, &before) == nil {
		defer unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) //nolint:errcheck // it was the mask before
	}
	f()
}

// asynchronous is every signal but those that a thread causes itself, and SIGURG, which is sent to a thread and not to the process.
func asynchronous() (set unix.Sigset_t) {
	const bits = strconv.IntSize
	for i := range set.Val {
		set.Val[i] = ^set.Val[i]
	}
	for _, sig := range []unix.Signal{unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGTRAP, unix.SIGURG} {
		set.Val[(sig-1)/bits] &^= 1 << ((sig - 1) % bits)
	}
	return set
}

// threads call queued functions by Apart, on at most so many threads at a time.
type threads struct {
	mu      sync.Mutex
	queue   []func()
	busy    int
	running sync.WaitGroup
}

func (t *threads) do(f func(), most int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = append(t.queue, f)
	if t.busy < most {
		t.busy++
		t.running.Go(t.work)
	}
}

func (t *threads) work() {
	for {
		t.mu.Lock()
		if len(t.queue) == 0 {
			t.busy--
			t.mu.Unlock()
			return
		}
		next := t.queue[0]
		t.queue = t.queue[1:]
		t.mu.Unlock()
		Apart(next)
	}
}

// Line does one after another what one other process may hold up. Its zero value is ready.
type Line struct{ threads threads }

// Do calls f by Apart, after everything that was given to Do before. It does not wait.
func (l *Line) Do(f func()) { l.threads.do(f, 1) }

// maxThreads is how many closings of one Closer may be stuck before the next ones have to wait for them.
const maxThreads = 16

// Closer closes what may be slow to close. Its zero value is ready. At most 16 threads are stuck at a time in what cannot be interrupted;
// then the rest waits, which costs the descriptors to be closed and nothing else.
type Closer struct{ threads threads }

// CloseAside closes descriptors of this process in which foreign ones may be queued, or which are foreign. It does not wait, and
// takes the descriptors over.
func (c *Closer) CloseAside(fds ...int) {
	for _, fd := range fds {
		c.Do(func() { unix.Close(fd) }) //nolint:errcheck // it is gone either way
	}
}

// Do calls f soon, by Apart. It does not wait.
func (c *Closer) Do(f func()) { c.threads.do(f, maxThreads) }

// Wait waits until everything is closed, or until ctx ends, whose cause it returns. Nothing may be added meanwhile.
func (c *Closer) Wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.threads.running.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// RefuseRights makes the kernel refuse descriptors that a peer sends to a unix socket: the peer's sendmsg(2) fails with EPERM. Connections
// that a listening socket accepts inherit it. Before Linux 6.16 it does nothing: use Read there, too.
func RefuseRights(fd int) {
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 0) //nolint:errcheck // ENOPROTOOPT: an older kernel
}

// ErrRights says that descriptors came with what a peer has sent. They and the bytes before them are still in the socket.
var ErrRights = errors.New("the peer has sent file descriptors")

// Read reads from a stream socket as read(2) with MSG_DONTWAIT does, but takes no descriptors, and therefore never waits for one to be
// closed. Where the peer has sent some, it returns ErrRights; nothing more can be read then, and CloseAside must close the socket.
// The socket must not have SO_PASSCRED, nor another reader.
func Read(fd int, p []byte) (int, error) {
	n, _, flags, _, err := unix.Recvmsg(fd, p, nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	switch {
	case err != nil:
		return 0, err
	case flags&unix.MSG_CTRUNC != 0: // there is no room for descriptors, and so the kernel says that there are some
		return 0, ErrRights
	case n == 0:
		return 0, nil
	}
	n, _, err = unix.Recvfrom(fd, p[:n], unix.MSG_DONTWAIT) // exactly what was looked at: more of it may come with descriptors
	return n, err
}
