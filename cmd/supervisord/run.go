package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/observe"
	"example.org/supervisord/internal/starter"
	"example.org/supervisord/internal/systemd"
	"example.org/supervisord/internal/watch"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/worker"
)

func runCommand(path *string) *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "run the configured programs in the foreground (the default command)",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return run(*path) },
	}
}

// master is a supervisor with everything that it needs from outside.
type master struct {
	path       string // of the configuration; "": it stands in no file
	load       func() (*config.Config, error)
	starter    *startServer   // nil: it is not started as start_server
	lines      *starter.Lines // nil: the log is supervisord's own
	handover   *supervisor.Handover
	config     *config.Config // nil: what was handed over goes on as it was
	settings   config.Supervisor
	stdout     *stream
	stderr     *stream // of the log, too
	log        *zap.Logger
	level      *zap.AtomicLevel
	pid        pidFile
	orphans    *supervisor.Orphans
	observer   *observe.Observer
	launcher   *worker.Launcher
	watcher    *watch.Watcher
	notify     *systemd.Notify
	supervisor *supervisor.Supervisor
	gauge      *control.Gauge            // of what workers use, for all who ask
	control    *control.Server           // nil: there is none
	updates    <-chan *supervisor.Update // from the first on
	stopped    bool                      // every program has
}

// run is the daemon with the configuration in a file.
func run(path string) error {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	d := &master{path: path, load: func() (*config.Config, error) { return config.Load(path) }}
	return d.run()
}

// run is the daemon. Signals are caught first of all: until then HUP would end it.
func (d *master) run() error {
	signals := catch()
	prepareThreads()
	d.gauge = new(control.Gauge)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(30) // memory is dearer to it than the little that it computes
	}
	defer d.closeStreams()
	defer d.close()
	if err := orGoBack(d.setUp, d.sync); err != nil {
		return err
	}
	supervisor.Stay(os.Environ())
	d.observer = d.observe()
	d.serveControl(d.observer)
	err := d.supervisor.Run(signals)
	if errors.Is(err, supervisor.ErrLeft) {
		d.pid.remove(d.log)
		d.closeControl()
		d.observer.Leave()
		d.sync()
		os.Exit(0) // what would be closed on the way out is left to the next supervisord
	}
	d.exitAfter(endTimeout, err)
	d.closeControl()
	d.observer.Close()
	d.stopped = true
	d.log.Info("supervisord ends")
	if d.lines != nil {
		d.lines.Ends()
	}
	return err
}

// endTimeout is how long supervisord may take to end when every program has stopped: longer than any limit on what it closes.
const endTimeout = 20 * time.Second

// exitAfter ends the process if it still runs then: a client, a hook or a hung disk must not keep a stopped supervisord alive.
func (d *master) exitAfter(limit time.Duration, err error) {
	time.AfterFunc(limit, func() {
		d.log.Error("not everything could be closed in time; supervisord ends anyway", zap.Duration("after", limit))
		if err != nil {
			os.Exit(exitCode(err))
		}
		os.Exit(0)
	})
}

// close leaves nothing behind after a stop, nor after a start that failed. It closes what setUp has opened.
func (d *master) close() {
	if d.notify != nil {
		if d.stopped {
			d.flushNotify()
		}
		d.notify.Close() //nolint:errcheck // systemd sees the end itself
	}
	if d.watcher != nil {
		d.watcher.Close() //nolint:errcheck // nothing is left to lose
	}
	if d.launcher != nil {
		d.launcher.Close() //nolint:errcheck // the directory is swept by the next start
	}
	if d.stopped {
		supervisor.EndGroup(os.Getenv, d.log)
	}
	d.pid.remove(d.log)
}

// sync writes what stdout and stderr have not got yet.
func (d *master) sync() {
	if d.stderr != nil {
		d.stderr.Sync() //nolint:errcheck // there is nobody to tell
		d.stdout.Sync() //nolint:errcheck // likewise
	}
}

func (d *master) closeStreams() {
	if d.stderr != nil {
		d.stdout.close()
		d.stderr.close()
	}
}

// endFlushTimeout is how long systemd may take to read the last messages of a supervisord that has stopped everything.
const endFlushTimeout = 5 * time.Second

// flushNotify has systemd hear that its store is to be emptied: it keeps it when it restarts the service.
func (d *master) flushNotify() {
	ctx, cancel := context.WithTimeout(context.Background(), endFlushTimeout)
	defer cancel()
	if err := d.notify.Flush(ctx); err != nil {
		d.log.Warn("cannot tell systemd", zap.Error(err))
	}
}

// setUp does everything up to the loop. If it fails in a new image, nothing of it is closed: the image before needs it.
func (d *master) setUp() (err error) {
	if err = d.begin(); err != nil {
		return err
	}
	if !d.handover.Programs() { // what was handed over goes on, whatever has happened to the directory
		if err = worker.PrepareDirectory(d.settings.RuntimeDir); err != nil {
			return err
		}
	}
	d.orphans = supervisor.FindOrphans(supervisor.OrphanSearch{
		RuntimeDir: d.settings.RuntimeDir, Config: d.path, Users: supervisor.WorkerUsers(d.config, d.handover), Log: d.log,
	})
	d.orphans.Take(d.handover)
	d.handover.Offer(d.orphans.Sockets())
	if d.launcher, err = d.newLauncher(); err != nil {
		return err
	}
	if d.watcher, err = watch.New(); err != nil && !d.goesOn("cannot watch files; reload with HUP", err) {
		return err
	}
	if err = d.openNotify(); err != nil {
		return err
	}
	d.supervisor = supervisor.New(supervisor.Options{
		Load: d.load, Report: d.reporter(),
		Launcher: launching{d.launcher}, Log: d.log, Level: d.level, Watch: d.watching(), Orphans: d.orphans, Path: d.path,
		Systemd: serviceManager(d.notify), Upgrade: d.upgrader(), Twice: d.starter.twice(),
	})
	d.updates = d.supervisor.Follow()
	return d.open()
}

// goesOn reports whether this process goes on in spite of an error, and then logs it: whoever has workers to take over must not
// fail, and leave them without a supervisord, for want of something that they can do without.
func (d *master) goesOn(without string, err error) bool {
	if !d.handover.Programs() {
		return false
	}
	d.log.Error(without, zap.Error(err))
	return true
}

func (d *master) newLauncher() (*worker.Launcher, error) {
	options := []worker.Option{worker.Expect(d.handover.PIDs()...), worker.OnOrphan(d.orphan), worker.Inherited(d.stdout, d.stderr)}
	if d.handover.Programs() {
		options = append(options, worker.Later(func(err error) {
			d.log.Error("no worker can be started until this is mended", zap.Error(err))
		}))
	}
	return worker.NewLauncher(d.settings.RuntimeDir, options...)
}

// watching is nil without a watcher.
func (d *master) watching() supervisor.Watcher {
	if d.watcher == nil {
		return nil
	}
	return d.watcher
}

// openNotify connects to systemd. One that does not answer is told later.
func (d *master) openNotify() (err error) {
	d.notify, err = systemd.Open(os.Getenv, d.handover.Stored(), func(err error) { d.log.Warn("cannot tell systemd", zap.Error(err)) })
	if errors.Is(err, systemd.ErrUnreachable) && d.goesOn("cannot tell systemd; each message is tried again", err) {
		return nil
	}
	return err
}

// begin reads what was handed over, or else the configuration.
func (d *master) begin() (err error) {
	if d.handover, err = supervisor.ReadHandover(os.Environ(), os.Getpid()); err != nil {
		return err
	}
	if d.handover.Programs() {
		d.settings = d.handover.Settings()
	} else {
		if d.config, err = d.load(); err != nil {
			return err
		}
		d.settings = d.config.Supervisor
	}
	d.stdout, d.stderr = newStream(1, "stdout"), newStream(2, "stderr")
	d.log, d.level = newLogger(d.settings, d.stderr)
	d.pid, err = lockPIDFile(d.settings.PIDFile, d.handover.Extra(pidFileFD))
	if err != nil && d.goesOn("no pid file", err) {
		return nil
	}
	return err
}

// open begins anew, or goes on with what was handed over.
func (d *master) open() error {
	where := []zap.Field{zap.Int("pid", os.Getpid()), zap.String("version", version()), zap.String("config", d.path)}
	switch {
	case !d.handover.Programs():
		d.log.Info("supervisord starts", where...)
		if d.lines != nil {
			d.lines.Starts(os.Getpid())
		}
		if err := d.supervisor.Start(d.config, d.handover); err != nil {
			return err
		}
		return d.starter.bound(d)
	case d.handover.Upgrade():
		d.log.Info("supervisord goes on in the place of the image before", where...)
	default:
		d.log.Warn("supervisord goes on after the death of the one before", where...)
	}
	if reason := supervisor.GoneBack(os.Environ()); reason != "" {
		d.log.Error("upgrade failed: the new binary could not go on; this one is back", zap.String("reason", reason))
	}
	d.supervisor.Restore(d.handover)
	if err := d.starter.restored(d); err != nil {
		d.log.Error("the log goes on where it went before", zap.Error(err))
	}
	return nil
}

func (d *master) orphan(pid int, status syscall.WaitStatus) {
	d.log.Debug("an orphaned process has ended", zap.Int("pid", pid), zap.Int("status", status.ExitStatus()))
}

// leaveSignal is SIGRTMIN+1, as kill(1) and systemctl count: nobody sends it by default, and a supervisord that does not know
// it yet is ended by it, which comes to the same.
const leaveSignal = syscall.Signal(35)

func catch() supervisor.Signals {
	reload, reopen, upgrade, leave := make(chan os.Signal, 1), make(chan os.Signal, 1), make(chan os.Signal, 1), make(chan os.Signal, 1)
	stop := make(chan os.Signal, 4)
	signal.Notify(reload, syscall.SIGHUP)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT)
	signal.Notify(reopen, syscall.SIGUSR1)
	signal.Notify(upgrade, syscall.SIGUSR2)
	signal.Notify(leave, leaveSignal)
	scale := make(chan os.Signal, 16) // one for each worker that somebody wants at once
	signal.Notify(scale, syscall.SIGTTIN)
	if !stopsBackground(os.Stderr) { // otherwise the terminal sends TTOU, for each line in the log
		signal.Notify(scale, syscall.SIGTTOU)
	}
	signal.Ignore(syscall.SIGPIPE) // whoever reads our log may go; that is no reason to die
	return supervisor.Signals{Reload: reload, Reopen: reopen, Upgrade: upgrade, Leave: leave, Scale: scale, Stop: stop}
}

// launching makes a worker.Launcher what the supervisor asks for.
type launching struct{ *worker.Launcher }

func (l launching) Start(s worker.Spec, post func(worker.Event)) supervisor.Handle {
	return l.Launcher.Start(s, post)
}

func (l launching) Adopt(a worker.Adoption, post func(worker.Event)) supervisor.Handle {
	return l.Launcher.Adopt(a, post)
}

// pidFile is the pid file, if one is configured.
type pidFile struct{ *supervisor.PIDFile }

// lockPIDFile locks the pid file, or takes over the lock that was handed over.
func lockPIDFile(path string, inherited int) (pidFile, error) {
	if path == "" {
		return pidFile{}, nil
	}
	if inherited >= 0 {
		return pidFile{supervisor.InheritPIDFile(inherited, path)}, nil
	}
	p, err := supervisor.LockPIDFile(path)
	return pidFile{p}, err
}

func (p pidFile) remove(log *zap.Logger) {
	if p.PIDFile == nil {
		return
	}
	if err := p.Remove(); err != nil {
		log.Error("cannot remove pid file", zap.Error(fmt.Errorf("%w", err)))
	}
}
