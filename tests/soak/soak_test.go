package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/systemd"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

var long = flag.Bool("long", false, "soak for twenty minutes instead of one and a half")

// brief is the soak of scripts/test, which runs beside other tests and asks for less than scripts/soak. Its seed lets
// each kind of event come in its first storm.
var brief = flags{length: 90 * time.Second, round: 5 * time.Minute, seed: 1031, rate: 600, suite: "trixie"}

// TestSoak runs the brief soak, or a long one, whose seed is new each time; the first line of its output says it.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("no systemd lab with -short")
	}
	o := brief
	if *long {
		o.length, o.seed = 20*time.Minute, uint64(time.Now().Unix())
	}
	err := outside(t.Context(), &o, t.Output())
	if unable, ok := errors.AsType[systemd.UnableError](err); ok {
		t.Skip(unable)
	}
	if err != nil {
		t.Error(err)
	}
}

func TestEachKindOfEventComesInTheFirstStormOfTheBriefSoak(t *testing.T) {
	s := &soak{o: &brief, programs: newPrograms(brief.seed)}
	for _, c := range s.newSources() {
		if first := c.pause(); first > brief.length/3-4*time.Second {
			t.Errorf("%s comes after %v, and the storm lasts %v", c.name, first, brief.length/3)
		}
	}
}

func TestOneSeedDrawsOneSchedule(t *testing.T) {
	pauses := func(seed uint64) (all []time.Duration) {
		s := &soak{o: &flags{seed: seed, setClock: true}, programs: newPrograms(seed)}
		for _, c := range s.newSources() {
			all = append(all, c.pause(), c.pause())
		}
		return all
	}
	if a, b := pauses(1), pauses(1); !slices.Equal(a, b) {
		t.Errorf("seed 1 drew %v and %v", a, b)
	}
	if a, b := pauses(1), pauses(2); slices.Equal(a, b) {
		t.Errorf("seeds 1 and 2 drew %v", a)
	}
}

// told returns a ledger, and what it reports.
func told() (l *outcomes, violations *[]string) {
	violations = new([]string)
	return newLedger(func(format string, args ...any) {
		*violations = append(*violations, fmt.Sprintf(format, args...))
	}), violations
}

func TestLedgerReportsAReloadWithTwoOutcomes(t *testing.T) {
	l, violations := told()
	l.record("web", &program.ReloadRecord{Generation: 2, Outcome: program.Pending}, "an event")
	l.record("web", &program.ReloadRecord{Generation: 2, Outcome: program.Serves}, "an event")
	l.told(key{"web", 2}, program.Serves, "reload")
	if len(*violations) > 0 {
		t.Fatalf("one outcome: %q", *violations)
	}
	l.told(key{"web", 2}, program.NotReady, "reload")
	if len(*violations) != 1 {
		t.Errorf("two outcomes: %q", *violations)
	}
}

func TestLedgerReportsAReloadWithoutAnOutcomeAndAnAnswerWithoutAReload(t *testing.T) {
	l, violations := told()
	st := &supervisor.Status{Programs: []supervisor.ProgramStatus{{Name: "web", Newest: 2}}}
	l.record("web", &program.ReloadRecord{Generation: 1, Outcome: program.Serves}, "the status")
	l.record("web", &program.ReloadRecord{Generation: 2, Outcome: program.Serves}, "the status")
	if l.complete(st); len(*violations) > 0 {
		t.Fatalf("both are known: %q", *violations)
	}
	st.Programs[0].Newest = 3
	l.told(key{"web", 4}, program.Serves, "reload")
	if l.complete(st); len(*violations) != 2 {
		t.Errorf("generation 3 has no outcome and generation 4 does not exist: %q", *violations)
	}
}
