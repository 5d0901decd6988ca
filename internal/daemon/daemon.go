// Package daemon is the running process: it gives a supervisor.Supervisor its configuration, log, sockets, signals and place among
// systemd and earlier images of itself, and closes everything when the supervisor has stopped.
package daemon

import (
	"errors"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/epoll"
	"example.org/supervisord/internal/observe"
	"example.org/supervisord/internal/siginfo"
	"example.org/supervisord/internal/systemd"
	"example.org/supervisord/internal/watch"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/supervisor/record"
	"example.org/supervisord/worker"
)

// Options is what a daemon runs.
type Options struct {
	Config   string // absolute path of the configuration file; "": the configuration is not in a file
	Load     func() (*config.Config, error)
	Face     Face                         // nil: supervisord's own
	Check    func(binary string) []string // the command with which a new binary checks that it can take over
	Version  string
	ExitCode func(error) int // what the process exits with after an error of Run
	// DuplicateStopWindow is the time within which a second signal to stop is taken for the first: timeout(1) sends its signal to the
	// process and to its group. 0: 250 ms.
	DuplicateStopWindow time.Duration
}

// Face is what another program over the daemon shows of it, such as start_server. Its methods do not wait, and are called by one goroutine
// at a time.
type Face interface {
	// Core returns the core of the log, which writes to out. It is called first.
	Core(out zapcore.WriteSyncer, level zapcore.LevelEnabler) zapcore.Core
	// Starts is called before the first worker starts.
	Starts()
	// Started is called when every socket is bound. sync writes what the log has for stderr.
	Started(c *config.Config, sync func(), log *zap.Logger) error
	// Resumed is called instead of both if another process handed its workers over. inherited returns its descriptors of Keep, or -1.
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
	Options
	signals    *caughtSignals
	handover   *record.Handover
	config     *config.Config // nil: what was handed over continues unchanged
	settings   config.Settings
	out        output
	log        *zap.Logger
	pid        *record.PIDFile
	launcher   *worker.Launcher
	watcher    *watch.Watcher
	queues     *epoll.Poller
	running    sync.WaitGroup // what close waits for
	notify     *systemd.Notify
	supervisor *supervisor.Supervisor
	observer   *observe.Observer
	control    reachable
}

// closeTimeout is longer than any limit on what is closed: a client, a hook or a hung disk must not keep a stopped supervisord alive.
const closeTimeout = 20 * time.Second

// Run runs the daemon until it is told to stop. It catches signals before anything else: until then HUP would kill the process.
func Run(o Options) error {
	signals, err := catch()
	if err != nil {
		return err
	}
	prepareThreads()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(30) // the daemon is mostly idle: trade CPU for memory
	}
	d := &daemon{Options: o, signals: signals}
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
