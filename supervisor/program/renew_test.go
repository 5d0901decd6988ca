package program

import (
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/worker/life"
)

func aged(workers int) *config.Program {
	c := testConfig(workers, config.All)
	c.MaxAge = time.Hour
	return c
}

func (s *script) leaving() (numbers []int) {
	for w := range s.p.Workers() {
		if w.State == Leaving {
			numbers = append(numbers, w.Number)
		}
	}
	return numbers
}

func TestWorkerIsReplacedAtMaxAgeWithinATenth(t *testing.T) {
	s := newScript(t, aged(1))
	s.up()
	s.after(54*time.Minute - time.Second)
	if got := s.leaving(); len(got) > 0 {
		t.Fatalf("%v leave too soon", got)
	}
	for range 24 {
		if len(s.leaving()) == 0 {
			s.after(30 * time.Second)
		}
	}
	s.send(Did{2, life.ReadySaid{}})
	s.send(Did{1, life.Exited{}})
	report, ok := s.reported(WorkerLeaving)
	if !ok || report.Worker != 1 || !strings.Contains(report.Reason, "max_age, 1h0m0s") {
		t.Errorf("%+v", report)
	}
	if s.p.Live() != 1 || s.p.State() != Up || s.p.Serving.Number != 1 {
		t.Errorf("%d workers, %s", s.p.Live(), s.p.State())
	}
}

func TestWorkersOfSameAgeAreReplacedOneByOne(t *testing.T) {
	s := newScript(t, aged(4))
	s.up()
	s.now = s.now.Add(2 * time.Hour) // the supervisor was down
	s.send(Tick{})
	gone := map[int]bool{}
	for range 4 {
		leaving := s.leaving()
		if len(leaving) != 1 || gone[leaving[0]] {
			t.Fatalf("%v leave, %v have gone", leaving, gone)
		}
		gone[leaving[0]] = true
		s.send(Tick{})
		if len(s.leaving()) != 1 {
			t.Fatalf("%v leave", s.leaving())
		}
		s.send(Did{s.p.LastWorker, life.ReadySaid{}})
		s.send(Did{leaving[0], life.Exited{}})
	}
	if len(s.leaving()) != 0 || s.p.Live() != 4 {
		t.Errorf("%v leave, %d live", s.leaving(), s.p.Live())
	}
}

func TestWorkerWhoseReplacementFailsServesPastMaxAge(t *testing.T) {
	s := newScript(t, aged(1))
	s.up()
	s.after(70 * time.Minute)
	for range 3 { // its replacements do not start
		s.exit(s.p.LastWorker)
		s.after(10 * time.Second)
	}
	if w, _ := s.p.Find(1); w == nil || w.State != Leaving || s.p.State() != Up {
		t.Errorf("%+v, %s", w, s.p.State())
	}
}

func TestReloadIsNotDisturbedByMaxAge(t *testing.T) {
	c := aged(2)
	c.Ready.Timeout = time.Hour
	s := newScript(t, c)
	s.up()
	s.after(50 * time.Minute)
	s.send(Reload{Reason: "HUP"})
	s.prepared()
	s.after(20 * time.Minute)
	if s.p.State() != Reloading || len(s.leaving()) > 0 {
		t.Error("a worker is replaced during a trial")
	}
}

func TestAgesOfTwoWorkersDiffer(t *testing.T) {
	g := &Generation{Config: aged(2)}
	began := time.Unix(1_000_000, 0)
	seen := map[time.Time]bool{}
	for n := range 100 {
		at := (&Worker{Number: n, Spawned: began}).expiry(g)
		if age := at.Sub(began); age < 54*time.Minute || age > 66*time.Minute {
			t.Errorf("worker %d lives for %s", n, age)
		}
		seen[at] = true
	}
	if len(seen) < 95 {
		t.Errorf("100 workers have %d different ages", len(seen))
	}
}

func TestWorkerOverLimitWaitsForOthers(t *testing.T) {
	s := newScript(t, testConfig(2, config.All))
	s.up()
	s.send(OverLimit{Worker: 1, Reason: "it is too big"})
	s.send(OverLimit{Worker: 2, Reason: "it is too big"})
	if got := s.leaving(); len(got) != 1 || got[0] != 1 {
		t.Fatalf("%v leave", got)
	}
	s.send(Did{3, life.ReadySaid{}})
	s.send(OverLimit{Worker: 1, Reason: "it is too big"}) // too late
	s.send(OverLimit{Worker: 2, Reason: "it is too big"})
	if got := s.leaving(); len(got) != 1 || got[0] != 2 {
		t.Errorf("%v leave", got)
	}
}
