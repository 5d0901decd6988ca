package program

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/config"
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

// draining returns a program of which n generations may drain.
func draining(most, workers int) *config.Program {
	c := testConfig(workers, config.All)
	c.Reload.MaxDraining = most
	return c
}
