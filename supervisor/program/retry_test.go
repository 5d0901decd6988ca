package program

import (
	"strings"
	"testing"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/worker/life"
)

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
