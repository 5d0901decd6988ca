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

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/worker/ready"
)

// Launcher starts workers and reaps every child of this process. There is one for each process, because SIGCHLD and wait are shared.
type Launcher struct {
	null    int // /dev/null, for stdin and for what goes nowhere
	notify  *ready.Directory
	poll    *poller
	groups  *groups // nil: workers have no control groups
	orphan  func(pid int, status syscall.WaitStatus)
	later   func(error) // see Later
	chld    chan os.Signal
	strays  chan struct{}  // there may be some
	tasks   sync.WaitGroup // the reaper, the poller and watchStrays
	workers sync.WaitGroup // the goroutine of each worker
	pids    sync.Map       // int to *Worker: those that are not reaped, for who has no lock
	looks   foreign.Looks
	life    context.Context // until Close
	end     context.CancelFunc

	gate     gate       // held for reading while something is read or reaped; Freeze locks it
	spawning lock       // one worker at a time opens what it needs and forks
	taking   sync.Mutex // held while a child that is no worker is reaped

	stdout, stderr io.Writer // see Inherited

	mu       sync.Mutex // also held over fork and registration, so that a child that dies at once is known
	children map[int]*Worker
	expected map[int]*syscall.WaitStatus // children of the image before this one; set: reaped before they were adopted
	alive    int
}

// Option changes how NewLauncher works.
type Option func(*Launcher)

// OnOrphan has report called for every child that was reaped but is no worker: a process that was re-parented to this one.
// It is called from the reaper and must not block.
func OnOrphan(report func(pid int, status syscall.WaitStatus)) Option {
	return func(l *Launcher) { l.orphan = report }
}

// Inherited has what is read of an inherited stream, to be passed on, written to these instead of os.Stdout and os.Stderr. They
// must not wait: everything that is read from the workers would.
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

// Later has the directory made with the first worker that is started, if it cannot be made at once; report is told why. It is
// for a supervisor that has workers to adopt, which need no directory.
func Later(report func(error)) Option {
	return func(l *Launcher) { l.later = report }
}

// NewLauncher makes this process a subreaper and begins to reap. dir is where the workers' notify sockets live: they get a
// private directory of their own in it, and those that a dead supervisor left there are removed. dir is made absolute, and
// created if it is missing; it must be short enough for a socket's path (107 bytes in all).
func NewLauncher(dir string, options ...Option) (*Launcher, error) {
	l := &Launcher{
		chld:     make(chan os.Signal, 1),
		strays:   make(chan struct{}, 1),
		children: map[int]*Worker{},
		expected: map[int]*syscall.WaitStatus{},
		spawning: make(lock, 1),
		stdout:   os.Stdout,
		stderr:   os.Stderr,
	}
	l.life, l.end = context.WithCancel(context.Background())
	for _, option := range options {
		option(l)
	}
	if err := l.open(dir); err != nil {
		return nil, err
	}
	if l.groups == nil {
		l.groups = findGroups()
	}
	signal.Notify(l.chld, syscall.SIGCHLD)
	l.wakeReaper() // for what ended before this
	l.tasks.Go(l.reapAll)
	l.tasks.Go(l.watchStrays)
	l.tasks.Go(func() { l.poll.run(&l.gate) })
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
	if l.poll, err = newPoller(); err != nil {
		unix.Close(l.null)
		return errors.Join(err, l.notify.Remove())
	}
	return nil
}

// Close ends the reaping and removes what Start left in dir. No worker may be alive: otherwise it does nothing and says so.
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
	err := l.poll.close()
	l.tasks.Wait()
	return errors.Join(err, unix.Close(l.null), l.notify.Remove())
}

// Start starts a worker and returns at once. Everything that happens to it is posted, in order, from one goroutine that ends
// with the Exited event, which always comes, exactly once. post may block. Several Status, Extend or Watchdog that nobody has
// taken yet become the newest one of each.
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
}
