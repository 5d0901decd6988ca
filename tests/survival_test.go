package tests

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/tests/ports"
)

// die kills the supervisord, as a fault of its own would, and prepares for the next one.
func (m *master) die() {
	m.t.Helper()
	m.signal(syscall.SIGKILL)
	<-m.ended
	m.over = true
}

func TestWorkersServeOnWhenSupervisordIsKilled(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	at := m.address()
	m.die()
	time.Sleep(100 * time.Millisecond) // for what must not happen
	ask(t, at, "/")
	m.sweep()
}

func TestTheNextSupervisordTakesOverWhatAKilledOneLeftWithoutARefusal(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	at := ports.Reserve(t)
	config := pidFile + strings.Replace(strings.Replace(web, "{worker}", "{hello}", 1), "127.0.0.1:0", at, 1)
	m.start(config)
	m.serves(1)
	old := m.worker(1)
	l := press(t, at, 4, 5*time.Millisecond)
	m.die()
	m.start(config)
	m.serves(1)
	m.until("the worker that was left has gone", func() bool { return !alive(old) })
	ask(t, at, "/")
	l.lossless(t)
}

func TestTheNextSupervisordEndsWhatAKilledOneLeft(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	old := m.worker(1)
	m.die()
	m.start(web)
	m.until("the worker that was left has gone", func() bool { return !alive(old) })
	m.serves(1)
}

func TestTheCrashOfOneProgramLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	m := start(t, web+"[program.bad]\ncommand = [\"false\"]\nready.delay = \"1s\"\n[program.bad.restart]\nbackoff = { min = \"10ms\", max = \"10ms\" }\n")
	m.await(says(generationServes), program("web"))
	m.awaitN(5, says(startRetry), program("bad"))
	m.never(says(workerTold), program("web"))
	m.never(says(workerDied), program("web"))
	ask(t, m.address(), "/")
}
