package tests

import (
	"strings"
	"syscall"
	"testing"

	"example.org/supervisord/internal/lab"
)

const scaling = "the number of workers changes"

func TestTTINAddsAWorkerAndTTOUTakesOneAway(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Workers("2"))
	m.Serves(1)
	m.Signal(syscall.SIGTTIN)
	if l := m.Await(lab.Says(scaling)); l.Program != "web" || l.Reason != "3 workers instead of 2" ||
		!strings.Contains(l.Text, `"asked_by":"signal TTIN from tests.test (pid `) {
		t.Errorf("the log says %s", l.Text)
	}
	m.Until("three workers", func() bool { return len(m.PIDs()) == 3 })
	m.AwaitN(3, lab.Says("worker is ready"))
	before := m.PIDs()
	m.Signal(syscall.SIGTTOU)
	m.Until("two workers", func() bool { return len(m.PIDs()) == 2 })
	if now := m.PIDs(); now[0] != before[0] || now[1] != before[1] {
		t.Errorf("the workers were %v and are %v: the newest should go", before, now)
	}
	m.Never(lab.Says(lab.GenerationServes), lab.Gen(2))
}

func TestTTOULeavesTheLastWorker(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	worker := m.WorkerPID(1)
	m.Signal(syscall.SIGTTOU)
	m.Await(lab.Says("TTOU: nothing is changed"), lab.Contains("use `supervisord stop web`"))
	if now := m.PIDs(); len(now) != 1 || now[0] != worker {
		t.Errorf("the workers are %v, want %d", now, worker)
	}
}

func TestTTINChangesNothingWithSeveralPrograms(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web+"[program.other]\ncommand = [{sleep}]\nready = { method = \"delay\", delay = \"10ms\" }\n")
	m.AwaitN(2, lab.Says(lab.GenerationServes))
	m.Signal(syscall.SIGTTIN)
	m.Await(lab.Says("TTIN: nothing is changed"), lab.Contains("supervisord scale PROGRAM N"))
	if now := m.PIDs(); len(now) != 2 {
		t.Errorf("the workers are %v", now)
	}
	m.Never(lab.Says(scaling))
}

func TestTTINScalesAProgramWithPerSlotSockets(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(lab.Web, "127.0.0.1:0\"", "127.0.0.1:0\"\nper_slot = true", 1))
	m.Serves(1)
	m.Signal(syscall.SIGTTIN)
	m.Serves(2)
	m.Gone(1)
	if now := m.PIDs(); len(now) != 2 {
		t.Errorf("the workers are %v", now)
	}
}

func TestScaleOverTheAPIIsLoggedAndBounded(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	m.CtlOK("scale", "web", "2")
	m.Await(lab.Says(scaling), lab.Contains("2 workers instead of 1"))
	m.CtlFails(2, []string{"at most 10000"}, "scale", "web", "10001")
}
