package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/cgroup"
	"example.org/supervisord/internal/epoll"
	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/worker/ready"
)

// Launcher starts workers and reaps every child of this process. There is one in a process, because SIGCHLD and wait are shared.
type Launcher struct {
	options
	system
	chld    chan os.Signal
	strays  chan struct{}  // there may be some
	tasks   sync.WaitGroup // the reaper, the poller and watchStrays
	workers sync.WaitGroup // the goroutine of each worker
	life    context.Context
	end     context.CancelFunc // by Close
	looks   foreign.Looks

	gate     gate // see the package comment for this and the other locks
	spawning lock
	reaping  sync.Mutex // held while a child that is not a worker is reaped

	pids    sync.Map // int to *Worker: those that are not reaped, without a lock
	filters sync.Map // string to *filter: see KeepFilter
	resting sync.Map // *Worker to nil: those that have a rest
	mu      sync.Mutex
	family
}

// family is who our children are.
type family struct {
	children map[int]*Worker
	expected map[int]*syscall.WaitStatus // children of the image before this one; not nil: reaped before they were adopted
	alive    int                         // workers
	past     map[int]*Worker             // those that ended in the last moments
}

// system is what a Launcher has of the operating system.
type system struct {
	null   int // /dev/null, for stdin and for streams that go nowhere
	notify *ready.Directory
	poll   *epoll.Poller
	groups *cgroup.Groups // nil: workers have no control groups
}

type options struct {
	orphan         func(pid int, status syscall.WaitStatus) // see OnOrphan
	later          func(error)                              // see Later
	stdout, stderr io.Writer                                // see Inherited
}

// Option changes how NewLauncher works.
type Option func(*Launcher)

// OnOrphan has report called for every reaped child that is not a worker: a process that was re-parented to this one.
// It is called from the reaper and must not block.
func OnOrphan(report func(pid int, status syscall.WaitStatus)) Option {
	return func(l *Launcher) { l.orphan = report }
}

// Inherited passes on what is read from an inherited stream to these writers instead of os.Stdout and os.Stderr. They must not block:
// reading from all workers would.
func Inherited(stdout, stderr io.Writer) Option {
	return func(l *Launcher) { l.stdout, l.stderr = stdout, stderr }
}

// Expect announces children that will be given to Adopt, so that the status of one that ends before that is kept for it.
func Expect(pids ...int) Option {
	return func(l *Launcher) {
		for _, pid := range pids {
			l.expected[pid] = nil
		}
	}
}

// Later creates the directory of the notify sockets with the first worker that is started, if it cannot be created at once; report is
// told why. It is for a supervisor with workers to adopt, which need no directory.
func Later(report func(error)) Option {
	return func(l *Launcher) { l.later = report }
}

// NewLauncher makes this process a subreaper and begins to reap. dir is where the workers' notify sockets live: see ready.NewDirectory.
func NewLauncher(dir string, options ...Option) (*Launcher, error) {
	l := &Launcher{
		chld:     make(chan os.Signal, 1),
		strays:   make(chan struct{}, 1),
		spawning: make(lock, 1),
	}
	l.children, l.expected, l.past = map[int]*Worker{}, map[int]*syscall.WaitStatus{}, map[int]*Worker{}
	l.stdout, l.stderr = os.Stdout, os.Stderr
	l.life, l.end = context.WithCancel(context.Background())
	for _, option := range options {
		option(l)
	}
	if err := l.open(dir); err != nil {
		return nil, err
	}
	if l.groups == nil {
		l.groups = cgroup.Under(cgroup.Find())
	}
	signal.Notify(l.chld, syscall.SIGCHLD)
	l.wakeReaper() // for what ended before this
	l.tasks.Go(l.reapAll)
	l.tasks.Go(l.watchStrays)
	l.tasks.Go(func() { l.poll.Run(&l.gate) })
	return l, nil
}

func (l *Launcher) open(dir string) (err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot become a subreaper: %w", err)
	}
	if l.null, err = unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("cannot open /dev/null: %w", err)
	}
	if l.notify, err = ready.NewDirectory(dir); err != nil && l.later != nil {
		l.later(err)
		l.notify = ready.LaterDirectory(dir)
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

// Close ends the reaping and removes the directory of the notify sockets. No worker may be alive: otherwise it does nothing and returns an
// error.
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
	l.endFilters()
	err := l.poll.Close()
	l.tasks.Wait()
	return errors.Join(err, unix.Close(l.null), l.notify.Remove())
}

// Start starts a worker and returns at once. Everything that happens to the worker is posted, in order, from one goroutine. The last event is
// Exited, which always comes, exactly once. post may block. Of several Status, Extend or Watchdog that were not taken yet, the newest of
// each remains.
func (l *Launcher) Start(spec Spec, post func(Event)) *Worker {
	w := newWorker(l, spec, post)
	l.workers.Go(w.live)
	return w
}

// forget is the last thing before Exited is posted: afterwards the launcher may be closed.
func (l *Launcher) forget(w *Worker, pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alive--
	if l.children[pid] == w {
		delete(l.children, pid)
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
