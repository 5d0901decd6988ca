package program

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/worker/life"
)

func TestAgesOfTwoWorkersDiffer(t *testing.T) {
	c := testConfig(2, config.All)
	c.MaxAge = time.Hour
	g := &Generation{Config: c}
	began := time.Unix(1_000_000, 0)
	seen := map[time.Time]bool{}
	for n := range 100 {
		at := (&Worker{Standing: Standing{Number: n}, Spawned: began}).expiry(g)
		if age := at.Sub(began); age < 54*time.Minute || age > 66*time.Minute {
			t.Errorf("worker %d lives for %s", n, age)
		}
		seen[at] = true
	}
	if len(seen) < 95 {
		t.Errorf("100 workers have %d different ages", len(seen))
	}
}

// budgeted is a program with a crash budget.
func budgeted(workers, budget int) *config.Program {
	c := testConfig(workers, config.All)
	c.Restart.Budget = budget
	return c
}

// fails lets the worker in slot 0 be ready for a while and then fail, and returns how often the wait for its successor
// was doubled: 0 for no wait, 1 for backoff.min. Then the successor is ready.
func (s *transcript) fails(after time.Duration, how string) (doubled int) {
	s.t.Helper()
	s.plays(fmt.Sprint("wait for=", after))
	g := s.p.Serving
	i := slices.IndexFunc(g.Workers, func(w *Worker) bool { return w.Slot == 0 && w.State == Ready })
	if i < 0 {
		s.t.Fatalf("no worker is ready: %+v", g)
	}
	s.did = nil
	s.plays(fmt.Sprintf(how, g.Workers[i].Number))
	told := of[Report](s.did)
	wait := told[slices.IndexFunc(told, func(r Report) bool {
		return r.Kind == SlotRetry || r.Kind == StartRetry || r.Kind == WorkerLeaving
	})].After
	for full := s.p.Config.Restart.BackoffMin; wait > 0; full *= 2 {
		if doubled++; wait <= full {
			break
		}
	}
	s.now = s.now.Add(wait)
	s.plays("tick")
	if s.p.Trial != nil { // restart.generation is new
		s.plays("prepared; ready all")
	}
	for _, g := range slices.Clone(s.p.Draining) {
		for _, w := range slices.Clone(g.Workers) {
			s.plays(fmt.Sprint("exits ", w.Number))
		}
	}
	s.plays(fmt.Sprint("ready ", s.p.LastWorker))
	return doubled
}

func TestCrashBudgetIsSpentBeforeTheFirstWait(t *testing.T) {
	const crash = "exits %d signal=SEGV"
	for _, test := range []struct {
		name       string
		budget     int
		after      time.Duration // how long each worker is ready
		how        string
		generation config.ReplacementPolicy
		doubled    []int
	}{
		{"no budget", 0, time.Second, crash, config.Same, []int{0, 1, 2, 3, 4}},
		{"right after ready", 3, 0, crash, config.Same, []int{0, 0, 0, 0, 1, 2, 3, 4}},
		{"once a second", 3, time.Second, crash, config.Same, []int{0, 0, 0, 0, 1, 2, 3, 4}},
		{"the budget refills meanwhile", 1, 6 * time.Second, crash, config.Same, []int{0, 0, 1, 2, 3, 4}},
		{"and pays for no slot that has waited", 1, 9900 * time.Millisecond, crash, config.Same,
			[]int{0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8}},
		{"stable", 3, 10 * time.Second, crash, config.Same, []int{0, 0, 0, 0, 0, 0, 0, 0, 0}},
		{"health", 3, time.Second, "unhealthy %d", config.Same, []int{0, 0, 0, 0, 1, 2, 3, 4}},
		{"new generations", 3, time.Second, crash, config.New, []int{0, 0, 0, 0, 1, 2, 3, 4}},
	} {
		for _, workers := range []int{1, 2} { // the second one never fails
			c := budgeted(workers, test.budget)
			c.Restart.Generation, c.Restart.BackoffMax = test.generation, 25600*time.Millisecond
			s := newTranscript(t, c)
			s.plays("start; prepared; ready all")
			var doubled []int
			for range test.doubled {
				doubled = append(doubled, s.fails(test.after, test.how))
			}
			if !slices.Equal(doubled, test.doubled) {
				t.Errorf("%s: with %d workers the waits were doubled %v times, want %v", test.name, workers, doubled,
					test.doubled)
			}
		}
	}
}

func TestThousandWorkersThatCrashTogetherShareOneBudget(t *testing.T) {
	const workers, budget = 1000, 5
	s := newTranscript(t, budgeted(workers, budget))
	s.plays("start; prepared; ready all")
	all := func() int {
		s.did = nil
		for _, w := range slices.Clone(s.p.Serving.Workers) {
			s.plays(fmt.Sprintf("exits %d signal=SEGV", w.Number))
		}
		return len(of[Spawn](s.did))
	}
	if n := all(); n != workers {
		t.Errorf("after their first crash %d are replaced at once", n)
	}
	for _, w := range s.p.Serving.Workers {
		s.step(Did{w.Number, life.ReadySaid{}})
	}
	if n := all(); n != budget {
		t.Errorf("after their second crash %d are replaced at once", n)
	}
	spread := map[time.Time]bool{}
	for _, slot := range s.p.Serving.Slots {
		spread[slot.RetryAt] = true
	}
	if len(spread) < workers/2 {
		t.Errorf("%d workers are started again at only %d times", workers, len(spread))
	}
}
