package ready

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/proc"
)

// How often the kernel is asked: at first all the time, because most programs are ready soon, then less and less. A
// look that takes long, at a worker with a thousand threads, is followed by a longer pause.
const (
	firstPause   = 2 * time.Millisecond
	saidPause    = 200 * time.Microsecond // after the worker has said that it is ready: clients wait for it
	longestPause = 100 * time.Millisecond
	restOfLook   = 10 // times the duration of a look
)

const (
	// blindFor is how long another process than the worker's first may be unreadable: it may be about to change its user.
	blindFor = time.Second
	// hiddenFor is how long a worker that has said that it is ready may not be seen to wait before it matters how it does.
	hiddenFor = 100 * time.Millisecond
	// patience is how long such a worker may not be seen to wait before a connection finds out. Most workers get none.
	patience = time.Second
	// busyFor is how long such a worker may be found running without a pause, at most looks, until supervisord believes
	// it.
	busyFor = 2 * time.Second
	// restless is how long a worker that accepts and has said nothing may be found running without a pause until it
	// counts as ready: one that opens its port before it has started may answer its first clients with errors.
	restless = time.Second
	// lookFor is how long one look at such a worker may take, which may keep its memory from being read.
	lookFor = 5 * time.Second
	// dialFor is how long it may take to connect to a socket of our own.
	dialFor = time.Second
)

// Accepting says which worker to watch for whether it accepts connections, or receives datagrams.
type Accepting struct {
	Sockets    []int // our descriptors of the worker's sockets
	PID        int
	Group      string       // the directory of its control group; "": it has none
	NotifyPath string       // its NOTIFY_SOCKET
	Orphans    func() []int // our children that are not workers: some may have been started by this one
	// what to do so that it gets a listener that it binds itself; "": it gets that, see package bind
	Unbound string
	Said    bool // it has said that it is ready, or another method has found so
	// unless Said: how long it may not be seen to wait if the kernel may not show how it does; 0: forever
	GiveUp time.Duration
	Looks  *foreign.Looks
	Key    any // of the worker, for Looks

	// Dial connects to the socket with this index so that only its generation can accept. nil, or an error: nothing can.
	Dial func(ctx context.Context, socket int) (net.Conn, error)
	// Missing is told after each look on which sockets nobody was seen to wait, or, without addresses, that the worker
	// accepts and has not come to rest. It may be nil.
	Missing func(addresses []string)
}

// ErrUnseen says that a worker may wait for connections without being seen to.
var ErrUnseen = errors.New("the kernel does not show whether the worker accepts")

// Await waits until the processes of the worker, together, wait on each of its sockets, as the kernel sees it, or have
// accepted from it; and then, unless it has said that it is ready, until all their threads sleep at once, for 1 s at
// most. Where the kernel does not show that, it waits until a connection of our own to that socket is
// accepted, if Dial can make one. Errors: the end of ctx, why the kernel does not let us look, or ErrUnseen if it does
// not show how the worker waits.
func (a Accepting) Await(ctx context.Context) error {
	view, err := newKernelView(a.Sockets, a.Said)
	if err != nil {
		return err
	}
	w := &acceptWatch{Accepting: a, view: view, begun: time.Now(), blind: map[int]time.Time{},
		dials: map[uint64]dial{}, answers: make(chan answer, len(a.Sockets))}
	ctx, cancel := context.WithCancel(ctx)
	defer w.dialling.Wait()
	defer cancel()
	first, pause := firstPause, firstPause // a program that has just begun does not accept yet
	if a.Said {
		first, pause = 0, saidPause
	}
	timer := time.NewTimer(first)
	defer timer.Stop()
	for ; ; pause = min(pause+pause/4, longestPause) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case of := <-w.answers:
			w.dials[of.inode] = of.dial
			timer.Reset(0)
		case begin := <-timer.C:
			if done, err := w.accepts(ctx, begin); done {
				return err
			}
			rest := restOfLook * time.Since(begin)
			if a.Said && begin.Sub(w.begun) < hiddenFor {
				rest = 0
			}
			timer.Reset(max(pause, rest))
		}
	}
}

// accepts looks once. done says that Await ends, with err.
func (w *acceptWatch) accepts(ctx context.Context, now time.Time) (done bool, err error) {
	w.lookAgain()
	missing, unseen := w.missing(ctx, now)
	if ctx.Err() != nil || len(missing) == 0 && w.rests(now) {
		return true, ctx.Err()
	}
	if len(missing) == 0 {
		return false, nil
	}
	err = w.dialInstead(ctx, now, missing, unseen)
	return err != nil, err
}

// rests reports whether a worker that accepts has come to rest, or need not.
func (w *acceptWatch) rests(now time.Time) bool {
	if w.found.IsZero() {
		w.found = now
	}
	if w.Said || now.Sub(w.found) >= restless {
		return true
	}
	_, all := proc.Sleeping(slices.Collect(w.processes()))
	if !all && w.Missing != nil {
		w.Missing(nil)
	}
	return all
}

// lookAgain takes note of a socket that was replaced behind its descriptor: see socket.Lane.Widen.
func (w *acceptWatch) lookAgain() {
	if now, err := newKernelView(w.Sockets, w.Said); err == nil && !slices.Equal(now.inodes, w.view.inodes) {
		w.view = now
	}
}

// acceptWatch is one Await. Its goroutine owns the fields but blind, which is that of the look under way: while one is
// stuck, foreign.Looks begins no other of this worker. A connection reports through answers.
type acceptWatch struct {
	Accepting
	view        *kernelView
	begun       time.Time
	found       time.Time         // when it was first seen to accept from all
	blind       map[int]time.Time // since when a process cannot be looked at
	looks, busy int               // how many there were after hiddenFor, and found a thread that had run since the last
	runs        runnable          // at the look before

	dials    map[uint64]dial
	answers  chan answer
	dialling sync.WaitGroup
}

// dial is how far the connection to a socket is.
type dial int

const (
	waiting  dial = iota + 1 // for somebody to accept it
	accepted                 // or was
	useless                  // it could not be made
)

// answer is what became of the connection to one of the sockets.
type answer struct {
	inode uint64
	dial
}

// missing returns the sockets of which it is not known that somebody accepts from them, and why that cannot be seen. It
// ends with ctx: a worker that keeps its memory from being read must not outlive itself by that.
func (w *acceptWatch) missing(ctx context.Context, now time.Time) (inodes, error) {
	type sight struct {
		found inodes
		runs  runnable
		err   error
	}
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if w.Said {
		bounded, cancel = context.WithTimeoutCause(ctx, lookFor, errors.New("it cannot be looked at"))
	}
	defer cancel()
	view := w.view // a look that is stuck keeps it
	seen, stuck := foreign.Look(bounded, w.Looks, w.Key, func() (s sight) {
		s.found, s.runs, s.err = w.look(view, now)
		return s
	})
	if ctx.Err() != nil {
		return nil, nil
	}
	if now.Sub(w.begun) >= hiddenFor { // before, one look follows the other at once
		if w.looks++; seen.runs.since(w.runs) {
			w.busy++
		}
	}
	w.runs = seen.runs
	missing := inodes{}
	var addresses []string
	for i, inode := range w.view.inodes {
		if !seen.found[inode] && w.dials[inode] != accepted && !missing[inode] {
			missing[inode] = true
			addresses = append(addresses, addressOf(w.Sockets[i]))
		}
	}
	if w.Missing != nil && len(missing) > 0 {
		w.Missing(addresses)
	}
	return missing, errors.Join(stuck, seen.err)
}

// dialInstead begins to find out by connections what cannot be seen, or was not seen for some time. It returns unseen
// where that does not help, and what to do then.
func (w *acceptWatch) dialInstead(ctx context.Context, now time.Time, missing inodes, unseen error) error {
	since := now.Sub(w.begun)
	if unseen == nil && (!w.Said || since < patience) {
		return nil
	}
	helps := true
	for i, inode := range w.view.inodes {
		if missing[inode] && w.dials[inode] == 0 {
			w.dials[inode] = waiting
			w.dialling.Go(func() { w.answers <- answer{inode, w.connect(ctx, i)} })
		}
		helps = helps && (!missing[inode] || w.dials[inode] == waiting)
	}
	switch {
	case helps:
		return nil
	case unseen == nil && since > busyFor && 2*w.busy > w.looks:
		return fmt.Errorf("%w: it is always running", ErrUnseen)
	case unseen == nil || errors.Is(unseen, ErrUnseen):
		return unseen
	}
	otherwise := "choose another method than accept"
	if w.Said {
		otherwise = "write accepts = false"
	}
	return fmt.Errorf("the kernel does not let supervisord see whether the worker accepts: %w: "+
		"give supervisord CAP_SYS_PTRACE, let it start the worker as its user (user = in the program), or %s", unseen,
		otherwise)
}

// connect connects to a socket and waits until somebody accepts that. It must not be tried where the kernel keeps a
// connection to itself until there are data.
func (w *acceptWatch) connect(ctx context.Context, socket int) dial {
	fd := w.Sockets[socket]
	kind, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	deferred, _ := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT)
	if w.Dial == nil || kind != unix.SOCK_STREAM || deferred > 0 {
		return useless
	}
	soon, cancel := context.WithTimeout(ctx, dialFor)
	defer cancel()
	conn, err := w.Dial(soon, socket)
	if err != nil {
		return useless
	}
	defer conn.Close()
	if awaitAccept(ctx, conn) != nil {
		return useless
	}
	return accepted
}

// look returns the sockets on which the processes of the worker wait at this moment, and which threads of those that
// have a socket run.
func (w *acceptWatch) look(view *kernelView, now time.Time) (found inodes, running runnable, err error) {
	if invisible(w.PID) {
		return nil, nil, fmt.Errorf("process %d is not in /proc (hidepid=, or ProtectProc= of systemd): %w", w.PID,
			fs.ErrPermission)
	}
	found, running = inodes{}, runnable{}
	for pid := range w.processes() {
		waited, runs, err := view.waited(pid)
		if err := w.denied(pid, now, err); err != nil {
			return found, nil, err
		}
		found.add(waited)
		maps.Copy(running, runs)
		if len(found) == len(view.sockets) {
			return found, nil, nil
		}
	}
	giveUp := w.GiveUp
	if w.Said {
		giveUp = hiddenFor
	}
	if giveUp == 0 || now.Sub(w.begun) < giveUp {
		return found, running, nil
	}
	for pid := range w.processes() {
		if why := view.hidden(pid); why != nil {
			return found, running, fmt.Errorf("%w: %w", ErrUnseen, why)
		}
	}
	return found, running, nil
}

// invisible reports whether a process exists that /proc does not show.
func invisible(pid int) bool {
	_, err := os.Lstat(proc.Path(pid, ""))
	return errors.Is(err, fs.ErrNotExist) && !errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

// denied returns the error of a look at a process, unless it may pass.
func (w *acceptWatch) denied(pid int, now time.Time, err error) error {
	if err == nil {
		delete(w.blind, pid)
		return nil
	}
	since, known := w.blind[pid]
	if !known {
		w.blind[pid], since = now, now
	}
	if pid != w.PID && now.Sub(since) < blindFor || !errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return fmt.Errorf("process %d (%q): %w", pid, proc.Name(pid), err)
}

// processes lists those of the worker: its first, the descendants of that, the members of its control group, and of our
// orphans those in its process group or with its NOTIFY_SOCKET in their environment.
func (a Accepting) processes() iter.Seq[int] {
	return func(yield func(int) bool) {
		if !yield(a.PID) {
			return
		}
		all := proc.Descendants(a.PID)
		for _, pid := range a.Orphans() {
			if group, err := unix.Getpgid(pid); err == nil && group == a.PID || a.startedWith(pid) {
				all = append(append(all, pid), proc.Descendants(pid)...)
			}
		}
		if a.Group != "" {
			all = append(all, proc.GroupMembers(a.Group)...)
		}
		for _, pid := range all {
			if !yield(pid) {
				return
			}
		}
	}
}

// startedWith reports whether a process was started with the worker's NOTIFY_SOCKET. It may be anybody's process, and
// keep its memory to itself.
func (a Accepting) startedWith(pid int) bool {
	environ, _ := proc.BoundedEnviron(a.Looks, pid)
	path, has := environ["NOTIFY_SOCKET"]
	return has && path == a.NotifyPath
}
