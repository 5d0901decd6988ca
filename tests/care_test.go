package tests

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

const workerLeaving = "worker is to be replaced"

// replaced waits until the first worker is to be replaced, and sees that it goes only after its successor is ready.
func (m *master) replaced() line {
	m.t.Helper()
	told := m.await(says(workerTold))
	leaving := m.await(says(workerLeaving))
	if ready := m.awaitN(2, says(workerReady))[1]; ready.n > told.n || leaving.PID != told.PID {
		m.t.Errorf("overlap is missing:\n%s\n%s\n%s", leaving.text, ready.text, told.text)
	}
	m.never(says(trialBegan), gen(2))
	return leaving
}

// idle is a program that does nothing, and what the test adds to it.
func idle(more string) string {
	return "[program.web]\ncommand = [{sleep}]\n[program.web.ready]\ndelay = \"10ms\"\n" + more
}

func TestAWorkerThatFailsItsHealthCheckIsReplacedWithOverlap(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.start(idle("[program.web.health]\nmethod = \"exec\"\ncommand = [\"sh\", \"-c\", \"test ! -e {dir}/ill || exit 7\"]\ninterval = \"50ms\"\nfailures = 2\n"))
	m.serves(1)
	m.file("ill", "")
	leaving := m.await(says(workerLeaving))
	must(t, os.Remove(m.path("ill")))
	m.replaced()
	if !strings.Contains(leaving.Reason, "failed 2 times in a row") || !strings.Contains(leaving.Reason, "status 7") {
		t.Errorf("the log says %s", leaving.text)
	}
}

func TestAWorkerThatDoesNotFeedItsWatchdogIsReplacedWithOverlap(t *testing.T) {
	t.Parallel()
	m := start(t, idle("[program.web.health]\nwatchdog = \"300ms\"\n"))
	pid := m.worker(1)
	if env := environment(t, pid); env["WATCHDOG_USEC"] != "300000" || env["WATCHDOG_PID"] != fmt.Sprint(pid) {
		t.Errorf("it was told %q and %q", env["WATCHDOG_USEC"], env["WATCHDOG_PID"])
	}
	if leaving := m.replaced(); leaving.Reason != "no WATCHDOG=1 within 300ms" {
		t.Errorf("the log says %s", leaving.text)
	}
}

func TestAWorkerThatUsesTooMuchMemoryIsReplacedWithOverlap(t *testing.T) {
	t.Parallel()
	m := start(t, strings.Replace(idle("[program.web.limits]\nmax_memory = \"32MiB\"\n"), "{sleep}",
		`"sh", "-c", "head -c 60000000 /dev/zero | tail -n 1 | sleep 1000"`, 1)) // tail keeps the whole line
	if leaving := m.replaced(); !strings.Contains(leaving.Reason, "more than max_memory, 32.0 MiB") {
		t.Errorf("the log says %s", leaving.text)
	}
}

func TestAWorkerIsReplacedAtItsAgeWithOverlap(t *testing.T) {
	t.Parallel()
	m := start(t, idle("[program.web.limits]\nmax_age = \"1s\"\n"))
	m.serves(1)
	if leaving := m.replaced(); !strings.Contains(leaving.Reason, "max_age") {
		t.Errorf("the log says %s", leaving.text)
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
	m := withOwnBinary(t)
	m.file("talker", talker)
	m.start("[program.web]\ncommand = [\"sh\", \"{dir}/talker\"]\nstdout = \"capture\"\nstderr = \"capture\"\n[program.web.log]\nfile = \"web.log\"\n[program.web.ready]\ndelay = \"100ms\"\n")
	m.serves(1)
	for i := range 4 {
		m.upgrade(upgraded)
		m.reload()
		m.serves(i + 2)
		if i == 1 {
			must(t, os.Rename(m.path("web.log"), m.path("web.log.1")))
			m.signal(syscall.SIGUSR1)
			m.await(says(usr1))
		}
		time.Sleep(50 * time.Millisecond) // some more lines
	}
	m.finish()
	next, ended := map[string]int{}, 0
	for line := range strings.Lines(m.read("web.log.1") + m.read("web.log")) {
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

func TestWhatACapturedWorkerWroteLastIsInTheReport(t *testing.T) {
	t.Parallel()
	m := start(t, "[program.web]\ncommand = [\"sh\", \"-c\", \"echo out; echo no such table >&2; exit 3\"]\nstdout = \"capture\"\nstderr = \"capture\"\n")
	if failed := m.await(says(trialFailed)); len(failed.Stderr) != 1 || failed.Stderr[0] != "no such table" {
		t.Errorf("the log says %s", failed.text)
	}
}

// TestASlowDiskDoesNotHoldUpAWorker has a FIFO that nobody reads in the place of the file that was good.
func TestADiskThatHangsDoesNotHoldUpAWorker(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.file("flood", "read x < {dir}/go; head -c 20000000 /dev/zero | tr '\\0' '\\n'; echo done > {dir}/done; exec sleep 1000\n")
	must(t, syscall.Mkfifo(m.path("go"), 0o600))
	m.start("[program.web]\ncommand = [\"sh\", \"{dir}/flood\"]\nstdout = \"capture\"\n[program.web.log]\nfile = \"web.log\"\n[program.web.ready]\ndelay = \"50ms\"\n")
	m.serves(1)
	must(t, os.Remove(m.path("web.log")))
	must(t, syscall.Mkfifo(m.path("web.log"), 0o600))
	must(t, os.WriteFile(m.path("go"), []byte("\n"), 0))
	m.until("the worker has written everything", func() bool { _, err := os.Stat(m.path("done")); return err == nil })
	reader, err := os.OpenFile(m.path("web.log"), os.O_RDONLY|syscall.O_NONBLOCK, 0) // lets supervisord's open go on
	must(t, err)
	defer reader.Close()
	go func() {
		buf := make([]byte, 1<<20)
		for {
			if _, err := reader.Read(buf); err != nil {
				return
			}
		}
	}()
	m.await(says("output of workers is lost"))
}
