package program

import (
	"errors"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/worker/life"
)

// tried returns a program with a serving generation and another on trial.
func tried(t *testing.T, strategy config.Strategy) *script {
	s := newScript(t, testConfig(1, strategy))
	s.up()
	s.now = s.now.Add(time.Second)
	s.send(Reload{Reason: "HUP", AskedBy: "alice"})
	return s
}

func TestReloadRecordHasOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		play func(*script)
		want Outcome
		goes int
	}{
		"on trial": {func(s *script) { s.prepared() }, Pending, 0},
		"serves":   {func(s *script) { s.prepared(); s.allReady() }, Serves, 1},
		"failed to be prepared": {func(s *script) {
			s.send(Prepared{Generation: 2, Failure: &Failure{Step: StepPrepare}})
		}, NotPrepared, 2},
		"failed its preflight": {func(s *script) {
			s.send(Prepared{Generation: 2, Failure: &Failure{Step: StepPreflight}})
		}, NotPrepared, 2},
		"not ready in time": {func(s *script) { s.prepared(); s.after(time.Hour) }, NotReady, 2},
		"could not be started": {func(s *script) {
			s.prepared()
			s.send(Did{2, life.Exited{Step: "exec", Err: errors.New("no such file")}})
		}, WorkerDown, 2},
		"ended too soon": {func(s *script) { s.prepared(); s.exit(2) }, WorkerDown, 2},
		"aborted":        {func(s *script) { s.prepared(); s.send(Abort{Reason: "no", AskedBy: "bob"}) }, Aborted, 2},
		"stopped":        {func(s *script) { s.prepared(); s.send(Stop{}) }, Stopped, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := tried(t, config.All)
			c.play(s)
			r := s.p.reloadOf(2)
			if r.Outcome != c.want || r.Goes() != c.goes || r.Replaced != 1 || r.Reason != "HUP" || r.AskedBy != "alice" {
				t.Errorf("the record is %+v", r)
			}
			if (r.Failure != nil) != (r.Outcome.Failed() || r.Outcome == Aborted) || r.Decided.IsZero() != r.Outcome.Open() {
				t.Errorf("the record is %+v", r)
			}
		})
	}
}

func TestLastReloadsAreRemembered(t *testing.T) {
	s := newScript(t, testConfig(1, config.All))
	s.up()
	for range keptReloads + 5 {
		old := s.p.Serving.Workers[0].Number
		s.send(Reload{Reason: "HUP"})
		s.prepared()
		s.allReady()
		s.exit(old)
	}
	if n := len(s.p.Reloads); n != keptReloads || s.p.Reloads[n-1].Generation != s.p.LastGeneration ||
		s.p.reloadOf(1) != nil {
		t.Errorf("%d are remembered, the last is %+v", n, s.p.Reloads[n-1])
	}
}

func TestDrainingReloadIsNotForgotten(t *testing.T) {
	c := testConfig(1, config.All)
	c.Stop.Steps[0].Wait, c.Reload.MaxDraining = config.Forever, 0
	s := newScript(t, c)
	s.up()
	for range keptReloads + 5 {
		s.send(Reload{Reason: "HUP"})
		s.prepared()
		s.allReady()
	}
	if n := len(s.p.Reloads); n != keptReloads+5 {
		t.Errorf("%d are remembered", n)
	}
}

// refused fails unless the last event was a canary that was refused for this reason without any action.
func (s *script) refused(why string) {
	s.t.Helper()
	r, ok := s.reported(CanaryRefused)
	if !ok || !strings.Contains(r.Reason, why) {
		s.t.Errorf("reported %+v, want a refusal that says %q", r, why)
	}
	s.expect("")
}

func TestCanaryIsRefusedIfItWouldGrowOrWait(t *testing.T) {
	for why, c := range map[string]struct {
		config *config.Program
		before func(*script)
	}{
		"would be the whole generation": {testConfig(1, config.All), (*script).up},
		"stop-first":                    {testConfig(2, config.StopFirst), (*script).up},
		"no generation serves": {testConfig(2, config.All), func(s *script) {
			s.prepared()
			s.exit(1)
			s.did = nil
		}},
		"generation 1 does not serve yet": {testConfig(2, config.All), func(s *script) { s.did = nil }},
		"it is stopped": {testConfig(2, config.All),
			func(s *script) { s.up(); s.send(Stop{}); s.did = nil }},
		"generation 2 is a canary already": {testConfig(2, config.All), func(s *script) {
			s.up()
			s.send(Reload{Canary: 1})
			s.did = nil
		}},
		"a reload is due": {retried(time.Minute), func(s *script) {
			s.up()
			s.send(Reload{})
			s.send(Prepared{Generation: 2, Failure: &Failure{Step: "preflight"}})
			s.did = nil
		}},
		"1 generation drains": {draining(1, 2), func(s *script) {
			s.up()
			s.deploy()
			s.did = nil
		}},
	} {
		t.Run(why, func(t *testing.T) {
			s := newScript(t, c.config)
			c.before(s)
			before, last := s.p.Config, s.p.LastGeneration
			changed := *c.config
			s.send(Reload{Config: &changed, Canary: 1})
			s.refused(why)
			if s.p.Config != before || s.p.Candidate == &changed || s.p.LastGeneration != last {
				t.Error("something has changed")
			}
		})
	}
}

func retried(after time.Duration) *config.Program {
	c := testConfig(2, config.All)
	c.Reload.Retry = after
	return c
}

// deploy brings the next generation into service.
func (s *script) deploy() {
	s.send(Reload{Reason: "HUP"})
	s.prepared()
	s.allReady()
}

func TestCanaryConfigIsUsedOnlyByTheCanaryUntilPromoted(t *testing.T) {
	tried := testConfig(3, config.All)
	tried.Command = []string{"new"}
	begun := func(t *testing.T, strategy config.ReplacementPolicy) *script {
		c := testConfig(3, config.All)
		c.Restart.Generation = strategy
		s := newScript(t, c)
		s.up()
		s.send(Reload{Config: tried, Canary: 1})
		s.prepared()
		s.allReady()
		return s
	}
	t.Run("promoted", func(t *testing.T) {
		s := begun(t, config.Same)
		s.send(Promote{})
		if s.p.Config != tried {
			t.Error("the next generation has another configuration")
		}
	})
	t.Run("aborted, then a worker dies", func(t *testing.T) {
		s := begun(t, config.New)
		s.send(Abort{})
		s.after(time.Minute)
		s.exit(1)
		if g := s.p.Trial; g == nil || g.Config == tried {
			t.Errorf("the next generation is %+v", g)
		}
	})
	t.Run("aborted, then read again", func(t *testing.T) {
		s := begun(t, config.Same)
		s.send(Abort{})
		again := *tried
		if !s.p.Knows(&again) || !s.p.Knows(s.p.Config) {
			t.Error("the configuration of the canary or of the program counts as changed")
		}
		other := *tried
		other.Command = []string{"newer"}
		if s.p.Knows(&other) {
			t.Error("a change is not detected")
		}
	})
	t.Run("recorded", func(t *testing.T) {
		s := begun(t, config.Same)
		s.p = recorded(t, s.p)
		s.send(Promote{})
		if s.p.Config.Command[0] != "new" {
			t.Error("a promotion after an upgrade keeps the old configuration")
		}
	})
}

// draining returns a program of which n generations may drain.
func draining(most, workers int) *config.Program {
	c := testConfig(workers, config.All)
	c.Reload.MaxDraining = most
	return c
}

func TestSourceIsTheKindOfWhoAsks(t *testing.T) {
	for by, want := range map[string]Origin{
		"":                                        askedNobody,
		"alice (uid 1000, pid 4711)":              askedControl,
		"root (uid 0, pid 4711, login alice)":     askedControl,
		"uid 1000 (pid 4711)":                     askedControl,
		"uid 1000":                                askedControl,
		"signal HUP (uid 1000, pid 4711)":         askedControl, // the name of a user
		"token holder from x (uid 1000, pid 47)":  askedControl,
		"unknown":                                 askedControl,
		ByTokenHolder("192.0.2.7"):                askedPage,
		BySignal("HUP", "bash (pid 4711, uid 0)"): askedSignal,
		BySignal("TERM", "x (pid 4711, uid 0) of worker 3 of program web"): askedSignal,
		ByWatch("/srv/app/current"):                                        askedWatch,
		ByWatch("/srv/root (uid 0, pid 1)"):                                askedWatch,
		byTimer("reload.every"):                                            askedTimer,
	} {
		if got := OriginOf(by); got != want {
			t.Errorf("%q is %s, want %s", by, got, want)
		}
	}
}

func TestTimersSayThatTheyAsk(t *testing.T) {
	c := testConfig(1, config.All)
	c.Reload.Every, c.MaxAge = time.Hour, 10*time.Minute
	s := newScript(t, c)
	s.up()
	asked := func(kind ReportKind, want string) {
		t.Helper()
		if r, ok := s.reported(kind); !ok || r.AskedBy != want {
			t.Errorf("reported %+v, want that it was asked for by %q", r, want)
		}
		s.did = nil
	}
	s.after(12 * time.Minute)
	asked(WorkerLeaving, "timer: max_age")
	s.send(Did{2, life.ReadySaid{}})
	s.pauses(time.Second)
	s.after(time.Second)
	asked(Resumed, "timer: pause")
	c.MaxAge = 0
	s.after(time.Hour)
	asked(TrialBegan, "timer: reload.every")
	if by := s.p.Reloads[1].AskedBy; by != "timer: reload.every" {
		t.Errorf("the record says %q", by)
	}
	s.prepared()
	s.allReady()
	s.p.Config = testConfig(2, config.All)
	s.send(Reload{AskedBy: "alice"})
	s.prepared()
	s.allReady()
	s.send(Reload{Canary: 1, For: time.Minute, AskedBy: "alice"})
	s.prepared()
	s.allReady()
	s.after(time.Minute)
	asked(CanaryPromoted, "timer: --for")
}
