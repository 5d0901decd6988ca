package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/cgroup"
	"example.org/supervisord/internal/epoll"
	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/ready"
)

// Launcher starts workers and reaps every child of this process, also orphaned descendants of workers, which the kernel
// re-parents to this process. A process has one Launcher, because all of a process
// shares SIGCHLD and wait. Its methods may be called from any goroutine. It owns the descriptors that all workers share
// (see open), and each Worker owns those of its own process. It needs Linux 5.10.
type Launcher struct {
	needs Needs
	system
	chld    chan os.Signal
	strays  chan struct{}  // there may be some
	tasks   sync.WaitGroup // the reaper, the poller and watchStrays
	workers sync.WaitGroup // the goroutine of each worker
	life    context.Context
	end     context.CancelFunc // by Close
	looks   foreign.Looks

	gate     *gate // see the package comment for this and the other locks
	spawning sync.Mutex
	reaping  sync.Mutex // held while a child is reaped, and where none may be

	fewer   chan struct{} // capacity 1: see FilterEnded
	resting sync.Map      // *Worker to nil: those that have a Rest
	family
}

// family is who our children are. The goroutine that forks holds mu from the fork until the child is in children, so
// that the reaper knows every process that it reaps. mu guards everything but pids.
type family struct {
	pids sync.Map // int to *Worker: those that are not reaped, without a lock

	mu       sync.Mutex
	children map[int]*Worker
	expected map[int]*syscall.WaitStatus // children of the image before this one; not nil: reaped before they were adopted
	alive    int                         // workers
	past     map[int]*Worker             // those that ended in the last moments
	filters  map[string]*Worker          // see KeepFilter
}

// system is what a Launcher has of the operating system.
type system struct {
	null   int // /dev/null, for stdin and for streams that go nowhere
	notify *ready.Directory
	poll   *epoll.Poller
	groups *cgroup.Groups // nil: workers have no control groups
}

// Needs is what a Launcher needs from outside.
type Needs struct {
	Directory string // of the workers' notify sockets: see ready.NewDirectory

	// Expected are children that the caller will give to Adopt. If such a child ends before Adopt, the reaper keeps its
	// status for Adopt.
	Expected []int

	// Stdout and Stderr get what the Launcher reads from an inherited stream: that of a helper command, or of a worker
	// that was started with another configuration. Pumps of many workers write to them: they must not block.
	Stdout, Stderr io.Writer

	// Later lets NewLauncher succeed without the directory. The first worker that is started creates the directory;
	// Later gets the error of the first attempt. A supervisor that adopts workers needs it: adopted workers need no
	// directory. nil: the error is that of NewLauncher.
	Later func(error)

	groups *cgroup.Groups // nil: those that systemd has delegated, if there are any
}

// NewLauncher makes this process a subreaper (PR_SET_CHILD_SUBREAPER) and begins to reap. The caller must call Close.
func NewLauncher(needs Needs) (*Launcher, error) {
	l := &Launcher{
		needs:  needs,
		chld:   make(chan os.Signal, 1),
		strays: make(chan struct{}, 1),
		gate:   newGate(),
	}
	l.children, l.expected, l.past = map[int]*Worker{}, map[int]*syscall.WaitStatus{}, map[int]*Worker{}
	l.filters, l.fewer = map[string]*Worker{}, make(chan struct{}, 1)
	l.life, l.end = context.WithCancel(context.Background())
	for _, pid := range needs.Expected {
		l.expected[pid] = nil
	}
	if err := l.open(); err != nil {
		return nil, err
	}
	if l.groups = needs.groups; l.groups == nil {
		l.groups = cgroup.Under(cgroup.Find())
	}
	signal.Notify(l.chld, syscall.SIGCHLD)
	l.wakeReaper() // for what ended before this
	l.tasks.Go(l.reapAll)
	l.tasks.Go(l.watchStrays)
	l.tasks.Go(func() { l.poll.Run(l.gate) })
	return l, nil
}

// open opens what all workers share. The descriptors are the Launcher's, close-on-exec, until Close.
func (l *Launcher) open() (err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot become a subreaper: %w", err)
	}
	if l.null, err = unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("cannot open /dev/null: %w", err)
	}
	if l.notify, err = ready.NewDirectory(l.needs.Directory); err != nil && l.needs.Later != nil {
		l.needs.Later(err)
		l.notify = ready.LaterDirectory(l.needs.Directory)
	} else if err != nil {
		unix.Close(l.null)
		return err
	}
	if l.poll, err = epoll.New(); err != nil {
		unix.Close(l.null)
		return errors.Join(err, l.notify.Remove())
	}
	return nil
}

// Close ends the reaping and removes the directory of the notify sockets. If a worker is alive, Close does nothing and
// returns an error.
func (l *Launcher) Close() error {
	l.mu.Lock()
	alive := l.alive
	l.mu.Unlock()
	if alive > 0 {
		return fmt.Errorf("cannot close the launcher: %d workers are still there", alive)
	}
	l.workers.Wait()
	signal.Stop(l.chld)
	close(l.chld)
	l.end()
	for _, w := range l.Filters() {
		closeAll(slices.Collect(maps.Values(w.takeChannels())))
	}
	err := l.poll.Close()
	l.tasks.Wait()
	return errors.Join(err, unix.Close(l.null), l.notify.Remove())
}

// Start starts a worker and returns at once. One goroutine of the worker calls post with everything that happens, in
// order; post may block. The last event is Exited, which comes exactly once, whether or not the process could be
// started. The caller keeps the descriptors in spec open until then. If post is slow, only the newest StatusText,
// Extend and Watchdog wait for it.
func (l *Launcher) Start(spec Spec, post func(life.Event)) *Worker {
	w := newWorker(l, spec, post)
	l.workers.Go(w.live)
	return w
}

// forget is the last call before Exited is posted: after it, Close may succeed.
func (l *Launcher) forget(w *Worker, pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alive--
	if l.children[pid] == w {
		delete(l.children, pid)
	}
	if pid == 0 { // it was not forked, and 0 is the session of who was started without one
		return
	}
	l.pids.CompareAndDelete(pid, w)
	l.past[pid] = w
	time.AfterFunc(rememberFor, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.past[pid] == w {
			delete(l.past, pid)
		}
	})
}

// Run starts a helper command (a preflight, a probe), waits for its end, and kills its process group when ctx ends. The
// command has no notify socket, and Run ignores spec.Ready. Run reads the command's stderr in any case, and passes it
// on where it is inherited. The error says what failed, with the last lines of stderr; errors.As finds the *RunError in
// it, and errors.Is finds the cause of ctx.
func (l *Launcher) Run(ctx context.Context, spec Spec) error {
	if err := context.Cause(ctx); err != nil {
		return &RunError{Command: spec.Command, Cause: err}
	}
	ended := make(chan life.Exited, 1)
	w := newWorker(l, spec, func(e life.Event) {
		if e, ok := e.(life.Exited); ok {
			ended <- e
		}
	})
	w.helper = true
	l.workers.Go(w.live)
	select {
	case e := <-ended:
		return runError(spec, e, nil)
	case <-ctx.Done():
		w.Signal(syscall.SIGKILL, true)
		return runError(spec, <-ended, context.Cause(ctx))
	}
}

// RunError is why a command of Run failed.
type RunError struct {
	Command []string
	Exited  life.Exited // zero: the command was not started
	Cause   error       // why the command was killed; nil: it was not
}

// runError returns nil if a command of Run has exited with status 0. cause is why ctx ended; nil: ctx has not ended.
func runError(spec Spec, e life.Exited, cause error) error {
	if cause == nil && e.Step == "" && e.Known && e.Status.Exited() && e.Status.ExitStatus() == 0 {
		return nil
	}
	return &RunError{Command: spec.Command, Exited: e, Cause: cause}
}

// Error is Reason with the last lines that the command wrote.
func (e *RunError) Error() string {
	if len(e.Exited.Tail) == 0 {
		return e.Reason()
	}
	return e.Reason() + "; it said:\n\t" + strings.Join(e.Exited.Tail, "\n\t")
}

// Reason is the error without the lines that the command wrote.
func (e *RunError) Reason() string {
	command := strings.Join(e.Command, " ")
	switch {
	case e.Cause != nil:
		return fmt.Sprintf("%s: stopped: %v", command, e.Cause)
	case e.Exited.Step != "":
		return e.Exited.String()
	}
	return fmt.Sprintf("%s: %s", command, e.Exited)
}

// Unwrap lets errors.Is find the cause of the end of ctx, and why the command did not start.
func (e *RunError) Unwrap() []error {
	var list []error
	for _, err := range []error{e.Cause, e.Exited.Err} {
		if err != nil {
			list = append(list, err)
		}
	}
	return list
}

// OneLine is the text of an error of a probe in one line: of a command with the last line that it wrote.
func OneLine(err error) string {
	e, is := errors.AsType[*RunError](err)
	switch {
	case !is:
		text, _, _ := strings.Cut(err.Error(), "\n")
		return text
	case len(e.Exited.Tail) == 0:
		return e.Reason()
	}
	return fmt.Sprintf("%s; its last line: %s", e.Reason(), e.Exited.Tail[len(e.Exited.Tail)-1])
}

// gate is a read-write lock whose writer waits for the readers only for a given time. New readers wait for the writer.
type gate struct {
	mu      sync.Mutex
	changed sync.Cond // locked or readers
	locked  bool      // or about to be
	readers int
}

// newGate returns a gate that is open.
func newGate() *gate {
	g := new(gate)
	g.changed.L = &g.mu
	return g
}

// RLock waits while the gate is locked.
func (g *gate) RLock() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.locked {
		g.changed.Wait()
	}
	g.readers++
}

// RUnlock undoes RLock.
func (g *gate) RUnlock() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.readers--
	g.changed.Broadcast()
}

// LockWithin locks the gate when no reader holds it any more, or gives up and returns false: Unlock must follow. It is
// for one goroutine.
func (g *gate) LockWithin(patience time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.locked = true
	late := false
	timeout := time.AfterFunc(patience, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		late = true
		g.changed.Broadcast()
	})
	defer timeout.Stop()
	for g.readers > 0 && !late {
		g.changed.Wait()
	}
	return g.readers == 0
}

// Unlock lets every reader in again.
func (g *gate) Unlock() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.locked = false
	g.changed.Broadcast()
}

// Locked reports whether the gate is locked, or about to be.
func (g *gate) Locked() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.locked
}

// Freeze stops reading and reaping until Thaw: the output and the ends of workers wait in the kernel meanwhile, so that
// State is complete and an execve of this process loses nothing. Freeze waits at most patience for what is under way,
// such as a fork. If Freeze returns an error, nothing has changed. Only one goroutine may call Freeze and Thaw.
func (l *Launcher) Freeze(patience time.Duration) error {
	if l.gate.LockWithin(patience) {
		return nil
	}
	defer l.gate.Unlock()
	if stuck := l.stuckPumps(); len(stuck) > 0 {
		return fmt.Errorf("cannot stop reading from the workers within %s: the process that writes to it keeps the pipe "+
			"locked that is %s: end these processes with kill -9 and try again", patience, strings.Join(stuck, ", "))
	}
	return fmt.Errorf("cannot stop reading from the workers: what is under way has not ended within %s", patience)
}

// stuckPumps names the streams whose pump has not returned from a read, because a writer holds the lock of the pipe.
// The caller has begun to lock the gate, so that no other read begins.
func (l *Launcher) stuckPumps() (stuck []string) {
	l.pids.Range(func(pid, w any) bool {
		w.(*Worker).do(func() {
			for _, p := range w.(*Worker).pumps {
				if p.Reading() {
					stuck = append(stuck, fmt.Sprintf("%s of process %d", p.Stream(), pid))
				}
			}
		})
		return true
	})
	return stuck
}

// Thaw undoes Freeze.
func (l *Launcher) Thaw() { l.gate.Unlock() }
