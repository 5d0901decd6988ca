package tests

import (
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

func TestNextSupervisordTakesOverTheSocketsOfAKilledOneWithoutARefusal(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	at := lab.Reserve(t)
	config := lab.PIDFile + strings.Replace(strings.Replace(lab.Web, "{worker}", "{hello}", 1), "127.0.0.1:0", at, 1) +
		soonDrained
	m.Start(config)
	m.Serves(1)
	old := m.WorkerPID(1)
	l := lab.Press(t, at, 4, 5*time.Millisecond)
	m.Die()
	m.Start(config)
	m.Serves(1)
	m.Until("the orphaned worker has exited", func() bool { return !lab.Alive(old) })
	lab.Ask(t, at, "/")
	l.Lossless(t)
}

// TestOrphansThatStopBadlyFinishFirst: the worker calls http.Server.Shutdown on TERM and nothing else.
func TestOrphansThatStopBadlyFinishFirst(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	at := lab.Reserve(t)
	config := strings.Replace(lab.Workers("2"), "127.0.0.1:0", at, 1)
	m.Start(config)
	m.Serves(1)
	l := lab.PressNew(t, at, 50, 0)
	for range 3 {
		old := m.PIDs()
		m.Die()
		m.Start(config)
		m.Serves(1)
		for _, pid := range old {
			m.Until("the orphaned worker has exited", func() bool { return !lab.Alive(pid) })
		}
	}
	l.Lossless(t)
}

func TestDeathWithoutStoreWhileOldWorkerFinishesLosesNothing(t *testing.T) {
	t.Parallel()
	m, address := lab.Prepare(t), lab.Reserve(t)
	h := replacedInHand(t, m, lab.PIDFile+lab.WebAt(address))
	second := m.WorkerPID(2)
	m.Die()
	load := lab.PressNew(t, address, 10, time.Millisecond)
	time.Sleep(100 * time.Millisecond) // requests while there is no master
	m.Launch("-c", m.Path("config.toml"))
	m.Await(lab.Says(lab.GenerationServes))
	if got := h.completes(); !strings.Contains(got, "generation=1 ") {
		t.Errorf("%s has answered the request that was in hand", got)
	}
	m.Until("the orphaned worker has exited", func() bool { return !lab.Alive(second) })
	load.Lossless(t)
}
