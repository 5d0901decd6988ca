package supervisor

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/siginfo"
	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor/program"
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
	preflight func(context.Context) error
	systemd   *fakeSystemd
}

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
	l.started <- w
	go func() {
		post(life.Spawned{PID: 1000})
		for e := range w.events {
			post(e)
		}
	}()
	return w
}

func (l *fakeLauncher) Adopt(a worker.Adoption, post func(life.Event)) Handle {
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
type fakeWatcher chan map[string]string

func (w fakeWatcher) Set(map[string][]string) error     { return nil }
func (w fakeWatcher) Changes() <-chan map[string]string { return w }
func (w fakeWatcher) Errors() <-chan error              { return nil }

// stage is a supervisor in a synctest bubble.
type stage struct {
	*testing.T
	super                *Supervisor
	launcher             *fakeLauncher
	started              []*fakeWorker
	watcher              fakeWatcher
	logs                 *observer.ObservedLogs
	conf                 *config.Config
	loadErr              error
	reload, reopen, stop chan siginfo.Caught
	done                 chan error
}

// onStage runs play with a supervisor of these programs, stops it, and checks that nothing is left.
func onStage(t *testing.T, play func(*stage), programs ...*config.Program) {
	onChangedStage(t, func(*stage) {}, play, programs...)
}

// onChangedStage is onStage after a change of the supervisor that does not run yet.
func onChangedStage(t *testing.T, change, play func(*stage), programs ...*config.Program) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, programs...)
		change(s)
		if err := s.super.Start(s.conf, nil); err != nil {
			t.Fatal(err)
		}
		s.run()
		play(s)
		s.end()
	})
}

// newStage returns a supervisor that does not run yet.
func newStage(t *testing.T, programs ...*config.Program) *stage {
	core, logs := observer.New(zapcore.DebugLevel)
	systemd := &fakeSystemd{fakeStore: fakeStore{}, TB: t}
	t.Cleanup(systemd.close)
	s := &stage{T: t, launcher: &fakeLauncher{started: make(chan *fakeWorker, 100), systemd: systemd},
		watcher: make(fakeWatcher), logs: logs, conf: configOf(programs...),
		reload: make(chan siginfo.Caught, 1), reopen: make(chan siginfo.Caught, 1), stop: make(chan siginfo.Caught,
			4), done: make(chan error, 1)}
	s.super = New(Options{Launcher: s.launcher, Watch: s.watcher, Systemd: systemd, Log: zap.New(core),
		Load: func() (*config.Config, error) {
			return s.conf, s.loadErr
		}})
	return s
}

// run starts the loop.
func (s *stage) run() {
	go func() { s.done <- s.super.Run(Signals{Reload: s.reload, Reopen: s.reopen, Stop: s.stop}) }()
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

func (s *stage) count(want int) {
	s.Helper()
	if got := len(s.workers()); got != want {
		s.Fatalf("%d workers were started, want %d", got, want)
	}
}

func TestWorkerIsGivenItsSocketsAndItsPlace(t *testing.T) {
	onStage(t, func(s *stage) {
		s.count(1)
		spec := s.workers()[0].spec
		if !slices.Equal(spec.Command, []string{"./web", "-fd", "3", "-pid", "1.0.pid", "{other}"}) ||
			len(spec.Sockets) != 1 {
			t.Errorf("command %q, sockets %v", spec.Command, spec.Sockets)
		}
		for _, want := range []string{"SUPERVISORD_PROGRAM=web", "SUPERVISORD_SLOT=0", "SUPERVISORD_GENERATION=1",
			"SERVER_STARTER_GENERATION=1", "LISTEN_FDS=1", "LISTEN_FDNAMES=http", "SERVER_STARTER_PORT=127.0.0.1:0=3"} {
			if all := slices.Concat(spec.Environment, spec.Told); !slices.Contains(all, want) {
				t.Errorf("no %s in %q", want, all)
			}
		}
	}, testProgram(t, "web"))
}

func TestListenerThatCannotOpenFailsWholeReload(t *testing.T) {
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	web, other := testProgram(t, "web"), testProgram(t, "other")
	other.Listen[0].Address = addr(taken.Addr().String())
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		s.conf = configOf(web, other)
		s.hup()
		s.count(1)
		refused := s.logs.FilterMessage("configuration refused; nothing has changed").All()
		if len(refused) != 1 || !strings.Contains(refused[0].ContextMap()["error"].(string), "address already in use") {
			t.Errorf("logged %v", refused)
		}
		if len(s.super.programs) != 1 {
			t.Errorf("%d programs", len(s.super.programs))
		}
	}, web)
}

func TestProgramsFollowConfig(t *testing.T) {
	web, other := testProgram(t, "web"), testProgram(t, "other")
	other.Listen = nil
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		key := s.super.programs["web"].listeners[0].Key()
		s.conf = configOf(other)
		s.hup()
		s.count(2)
		s.workers()[1].ready()
		if !slices.Equal(s.workers()[0].signals(), []syscall.Signal{syscall.SIGTERM}) {
			t.Errorf("the removed program got %v", s.workers()[0].signals())
		}
		if s.super.programs["web"] == nil || len(s.super.table.FDs(key)) == 0 {
			t.Error("the removed program lost its listener before its worker was gone")
		}
		s.workers()[0].exit()
		if s.super.programs["web"] != nil || len(s.super.table.FDs(key)) > 0 {
			t.Error("the removed program is still there")
		}
	}, web)
}

func TestSnapshotResolvesSymlinkedDirectoryOnce(t *testing.T) {
	root := t.TempDir()
	releases := []string{filepath.Join(root, "r1"), filepath.Join(root, "r2")}
	current := filepath.Join(root, "current")
	for _, r := range releases {
		if err := os.Mkdir(r, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to string) {
		os.Remove(current)
		if err := os.Symlink(to, current); err != nil {
			t.Fatal(err)
		}
	}
	link(releases[0])
	web := testProgram(t, "web")
	web.Directory = current
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		link(releases[1])
		time.Sleep(time.Minute)
		s.workers()[0].exit() // a crash: replaced from the same snapshot
		s.hup()
		s.count(3)
		for i, want := range []string{releases[0], releases[0], releases[1]} {
			if got := s.workers()[i].spec.Directory; got != want {
				t.Errorf("worker %d runs in %s, want %s", i, got, want)
			}
		}
	}, web)
}

func TestReloadOfUnknownProgramChangesNothing(t *testing.T) {
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		changed := *s.conf
		changed.Programs = slices.Clone(changed.Programs)
		changed.Programs[0].Workers = 2
		s.conf = &changed
		_, err := s.super.Reload(s.Context(), ReloadOptions{Programs: []string{"web", "wbe"}})
		if !errors.Is(err, ErrNoProgram) || !strings.Contains(err.Error(), "wbe; there are: web") {
			t.Errorf("answered %v", err)
		}
		synctest.Wait()
		s.count(1)
	}, testProgram(t, "web"))
}

func TestUnknownProgramFailsOnlyItsOwnReload(t *testing.T) {
	var refused error
	good := asker{[]string{"web"}, func([]Ticket, error) {}}
	bad := asker{[]string{"wbe"}, func(_ []Ticket, err error) { refused = err }}
	met := request{askers: []asker{good}}.wider(request{askers: []asker{bad}})
	c := configOf(testProgram(t, "web"))
	r, wanted := met.refuse(c)
	if !wanted || !r.replaces("web") || r.replaces("wbe") || len(r.askers) != 1 {
		t.Errorf("what is left is %+v", r)
	}
	if !errors.Is(refused, ErrNoProgram) {
		t.Errorf("answered %v", refused)
	}
	if _, wanted := (request{askers: []asker{bad}}).refuse(c); wanted {
		t.Error("a refused reload is still wanted")
	}
	if r, wanted := met.wider(request{itself: true, all: true}).refuse(c); !wanted || !r.replaces("web") {
		t.Errorf("a HUP during the trial is %+v", r)
	}
}

// addr parses a valid address.
func addr(s string) socket.Address {
	a, err := socket.ParseAddress(s)
	if err != nil {
		panic(err)
	}
	return a
}

func TestLoopReplacesCrashesWithoutAWaitWhileThereIsBudget(t *testing.T) {
	c := testProgram(t, "web")
	c.Restart.Budget = 3
	onStage(t, func(s *stage) {
		crash := func() (waited time.Duration) {
			before, n := time.Now(), len(s.workers())
			s.workers()[n-1].ready()
			s.workers()[n-1].crash()
			for ; len(s.workers()) == n; synctest.Wait() {
				time.Sleep(time.Millisecond)
			}
			return time.Since(before)
		}
		for n := 1; n <= 4; n++ {
			if waited := crash(); waited != 0 {
				t.Errorf("crash %d was replaced after %s", n, waited)
			}
		}
		for _, want := range []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond} {
			if waited := crash(); waited > want || waited < want*4/5 {
				t.Errorf("without budget a crash was replaced after %s, want %s less a fifth", waited, want)
			}
		}
		time.Sleep(20 * time.Second) // the next worker is stable, and two are back
		s.workers()[len(s.workers())-1].ready()
		time.Sleep(10 * time.Second)
		for n := 1; n <= 4; n++ {
			if waited := crash(); waited != 0 {
				t.Errorf("crash %d after a stable worker was replaced after %s", n, waited)
			}
		}
		if waited := crash(); waited == 0 {
			t.Error("the budget has no end")
		}
	}, c)
}

// hanging runs play with a supervisor whose configuration hangs when it is read, unless loads is negative.
func hanging(t *testing.T, play func(s *stage, loads *atomic.Int32)) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, testProgram(t, "web"))
		if err := s.super.Start(s.conf, nil); err != nil {
			t.Fatal(err)
		}
		gate, n := make(chan struct{}), new(atomic.Int32)
		s.super.Load = func() (*config.Config, error) {
			if n.Add(1) > 0 {
				<-gate
			}
			return s.conf, nil
		}
		s.run()
		s.workers()[0].ready()
		play(s, n)
		s.end() // does not wait for the hanging load
		close(gate)
		synctest.Wait()
	})
}

func TestReloadWithHangingConfigFailsAndNextOneWorks(t *testing.T) {
	hanging(t, func(s *stage, loads *atomic.Int32) {
		before := time.Now()
		_, err := s.super.Reload(s.Context(), ReloadOptions{})
		if !errors.Is(err, ErrRefused) ||
			!strings.Contains(err.Error(), "reading the configuration has not ended within 1m0s") ||
			time.Since(before) != readTimeout {
			t.Errorf("after %s: %v", time.Since(before), err)
		}
		loads.Store(-10) // the disk answers again
		if _, err := s.super.Reload(s.Context(), ReloadOptions{}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		s.count(2)
		s.workers()[1].ready()
		s.workers()[0].exit()
	})
}

func TestHangingConfigIsNotReadWithoutLimit(t *testing.T) {
	hanging(t, func(s *stage, loads *atomic.Int32) {
		for range 20 {
			_, err := s.super.Reload(s.Context(), ReloadOptions{})
			if !errors.Is(err, ErrRefused) {
				t.Fatal(err)
			}
		}
		if loads.Load() != maxStuck {
			t.Errorf("%d calls hang", loads.Load())
		}
		_, err := s.super.Reload(s.Context(), ReloadOptions{})
		if !strings.Contains(err.Error(), "4 earlier attempts still hang") {
			t.Error(err)
		}
	})
}

func TestStopDoesNotWaitForHangingConfig(t *testing.T) {
	hanging(t, func(s *stage, loads *atomic.Int32) {
		s.hup()
		if loads.Load() != 1 {
			t.Fatal("it is not being read")
		}
	})
}

func TestGenerationWithHangingFilesFailsToPrepare(t *testing.T) {
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		gate, over := make(chan struct{}), cancelled()
		defer close(gate)
		for range maxStuck {
			hangs := func() (any, error) { <-gate; return nil, nil }
			bounded(over, s.super.disks, "web", lookingUp, hangs) //nolint:errcheck // it hangs
		}
		s.hup()
		r := s.super.programs["web"].core.Reloads[1]
		if r == nil || r.Outcome != program.NotPrepared || r.Failure.Step != program.StepPrepare ||
			!strings.Contains(r.Failure.Reason, "still hang") {
			t.Errorf("the record of the reload is %+v", r)
		}
		s.count(1)
	}, testProgram(t, "web"))
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// stuck is a watcher whose check of the files blocks until the test releases it.
type stuck struct {
	fakeWatcher
	gate chan struct{}
	sets *atomic.Int32
}

func (w stuck) Set(map[string][]string) error {
	if w.sets.Add(1) > 1 { // the first check is before the loop runs
		<-w.gate
	}
	return nil
}

func TestHangingWatchedFilesHoldUpNeitherReloadNorStop(t *testing.T) {
	w := stuck{sets: new(atomic.Int32)}
	onChangedStage(t, func(s *stage) {
		w.fakeWatcher, w.gate = s.watcher, make(chan struct{})
		s.super.Watch = w
	}, func(s *stage) {
		s.workers()[0].ready()
		s.hup()
		s.workers()[1].ready()
		s.hup()
		s.count(3)
		if n := w.sets.Load(); n != 2 {
			t.Errorf("the watcher was asked %d times, and the second look has not ended", n)
		}
		time.Sleep(readTimeout)
		synctest.Wait()
		if s.logged("cannot watch files; reload with HUP") != 1 || w.sets.Load() != 3 {
			t.Errorf("%d errors, %d looks", s.logged("cannot watch files; reload with HUP"), w.sets.Load())
		}
		s.Cleanup(func() { close(w.gate) }) // the stop does not wait for it
	}, testProgram(t, "web"))
}

func capturing(t *testing.T, path string) *config.Program {
	p := testProgram(t, "web")
	p.Stdout.Kind = output.Capture
	p.Log = config.LogPolicy{File: path, MaxSize: 1 << 20}
	return p
}

func TestCapturedOutputContinuesOverReloads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.log")
	p := capturing(t, path)
	onStage(t, func(s *stage) {
		s.workers()[0].spec.Captured("stdout", 11, []byte("one\n"))
		s.workers()[0].ready()
		s.hup()
		s.workers()[1].spec.Captured("stdout", 12, []byte("two\n"))
		log, err := s.super.Logs(s.Context(), "web")
		if err != nil {
			t.Fatal(err)
		}
		lines, _ := log.Last(10)
		if len(lines) != 2 || lines[0].Text != "one" || lines[0].Worker != 1 || lines[1].Worker != 2 || lines[1].PID != 12 {
			t.Errorf("%+v", lines)
		}
		if err := log.File().Flush(s.Context()); err != nil {
			t.Error(err)
		}
		if data, _ := os.ReadFile(path); string(data) != "one\ntwo\n" {
			t.Errorf("%q", data)
		}
		if err := os.Rename(path, path+".1"); err != nil {
			t.Fatal(err)
		}
		s.reopen <- siginfo.Caught{Number: syscall.SIGUSR1}
		synctest.Wait()
		s.workers()[1].spec.Captured("stdout", 12, []byte("three\n"))
	}, p)
	if data, _ := os.ReadFile(path); string(data) != "three\n" {
		t.Errorf("after USR1: %q", data)
	}
}

func TestLogFileThatCannotBeOpenedFailsTheReload(t *testing.T) {
	dir := t.TempDir()
	good := capturing(t, filepath.Join(dir, "web.log"))
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		bad := *good
		bad.Log.File = filepath.Join(dir, "no", "web.log")
		s.conf = configOf(&bad)
		s.hup()
		s.count(1)
		failed := s.logs.FilterMessage(program.TrialFailed.Sentence()).All()
		if len(failed) != 1 || !strings.Contains(failed[0].ContextMap()["reason"].(string), "no such file or directory") {
			t.Errorf("logged %v", failed)
		}
		s.workers()[0].spec.Captured("stdout", 11, []byte("still\n"))
	}, good)
	if data, _ := os.ReadFile(good.Log.File); string(data) != "still\n" {
		t.Errorf("%q", data)
	}
}

func TestLogsOfUncapturedProgramAreRefused(t *testing.T) {
	onStage(t, func(s *stage) {
		if _, err := s.super.Logs(s.Context(), "web"); !errors.Is(err, ErrState) {
			t.Errorf("%v", err)
		}
		if _, err := s.super.Logs(s.Context(), "wbe"); !errors.Is(err, ErrNoProgram) {
			t.Errorf("%v", err)
		}
	}, testProgram(t, "web"))
}
