package supervisor

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/inherit"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/supervisor/record"
	"example.org/supervisord/supervisor/snapshot"
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

// contents are what the store has, in order.
func (s fakeStore) contents() (list []inherit.Socket, _ error) {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		for _, fd := range s[name] {
			list = append(list, inherit.Socket{Name: name, FD: fd})
		}
	}
	return list, nil
}

// copies are what systemd gives to the next master.
func (s fakeStore) copies() ([]inherit.Socket, error) {
	list, _ := s.contents()
	for i, kept := range list {
		fd, err := unix.FcntlInt(uintptr(kept.FD), unix.F_DUPFD_CLOEXEC, 0)
		if list[i].FD = fd; err == nil && socket.Exported(kept.Name) {
			list[i], err = inherit.Examine(fd, kept.Name)
		}
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

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
	deaf      error        // it takes no message
	status    string       // that it has heard
	fed       int          // how often its watchdog was
	extension atomic.Int64 // the last of the timeout
}

func (s *fakeSystemd) Ready() error    { return s.deaf }
func (s *fakeSystemd) Stopping() error { return s.deaf }
func (s *fakeSystemd) Watchdog() error { s.fed++; return s.deaf }
func (s *fakeSystemd) ExtendTimeout(d time.Duration) error {
	s.extension.Store(int64(d))
	return s.deaf
}
func (s *fakeSystemd) WatchdogInterval() time.Duration { return time.Hour }

func (s *fakeSystemd) Status(text string) error {
	s.check()
	if s.deaf == nil {
		s.status = text
	}
	return s.deaf
}

// check reads the record as the next supervisord would.
func (s *fakeSystemd) check() {
	if s.unchecked {
		return
	}
	kept := fakeStore{"state.a": s.fakeStore["state.a"], "state.b": s.fakeStore["state.b"]}
	h, err := record.Read(nil, kept.contents)
	if err != nil || len(h.Problems) > 0 || !h.Programs() {
		s.Errorf("the kept record is unusable: %v %v", err, h.Problems)
	}
}

// handover is what the next supervisor gets, and what systemd keeps besides. Fake workers have no process, so here they
// get one.
func (s *stage) handover() (*record.Inheritance, fakeStore) {
	s.super.keep()
	kept := fakeStore{}
	for name, fds := range s.launcher.systemd.fakeStore {
		kept.StoreFD(name, fds...)
	}
	inherited := must.Get(kept.copies())(s)
	for name, p := range s.super.programs {
		for number := range p.workers {
			process, err := unix.MemfdCreate("process", unix.MFD_CLOEXEC)
			if err == nil {
				_, err = unix.FcntlInt(uintptr(process), unix.F_SETSIG, 1) // the mark of a process
			}
			must.Do(s, err)
			inherited = append(inherited, inherit.Socket{Name: fmt.Sprintf("w.%s.%d", name, number), FD: process})
		}
	}
	h, err := record.Read(nil, func() ([]inherit.Socket, error) { return inherited, nil })
	if err != nil || len(h.Problems) > 0 {
		s.Fatal(err, h.Problems)
	}
	h.Record.Reload = s.super.reader.pending()
	for _, p := range h.Record.Programs {
		for number, w := range p.Workers {
			w.PID = noProcess + number
			p.Workers[number] = w
		}
	}
	return h, kept
}

// clockSet changes a record as if the wall clock had been set to so much later since it was written.
func clockSet(r *record.Record, d time.Duration) {
	at := r.Clock.Wall
	for _, p := range r.Programs {
		p.Core.Rebase(at, at.Add(d))
	}
	r.Clock.Wall = at.Add(d)
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

// A record that is cut off may name a version of which it has nothing.
func TestHeirOfAVersionThatIsNotPreparedIsOneOfItsOwn(t *testing.T) {
	c, now := testConfig(1, config.All), time.Now()
	core := program.New(c)
	core.Step(now, program.Start{Config: c})
	core.Step(now, program.Prepared{Generation: 1})
	w := core.Generation(1).Workers[0]
	next := *c
	next.Command = []string{"next"}
	core.Step(now, program.Did{Worker: w.Number, Event: life.ReadySaid{}})
	core.Step(now, program.Reload{Config: &next})
	w.Version = 2
	s := New(Options{Log: zap.NewNop()})
	p := s.newRunner(core)
	p.generations[1] = &resources{number: 1, snapshot: &snapshot.Snapshot{}}
	for name, of := range map[string]*resources{
		"nothing":     nil,
		"no snapshot": {number: 2},
		"all":         {number: 2, snapshot: &snapshot.Snapshot{}},
	} {
		if p.generations[2] = of; of == nil {
			delete(p.generations, 2)
		}
		want := c.Command
		if name == "all" {
			want = next.Command
		}
		if spec := p.specOf(core.Generation(1), w); !slices.Equal(spec.Command, want) {
			t.Errorf("the record has %s of the version: the command is %q, want %q", name, spec.Command, want)
		}
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

// stalls stops the loop for this time, as SIGSTOP would.
func (s *stage) stalls(d time.Duration) {
	synctest.Wait()
	s.watcher.stall = d
	go s.super.Status(s.Context()) //nolint:errcheck // any request wakes the loop
	time.Sleep(d - time.Nanosecond)
	synctest.Wait()
	time.Sleep(time.Nanosecond) // missed events arrive a moment later
}
