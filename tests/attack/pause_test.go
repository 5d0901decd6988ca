package attack

import (
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

func TestPauseSurvivesADeathOfSupervisord(t *testing.T) {
	t.Parallel()
	sd, m := underSystemd(t, lab.Web)
	address := m.Address()
	m.CtlOK("pause", "web", "--for", "2m")
	answered := make(chan error, 2)
	ask := func() {
		_, err := lab.Get(address, "/")
		answered <- err
	}
	go ask()
	sd.Stored(".1", 1)
	sd.Stored(".n", 2) // the listener's socket, and the one that lets clients wait
	m.Die()
	go ask() // only the worker and the store hold the sockets now
	select {
	case err := <-answered:
		t.Fatalf("while the program is paused a client has an answer (%v)", err)
	case <-time.After(300 * time.Millisecond):
	}
	sd.Start()
	m.Await(lab.Says(lab.WorkerRuns)) // the loop says so, which begins when the control socket is open
	if out := m.CtlOK("status"); !strings.Contains(out, "paused for ") {
		t.Errorf("the status after the death is %s", out)
	}
	m.CtlOK("resume", "web")
	for range 2 {
		if err := <-answered; err != nil {
			t.Errorf("a client that waited over the death: %v", err)
		}
	}
	lab.Ask(t, m.Address(), "/")
}
