package program

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/worker/life"
)

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

func TestCanaryIsRefusedIfEitherGenerationIsStopFirst(t *testing.T) {
	s := newScript(t, testConfig(2, config.All))
	s.up()
	s.send(Reload{Config: testConfig(2, config.StopFirst), Canary: 1})
	s.refused("stop-first")
}

func TestReloadDuringCanaryIsDueAsWholeGeneration(t *testing.T) {
	for name, end := range map[string]Event{"promoted": Promote{}, "aborted": Abort{ThenReload: true}} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, testConfig(2, config.All))
			s.up()
			s.send(Reload{Canary: 1})
			s.prepared()
			s.allReady()
			s.did = nil
			newest := testConfig(2, config.All)
			s.send(Reload{Config: newest, Reason: "HUP"})
			if r, ok := s.reported(ReloadHeld); !ok || r.Generation != 2 || r.Reason != "HUP" {
				t.Errorf("reported %+v", r)
			}
			if why := s.p.Waits(s.now); !strings.Contains(why, "generation 2, a canary") {
				t.Errorf("it waits for %q", why)
			}
			s.after(time.Hour)
			s.expect("")
			s.send(end)
			if s.p.Trial != nil && s.p.Trial.Number == 2 {
				s.allReady()
			}
			if t3 := s.p.Trial; t3 == nil || t3.Number != 3 || t3.Canary != 0 || t3.Config != newest {
				t.Errorf("then there is %+v", t3)
			}
		})
	}
}

func TestReloadDuringTimedCanaryWaitsForNoDecision(t *testing.T) {
	s := newScript(t, testConfig(2, config.All))
	s.up()
	s.send(Reload{Canary: 1, For: time.Minute})
	s.prepared()
	s.allReady()
	if r, ok := s.reported(CanaryWatched); !ok || r.After != time.Minute {
		t.Errorf("reported %+v", r)
	}
	if _, ok := s.reported(CanaryHeld); ok {
		t.Error("a decision about the canary is requested")
	}
	s.send(Reload{Reason: "HUP"})
	if _, ok := s.reported(ReloadQueued); !ok {
		t.Error("the reload is not reported as queued")
	}
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
		text, err := json.Marshal(s.p)
		if err != nil {
			t.Fatal(err)
		}
		s.p = new(Program)
		if err := json.Unmarshal(text, s.p); err != nil {
			t.Fatal(err)
		}
		s.send(Promote{})
		if s.p.Config.Command[0] != "new" {
			t.Error("a promotion after an upgrade keeps the old configuration")
		}
	})
}

func TestFailedCanaryIsNotRetriedWhole(t *testing.T) {
	s := newScript(t, retried(time.Second))
	s.up()
	s.send(Reload{Canary: 1})
	s.prepared()
	s.exit(3)
	s.did = nil
	s.after(time.Hour)
	s.expect("")
}

func TestScaleDuringCanaryScalesBothGenerations(t *testing.T) {
	s := newScript(t, testConfig(2, config.All))
	s.up()
	s.send(Reload{Config: testConfig(2, config.All), Canary: 1})
	s.prepared()
	s.allReady()
	s.did = nil
	s.send(Scale{Workers: 3})
	s.expect("spawn 1/2")
	s.send(Did{4, life.ReadySaid{}})
	s.send(Scale{Workers: 1}) // the canary would be the whole program
	s.expect("")
	s.send(Promote{})
	s.expect("spawn 2/1, spawn 2/2")
	if s.p.Config.Workers != 3 {
		t.Errorf("the next generation has %d workers", s.p.Config.Workers)
	}
}
