package program

import (
	"slices"
	"testing"
	"time"

	"example.org/supervisord/internal/config"
)

// crashed ends a worker as a bug does.
func (s *script) crashed(worker int) {
	s.send(Exited{Worker: worker, Exit: Exit{Reason: "killed by SIGSEGV", Tail: []string{"panic: oops"}}})
}

func TestRestartsAreCountedSinceGenerationServes(t *testing.T) {
	s := newScript(t, testConfig(2, config.All))
	s.up()
	if s.p.Restarts != 0 || s.p.LastCrash != nil {
		t.Fatalf("%+v", s.p.crashes)
	}
	at := s.now
	s.crashed(2)
	s.send(ReadySaid{Worker: 3})
	if c := s.p.LastCrash; s.p.Restarts != 1 || c == nil || !c.At.Equal(at) || c.Generation != 1 || c.Worker != 2 || c.Slot != 1 ||
		c.Reason != "killed by SIGSEGV" || !slices.Equal(c.Tail, []string{"panic: oops"}) {
		t.Errorf("%d restarts, last crash %+v", s.p.Restarts, c)
	}
	s.send(Exited{Worker: 1, Exit: Exit{Clean: true}})
	if s.p.Restarts != 2 || s.p.LastCrash.Worker != 2 {
		t.Errorf("%d restarts, last crash %+v after a clean end", s.p.Restarts, s.p.LastCrash)
	}
	s.deploy()
	if s.p.Restarts != 0 || s.p.LastCrash == nil {
		t.Errorf("%d restarts, last crash %+v in a new generation", s.p.Restarts, s.p.LastCrash)
	}
}

func TestPlannedEndIsNoCrash(t *testing.T) {
	s := newScript(t, testConfig(1, config.All))
	s.up()
	s.send(Replace{Worker: 1, Reason: "unhealthy"})
	s.exit(1) // before its successor is ready
	s.send(ReadySaid{Worker: 2})
	s.send(Reload{Reason: "HUP"})
	s.prepared()
	s.exit(3) // on trial
	s.send(Stop{})
	s.exit(2)
	if s.p.Restarts != 0 || s.p.LastCrash != nil {
		t.Errorf("%d restarts, last crash %+v", s.p.Restarts, s.p.LastCrash)
	}
}

func TestReplacementThatIsNeverReadyIsTheLastCrash(t *testing.T) {
	s := newScript(t, testConfig(1, config.All))
	s.up()
	s.crashed(1)
	s.after(time.Minute)
	if c := s.p.LastCrash; s.p.Restarts != 2 || c.Worker != 2 || c.Reason != "not ready within 1m0s" {
		t.Errorf("%d restarts, last crash %+v", s.p.Restarts, c)
	}
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
