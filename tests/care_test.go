package tests

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

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

func TestAWorkerThatFailsItsHealthCheckIsReplacedWithOverlap(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Start(idle("[program.web.health]\nmethod = \"exec\"\ncommand = [\"sh\", \"-c\", \"test ! -e {dir}/ill || exit 7\"]\ninterval = \"50ms\"\nfailures = 2\n"))
	m.Serves(1)
	m.File("ill", "")
	leaving := m.Await(lab.Says(workerLeaving))
	lab.Must(t, os.Remove(m.Path("ill")))
	replaced(m)
	if !strings.Contains(leaving.Reason, "failed 2 times in a row") || !strings.Contains(leaving.Reason, "status 7") {
		t.Errorf("the log says %s", leaving.Text)
	}
}

func TestAWorkerThatDoesNotFeedItsWatchdogIsReplacedWithOverlap(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, idle("[program.web.health]\nwatchdog = \"300ms\"\n"))
	pid := m.WorkerPID(1)
	if env := lab.Environment(t, pid); env["WATCHDOG_USEC"] != "300000" || env["WATCHDOG_PID"] != fmt.Sprint(pid) {
		t.Errorf("it was told %q and %q", env["WATCHDOG_USEC"], env["WATCHDOG_PID"])
	}
	if leaving := replaced(m); leaving.Reason != "no WATCHDOG=1 within 300ms" {
		t.Errorf("the log says %s", leaving.Text)
	}
}

func TestAWorkerThatUsesTooMuchMemoryIsReplacedWithOverlap(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(idle("[program.web.limits]\nmax_memory = \"32MiB\"\n"), "{sleep}",
		`"sh", "-c", "head -c 60000000 /dev/zero | tail -n 1 | sleep 1000"`, 1)) // tail keeps the whole line
	if leaving := replaced(m); !strings.Contains(leaving.Reason, "more than max_memory, 32.0 MiB") {
		t.Errorf("the log says %s", leaving.Text)
	}
}

func TestAWorkerIsReplacedAtItsAgeWithOverlap(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, idle("[program.web.limits]\nmax_age = \"1s\"\n"))
	m.Serves(1)
	if leaving := replaced(m); !strings.Contains(leaving.Reason, "max_age") {
		t.Errorf("the log says %s", leaving.Text)
	}
}

// talker writes bursts of numbered lines until it is told to stop, and says so last.
const talker = `
trap 'echo $$ end; exit 0' TERM
i=0
while :; do
	j=0
	while [ $j -lt 100 ]; do echo $$ $i; i=$((i+1)); j=$((j+1)); done
	sleep 0.02 & wait $!
done
`

func TestNoCapturedLineIsLostOverReloadsUpgradesAndRotation(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	m.File("talker", talker)
	m.Start("[program.web]\ncommand = [\"sh\", \"{dir}/talker\"]\nstdout = \"capture\"\nstderr = \"capture\"\n[program.web.log]\nfile = \"web.log\"\n[program.web.ready]\ndelay = \"100ms\"\n")
	m.Serves(1)
	for i := range 4 {
		m.Upgrade(lab.Upgraded)
		m.Reload()
		m.Serves(i + 2)
		if i == 1 {
			lab.Must(t, os.Rename(m.Path("web.log"), m.Path("web.log.1")))
			m.Signal(syscall.SIGUSR1)
			m.Await(lab.Says(lab.USR1))
		}
		time.Sleep(50 * time.Millisecond) // some more lines
	}
	m.Finish()
	next, ended := map[string]int{}, 0
	for line := range strings.Lines(m.Read("web.log.1") + m.Read("web.log")) {
		pid, what, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if what == "end" {
			ended++
			continue
		}
		if want := fmt.Sprint(next[pid]); what != want {
			t.Fatalf("line %q of worker %s where %s was to come", what, pid, want)
		}
		next[pid]++
	}
	if len(next) != 5 || ended != 5 {
		t.Errorf("%d workers wrote, %d said their end: %v", len(next), ended, next)
	}
}

func TestFailureReportHasTheLastLinesOfACapturedWorker(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, "[program.web]\ncommand = [\"sh\", \"-c\", \"echo out; echo no such table >&2; exit 3\"]\nstdout = \"capture\"\nstderr = \"capture\"\n")
	if failed := m.Await(lab.Says(lab.TrialFailed)); len(failed.Stderr) != 1 || failed.Stderr[0] != "no such table" {
		t.Errorf("the log says %s", failed.Text)
	}
}
