package supervisor

import (
	"maps"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

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
	store fakeStore
}

// handoverOf returns the handover of a supervisor with one serving worker.
func handoverOf(t *testing.T, web *config.Program, before func(*stage)) *handed {
	t.Helper()
	inherited := []inherit.Socket{{Name: "w.web.1.pidfd", FD: 99}}
	add := func(name string, fd int) {
		own, _ := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		i, err := inherit.Examine(own, name)
		if err != nil {
			t.Fatal(err)
		}
		inherited = append(inherited, i)
	}
	var pending *record.PendingReload
	h := &handed{store: fakeStore{}}
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
	restored(t, handoverOf(t, web, func(*stage) {}), web, func(s *stage, launcher *adopting) {
		if len(launcher.adopted) != 1 || launcher.adopted[0].State.PID != 4711 ||
			launcher.adopted[0].Descriptors[worker.FDProcess] != 99 {
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
	if len(core.Generations()) > 0 || core.RetryAt.IsZero() {
		t.Fatalf("the program is %s", core.State())
	}
	r := &record.Record{Programs: []record.ProgramRecord{{Core: core}}}
	if err := canContinue(&record.Inheritance{Record: r}); err != nil || len(core.Generations()) == 0 {
		t.Errorf("%v; %d generations", err, len(core.Generations()))
	}
}
