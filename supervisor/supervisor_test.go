package supervisor

import (
	"context"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/siginfo"
	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor/record"
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/ready"
)

// bare is what every fake Launcher has: no filters, and nothing that reads.
type bare struct{}

func (bare) ReadOn(int, map[string]int, worker.Spec) func() { return func() {} }
func (bare) KeepFilter(string, int)                         {}
func (bare) Filters() map[string]record.Adoptable           { return nil }
func (bare) FilterEnded() <-chan struct{}                   { return nil }
func (bare) Freeze(time.Duration) error                     { return nil }
func (bare) Thaw()                                          {}
func (bare) Owner([]int) Handle                             { return nil }

// fakeLauncher starts workers made of channels. It is driven from within a synctest bubble.
type fakeLauncher struct {
	bare
	started   chan *fakeWorker // in the order of their start
	adopted   []worker.Adoption
	slow      time.Duration // a start holds up the loop
	preflight func(context.Context) error
	systemd   *fakeSystemd
}

// noProcess and the numbers after it are PIDs that no process has (proc_sys_kernel(5), pid_max): the kernel is asked
// about fake workers, and must not answer about the process that has the number.
const noProcess = 1 << 22

type fakeWorker struct {
	gone    bool
	spec    worker.Spec
	systemd *fakeSystemd
	events  chan life.Event
	sent    chan syscall.Signal
	got     []syscall.Signal // what signals has received from sent
	refuses atomic.Bool      // a signal of the stop plan cannot be sent
	memory  atomic.Uint64
	probe   atomic.Pointer[func(context.Context, ready.Check) error] // nil: healthy
}

// signals returns the signals sent to the worker so far.
func (w *fakeWorker) signals() []syscall.Signal {
	for {
		select {
		case sig := <-w.sent:
			w.got = append(w.got, sig)
		default:
			return w.got
		}
	}
}

func (l *fakeLauncher) Start(s worker.Spec, post func(life.Event)) Handle {
	w := &fakeWorker{spec: s, systemd: l.systemd, events: make(chan life.Event), sent: make(chan syscall.Signal, 16)}
	time.Sleep(l.slow)
	l.started <- w
	go func() {
		post(life.Spawned{PID: noProcess})
		for e := range w.events {
			post(e)
		}
	}()
	return w
}

func (l *fakeLauncher) Adopt(a worker.Adoption, post func(life.Event)) Handle {
	l.adopted = append(l.adopted, a)
	for _, fd := range a.Descriptors {
		unix.Close(fd)
	}
	return l.Start(a.Spec, post)
}

func (l *fakeLauncher) Run(ctx context.Context, _ worker.Spec) error {
	if l.preflight == nil {
		return nil
	}
	return l.preflight(ctx)
}

func (w *fakeWorker) Signal(sig syscall.Signal, _ bool) error {
	w.systemd.check() // the record before a worker is told to stop must be complete
	w.sent <- sig
	return nil
}

func (w *fakeWorker) Stop(sig syscall.Signal, group bool) error {
	err := w.Signal(sig, group)
	if w.refuses.Load() {
		err = syscall.EPERM
	}
	return err
}

func (w *fakeWorker) State() worker.State           { return worker.State{} }
func (w *fakeWorker) Descriptors() map[string]int   { return nil }
func (w *fakeWorker) Duplicate(string) (int, error) { return -1, nil }
func (w *fakeWorker) Recorded(life.Event)           {}
func (w *fakeWorker) Serves() bool                  { return true }

func (w *fakeWorker) Memory(uint64) (uint64, error) { return w.memory.Load(), nil }

func (w *fakeWorker) Seen() string { return "" }

func (w *fakeWorker) Probe(ctx context.Context, r ready.Check) error {
	if probe := w.probe.Load(); probe != nil {
		return (*probe)(ctx, r)
	}
	return nil
}

func (w *fakeWorker) ready() {
	w.events <- life.ReadySaid{}
	synctest.Wait()
}

func (w *fakeWorker) exit() { w.end(life.Exited{Known: true}) }

func (w *fakeWorker) crash() {
	w.end(life.Exited{Known: true, Status: syscall.WaitStatus(syscall.SIGSEGV), Tail: []string{"oops"}})
}

func (w *fakeWorker) end(e life.Exited) {
	w.events <- e
	close(w.events)
	w.gone = true
	synctest.Wait()
}

// fakeWatcher reports changes when the test says so.
type fakeWatcher struct {
	changes chan map[string]string
	stall   time.Duration // of the loop, the next time that it asks for changes
	sets    atomic.Int32
	gate
}

func (w *fakeWatcher) Errors() <-chan error { return nil }

func (w *fakeWatcher) Set(map[string][]string) error {
	w.sets.Add(1)
	w.pass()
	return nil
}

func (w *fakeWatcher) Changes() <-chan map[string]string {
	d := w.stall
	w.stall = 0
	time.Sleep(d)
	return w.changes
}

// gate is where the files are read that hang. It lets pass one of those that hang, or all when it is closed.
type gate struct {
	open  chan struct{}
	shut  atomic.Bool
	hangs atomic.Int32 // how often something began to hang
}

func (g *gate) pass() {
	if g.shut.Load() {
		g.hangs.Add(1)
		<-g.open
	}
}

// stage is a supervisor in a synctest bubble.
type stage struct {
	*testing.T
	super        *Supervisor
	launcher     *fakeLauncher
	started      []*fakeWorker
	watcher      *fakeWatcher
	files        gate // of the configuration
	logs         *observer.ObservedLogs
	conf         *config.Config
	loadErr      error
	reload, stop chan siginfo.Caught
	done         chan error // closed when a story has seen the end
}

// newStage returns a supervisor that does not run yet.
func newStage(t *testing.T) *stage {
	core, logs := observer.New(zapcore.DebugLevel)
	systemd := &fakeSystemd{fakeStore: fakeStore{}, TB: t}
	t.Cleanup(systemd.close)
	s := &stage{T: t, launcher: &fakeLauncher{started: make(chan *fakeWorker, 100), systemd: systemd},
		watcher: &fakeWatcher{changes: make(chan map[string]string)}, logs: logs, conf: &config.Config{},
		reload: make(chan siginfo.Caught, 1), stop: make(chan siginfo.Caught, 4), done: make(chan error, 1)}
	s.files.open, s.watcher.open = make(chan struct{}), make(chan struct{})
	s.super = New(Options{Launcher: s.launcher, Watch: s.watcher, Systemd: systemd, Log: zap.New(core),
		Load: func() (*config.Config, error) {
			s.files.pass()
			return s.conf, s.loadErr
		}})
	return s
}

// run starts the loop.
func (s *stage) run() {
	go func() { s.done <- s.super.Run(Signals{Reload: s.reload, Stop: s.stop}) }()
	synctest.Wait()
}

// workers returns every worker that was started, in order.
func (s *stage) workers() []*fakeWorker {
	for {
		select {
		case w := <-s.launcher.started:
			s.started = append(s.started, w)
		default:
			return s.started
		}
	}
}

// end stops the supervisor, if it has not been, and checks that nothing is left.
func (s *stage) end() {
	s.stop <- siginfo.Caught{Number: syscall.SIGQUIT}
	synctest.Wait()
	for _, w := range s.workers() {
		if !w.gone && slices.Contains(w.signals(), syscall.SIGKILL) {
			w.exit()
		}
	}
	if err := <-s.done; err != nil {
		s.Error(err)
	}
	close(s.files.open) // it has not waited for what hangs
	close(s.watcher.open)
	synctest.Wait()
}

func configOf(programs ...*config.Program) *config.Config {
	c := &config.Config{}
	for _, p := range programs {
		c.Programs = append(c.Programs, *p)
	}
	return c
}

// testConfig returns a program with the defaults of the configuration, but without a crash budget.
func testConfig(workers int, strategy config.Strategy) *config.Program {
	c := &config.Program{Name: "web", Workers: workers}
	c.Ready.Timeout = time.Minute
	c.Reload = config.ReloadPolicy{Strategy: strategy, MaxSurge: 1, MaxDraining: 4}
	c.Stop = config.StopPolicy{Steps: []config.StopStep{{Signal: syscall.SIGTERM, Wait: 30 * time.Second}}}
	c.Restart = config.Restart{When: config.Always, BackoffMin: 200 * time.Millisecond, BackoffMax: 30 * time.Second,
		StableAfter: 10 * time.Second}
	return c
}

// testProgram returns a program with one listener on a port that the kernel chooses.
func testProgram(t *testing.T, name string) *config.Program {
	c := testConfig(1, config.All)
	c.Name = name
	c.Command = []string{"./" + name, "-fd", "{fd:http}", "-pid", "{generation}.{slot}.pid", "{other}"}
	c.Directory = t.TempDir()
	c.Stdout.Kind, c.Stderr.Kind = output.Null, output.Null
	c.Listen = []socket.Spec{{Name: "http", Address: addr("127.0.0.1:0")}}
	return c
}

func (s *stage) hup() {
	s.reload <- siginfo.Caught{Number: syscall.SIGHUP}
	synctest.Wait()
}

func (s *stage) logged(sentence string) int { return s.logs.FilterMessage(sentence).Len() }

// addr parses a valid address.
func addr(s string) socket.Address {
	a, err := socket.ParseAddress(s)
	if err != nil {
		panic(err)
	}
	return a
}
