package program

import (
	"slices"
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

// crashed ends a worker as a bug does.
func (s *script) crashed(worker int) {
	s.send(Did{worker, life.Exited{Known: true, Status: 11, Tail: []string{"panic: oops"}}})
}

func TestRestartsGoOnWhereCrashesMakeNewGenerations(t *testing.T) {
	for workers := 1; workers <= 2; workers++ {
		c := testConfig(workers, config.All)
		c.Restart.Generation = config.New
		s := newScript(t, c)
		s.up()
		for n := 1; n <= 3; n++ {
			s.crashed(s.p.Serving.Workers[0].Number)
			s.after(time.Minute)
			s.prepared()
			s.allReady()
			if r := s.p.Reloads[len(s.p.Reloads)-1]; s.p.Restarts != n || r.Generation != n+1 || r.By != Crashed {
				t.Errorf("%d workers: %d restarts after %d crashes, last reload %+v", workers, s.p.Restarts, n, r)
			}
		}
		s.deploy()
		if s.p.Restarts != 0 {
			t.Errorf("%d workers: %d restarts after a deploy", workers, s.p.Restarts)
		}
	}
}

// budgeted is a program with a crash budget.
func budgeted(workers, budget int) *config.Program {
	c := testConfig(workers, config.All)
	c.Restart.Budget = budget
	return c
}

// fails lets the worker in slot 0 be ready for a while and then fail as the event says, and returns how often the wait
// for its successor was doubled: 0 for no wait, 1 for backoff.min. Then the successor is ready.
func (s *script) fails(after time.Duration, how func(worker int) Event) (doubled int) {
	s.t.Helper()
	s.after(after)
	g := s.p.Serving
	i := slices.IndexFunc(g.Workers, func(w *Worker) bool { return w.Slot == 0 && w.State == Ready })
	if i < 0 {
		s.t.Fatalf("no worker is ready: %+v", g)
	}
	number := g.Workers[i].Number
	told := len(s.reports)
	s.send(how(number))
	told += slices.IndexFunc(s.reports[told:],
		func(r Report) bool { return r.Kind == SlotRetry || r.Kind == StartRetry || r.Kind == WorkerLeaving })
	wait := s.reports[told].After
	for full := s.p.Config.Restart.BackoffMin; wait > 0; full *= 2 {
		if doubled++; wait <= full {
			break
		}
	}
	s.now = s.now.Add(wait)
	s.send(Tick{})
	if s.p.Trial != nil { // compat.generation is new
		s.prepared()
		s.allReady()
	}
	for _, g := range slices.Clone(s.p.Draining) {
		for _, w := range slices.Clone(g.Workers) {
			s.exit(w.Number)
		}
	}
	s.send(Did{s.p.LastWorker, life.ReadySaid{}})
	return doubled
}

func byCrash(worker int) Event {
	return Did{worker, life.Exited{Known: true, Status: 11}}
}

func byHealth(worker int) Event { return Replace{Worker: worker, Reason: "unhealthy"} }

// leavesAtOnce is what a worker does that says STOPPING=1.
func (s *script) leavesAtOnce(worker int) Event {
	s.send(byHealth(worker))
	return Did{worker, life.Exited{Known: true}}
}

func TestCrashBudgetIsSpentBeforeTheFirstWait(t *testing.T) {
	for _, test := range []struct {
		name       string
		budget     int
		after      time.Duration // how long each worker is ready
		how        func(int) Event
		generation config.ReplacementPolicy
		doubled    []int
	}{
		{"no budget", 0, time.Second, byCrash, config.Same, []int{0, 1, 2, 3, 4}},
		{"right after ready", 3, 0, byCrash, config.Same, []int{0, 0, 0, 0, 1, 2, 3, 4}},
		{"once a second", 3, time.Second, byCrash, config.Same, []int{0, 0, 0, 0, 1, 2, 3, 4}},
		{"the budget refills meanwhile", 1, 6 * time.Second, byCrash, config.Same, []int{0, 0, 1, 2, 3, 4}},
		{"and pays for no slot that has waited", 1, 9900 * time.Millisecond, byCrash, config.Same,
			[]int{0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8}},
		{"stable", 3, 10 * time.Second, byCrash, config.Same, []int{0, 0, 0, 0, 0, 0, 0, 0, 0}},
		{"health", 3, time.Second, byHealth, config.Same, []int{0, 0, 0, 0, 1, 2, 3, 4}},
		{"new generations", 3, time.Second, byCrash, config.New, []int{0, 0, 0, 0, 1, 2, 3, 4}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, workers := range []int{1, 2} { // the second one never fails
				c := budgeted(workers, test.budget)
				c.Restart.Generation, c.Restart.BackoffMax = test.generation, 25600*time.Millisecond
				s := newScript(t, c)
				s.up()
				var doubled []int
				for range test.doubled {
					doubled = append(doubled, s.fails(test.after, test.how))
				}
				if !slices.Equal(doubled, test.doubled) {
					t.Errorf("with %d workers the waits were doubled %v times, want %v", workers, doubled, test.doubled)
				}
			}
		})
	}
}

func TestThousandWorkersThatCrashTogetherShareOneBudget(t *testing.T) {
	const workers, budget = 1000, 5
	s := newScript(t, budgeted(workers, budget))
	s.up()
	all := func() (atOnce int) {
		for _, w := range slices.Clone(s.p.Serving.Workers) {
			s.did = nil
			s.crashed(w.Number)
			atOnce += strings.Count(shorten(s.did), "spawn")
		}
		return atOnce
	}
	if n := all(); n != workers {
		t.Errorf("after their first crash %d are replaced at once", n)
	}
	for _, w := range s.p.Serving.Workers {
		s.send(Did{w.Number, life.ReadySaid{}})
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

func TestPlannedEndCostsNoBudget(t *testing.T) {
	for name, happen := range map[string]func(*script){
		"over a limit":     func(s *script) { s.send(Replace{Worker: s.p.LastWorker, Reason: overLimit, OverLimit: true}) },
		"crash on trial":   func(s *script) { s.send(Reload{Reason: "HUP"}); s.prepared(); s.crashed(s.p.LastWorker) },
		"unwell on trial":  func(s *script) { s.send(Reload{Reason: "HUP"}); s.prepared(); s.send(byHealth(s.p.LastWorker)) },
		"crash of a drain": func(s *script) { old := s.p.LastWorker; s.deploy(); s.crashed(old) },
		"stop": func(s *script) {
			s.send(Stop{})
			s.crashed(s.p.LastWorker)
			s.send(
				Start{Config: s.p.Config})
			s.up()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, budgeted(1, 3))
			s.up()
			for range 10 {
				happen(s)
				for _, w := range s.p.Serving.Workers {
					s.send(Did{w.Number, life.ReadySaid{}})
				}
				for _, g := range slices.Clone(s.p.Draining) {
					for _, w := range slices.Clone(g.Workers) {
						s.exit(w.Number)
					}
				}
			}
			if failures := s.p.Serving.Slots[0].Failures; !s.p.WholeAt.IsZero() || failures != 0 {
				t.Errorf("the budget is whole at %s, %d failures", s.p.WholeAt, failures)
			}
		})
	}
}

func TestWorkerThatSaysItLeavesRightAfterReadyBacksOff(t *testing.T) {
	s := newScript(t, budgeted(1, 3))
	s.up()
	spawned := 0
	for end := s.now.Add(time.Minute); s.now.Before(end); s.after(10 * time.Millisecond) {
		for _, w := range slices.Clone(s.p.Serving.Workers) {
			if w.State == Starting {
				spawned++
				s.send(Did{w.Number, life.ReadySaid{}})
			}
			s.send(s.leavesAtOnce(w.Number))
		}
	}
	if spawned < 8 || spawned > 20 {
		t.Errorf("%d workers were started in a minute", spawned)
	}
}

func TestAnyNumberOfGenerationsDrainWithoutMaxDraining(t *testing.T) {
	c := testConfig(1, config.All)
	c.Reload.MaxDraining = 0
	s := newScript(t, c)
	s.up()
	for range 20 {
		s.send(Reload{Reason: "HUP"})
		s.prepared()
		s.allReady()
	}
	if n := len(s.p.Draining); n != 20 {
		t.Errorf("%d drain", n)
	}
	if _, killed := s.reported(WorkerKilled); killed {
		t.Error("one was killed")
	}
}

func TestStatusFileLinesAreInNumericOrder(t *testing.T) {
	c := testConfig(2, config.All)
	c.Reload.MaxDraining = 0
	s := newScript(t, c)
	s.up()
	for range 10 {
		s.send(Reload{Reason: "HUP"})
		s.prepared()
		s.allReady()
	}
	pid := 1000
	for w := range s.p.Workers() {
		s.send(Did{w.Number, life.Spawned{PID: pid}})
		pid--
	}
	if got, want := s.p.Lines(), "8:983\n8:984\n9:981\n9:982\n10:979\n10:980\n11:999\n11:1000\n"; !strings.HasSuffix(got,
		want) {
		t.Errorf("the status is\n%swant\n%s", got, want)
	}
}

func watched() *config.Program {
	c := testConfig(1, config.All)
	c.Reload.MaxDraining, c.Watch = 0, []string{"/srv/web"}
	return c
}

// change reports a changed watched file and brings the following generation, if any, into service.
func (s *script) change() {
	s.send(Reload{Reason: "watched file changed", By: Changed})
	s.ready()
}

func (s *script) ready() {
	if s.p.Trial != nil {
		s.prepared()
		s.allReady()
	}
}

func TestWorkerWritingIntoWatchedFolderIsReloadedLessOften(t *testing.T) {
	s := newScript(t, watched())
	s.up()
	last, idle := s.p.LastGeneration, 0
	for range 10 * 60 * 2 { // ten minutes, with a change 500 ms after each generation
		s.after(500 * time.Millisecond)
		s.ready()
		if s.p.LastGeneration != last || idle == 0 {
			last = s.p.LastGeneration
			s.change()
		}
		idle++
	}
	if n := s.p.LastGeneration; n < 15 || n > 35 {
		t.Errorf("%d generations in ten minutes", n)
	}
	said := 0
	for _, r := range s.reports {
		if r.Kind == ReloadDamped {
			said++
			if !strings.Contains(r.Reason, "/srv/web") {
				t.Errorf("it says %q", r.Reason)
			}
		}
	}
	if said != 1 {
		t.Errorf("it was logged %d times", said)
	}
}

func TestOccasionalChangesReloadAtOnce(t *testing.T) {
	s := newScript(t, watched())
	s.up()
	for n := 2; n < 20; n++ {
		s.after(changeSoon + time.Second)
		s.change()
		if s.p.LastGeneration != n {
			t.Fatalf("after %d changes there are %d generations", n-1, s.p.LastGeneration)
		}
	}
}
