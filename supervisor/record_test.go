package supervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/systemd"
	"example.org/supervisord/socket/inherit"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker"
)

// recordOf is the record of a program in the middle of a reload.
func recordOf(t *testing.T) *Record {
	t.Helper()
	core, now := program.New(testConfig(2, config.Rolling)), time.Unix(1_000_000, 0)
	for _, e := range []program.Event{
		program.Start{Config: core.Config}, program.Prepared{Generation: 1}, program.ReadySaid{Worker: 1}, program.ReadySaid{Worker: 2},
		program.Reload{Reason: "HUP"}, program.Prepared{Generation: 2}, program.ReadySaid{Worker: 3},
	} {
		core.Step(now, e)
	}
	if core.State() != program.Reloading {
		t.Fatalf("the program is %s", core.State())
	}
	ps := ProgramRecord{Core: core}
	for _, g := range core.Generations() {
		ps.Generations = append(ps.Generations, GenerationRecord{Number: g.Number, Snapshot: &snapshot{Directory: "/"}})
	}
	return &Record{Version: recordVersion, Programs: []ProgramRecord{ps}}
}

// textOf says what actions are, and whom they are for.
func textOf(t *testing.T, actions []program.Action) string {
	var text strings.Builder
	for _, a := range actions {
		data, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "%T %s\n", a, data)
	}
	return text.String()
}

func TestProgramThatWasWrittenDownGoesOnWhereItWas(t *testing.T) {
	r := recordOf(t)
	text, err := encodeRecord(r, 7)
	if err != nil {
		t.Fatal(err)
	}
	back, sequence, err := decodeRecord(text)
	if err != nil || sequence != 7 {
		t.Fatalf("sequence %d, %v", sequence, err)
	}
	was, is := r.Programs[0].Core, back.Programs[0].Core
	now := time.Unix(1_000_000, 0)
	for _, e := range []program.Event{program.Exited{Worker: 1}, program.ReadySaid{Worker: 4}, program.Tick{}, program.Exited{Worker: 2}, program.Reload{}} {
		if a, b := textOf(t, was.Step(now, e)), textOf(t, is.Step(now, e)); a != b {
			t.Errorf("%T: %q before, %q after it was written down", e, a, b)
		}
	}
	if was.State() != is.State() || !was.Next(now).Equal(is.Next(now)) {
		t.Errorf("%s, %s", was.State(), is.State())
	}
}

func TestRecordThatIsCutOffOrDamagedIsNone(t *testing.T) {
	text, err := encodeRecord(recordOf(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	for n := range text {
		if _, _, err := decodeRecord(text[:n]); !errors.Is(err, errNoRecord) {
			t.Fatalf("cut off at %d of %d: %v", n, len(text), err)
		}
	}
	for i := bytes.IndexByte(text, '\n'); i < len(text); i += 13 {
		damaged := bytes.Clone(text)
		damaged[i] ^= 1
		if _, _, err := decodeRecord(damaged); !errors.Is(err, errNoRecord) {
			t.Fatalf("damaged at %d: %v", i, err)
		}
	}
}

func TestRecordOfANewerVersionIsRefusedClearly(t *testing.T) {
	r := recordOf(t)
	r.Version = recordVersion + 1
	text, _ := encodeRecord(r, 1)
	_, _, err := decodeRecord(text)
	if err == nil || errors.Is(err, errNoRecord) || !strings.Contains(err.Error(), "use the version that wrote it, or a newer one") {
		t.Errorf("refused with %v", err)
	}
}

func TestRecordThatContradictsItselfIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(*ProgramRecord){
		"no core":          func(p *ProgramRecord) { p.Core = nil },
		"no configuration": func(p *ProgramRecord) { p.Core.Serving.Config = nil },
		"no generation":    func(p *ProgramRecord) { p.Generations = p.Generations[1:] },
		"slot out of range": func(p *ProgramRecord) {
			p.Core.Serving.Workers[0].State, p.Core.Serving.Workers[0].Slot = program.Ready, 9
		},
	} {
		r := recordOf(t)
		spoil(&r.Programs[0])
		text, _ := encodeRecord(r, 1)
		if _, _, err := decodeRecord(text); err == nil {
			t.Errorf("%s: not refused", name)
		}
	}
}

func TestARecordKeepsEveryByte(t *testing.T) {
	const raw = "p\xe4ss\xffword \ufffd"
	r := recordOf(t)
	r.Settings.RuntimeDir = raw
	p := &r.Programs[0]
	p.Core.Config.Command = []string{"x", raw}
	p.Core.Config.Environment = map[string]string{"ODD": raw, "EVEN": "even"}
	p.Generations[0].Snapshot = &snapshot{Directory: "/" + raw, Environment: []string{"A=ok", "SECRET=" + raw}}
	p.Generations[0].Workers = []WorkerRecord{{Number: 1, State: worker.State{NotifyPath: raw}}}
	text, err := encodeRecord(r, 1)
	if err != nil {
		t.Fatal(err)
	}
	back, _, err := decodeRecord(text)
	if err != nil {
		t.Fatal(err)
	}
	is := back.Programs[0]
	for what, got := range map[string]string{
		"a setting":      back.Settings.RuntimeDir,
		"an argument":    is.Core.Config.Command[1],
		"in a map":       is.Core.Config.Environment["ODD"],
		"an environment": strings.TrimPrefix(is.Generations[0].Snapshot.Environment[1], "SECRET="),
		"a directory":    strings.TrimPrefix(is.Generations[0].Snapshot.Directory, "/"),
		"an embedded":    is.Generations[0].Workers[0].NotifyPath,
	} {
		if got != raw {
			t.Errorf("%s: %q", what, got)
		}
	}
	if !reflect.DeepEqual(is.Generations[0].Snapshot, p.Generations[0].Snapshot) || is.Core.Config.Environment["EVEN"] != "even" || back.Exact != nil {
		t.Errorf("%+v", is)
	}
	if plain, err := encodeRecord(recordOf(t), 1); err != nil || bytes.Contains(plain, []byte("Exact")) {
		t.Errorf("a record of plain text has exact strings, too (%v)", err)
	}
}

func FuzzRecord(f *testing.F) {
	good, _ := encodeRecord(&Record{Version: recordVersion, Programs: []ProgramRecord{{Core: program.New(testConfig(1, config.All))}}}, 3)
	f.Add(good)
	f.Add([]byte("supervisord-record 2 99914b93 1\n{}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, _, err := decodeRecord(text)
		if err != nil {
			return
		}
		again, err := encodeRecord(r, 1)
		if err != nil {
			t.Fatal(err)
		}
		if back, _, err := decodeRecord(again); err != nil || !reflect.DeepEqual(back, r) {
			t.Fatalf("%v: %+v became %+v", err, r, back)
		}
	})
}

// fakeStore is a file-descriptor store, with duplicates of its own.
type fakeStore map[string]int

func (s fakeStore) StoreFD(name string, fds ...int) error {
	fd, err := unix.FcntlInt(uintptr(fds[0]), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		s[name] = fd
	}
	return err
}

func (s fakeStore) RemoveFD(name string) error {
	if fd, ok := s[name]; ok {
		unix.Close(fd)
		delete(s, name)
	}
	return nil
}

func (s fakeStore) Stored() []string            { return slices.Sorted(maps.Keys(s)) }
func (s fakeStore) Freeze() map[string]int      { return nil }
func (s fakeStore) Thaw()                       {}
func (s fakeStore) Flush(context.Context) error { return nil }

func (s fakeStore) close() {
	for _, name := range s.Stored() {
		s.RemoveFD(name)
	}
}

// fakeSystemd is a service manager that looks at each state that is kept for the next supervisord.
type fakeSystemd struct {
	testing.TB
	fakeStore
}

func (s *fakeSystemd) Ready() error                      { return nil }
func (s *fakeSystemd) Stopping() error                   { return nil }
func (s *fakeSystemd) Status(string) error               { s.check(); return nil }
func (s *fakeSystemd) Watchdog() error                   { return nil }
func (s *fakeSystemd) ExtendTimeout(time.Duration) error { return nil }
func (s *fakeSystemd) WatchdogInterval() time.Duration   { return 0 }

// check reads the state as the next supervisord would.
func (s *fakeSystemd) check() {
	h := &Handover{memfds: s.states()}
	if h.readStore(); len(h.problems) > 0 || h.record == nil {
		s.Errorf("the state that is kept cannot be gone on with: %v", h.problems)
	}
}

func (s *fakeSystemd) states() map[string]int {
	states := map[string]int{}
	for _, name := range []string{stateFirst, stateSecond} {
		if fd, ok := s.fakeStore[name]; ok {
			states[name] = fd
		}
	}
	return states
}

func TestKeeperHoldsJustWhatThereIs(t *testing.T) {
	store := fakeStore{}
	store["unit"] = 0 // of a socket unit
	k := newKeeper(store)
	const socket, one, two = "s.http.0123456789abcdef.0.n", "w.web.1.pidfd", "w.web.2.pidfd"
	for _, names := range [][]string{{socket, one}, {socket, two}} {
		want, stored := map[string]keepable{}, map[string]bool{}
		for _, name := range names {
			want[name] = keepable{fd: int(os.Stdin.Fd())}
		}
		for _, name := range store.Stored() {
			stored[name] = true
		}
		var problem trouble
		k.add(want, stored, &problem)
		k.remove(want, stored, &problem)
		if problem.err != nil {
			t.Error(problem.err)
		}
	}
	if got, want := store.Stored(), []string{socket, "unit", two}; !slices.Equal(got, want) {
		t.Errorf("the store holds %v, want %v", got, want)
	}
	delete(store, "unit")
	store.close()
}

// fullStore takes so much, and then no more.
type fullStore struct {
	fakeStore
	room  int
	tries int
}

func (s *fullStore) StoreFD(name string, fds ...int) error {
	s.tries++
	if len(s.fakeStore) >= s.room {
		return fmt.Errorf("no: %w", systemd.ErrStoreFull)
	}
	return s.fakeStore.StoreFD(name, fds...)
}

func TestAFullStoreKeepsTheStateAndTheSocketsAndIsReportedOnce(t *testing.T) {
	store := &fullStore{fakeStore: fakeStore{}, room: 3}
	defer store.close()
	core, logs := observer.New(zap.InfoLevel)
	s := &Supervisor{Options: Options{Log: zap.New(core)}, keeper: newKeeper(store)}
	const socket = "s.http.0123456789abcdef.0.n"
	want := map[string]keepable{}
	for _, name := range []string{stateFirst, stateSecond, socket, "w.a.1.notify", "w.a.1.pidfd", "w.b.1.pidfd"} {
		want[name] = keepable{fd: int(os.Stdin.Fd())}
	}
	keep := func() {
		stored := map[string]bool{}
		for _, name := range store.Stored() {
			stored[name] = true
		}
		var problem trouble
		s.keeper.add(want, stored, &problem)
		s.keeper.remove(want, stored, &problem)
		s.tellTrouble(problem)
	}
	for range 3 {
		keep()
	}
	if got := store.Stored(); !slices.Equal(got, []string{socket, stateFirst, stateSecond}) {
		t.Errorf("the store has %v", got)
	}
	if got := logs.TakeAll(); len(got) != 1 || got[0].ContextMap()["missing"] != int64(3) {
		t.Errorf("it says %v", got)
	}
	if store.tries != 3+3 { // one for each time
		t.Errorf("%d tries", store.tries)
	}
	store.room = 10
	keep()
	if got := store.Stored(); len(got) != len(want) {
		t.Errorf("with room again the store has %v", got)
	}
	if got := logs.TakeAll(); len(got) != 1 || got[0].Level != zap.InfoLevel {
		t.Errorf("then it says %v", got)
	}
}

func TestAStoppedSupervisorLeavesNoStateBehindEvenIfSystemdDoesNotHear(t *testing.T) {
	k := newKeeper(fakeStore{})
	if err := k.open(); err != nil {
		t.Fatal(err)
	}
	h := &Handover{memfds: k.files()}
	defer func() {
		for _, fd := range h.memfds {
			unix.Close(fd)
		}
	}()
	if err := k.write(recordOf(t)); err != nil {
		t.Fatal(err)
	}
	k.empty()
	if h.readStore(); len(h.problems) > 0 || h.Programs() {
		t.Errorf("the next one finds %+v (%v)", h.record, h.problems)
	}
}

func TestNewestWholeRecordOfTheTwoIsRead(t *testing.T) {
	k := newKeeper(fakeStore{})
	if err := k.open(); err != nil {
		t.Fatal(err)
	}
	h := &Handover{memfds: k.files()}
	defer func() {
		for _, fd := range h.memfds {
			unix.Close(fd)
		}
	}()
	for n := 1; n <= 5; n++ {
		r := recordOf(t)
		r.Programs[0].Core.LastWorker = 100 + n
		if err := k.write(r); err != nil {
			t.Fatal(err)
		}
		h.record, h.sequence = nil, 0
		if h.readStore(); len(h.problems) > 0 || h.record.Programs[0].Core.LastWorker != 100+n || h.sequence != uint64(n) {
			t.Fatalf("after %d writes: sequence %d, %v", n, h.sequence, h.problems)
		}
	}
	if err := rewrite(k.memfds[k.sequence%2], []byte("supervisord-record 9")); err != nil { // it died while writing
		t.Fatal(err)
	}
	h.record, h.sequence = nil, 0
	if h.readStore(); len(h.problems) > 0 || h.record.Programs[0].Core.LastWorker != 104 {
		t.Errorf("with the newest cut off: %+v, %v", h.record, h.problems)
	}
}

// adopting is a fakeLauncher that notes what is adopted.
type adopting struct {
	*fakeLauncher
	adopted []worker.Adoption
}

func (l *adopting) Adopt(a worker.Adoption, post func(worker.Event)) Handle {
	l.adopted = append(l.adopted, a)
	return l.fakeLauncher.Adopt(a, post)
}

// handoverOf is what a supervisor with one worker that serves hands over.
func handoverOf(t *testing.T, web *config.Program, before func(*stage)) *Handover {
	t.Helper()
	var text []byte
	var listener int
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		before(s)
		r := s.super.record()
		r.Reload = s.super.reader.pending()
		r.Programs[0].Generations[0].Workers[0].PID = 4711 // fakes have none
		r.Descriptors = map[string]int{}
		for _, n := range s.super.table.Export() {
			listener, _ = unix.FcntlInt(uintptr(n.FD), unix.F_DUPFD_CLOEXEC, 0)
			r.Descriptors[n.Name] = listener
		}
		text, _ = json.Marshal(r)
	}, web)

	r := new(Record)
	if err := json.Unmarshal(text, r); err != nil {
		t.Fatal(err)
	}
	h := &Handover{record: r, workers: map[string]int{workerFD("web", 1, worker.FDProcess): 99}}
	for name, fd := range r.Descriptors {
		i, err := inherit.Examine(fd, name)
		if err != nil {
			t.Fatal(err)
		}
		h.sockets = append(h.sockets, i)
	}
	return h
}

// restored plays the second life.
func restored(t *testing.T, h *Handover, web *config.Program, play func(*stage, *adopting)) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, web)
		launcher := &adopting{fakeLauncher: s.launcher}
		s.super.Launcher = launcher
		s.super.Restore(h)
		s.run()
		play(s, launcher)
		s.end()
	})
}

func TestRestoredSupervisorAdoptsItsWorkersAndTheNextReloadIsAsEver(t *testing.T) {
	web := testProgram(t, "web")
	restored(t, handoverOf(t, web, func(*stage) {}), web, func(s *stage, launcher *adopting) {
		if len(launcher.adopted) != 1 || launcher.adopted[0].State.PID != 4711 || launcher.adopted[0].Descriptors[worker.FDProcess] != 99 {
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

func TestReloadWhoseConfigurationWasBeingReadIsBegunByTheNextImage(t *testing.T) {
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
		if got := s.super.Describe().Programs[0].FindReload(2); got == nil || got.Outcome != program.Serves || got.Reason != "HUP" {
			t.Errorf("the record of the reload is %+v", got)
		}
	})
}
