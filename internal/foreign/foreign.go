// Package foreign keeps other processes, and disks that do not answer, from holding up this one:
//
//   - what another process sent, or can delay, is closed aside (Closer, Line) and read without its descriptors (Read,
//     RefuseRights);
//   - what may take forever, such as the memory of a process or a file on a dead disk, is looked at with a limit
//     (Look);
//   - a file that must be an ordinary one is opened as such (OpenRegular);
//   - a file that may hang when it is closed has a thread of its own, away from fork and execve (MayHang, StandApart,
//     OnMain).
//
// A descriptor that another process sends over a unix socket (SCM_RIGHTS in unix(7)) may be the last reference to a
// file whose release blocks the caller for as long as the sender likes: a TCP socket with SO_LINGER, for example.
// Closing the descriptor blocks, and so does reading or closing the socket in which it is queued. O_NONBLOCK changes
// nothing.
//
// So this package does not receive such descriptors. It lets the kernel drop them on a thread that nothing waits for,
// and interrupts that thread. It never operates on a foreign descriptor, not even by setsockopt(2): the sender may hold
// the locks that this needs.
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

// Apart calls f on a locked thread, by quiet, and returns when f does. Every 20 ms a signal interrupts what the thread
// waits for, so that a socket lingers on without the thread. A wait that cannot be interrupted, such as one for a FUSE
// or NFS server, may still keep the thread: never call Apart where something waits for it, nor with a lock.
func Apart(f func()) {
	quiet(func() {
		i := interrupts(unix.Gettid())
		defer i.end()
		f()
	})
}

// interrupter sends signals to a thread until end. It has no goroutine: to wait for one would take the locked thread
// off its CPU each time.
type interrupter struct {
	thread int
	mu     sync.Mutex
	timer  *time.Timer
	ended  bool
}

func interrupts(thread int) *interrupter {
	i := &interrupter{thread: thread}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.timer = time.AfterFunc(interruptAfter, i.interrupt)
	return i
}

func (i *interrupter) interrupt() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended {
		return
	}
	// The thread lives; the Go runtime sends itself SIGURG, too, and expects strays.
	unix.Tgkill(os.Getpid(), i.thread, unix.SIGURG) //nolint:errcheck
	i.timer.Reset(interruptAfter)
}

// end returns when no signal will be sent any more.
func (i *interrupter) end() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ended = true
	i.timer.Stop()
}

// quiet calls f on a thread that takes no signals for the process. The kernel gives such a signal to one thread, for
// SIGCHLD the one that forked if possible, even if that thread waits for a disk; then no other thread gets it. So call
// this way whatever can be stuck in the kernel forever; otherwise supervisord may not learn that a worker has ended or
// that it must stop itself.
func quiet(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer refuseSignals()()
	f()
}

// OwnThread gives the calling goroutine a thread of its own, which takes no signals for the process and ends with the
// goroutine. Whatever makes a thread differ from the others (another user, another table of descriptors) begins with
// this: a handler of a signal that ran there would write to what has the number of its pipe in that table.
func OwnThread() {
	runtime.LockOSThread() // and never unlocked
	refuseSignals()
}

// refuseSignals keeps the calling thread, which is locked, from taking signals for the process until accept is called.
func refuseSignals() (accept func()) {
	var before unix.Sigset_t
	blocked := asynchronous()
	if unix.PthreadSigmask(unix.SIG_BLOCK, &blocked, &before) != nil {
		return func() {}
	}
	return func() { unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) } //nolint:errcheck // the mask is the one before
}

// asynchronous returns every signal but those that a thread causes itself, and SIGURG, which is sent to a thread and
// not to the process.
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

// Line does, one after another, what one other process can delay. Its zero value is ready to use.
type Line struct{ threads threads }

// Do calls f by Apart, after everything that was given to Do before. It does not wait.
func (l *Line) Do(f func()) { l.threads.do(f, 1) }

// maxThreads is how many threads of one Closer may be stuck before the next closings have to wait.
const maxThreads = 16

// Closer closes what may be slow to close. Its zero value is ready to use. At most 16 threads are stuck at a time in
// what cannot be interrupted; then the remaining descriptors wait to be closed, which costs nothing else.
type Closer struct{ threads threads }

// Do calls f soon, by Apart. It does not wait.
func (c *Closer) Do(f func()) { c.threads.do(f, maxThreads) }

// Wait waits until everything is closed, or until ctx ends, whose cause it returns. Add nothing meanwhile.
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

// RefuseRights makes the kernel refuse descriptors that a peer sends to a unix socket: the peer's sendmsg(2) fails with
// EPERM. Accepted connections inherit this from their listening socket. Before Linux 6.16 it does nothing, so use Read
// as well.
func RefuseRights(fd int) {
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 0) //nolint:errcheck // ENOPROTOOPT: an older kernel
}

// errRights says that a peer has sent descriptors. They and the bytes before them are still in the socket.
var errRights = errors.New("the peer has sent file descriptors")

// Read reads from a stream socket as recv(2) with MSG_DONTWAIT does, but takes no descriptors, and therefore never
// waits for one to be closed. If the peer has sent some, Read returns errRights; nothing more can be read then, and a
// Closer or Line must close the socket. The socket must not have SO_PASSCRED, nor another reader.
func Read(fd int, p []byte) (int, error) {
	n, _, flags, _, err := unix.Recvmsg(fd, p, nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	switch {
	case err != nil:
		return 0, err
	case flags&unix.MSG_CTRUNC != 0: // there is no room for descriptors, and so the kernel says that there are some
		return 0, errRights
	case n == 0:
		return 0, nil
	}
	n, _, err = unix.Recvfrom(fd, p[:n], unix.MSG_DONTWAIT) // exactly what was peeked at: more may come with descriptors
	return n, err
}
