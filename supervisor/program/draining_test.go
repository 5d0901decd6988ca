package program

import (
	"slices"
	"testing"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/worker/life"
)

// draining returns a program of which n generations may drain.
func draining(most, workers int) *config.Program {
	c := testConfig(workers, config.All)
	c.Reload.MaxDraining = most
	return c
}

func TestReloadWaitsWhileTooManyGenerationsDrain(t *testing.T) {
	s := newScript(t, draining(2, 1))
	s.up()
	s.deploy()
	s.deploy()
	s.did = nil
	for range 5 {
		s.send(Reload{Reason: "HUP"})
	}
	r, ok := s.reported(ReloadFull)
	if !ok || r.Serving != 3 || r.Reason != "HUP" {
		t.Errorf("reported %+v", r)
	}
	s.after(20 * time.Second)
	s.expect("")
	if why := s.p.Waits(s.now); why != "2 generations drain, as many as reload.max_draining allows" {
		t.Errorf("it waits for %q", why)
	}
	if got := s.p.Awaited(); got != 4 {
		t.Errorf("generation %d is awaited", got)
	}
	s.exit(2)
	s.expect("forget 2, prepare 4")
	s.prepared()
	s.allReady()
	s.expect("spawn 4/0, steer 4, TERM 3")
	if s.p.Again != nil {
		t.Error("five reloads were more than one")
	}
}

func TestReloadWaitingForDrainBeginsWhenStopPlanHasKilled(t *testing.T) {
	s := newScript(t, draining(1, 1))
	s.up()
	s.deploy()
	s.send(Reload{Reason: "HUP"})
	s.did = nil
	s.after(30 * time.Second)
	s.expect("KILL 1, prepare 3")
}

func TestReloadWhileNothingServesNeverWaitsForDrain(t *testing.T) {
	s := newScript(t, draining(1, 1))
	s.up()
	s.deploy()
	s.exit(2) // the serving worker is gone, and the first generation drains
	s.did = nil
	s.send(Reload{Reason: "HUP"})
	s.expect("prepare 3")
}

func TestRaisedMaxDrainingLetsReloadBegin(t *testing.T) {
	s := newScript(t, draining(1, 1))
	s.up()
	s.deploy()
	s.send(Reload{Reason: "HUP"})
	s.did = nil
	s.send(Reload{Config: draining(2, 1), Reason: "HUP"})
	s.expect("prepare 3")
}

func TestRenewalWaitsForDrainToo(t *testing.T) {
	for name, c := range map[string]struct {
		config *config.Program
		begin  func(*script)
	}{
		"reload.every": {func() *config.Program {
			c := draining(1, 1)
			c.Reload.Every, c.Stop.Steps[0].Wait = time.Minute, config.Forever
			return c
		}(), func(s *script) { s.after(time.Hour) }},
		"compat.generation": {func() *config.Program {
			c := draining(1, 2)
			c.Restart.Generation, c.Stop.Steps[0].Wait = config.New, config.Forever
			return c
		}(), func(s *script) { s.after(time.Minute); s.exit(3) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, c.config)
			s.up()
			s.deploy()
			s.did = nil
			c.begin(s)
			s.after(time.Hour)
			s.expect("")
			n := 0
			for _, r := range s.reports {
				if r.Kind == ReloadFull {
					n++
				}
			}
			if n != 1 {
				t.Errorf("it was logged %d times", n)
			}
			for _, w := range slices.Clone(s.p.Draining[0].Workers) {
				s.exit(w.Number)
			}
			if s.p.Trial == nil {
				t.Error("it does not begin")
			}
		})
	}
}

func TestDrainingGenerationThatStillServesDoesNotCount(t *testing.T) {
	c := draining(1, 2)
	c.Reload.Strategy = config.Rolling
	s := newScript(t, c)
	s.up()
	s.send(Reload{})
	s.prepared()
	s.send(Did{3, life.ReadySaid{}})
	s.exit(1)
	s.exit(4) // the trial has failed; worker 3 serves until slot 0 is filled again
	s.did = nil
	s.send(Reload{Reason: "HUP"})
	s.expect("prepare 3")
}
