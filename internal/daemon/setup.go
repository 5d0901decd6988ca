package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"example.org/supervisord/internal/clients"
	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/epoll"
	"example.org/supervisord/internal/observe"
	"example.org/supervisord/internal/observe/page"
	"example.org/supervisord/internal/observe/usage"
	"example.org/supervisord/internal/systemd"
	"example.org/supervisord/internal/watch"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/inherit"
	"example.org/supervisord/socket/unixpath"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/supervisor/record"
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/ready"
)

// The names under which descriptors of the daemon itself are handed over.
const (
	pidFileFD = "pidfile"
	controlFD = "control"
	pageFD    = "page"
)

// duplicateStopWindow is the default of Instance.DuplicateStopWindow.
const duplicateStopWindow = 250 * time.Millisecond

// setUp does everything up to the loop, and returns the updates from the first one on. If it fails in a new image, it
// closes nothing that was handed over: the previous image needs it.
func (d *daemon) setUp() (updates <-chan *supervisor.Update, err error) {
	level, err := d.begin()
	if err != nil {
		return nil, err
	}
	orphans := record.FindOrphans(
		record.OrphanSearch{RuntimeDir: d.settings.RuntimeDir, Config: d.Config, Programs: d.config, Log: d.log}, d.handover)
	if d.launcher, err = d.newLauncher(); err != nil {
		return nil, err
	}
	d.watcher = watch.New()
	if d.queues, err = epoll.New(); err != nil {
		return nil, err
	}
	d.running.Go(func() { d.queues.Run(&sync.RWMutex{}) })
	if err = d.openNotify(); err != nil {
		return nil, err
	}
	hangups, err := epoll.New()
	if err != nil {
		return nil, err
	}
	go hangups.Run(new(sync.RWMutex)) // until the process ends
	d.supervisor = supervisor.New(supervisor.Options{
		Load: d.Load, Hangups: hangups, Report: d.reporter(), Launcher: launching{d.launcher}, Log: d.log, Level: level,
		Watch: d.watcher, Queues: d.queues, Paths: unixpath.NewGuard(),
		Orphans: orphans, Version: d.Version, Path: d.Config, Systemd: serviceManager(d.notify), Upgrader: newUpgrader(d),
		DuplicateStopWindow: cmp.Or(d.DuplicateStopWindow, duplicateStopWindow),
	})
	updates = d.supervisor.SubscribeFirst()
	return updates, d.open()
}

// begin reads what was handed over, or else the configuration, and opens the log, the runtime directory and the pid
// file.
func (d *daemon) begin() (level *zap.AtomicLevel, err error) {
	inherited := func() ([]inherit.Socket, error) { return inherit.FromEnvironment(os.Environ(), os.Getpid()) }
	if d.handover, err = record.Read(os.Environ(), inherited); err != nil {
		return nil, err
	}
	if d.handover.Programs() {
		d.settings = d.handover.Record.Settings
	} else {
		if d.config, err = d.Load(); err != nil {
			return nil, err
		}
		d.settings = d.config.Supervisor
	}
	d.out = openOutput()
	d.log, level = newLogger(d.settings, d.out.stderr, d.Face)
	if !d.handover.Programs() { // workers that were handed over continue, whatever has happened to the directory
		if err = ready.PrepareDirectory(d.settings.RuntimeDir); err != nil {
			return level, err
		}
	}
	if err = d.lockPIDFile(); err != nil && d.goesOn("no pid file", err) {
		return level, nil
	}
	return level, err
}

// lockPIDFile takes the lock of the file that lets only one supervisord run this configuration, or takes it over.
func (d *daemon) lockPIDFile() (err error) {
	path := d.settings.InstanceFile(d.Config)
	switch inherited := d.handover.Extra(pidFileFD); {
	case path == "":
	case inherited >= 0:
		d.pid = record.InheritPIDFile(inherited, path)
	default:
		d.pid, err = record.LockPIDFile(path)
	}
	if errors.Is(err, record.ErrRunning) {
		err = fmt.Errorf("%w: stop the other supervisord first, or use another configuration file", err)
	}
	return err
}

// goesOn reports whether this process continues in spite of an error, and logs the error if so: workers that were
// handed over must not lose their supervisord because of something that it can do without.
func (d *daemon) goesOn(without string, err error) bool {
	if !d.handover.Programs() {
		return false
	}
	d.log.Error(without, zap.Error(err))
	return true
}

func (d *daemon) newLauncher() (*worker.Launcher, error) {
	needs := worker.Needs{Directory: d.settings.RuntimeDir, Expected: d.handover.PIDs(),
		Stdout: d.out.stdout, Stderr: d.out.stderr}
	if d.handover.Programs() {
		needs.Later = func(err error) { d.log.Error("no worker can be started until this is fixed", zap.Error(err)) }
	}
	return worker.NewLauncher(needs)
}

// launching makes a worker.Launcher a supervisor.ProcessLauncher.
type launching struct{ *worker.Launcher }

func (l launching) Start(s worker.Spec, post func(life.Event)) supervisor.Handle {
	return l.Launcher.Start(s, post)
}

func (l launching) Adopt(a worker.Adoption, post func(life.Event)) supervisor.Handle {
	return l.Launcher.Adopt(a, post)
}

func (l launching) Filters() map[string]record.Adoptable {
	filters := map[string]record.Adoptable{}
	for name, w := range l.Launcher.Filters() {
		filters[name] = w
	}
	return filters
}

func (l launching) Owner(pids []int) supervisor.Handle {
	if w := l.Launcher.Owner(pids); w != nil {
		return w
	}
	return nil
}

// openNotify connects to systemd. A systemd that does not answer is tried again with each message.
func (d *daemon) openNotify() (err error) {
	d.notify, err = systemd.Open(os.Getenv, func(err error) { d.log.Warn("cannot tell systemd", zap.Error(err)) })
	if errors.Is(err, systemd.ErrUnreachable) && d.goesOn("cannot tell systemd; each message is tried again", err) {
		return nil
	}
	return err
}

// manager is systemd, as the supervisor sees it.
type manager struct{ *systemd.Notify }

func (manager) WatchdogInterval() time.Duration {
	return systemd.WatchdogInterval(os.Getenv, os.Getpid())
}

// serviceManager returns nil if no service manager listens.
func serviceManager(n *systemd.Notify) supervisor.Systemd {
	if !n.Enabled() {
		return nil
	}
	return manager{n}
}

// reporter is told of the reports instead of the log; nil: none is.
func (d *daemon) reporter() func(*config.Program, program.Report) {
	if d.Face == nil {
		return nil
	}
	return d.Face.See
}

// open starts the supervisor anew, or with what was handed over.
func (d *daemon) open() error {
	where := []zap.Field{zap.Int("pid", os.Getpid()), zap.String("version", d.Version), zap.String("config", d.Config)}
	switch {
	case !d.handover.Programs():
		d.log.Info("supervisord starts", where...)
		if d.Face != nil {
			d.Face.Starts()
		}
		err := d.supervisor.Start(d.config, d.handover)
		if err == nil && d.Face != nil {
			err = d.Face.Started(d.config, d.out.sync, d.log)
		}
		return err
	case d.handover.Upgrade:
		d.log.Info("supervisord was upgraded in place", where...)
	default:
		d.log.Warn("supervisord took over from a supervisord that died", where...)
	}
	if reason := d.handover.GaveBack; reason != "" {
		d.log.Error("upgrade failed: the new binary could not take over; the old one is back", zap.String("reason", reason))
	}
	d.supervisor.Restore(d.handover)
	if d.Face == nil {
		return nil
	}
	if err := d.Face.Resumed(d.supervisor.Describe(), d.handover.Extra, d.out.sync, d.log); err != nil {
		d.log.Error("the log stays where it was", zap.Error(err))
	}
	return nil
}

// serve begins to follow the updates, and to answer on the control socket.
func (d *daemon) serve(updates <-chan *supervisor.Update) {
	gauge := new(usage.Gauge)
	d.observer = &observe.Observer{Loop: d.supervisor, Updates: updates, Runner: d.launcher, Log: d.log, Gauge: gauge}
	if d.settings.HTTP != (socket.Address{}) {
		d.observer.Page = &page.Site{
			Address: d.settings.HTTP, Hosts: d.settings.HTTPHosts, TokenFile: d.settings.HTTPTokenFile,
			Inherited: d.handover.Extra(pageFD), Change: control.Buttons(d.supervisor), Logs: d.supervisor.Logs,
		}
	}
	d.observer.Start()
	inherited := d.handover.Extra(controlFD)
	if d.settings.Control == "" {
		if s, err := unixpath.InheritOwn(inherited); err == nil {
			s.Close()
		}
		return
	}
	d.control.open(&control.API{
		Path: d.settings.Control, Other: d.settings.OwnControl(d.Config), Config: d.Config, Mode: d.settings.ControlMode(),
		Inherited: inherited, Group: d.settings.ControlGroup, Read: d.settings.ControlRead == "any",
		Loop: d.supervisor, Log: d.log, Gauge: gauge,
	}, d.log, controlAgain)
}

// The control socket is tried again after the first of these, then after twice that time, up to the second.
const (
	controlAgain     = time.Second
	controlAgainMost = 30 * time.Second
)

// reachable is the control socket, which may open later than the service starts: a disk may be full. Its methods may be
// called from any goroutine.
type reachable struct {
	mu     sync.Mutex
	api    *control.API // nil: there is none yet
	timer  *time.Timer
	closed bool
}

// open opens the control socket. After a failure, which must not fail the service, open logs the first error and tries
// again after a pause that doubles, unless another supervisord has the path.
func (r *reachable) open(api *control.API, log *zap.Logger, pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	first := pause == controlAgain
	err := api.Serve()
	if err == nil {
		if r.api = api; !first {
			log.Info("the control socket is open now", zap.String("path", api.Path))
		}
		return
	}
	if first {
		log.Error("no control socket: `supervisord reload` and `status` cannot reach this supervisord", zap.Error(err))
	}
	if !errors.Is(err, unixpath.ErrInUse) {
		r.timer = time.AfterFunc(pause, func() { r.open(api, log, min(2*pause, controlAgainMost)) })
	}
}

// fd is the descriptor for the next image, or -1.
func (r *reachable) fd() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.api == nil {
		return -1
	}
	return r.api.FD()
}

// gate is what lets clients in, or nil.
func (r *reachable) gate() *clients.Gate {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.api == nil {
		return nil
	}
	return r.api.Gate()
}

func (r *reachable) close(log *zap.Logger) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.timer != nil {
		r.timer.Stop()
	}
	if r.api == nil {
		return
	}
	if err := r.api.Close(); err != nil {
		log.Error("cannot close the control socket", zap.Error(err))
	}
}
