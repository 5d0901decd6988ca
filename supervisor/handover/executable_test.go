package handover

import (
	"maps"
	"slices"
	"testing"

	"example.org/supervisord/socket/inherit"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker/spawn"
)

// recordedSource is a supervisor that has what is in a record.
type recordedSource struct {
	*fakeSource
	record *Record
}

func (s recordedSource) Programs(yield func(Program) bool) { s.record.programs(yield) }

func (s recordedSource) Program(name string) Program {
	for p := range s.record.programs {
		if p.Record().Core.Name == name {
			return p
		}
	}
	return nil
}

// executing is a program in the middle of a reload, whose generations have an executable each.
func executing(t *testing.T) recordedSource {
	s := recordedSource{&fakeSource{T: t}, reloading(t)}
	for _, g := range s.record.Programs[0].Generations {
		e, err := spawn.Find(&spawn.Execution{Argv: []string{"sh"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Detach().Close() })
		g.Snapshot.Executable = e
	}
	return s
}

func TestExecutablesAreHandedOverByTheirGenerations(t *testing.T) {
	s := executing(t)
	h := newHandover()
	for _, d := range descriptorsOf(s) {
		fd, err := d.duplicate()
		if err != nil {
			t.Fatal(err)
		}
		i, err := inherit.Examine(fd, d.name)
		if err != nil {
			t.Fatal(err)
		}
		h.sort(i)
	}
	back, _, err := decode(textOfRecord(t, s.record, 0))
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range back.Programs[0].Generations {
		e := g.Snapshot.Executable
		if err := e.Adopt(h.Executable("web", g.Number)); err != nil {
			t.Error(err)
		}
		e.Detach().Close()
		if fd := h.Executable("web", g.Number); fd >= 0 {
			t.Error("it was taken twice")
		}
	}
}

// A version of supervisord without executables must be able to follow, and another program must not be meant.
func TestNamesOfExecutablesAreThoseOfNoWorker(t *testing.T) {
	for _, name := range []string{"web", "web.3", "web.exe"} {
		at := executableName(name, 3)
		if _, number := workerOf(at); number != 0 || !ours(at) {
			t.Errorf("%s: worker %d", at, number)
		}
		if of, generation := executableOf(at); of != name || generation != 3 {
			t.Errorf("%s: generation %d of %s", at, generation, of)
		}
		if _, generation := executableOf(workerName(name, 3)); generation != 0 {
			t.Errorf("%s is for a worker", workerName(name, 3))
		}
	}
}

func TestStoreHasTheExecutablesOfTheGenerationsThatLive(t *testing.T) {
	src, sd := executing(t), newSystemd()
	sd.has["w.gone.1.exe"] = 1
	h := newHandover()
	h.stored = map[string]int{"w.gone.1.exe": 1}
	s, logs := newStore(t, sd, h)
	s.Keep(src)
	with := func(names ...string) []string {
		return slices.Sorted(slices.Values(append(names, recordFirst, recordSecond)))
	}
	if got := sd.names(); !slices.Equal(got, with("w.web.1.exe", "w.web.2.exe")) {
		t.Errorf("the store has %v", got)
	}
	first := src.record.Programs[0].Generation(1).Snapshot
	e := first.Executable
	first.Executable = nil
	sd.room = 0
	s.TouchResources("web", 1)
	s.Keep(src)
	first.Executable = e // the program was removed and added again, while systemd did not read
	s.TouchResources("web", 1)
	s.Keep(src)
	sd.reads(100)
	s.Push()
	s.Keep(src)
	if got := sd.names(); !slices.Equal(got, with("w.web.1.exe", "w.web.2.exe")) || !maps.Equal(s.ledger.counts, sd.has) {
		t.Errorf("the store has %v, the ledger %v", got, s.ledger.counts)
	}
	first.Executable.Detach().Close() // as the generation ends
	s.touch(part{"web", program.Part{Kind: resourcesPart, Number: 1}})
	s.Keep(src)
	if got := sd.names(); !slices.Equal(got, with("w.web.2.exe")) || logs.Len() > 0 {
		t.Errorf("the store has %v, the log %v", got, logs.All())
	}
}
