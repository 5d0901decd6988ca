package tests

import (
	"strings"
	"syscall"
	"testing"
)

const scaling = "scaling"

// workers is web with so many of them, and with what is captured noted.
func workers(n string) string { return strings.Replace(web, "\n[[", "\nworkers = "+n+"\n[[", 1) }

func TestTTINAddsAWorkerAndTTOUTakesOneAway(t *testing.T) {
	t.Parallel()
	m := start(t, workers("2"))
	m.serves(1)
	m.signal(syscall.SIGTTIN)
	if l := m.await(says(scaling)); l.Program != "web" || l.Reason != "TTIN" || !strings.Contains(l.text, `"workers":3`) {
		t.Errorf("the log says %s", l.text)
	}
	m.until("three workers", func() bool { return len(m.pids()) == 3 })
	m.awaitN(3, says("worker is ready"))
	before := m.pids()
	m.signal(syscall.SIGTTOU)
	m.until("two workers", func() bool { return len(m.pids()) == 2 })
	if now := m.pids(); now[0] != before[0] || now[1] != before[1] {
		t.Errorf("the workers were %v and are %v: the newest should go", before, now)
	}
	m.never(says(generationServes), gen(2))
}

func TestTTOULeavesTheLastWorker(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	worker := m.worker(1)
	m.signal(syscall.SIGTTOU)
	m.await(says("TTOU: nothing is changed"), contains("stop the program"))
	if now := m.pids(); len(now) != 1 || now[0] != worker {
		t.Errorf("the workers are %v, want %d", now, worker)
	}
}

func TestTTINChangesNothingWhereThereAreSeveralPrograms(t *testing.T) {
	t.Parallel()
	m := start(t, web+"[program.other]\ncommand = [{sleep}]\nready = { method = \"delay\", delay = \"10ms\" }\n")
	m.awaitN(2, says(generationServes))
	m.signal(syscall.SIGTTIN)
	m.await(says("TTIN: nothing is changed"), contains("supervisord scale PROGRAM N"))
	if now := m.pids(); len(now) != 2 {
		t.Errorf("the workers are %v", now)
	}
	m.never(says(scaling))
}

func TestTTINScalesWhereEachWorkerHasASocketOfItsOwn(t *testing.T) {
	t.Parallel()
	m := start(t, strings.Replace(web, "127.0.0.1:0\"", "127.0.0.1:0\"\nper_slot = true", 1))
	m.serves(1)
	m.signal(syscall.SIGTTIN)
	m.serves(2)
	m.gone(1)
	if now := m.pids(); len(now) != 2 {
		t.Errorf("the workers are %v", now)
	}
}

func TestScaleOverTheAPIIsLoggedAndBounded(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	m.well("scale", "web", "2")
	m.await(says(scaling), contains(`"before":1`))
	m.fails(1, []string{"at most 10000"}, "scale", "web", "10001")
}
