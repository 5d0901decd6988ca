package record

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/supervisor/snapshot"
	"example.org/supervisord/worker/life"
)

// reloading is the record of a program in the middle of a reload.
func reloading(t *testing.T) *Record {
	t.Helper()
	r := newSample(t).whole[7]
	if state := r.Programs[0].Core.State(); state != program.Reloading {
		t.Fatalf("the program is %s", state)
	}
	return r
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

func TestRecordedProgramContinuesInItsState(t *testing.T) {
	r := reloading(t)
	back, sequence, err := decode(textOfRecord(t, r, 6))
	if err != nil || sequence != 7 {
		t.Fatalf("sequence %d, %v", sequence, err)
	}
	was, is := r.Programs[0].Core, back.Programs[0].Core
	now := time.Unix(1_000_000, 0)
	for _, e := range []program.Event{
		program.Did{Worker: 1, Event: life.Exited{}}, program.Did{Worker: 4,
			Event: life.ReadySaid{}}, program.Tick{}, program.Did{Worker: 2, Event: life.Exited{}}, program.Reload{},
	} {
		if a, b := was.Step(now, e), is.Step(now, e); !reflect.DeepEqual(a, b) {
			t.Errorf("%T: %+v before, %+v after it was written down", e, a, b)
		}
	}
	if was.State() != is.State() || !was.Next(now).Equal(is.Next(now)) {
		t.Errorf("%s, %s", was.State(), is.State())
	}
}

func TestRecordOfAnotherVersionIsRefusedClearly(t *testing.T) {
	for _, version := range []int{0, 1, recordVersion - 1, recordVersion + 1, 1000} {
		_, _, err := decode(batchOf(fmt.Sprintf(`{"Version":%d,"Parts":{"/":{}},"Complete":true}`, version)))
		if err == nil || errors.Is(err, errNoRecord) || !strings.Contains(err.Error(), "change between them by a restart") {
			t.Errorf("version %d is refused with %v", version, err)
		}
	}
}

func TestRecordThatContradictsItselfIsRefused(t *testing.T) {
	first := func(p *ProgramRecord) *program.Worker { return p.Core.Serving.Workers[0] }
	for want, spoil := range map[string]func(*ProgramRecord){
		"generation 1 has no configuration": func(p *ProgramRecord) { p.Core.Serving.Config = nil },
		"there are two generations 1":       func(p *ProgramRecord) { p.Core.Trial.Number = 1 },
		"slot 2 of 2":                       func(p *ProgramRecord) { first(p).State, first(p).Slot = program.Ready, 2 },
		"slot -1 of 2":                      func(p *ProgramRecord) { first(p).State, first(p).Slot = program.Stopping, -1 },
		`the recorded listener "" contradicts itself`: func(p *ProgramRecord) {
			g := p.Generations[1]
			g.Lanes = []*socket.Lane{{}}
			p.Generations[1] = g
		},
	} {
		r := reloading(t)
		spoil(&r.Programs[0])
		_, _, err := decode(textOfRecord(t, r, 0))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

func TestRecordHasWorkersWhoseSlotsWereScaledAway(t *testing.T) {
	for _, state := range []program.WorkerState{program.Finishing, program.Stopping} {
		r := reloading(t)
		w := r.Programs[0].Core.Serving.Workers[0]
		w.State, w.Slot = state, 2
		if _, _, err := decode(textOfRecord(t, r, 0)); err != nil {
			t.Errorf("%s: %v", state, err)
		}
	}
}

func TestRecordKeepsEveryByte(t *testing.T) {
	const raw = "p\xe4ss\xffword \ufffd"
	r := reloading(t)
	p := &r.Programs[0]
	p.Core.Config.Command = []string{"x", raw}
	found := &snapshot.Snapshot{Directory: "/" + raw, Environment: []string{"A=ok", "SECRET=" + raw}}
	p.Generations[1] = GenerationRecord{Snapshot: found}
	back, _, err := decode(textOfRecord(t, r, 0))
	must.Do(t, err)
	is := back.Programs[0]
	if got := is.Core.Config.Command[1]; got != raw {
		t.Errorf("the argument is %q", got)
	}
	if got := is.Generations[1].Snapshot; !reflect.DeepEqual(got, found) {
		t.Errorf("directory and environment are %+v", got)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(textOfRecord(f, &Record{Programs: []ProgramRecord{{Core: program.New(testConfig(1, config.All))}}}, 3))
	f.Add(batchOf("{}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if r, _, err := decode(text); err == nil {
			writtenAgain(t, r)
		}
	})
}

// textOfRecord is a record as the next supervisord reads it, after a batch of this number.
func textOfRecord(t testing.TB, r *Record, sequence uint64) []byte {
	t.Helper()
	fd, err := memfd("record")
	if err == nil {
		defer unix.Close(fd)
		err = newLog(fd, sequence).putWhole(r, r.programs)
	}
	must.Do(t, err)
	return contents(t, fd)
}

func contents(t rapid.TB, fd int) []byte {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", fd))
	must.Do(t, err)
	return text
}

// batchOf is the only batch of a record.
func batchOf(data string) []byte {
	text := append(make([]byte, headSize), data...)
	seal(text, 1)
	return text
}
