// Package daemon is the running process: it gives a supervisor.Supervisor its configuration, log, sockets, signals and
// place among systemd and earlier images of itself, and closes everything when the supervisor has stopped.
package daemon

import (
	"errors"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/epoll"
	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/observe"
	"example.org/supervisord/internal/siginfo"
	"example.org/supervisord/internal/systemd"
	"example.org/supervisord/internal/watch"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/supervisor/record"
	"example.org/supervisord/worker"
)

// Instance is the configuration of a daemon.
type Instance struct {
	Config   string // absolute path of the configuration file; "": the configuration is not in a file
	Load     func() (*config.Config, error)
	Face     Face                         // nil: supervisord's own
	Check    func(binary string) []string // the command with which a new binary checks that it can take over
	Version  string
	ExitCode func(error) int // what the process exits with after an error of Run
	// DuplicateStopWindow is the time within which a second signal to stop is taken for the first: timeout(1) sends its
	// signal to the process and to its group. 0: 250 ms.
	DuplicateStopWindow time.Duration
}

// Face is what another program over the daemon shows of it, such as start_server. Its methods do not wait, and are
// called by one goroutine at a time.
type Face interface {
	// Core returns the core of the log, which writes to out. It is called first.
	Core(out zapcore.WriteSyncer, level zapcore.LevelEnabler) zapcore.Core
	// Starts is called before the first worker starts.
	Starts()
	// Started is called when every socket is bound. sync writes what the log has for stderr.
	Started(c *config.Config, sync func(), log *zap.Logger) error
	// Resumed is called instead of both if another process handed its workers over. inherited returns its descriptors of
	// Keep, or -1.
	Resumed(s *supervisor.Status, inherited func(name string) int, sync func(), log *zap.Logger) error
	// See is called with each report instead of the log.
	See(c *config.Program, r program.Report)
	// Keep returns the descriptors that an upgrade hands over.
	Keep() map[string]int
	// Ends is called when the last worker has ended.
	Ends()
}

// daemon is a supervisor with everything that it needs from outside.
type daemon struct {
	Instance
	signals  *caughtSignals
	handover *record.Inheritance
	config   *config.Config // nil: what was handed over continues unchanged
	settings config.Settings
	out      streams
	log      *zap.Logger
	pid      *record.PIDFile
	kernel
	running    sync.WaitGroup // what close waits for
	notify     *systemd.Notify
	supervisor *supervisor.Supervisor
	observer   *observe.Observer
	control    reachable
}

// kernel is what watches processes, files and sockets.
type kernel struct {
	launcher *worker.Launcher
	watcher  *watch.Watcher
	queues   *epoll.Poller
}

// closeTimeout is longer than any limit on what is closed: a client, a hook or a hung disk must not keep a stopped
// supervisord alive.
const closeTimeout = 20 * time.Second

// Run runs the daemon until it is told to stop. It catches signals before anything else: until then HUP would kill the
// process.
func Run(i Instance) error {
	signals, err := catch()
	if err != nil {
		return err
	}
	prepareThreads()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(30) // the daemon is mostly idle: trade CPU for memory
	}
	d := &daemon{Instance: i, signals: signals}
	defer func() { d.out.close() }()
	defer d.close()
	var updates <-chan *supervisor.Update
	if err := d.orGoBack(func() (err error) { updates, err = d.setUp(); return err }); err != nil {
		return err
	}
	record.Stay(os.Environ())
	siginfo.Again(record.Caught(os.Environ()))
	d.serve(updates)
	return d.follow(d.supervisor.Run(signals.asked()))
}

// follow closes everything that serves clients after the supervisor has returned err, and returns err.
func (d *daemon) follow(err error) error {
	if errors.Is(err, supervisor.ErrLeft) {
		d.removePIDFile()
		d.control.close(d.log)
		d.observer.Leave()
		d.out.sync()
		os.Exit(0) // the next supervisord takes over everything else as it is
	}
	time.AfterFunc(closeTimeout, func() {
		d.log.Error("not everything could be closed in time; supervisord ends anyway", zap.Duration("after", closeTimeout))
		os.Exit(d.ExitCode(err))
	})
	d.control.close(d.log)
	d.observer.Close()
	record.EndGroup(os.Getenv, d.log)
	d.log.Info("supervisord ends")
	if d.Face != nil {
		d.Face.Ends()
	}
	return err
}

// close closes what setUp has opened, after a stop or after a start that failed.
func (d *daemon) close() {
	if d.notify != nil {
		d.notify.Close() //nolint:errcheck // systemd sees the end itself
	}
	if d.watcher != nil {
		d.watcher.Close() //nolint:errcheck // nothing is left to lose
	}
	if d.queues != nil {
		d.queues.Close() //nolint:errcheck // nothing is left to lose
		d.running.Wait()
	}
	if d.launcher != nil {
		d.launcher.Close() //nolint:errcheck // the next start sweeps the directory
	}
	d.removePIDFile()
}

func (d *daemon) removePIDFile() {
	if d.pid == nil {
		return
	}
	if err := d.pid.Remove(); err != nil {
		d.log.Error("cannot remove the pid file", zap.Error(err))
	}
}

// caughtSignals are the signals that the daemon catches.
type caughtSignals struct {
	*siginfo.Catcher
	reload, reopen, upgrade, leave, scale, stop chan siginfo.Caught
}

func catch() (*caughtSignals, error) {
	one := func() chan siginfo.Caught { return make(chan siginfo.Caught, 1) }
	s := &caughtSignals{
		reload: one(), reopen: one(), upgrade: one(), leave: one(),
		scale: make(chan siginfo.Caught, 16), // one for each worker that is wanted at once
		stop:  make(chan siginfo.Caught, 4),
	}
	queues := siginfo.Queues{
		syscall.SIGHUP: s.reload, syscall.SIGUSR1: s.reopen, syscall.SIGUSR2: s.upgrade, record.LeaveSignal: s.leave,
		syscall.SIGTERM: s.stop, syscall.SIGINT: s.stop, syscall.SIGQUIT: s.stop, syscall.SIGTTIN: s.scale,
	}
	if !stopsBackground(os.Stderr) { // otherwise the terminal sends TTOU for each line of the log
		queues[syscall.SIGTTOU] = s.scale
	}
	signal.Ignore(syscall.SIGPIPE) // the reader of the log may exit
	var err error
	foreign.OnMain(func() { s.Catcher, err = siginfo.Catch(queues) })
	return s, err
}

// asked returns the channels that the supervisor reads.
func (s *caughtSignals) asked() supervisor.Signals {
	return supervisor.Signals{Reload: s.reload, Reopen: s.reopen, Upgrade: s.upgrade, Leave: s.leave, Scale: s.scale,
		Stop: s.stop}
}

// stopsBackground reports whether a terminal stops background jobs that write to it (stty tostop).
func stopsBackground(f *os.File) bool {
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil && t.Lflag&unix.TOSTOP != 0
}

const (
	// maxProcs is how many threads run Go code at once. One goroutine makes all decisions, so more would only cost memory.
	maxProcs = 4
	// spareThreads is how many threads there are beside those: for system calls that block, or that wait for a CPU: on a
	// busy machine each of the control socket's clients may be in one. A thread costs 30 KB.
	spareThreads = 24
)

// prepareThreads makes the threads that supervisord needs while it can. The Go runtime aborts the process when it needs
// a thread and cannot make one, and a worker that forks without end can use up every task of a user or a container.
// Existing threads are reused and never end. The environment variable GOMAXPROCS is obeyed.
func prepareThreads() {
	cpus := config.CPUs() // before the change: it is what workers = "auto" means
	if n, err := strconv.Atoi(os.Getenv("GOMAXPROCS")); err != nil || n < 1 {
		runtime.GOMAXPROCS(min(cpus, maxProcs))
	}
	n := runtime.GOMAXPROCS(0) + spareThreads
	var running, done sync.WaitGroup
	running.Add(n)
	for range n { // n goroutines hold a thread each at the same moment
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			running.Done()
			running.Wait()
		})
	}
	done.Wait()
}
