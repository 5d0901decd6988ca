package tests

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

const workerLeaving = "worker is to be replaced"

// replaced waits until the first worker is to be replaced, and sees that it goes only after its successor is ready.
func replaced(m *lab.Supervisord) lab.Entry {
	m.T.Helper()
	told := m.Await(lab.Says(lab.WorkerTold))
	leaving := m.Await(lab.Says(workerLeaving))
	if ready := m.AwaitN(2, lab.Says(lab.WorkerReady))[1]; ready.N > told.N || leaving.PID != told.PID {
		m.T.Errorf("overlap is missing:\n%s\n%s\n%s", leaving.Text, ready.Text, told.Text)
	}
	m.Never(lab.Says(lab.TrialBegan), lab.Gen(2))
	return leaving
}

// idle is a program that does nothing, and what the test adds to it.
func idle(more string) string {
	return "[program.web]\ncommand = [{sleep}]\n[program.web.ready]\ndelay = \"10ms\"\n" + more
}

func TestWorkerThatFailsItsHealthCheckIsReplacedWithOverlap(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Start(idle("[program.web.health]\nmethod = \"exec\"\n" +
		"command = [\"sh\", \"-c\", \"test ! -e {dir}/ill || exit 7\"]\ninterval = \"50ms\"\nfailures = 2\n"))
	m.Serves(1)
	m.File("ill", "")
	leaving := m.Await(lab.Says(workerLeaving))
	lab.Must(t, os.Remove(m.Path("ill")))
	replaced(m)
	if !strings.Contains(leaving.Reason, "failed 2 times in a row") || !strings.Contains(leaving.Reason, "status 7") {
		t.Errorf("the log says %s", leaving.Text)
	}
}

func TestWorkerThatDoesNotFeedItsWatchdogIsReplacedWithOverlap(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, idle("[program.web.health]\nwatchdog = \"300ms\"\n"))
	pid := m.WorkerPID(1)
	if env := lab.Environment(t, pid); env["WATCHDOG_USEC"] != "300000" || env["WATCHDOG_PID"] != fmt.Sprint(pid) {
		t.Errorf("the worker got %q and %q", env["WATCHDOG_USEC"], env["WATCHDOG_PID"])
	}
	if leaving := replaced(m); leaving.Reason != "no WATCHDOG=1 within 300ms" {
		t.Errorf("the log says %s", leaving.Text)
	}
}

func TestWorkerThatUsesTooMuchMemoryIsReplacedWithOverlap(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(idle("[program.web.limits]\nmax_memory = \"32MiB\"\n"), "{sleep}",
		`"sh", "-c", "head -c 60000000 /dev/zero | tail -n 1 | sleep 1000"`, 1)) // tail keeps the whole line
	if leaving := replaced(m); !strings.Contains(leaving.Reason, "more than max_memory, 32.0 MiB") {
		t.Errorf("the log says %s", leaving.Text)
	}
}

func TestWorkerIsReplacedAtItsAgeWithOverlap(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, idle("[program.web.limits]\nmax_age = \"1s\"\n"))
	m.Serves(1)
	if leaving := replaced(m); !strings.Contains(leaving.Reason, "max_age") {
		t.Errorf("the log says %s", leaving.Text)
	}
}
