package tests

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

func TestWorkersKeepServingWhenSupervisordIsKilled(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	at := m.Address()
	m.Die()
	time.Sleep(100 * time.Millisecond) // time for what must not happen
	lab.Ask(t, at, "/")
	m.Sweep()
}

// In the session of supervisord the process group of a stopped worker would get HUP from the kernel when supervisord
// dies (setpgid(2)).
func TestStoppedWorkerSurvivesWhenSupervisordIsKilled(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	at, pid := m.Address(), m.WorkerPID(1)
	lab.Must(t, syscall.Kill(pid, syscall.SIGSTOP))
	m.Until("the worker has stopped", func() bool { return lab.ProcStatus(pid)["State"] == "T (stopped)" })
	m.Die()
	lab.Must(t, syscall.Kill(pid, syscall.SIGCONT))
	if answer := lab.Ask(t, at, "/"); !strings.Contains(answer, fmt.Sprintf("pid=%d", pid)) {
		t.Errorf("answered: %s", answer)
	}
	m.Sweep()
}

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

func TestNextSupervisordEndsTheWorkersOfAKilledOne(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	old := m.WorkerPID(1)
	m.Die()
	m.Start(lab.Web)
	m.Until("the orphaned worker has exited", func() bool { return !lab.Alive(old) })
	m.Serves(1)
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
