package supervisor

import (
	"maps"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/socket/inherit"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/supervisor/record"
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/life"
)

// fakeStore is a file-descriptor store that keeps duplicates.
type fakeStore map[string][]int

func (s fakeStore) StoreFD(name string, fds ...int) error {
	for _, fd := range fds {
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return err
		}
		s[name] = append(s[name], own)
	}
	return nil
}

func (s fakeStore) RemoveFD(name string) error {
	for _, fd := range s[name] {
		unix.Close(fd)
	}
	delete(s, name)
	return nil
}

func (s fakeStore) Writable() <-chan struct{} { return nil }

func (s fakeStore) close() {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		s.RemoveFD(name)
	}
}

// fakeSystemd is a service manager that checks each record kept for the next supervisord.
type fakeSystemd struct {
	testing.TB
	fakeStore
	unchecked bool         // there are no descriptors for a check
	extension atomic.Int64 // the last of the timeout
}

func (s *fakeSystemd) Ready() error                        { return nil }
func (s *fakeSystemd) Stopping() error                     { return nil }
func (s *fakeSystemd) Status(string) error                 { s.check(); return nil }
func (s *fakeSystemd) Watchdog() error                     { return nil }
func (s *fakeSystemd) ExtendTimeout(d time.Duration) error { s.extension.Store(int64(d)); return nil }
func (s *fakeSystemd) WatchdogInterval() time.Duration     { return 0 }

// check reads the record as the next supervisord would.
func (s *fakeSystemd) check() {
	if s.unchecked {
		return
	}
	h, err := record.Read(nil, func() ([]inherit.Socket, error) {
		var list []inherit.Socket
		for _, name := range []string{"state.a", "state.b"} {
			for _, fd := range s.fakeStore[name] {
				list = append(list, inherit.Socket{Name: name, FD: fd})
			}
		}
		return list, nil
	})
	if err != nil || len(h.Problems) > 0 || !h.Programs() {
		s.Errorf("the kept record is unusable: %v %v", err, h.Problems)
	}
}

// adopting is a fakeLauncher that notes adopted workers.
type adopting struct {
	*fakeLauncher
	adopted []worker.Adoption
}

func (l *adopting) Adopt(a worker.Adoption, post func(life.Event)) Handle {
	l.adopted = append(l.adopted, a)
	return l.fakeLauncher.Adopt(a, post)
}

// handed is a handover from a store that keeps it.
type handed struct {
	*record.Inheritance
	store   fakeStore
	process int // the descriptor of the worker's process
}

// handoverOf returns the handover of a supervisor with one serving worker.
func handoverOf(t *testing.T, web *config.Program, before func(*stage)) *handed {
	t.Helper()
	process, err := unix.MemfdCreate("process", unix.MFD_CLOEXEC)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(process), unix.F_SETSIG, 1) // the mark of a process
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(process) })
	inherited := []inherit.Socket{{Name: "w.web.1", FD: process}}
	add := func(name string, fd int) {
		own, _ := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		i, err := inherit.Examine(own, name)
		if err != nil {
			t.Fatal(err)
		}
		inherited = append(inherited, i)
	}
	var pending *record.PendingReload
	h := &handed{store: fakeStore{}, process: process}
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		before(s)
		s.super.keep()
		pending = s.super.reader.pending()
		for name, fds := range s.launcher.systemd.fakeStore {
			for _, fd := range fds {
				add(name, fd)
				h.store.StoreFD(name, fd)
			}
		}
		var err error
		if h.Inheritance, err = record.Read(nil, func() ([]inherit.Socket, error) { return inherited, nil }); err != nil ||
			len(h.Problems) > 0 {
			t.Fatal(err, h.Problems)
		}
	}, web)
	h.Record.Reload = pending
	setPID(h.Record, h.Record.Programs[0].Core.Generations()[0].Workers[0].Number, 4711)
	return h
}

// setPID gives a worker of the first program a process: fake workers have none.
func setPID(r *record.Record, worker, pid int) {
	w := r.Programs[0].Workers[worker]
	w.PID = pid
	r.Programs[0].Workers[worker] = w
}

// restored runs play with the restored supervisor.
func restored(t *testing.T, h *handed, web *config.Program, play func(*stage, *adopting)) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, web)
		launcher := &adopting{fakeLauncher: s.launcher}
		s.super.Launcher = launcher
		maps.Copy(launcher.systemd.fakeStore, h.store)
		s.super.Restore(h.Inheritance)
		s.run()
		play(s, launcher)
		s.end()
	})
}

func TestRestoredSupervisorAdoptsItsWorkersAndTheNextReloadIsAsEver(t *testing.T) {
	web := testProgram(t, "web")
	h := handoverOf(t, web, func(*stage) {})
	restored(t, h, web, func(s *stage, launcher *adopting) {
		if len(launcher.adopted) != 1 || launcher.adopted[0].State.PID != 4711 ||
			launcher.adopted[0].Descriptors[worker.FDProcess] != h.process {
			t.Fatalf("adopted %+v", launcher.adopted)
		}
		s.hup()
		s.count(2)
		s.workers()[1].ready()
		if got := s.workers()[0].signals(); len(got) != 1 || got[0] != syscall.SIGTERM {
			t.Errorf("the adopted worker got %v", got)
		}
	})
}

func TestRestoredSupervisorKnowsHowTheLastReloadEnded(t *testing.T) {
	web := testProgram(t, "web")
	h := handoverOf(t, web, func(s *stage) {
		s.hup()
		s.workers()[1].exit()
	})
	restored(t, h, web, func(s *stage, _ *adopting) {
		st := s.super.Describe().Programs[0]
		r := st.FindReload(2)
		if r == nil || r.Outcome != program.WorkerDown || r.Failure.Step != "start" || r.Ended.IsZero() {
			t.Errorf("the record of the reload is %+v", r)
		}
	})
}

func TestReloadThatWasReadingItsConfigBeginsInTheNextImage(t *testing.T) {
	web := testProgram(t, "web")
	h := handoverOf(t, web, func(s *stage) {
		load := s.super.Load
		gate := make(chan struct{})
		s.super.Load = func() (*config.Config, error) { <-gate; return load() }
		s.hup()
		go func() { <-s.super.ctx.Done(); close(gate) }()
	})
	restored(t, h, web, func(s *stage, _ *adopting) {
		s.count(2)
		s.workers()[1].ready()
		if got := s.super.Describe().Programs[0].FindReload(2); got == nil || got.Outcome != program.Serves ||
			got.Reason != "HUP" {
			t.Errorf("the record of the reload is %+v", got)
		}
	})
}

// The next step of the core may begin a generation, of which the record has nothing.
func TestUpgradeIsNotRefusedAtTheMomentWhenAGenerationIsDue(t *testing.T) {
	core, before := program.New(&config.Program{Name: "web", Workers: 1,
		Restart: config.Restart{When: config.Always, BackoffMin: time.Second, BackoffMax: time.Second}}), time.Unix(1, 0)
	core.Step(before, program.Start{Config: core.Config})
	core.Step(before, program.Prepared{Generation: 1,
		Failure: &program.Failure{Step: program.StepPrepare, Reason: "no such directory"}})
	if len(core.Generations()) > 0 || core.AgainAt.IsZero() {
		t.Fatalf("the program is %s", core.State())
	}
	r := &record.Record{Programs: []record.ProgramRecord{{Core: core}}}
	if err := canContinue(&record.Inheritance{Record: r}); err != nil || len(core.Generations()) == 0 {
		t.Errorf("%v; %d generations", err, len(core.Generations()))
	}
}

// clockSet changes a record as if the wall clock had been set back by d since it was written.
func clockSet(r *record.Record, d time.Duration) {
	at := r.Clock.Wall
	for _, p := range r.Programs {
		p.Core.Rebase(at, at.Add(d))
	}
	r.Clock.Wall = at.Add(d)
}

func TestStopDeadlineSurvivesAnUpgradeAndClockSteps(t *testing.T) {
	for name, back := range map[string]time.Duration{"untouched": 0, "an hour back": time.Hour,
		"a second back": time.Second, "an hour on": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			web := testProgram(t, "web")
			h := handoverOf(t, web, func(s *stage) {
				s.hup()
				s.workers()[1].ready()
			})
			for _, g := range h.Record.Programs[0].Core.Generations() {
				setPID(h.Record, g.Workers[0].Number, 4711+g.Number)
			}
			clockSet(h.Record, back)
			restored(t, h, web, func(s *stage, _ *adopting) {
				old := s.workers()[slices.IndexFunc(s.workers(), func(w *fakeWorker) bool {
					return slices.Contains(w.spec.Environment, "SUPERVISORD_GENERATION=1")
				})]
				time.Sleep(20 * time.Second) // not 29: the record's second clock is real, and this machine may be busy
				synctest.Wait()
				if got := old.signals(); slices.Contains(got, syscall.SIGKILL) {
					t.Errorf("the worker is killed too soon: %v", got)
				}
				time.Sleep(12 * time.Second)
				synctest.Wait()
				if got := old.signals(); !slices.Contains(got, syscall.SIGKILL) {
					t.Errorf("the worker is not killed: %v", got)
				}
			})
		})
	}
}

// wound returns t with a monotonic reading d later.
func wound(t time.Time, d time.Duration) time.Time {
	(*struct {
		wall uint64
		ext  int64
	})(unsafe.Pointer(&t)).ext += int64(d)
	return t
}

func TestTimesFollowWallClock(t *testing.T) {
	now := time.Now()
	s := New(Options{Log: zap.NewNop()})
	s.clock = wound(now, -time.Hour) // an hour has passed since, and the wall clock shows the same
	core := program.New(testConfig(1, config.All))
	// due in half a minute, although the wall clock says in an hour
	core.AgainAt = wound(now.Add(time.Hour), -time.Hour+30*time.Second)
	s.programs["web"] = s.newRunner(core)
	s.followClock()
	if left := core.AgainAt.Round(0).Sub(now.Round(0)); (left - 30*time.Second).Abs() > time.Second {
		t.Errorf("by the wall clock it is in %s, want 30s", left)
	}
	if left := core.AgainAt.Sub(now); (left - 30*time.Second).Abs() > time.Second {
		t.Errorf("it is in %s, want 30s", left)
	}
}

// stalling is a watcher whose loop stops for a while on request.
type stalling struct {
	fakeWatcher
	stall *time.Duration
}

func (w stalling) Changes() <-chan map[string]string {
	d := *w.stall
	*w.stall = 0
	time.Sleep(d)
	return w.fakeWatcher.Changes()
}

// stalls stops the loop for this time, as SIGSTOP would.
func (s *stage) stalls(d time.Duration) {
	synctest.Wait()
	w := s.super.Watch.(stalling)
	*w.stall = d
	go s.super.Status(s.Context()) //nolint:errcheck // any request wakes the loop
	time.Sleep(d - time.Nanosecond)
	synctest.Wait()
	time.Sleep(time.Nanosecond) // missed events arrive a moment later
}

func TestEarlyAlarmIsSetAgain(t *testing.T) {
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		s.hup()
		s.workers()[1].ready()
		p := s.super.programs["web"]
		p.alarm.timer.Stop() // on a clock other than the deadline's
		s.super.post(func() { p.ring(p.alarm) })
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if got := s.workers()[0].signals(); !slices.Contains(got, syscall.SIGKILL) {
			t.Errorf("the deadline is lost: the worker got %v", got)
		}
	}, testProgram(t, "web"))
}

// slowLauncher delays the loop at each start of a worker.
type slowLauncher struct {
	*fakeLauncher
	by time.Duration
}

func (l *slowLauncher) Start(s worker.Spec, post func(life.Event)) Handle {
	time.Sleep(l.by)
	return l.fakeLauncher.Start(s, post)
}

func TestDeadlinePassingBeforeAlarmIsSetIsNotLost(t *testing.T) {
	web := testProgram(t, "web")
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		s.super.Launcher = &slowLauncher{s.launcher, web.Ready.Timeout + time.Millisecond}
		s.hup()
		time.Sleep(web.Ready.Timeout + 2*time.Millisecond)
		synctest.Wait()
		if s.logged(program.TrialFailed.Sentence()) != 1 {
			t.Error("the trial has not failed")
		}
		s.workers()[1].exit()
	}, web)
}

func TestSpawnedEventKeepsDueAlarm(t *testing.T) {
	web := testProgram(t, "web")
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		s.hup()
		w := s.workers()[1]
		due := s.super.programs["web"].alarm
		due.timer.Stop() // as if it were about to fire
		time.Sleep(web.Ready.Timeout + time.Millisecond)
		w.events <- life.Spawned{PID: 1001}
		synctest.Wait()
		if s.super.programs["web"].alarm != due {
			t.Error("the alarm was removed before it fired")
		}
		s.super.post(func() { s.super.programs["web"].ring(due) })
		synctest.Wait()
		w.exit()
	}, web)
}
