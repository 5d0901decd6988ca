package record

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/supervisor/snapshot"
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/life"
)

// troupe is a supervisor of programs whose workers are no processes.
type troupe struct {
	now      time.Time
	head     Record
	programs map[string]*actor
	sockets  []socket.Named
	filters  map[string]Adoptable
	store    *Store
	stepped  []string // since the last keep
}

type actor struct {
	ProgramRecord
	processes map[int]Adoptable
}

func newTroupe() *troupe {
	return &troupe{now: time.Unix(1_000_000, 0), programs: map[string]*actor{},
		store: NewStore(newSystemd(), zap.NewNop())}
}

func (s *troupe) Head() *Record                 { head := s.head; return &head }
func (s *troupe) Sockets() []socket.Named       { return s.sockets }
func (s *troupe) Filters() map[string]Adoptable { return s.filters }
func (s *troupe) Programs() []string            { return slices.Sorted(maps.Keys(s.programs)) }

func (s *troupe) Program(name string) *ProgramRecord {
	if a := s.programs[name]; a != nil {
		return &a.ProgramRecord
	}
	return nil
}

// newActor returns a program whose workers have a process as soon as they are spawned.
func newActor(c *config.Program) *actor {
	a := &actor{ProgramRecord{Core: program.New(c), Generations: map[int]GenerationRecord{}}, map[int]Adoptable{}}
	a.Held = func(number int) (Adoptable, int) {
		if p := a.processes[number]; p != nil {
			return p, 1
		}
		return nil, 0
	}
	return a
}

// process is what the store and the record see of a worker that is ready.
type process struct {
	pid   int
	kinds []string // of its descriptors
}

func (p process) State() worker.State           { return worker.State{PID: p.pid, Ready: true} }
func (p process) Duplicate(string) (int, error) { return duplicate(int(os.Stdin.Fd())) }

func (p process) Descriptors() map[string]int {
	all := map[string]int{}
	for _, kind := range p.kinds {
		all[kind] = 0
	}
	return all
}

// step gives a program an event, and does as the loop does.
func (s *troupe) step(name string, e program.Event) {
	a := s.programs[name]
	for _, action := range a.Core.Step(s.now, e) {
		switch action := action.(type) {
		case program.Prepare:
			n := action.Generation.Number
			a.Generations[n] = GenerationRecord{Lanes: []*socket.Lane{laneOf(n)},
				Snapshot: &snapshot.Snapshot{Directory: "/", Environment: []string{"A=" + name}}}
		case program.Forget:
			delete(a.Generations, action.Generation)
		case program.Spawn:
			a.processes[action.Worker.Number] = process{pid: 1000 + action.Worker.Number}
		}
	}
	s.stepped = append(s.stepped, name)
}

// keep writes what has changed.
func (s *troupe) keep() {
	s.store.Keep(s, s.stepped)
	s.stepped = nil
}

// laneOf is the lane of a generation.
func laneOf(generation int) *socket.Lane {
	a, _ := socket.ParseAddress("127.0.0.1:80")
	return &socket.Lane{Listener: socket.Spec{Address: a}.Literal(), Members: []int{generation}}
}

// whole is the record as it is now.
func (s *troupe) whole(t rapid.TB) *Record {
	t.Helper()
	fd, err := memfd("record")
	if err == nil {
		defer unix.Close(fd)
		err = newLog(fd, 0).putWhole(headOf(s), programsOf(s))
	}
	must.Do(t, err)
	r, _, err := decode(contents(t, fd))
	must.Do(t, err)
	return r
}

// kept is the record as the next supervisord would find it.
func (s *troupe) kept(t rapid.TB) *Record {
	t.Helper()
	h := newInheritance()
	h.memfds = s.store.written.files()
	r := h.readNewest()
	if r == nil || len(h.Problems) > 0 {
		t.Fatalf("the record is unusable: %v", h.Problems)
	}
	return r
}

func (s *troupe) close() { closeAll(slices.Collect(maps.Values(s.store.written.files()))) }

func same(a, b *Record) bool {
	x, y := *a, *b
	x.Clock, y.Clock = clockReading{}, clockReading{}
	return reflect.DeepEqual(&x, &y)
}

func describe(r *Record) string {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// event draws something that may happen to a program.
func (a *actor) event(t *rapid.T) program.Event {
	var workers []int
	for w := range a.Core.Workers() {
		workers = append(workers, w.Number)
	}
	events := []program.Event{
		program.Tick{}, program.Reload{Reason: "HUP"}, program.Stop{}, program.Pause{For: time.Second},
		program.Start{Config: testConfig(rapid.IntRange(1, 3).Draw(t, "workers"), config.All)},
		program.Scale{Workers: 2}, program.Reload{Config: testConfig(3, config.Rolling), Canary: 1},
		program.Promote{}, program.Rollback{}, program.Abort{},
	}
	for _, g := range a.Core.Generations() {
		events = append(events, program.Prepared{Generation: g.Number, Steered: true},
			program.Prepared{Generation: g.Number, Failure: &program.Failure{Step: "preflight"}},
			program.Refused{Generation: g.Number, Connections: 1})
	}
	if len(workers) > 0 {
		n := rapid.SampledFrom(workers).Draw(t, "worker")
		events = append(events, program.Did{Worker: n, Event: life.ReadySaid{}},
			program.Did{Worker: n, Event: life.ReadySaid{}},
			program.Did{Worker: n, Event: life.Spawned{PID: n}}, program.Did{Worker: n, Event: life.Exited{}},
			program.Replace{Worker: n}, program.Did{Worker: n, Event: life.DrainsItself{}})
	}
	return rapid.SampledFrom(events).Draw(t, "event")
}

func TestKeptLogSaysWhatTheWholeRecordSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newTroupe()
		defer s.close()
		rewritten := 0
		for step := range rapid.IntRange(1, 150).Draw(t, "length") {
			name := rapid.SampledFrom([]string{"web", "mail.1"}).Draw(t, "program")
			switch a := s.programs[name]; {
			case a == nil:
				a = newActor(testConfig(2, config.All))
				a.Core.Name = name
				s.programs[name] = a
				s.step(name, program.Start{Config: testConfig(2, config.All)})
			case a.Core.State() == program.Down && rapid.Bool().Draw(t, "removed"):
				delete(s.programs, name)
				s.stepped = append(s.stepped, name)
			default:
				s.now = s.now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second)
				s.step(name, a.event(t))
			}
			switch rapid.IntRange(0, 20).Draw(t, "else") {
			case 0:
				s.head.Files = append(slices.Clip(s.head.Files), "a.toml")
			case 1:
				s.store.All()
			case 2, 3: // the next Keep is for more
				continue
			case 4:
				if log := s.store.written.log; log != nil {
					log.base = -slack // it has grown
				}
			}
			before := s.store.written.current
			s.keep()
			if s.store.written.current != before {
				rewritten++
			} else if step%4 > 0 { // to decode them costs the most
				continue
			}
			if whole, kept := s.whole(t), s.kept(t); !same(whole, kept) {
				t.Fatalf("after %d rewrites the log says\n%s\nand the whole record\n%s", rewritten, describe(kept), describe(whole))
			}
		}
	})
}

// served is a supervisor with a log of several batches, whose last one says that the worker of web runs.
func served(t *testing.T) *troupe {
	s := newTroupe()
	t.Cleanup(s.close)
	s.programs["web"] = newActor(testConfig(1, config.All))
	s.step("web", program.Start{Config: testConfig(1, config.All)})
	s.keep()
	for _, e := range []program.Event{program.Prepared{Generation: 1},
		program.Did{Worker: 1, Event: life.Spawned{PID: 4711}}} {
		s.step("web", e)
		s.keep()
	}
	return s
}

func TestRecordsOfManyReloadsAreInTheLogAndCostLittle(t *testing.T) {
	s := served(t)
	s.step("web", program.Did{Worker: 1, Event: life.ReadySaid{}})
	core := s.programs["web"].Core
	failure := &program.Failure{Step: "preflight", Reason: "exited with status 1"}
	most := int64(0)
	for range 130 {
		s.step("web", program.Reload{Reason: "HUP"})
		s.step("web", program.Prepared{Generation: core.LastGeneration, Failure: failure})
		log, end := s.store.written.log, s.store.written.log.end
		s.keep()
		if s.store.written.log == log {
			most = max(most, log.end-end)
		}
	}
	whole, kept := s.whole(t), s.kept(t)
	reloads := kept.Programs[0].Core.Reloads
	if !same(whole, kept) || len(reloads) < 100 || reloads[0].Failure == nil || reloads[0].Failure.Step != "preflight" {
		t.Errorf("%d reloads are in the log: %s", len(reloads), describe(kept))
	}
	if most == 0 || most > 8<<10 {
		t.Errorf("a reload takes %d bytes of the log", most)
	}
}

func TestLogIsRewrittenIntoTheOtherFileWhichCountsWhenItIsWhole(t *testing.T) {
	s := served(t)
	files := &s.store.written
	first, sequence := files.current, files.sequence
	for n := 0; files.current == first; n++ {
		if n > 10_000 {
			t.Fatal("it is never rewritten")
		}
		s.now = s.now.Add(time.Second)
		s.step("web", program.Pause{For: time.Minute})
		s.keep()
	}
	if files.sequence <= sequence || files.log.end > slack || len(contents(t, files.memfds[first])) > 0 {
		t.Errorf("the log has %d bytes and sequence %d, the file before %d bytes", files.log.end, files.sequence,
			len(contents(t, files.memfds[first])))
	}
	if !same(s.kept(t), s.whole(t)) {
		t.Error("the rewritten log says something else")
	}
	// The supervisord died while it wrote into the first file again: that does not count, however much of it there is.
	other := &Record{Instance: "newer", Programs: []ProgramRecord{{Core: program.New(testConfig(1, config.All))}}}
	newer := textOfRecord(t, other, files.sequence)
	for n := range len(newer) {
		must.Do(t, writeAt(files.memfds[first], newer[:n], 0))
		if s.kept(t).Instance == "newer" {
			t.Fatalf("it counts when %d bytes of %d are written", n, len(newer))
		}
	}
	if err := writeAt(files.memfds[first], newer, 0); err != nil || s.kept(t).Instance != "newer" {
		t.Errorf("%v: the newer record does not count", err)
	}
}

// starting is the record of a program whose first workers start.
func starting(workers int) *Record {
	core, now := program.New(testConfig(workers, config.All)), time.Unix(1_000_000, 0)
	core.Step(now, program.Start{Config: core.Config})
	core.Step(now, program.Prepared{Generation: 1})
	return &Record{Programs: []ProgramRecord{{Core: core, Generations: map[int]GenerationRecord{1: {}}}}}
}

func TestRecordInSeveralBatchesCountsOnlyWhole(t *testing.T) {
	const workers = 400
	text := textOfRecord(t, starting(workers), 0)
	r, sequence, err := decode(text)
	if err != nil || sequence < 3 || len(r.Programs[0].Core.Trial.Workers) != workers {
		t.Fatalf("sequence %d, %v", sequence, err)
	}
	rest, complete := text, 0
	for len(rest) > 0 {
		if _, _, rest, err = nextBatch(rest); err != nil {
			t.Fatal(err)
		}
		if complete = len(text) - len(rest); complete < len(text) {
			if _, _, err := decode(text[:complete]); !errors.Is(err, errNoRecord) {
				t.Fatalf("a part of the record counts: %v", err)
			}
		}
	}
}

func TestLogWithoutAPartThatIsNeededIsRefused(t *testing.T) {
	data, _, _, err := nextBatch(textOfRecord(t, starting(1), 0))
	must.Do(t, err)
	var whole batch
	if err := json.Unmarshal(data, &whole); err != nil || len(whole.Parts) != 6 || whole.Parts["web/worker/1"] == nil {
		t.Fatalf("the parts are %v: %v", slices.Collect(maps.Keys(whole.Parts)), err)
	}
	for key := range whole.Parts {
		var b batch
		must.Do(t, json.Unmarshal(data, &b))
		if key != "web" && key != "web/config/1" && key != "web/generation/1" {
			continue // without one of these it is the record of another moment
		}
		delete(b.Parts, key)
		text := must.Get(json.Marshal(b))(t)
		if _, _, err := decode(batchOf(string(text))); err == nil || errors.Is(err, errNoRecord) {
			t.Errorf("without %s: %v", key, err)
		}
	}
}

func TestDescriptorInTheStoreSaysWhatItIs(t *testing.T) {
	for _, kind := range workerFDKinds() {
		var pipe [2]int
		must.Do(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
		dup, err := duplicate(pipe[0])
		if err == nil {
			err = mark(pipe[0], kind)
		}
		if got := kindOf(dup); err != nil || got != kind {
			t.Errorf("%s: %q, %v", kind, got, err)
		}
		closeAll([]int{pipe[0], pipe[1], dup})
	}
	null, err := unix.Open("/dev/null", unix.O_CLOEXEC, 0)
	if err != nil || kindOf(null) != "" {
		t.Errorf("one without a mark: %q, %v", kindOf(null), err)
	}
	closeAll([]int{null})
}
