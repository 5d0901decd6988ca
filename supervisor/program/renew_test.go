package program

import (
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
