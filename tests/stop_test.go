package tests

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// noting is web whose workers note what they are told, with a table [program.web.stop].
func noting(stop string, args ...string) string {
	return webWith(append(args, "note={dir}/notes")...) + "[program.web.stop]\n" + stop
}

func TestTheStopSignalIsAsConfigured(t *testing.T) {
	t.Parallel()
	m := start(t, noting("signal = \"QUIT\"\n"))
	m.serves(1)
	m.signal(syscall.SIGTERM)
	m.ends(0)
	if got := m.read("notes"); got != "1 0 start\n1 0 QUIT\n" {
		t.Errorf("the worker was told %q", got)
	}
}

func TestAWorkerThatIgnoresItsStopSignalIsKilledAtTheTimeout(t *testing.T) {
	t.Parallel()
	m := start(t, noting("timeout = \"300ms\"\n", "term=ignore"))
	m.serves(1)
	m.signal(syscall.SIGTERM)
	told := m.await(says(workerTold))
	killed := m.await(says(workerKilled))
	if gap := killed.Time.Sub(told.Time); gap < 290*time.Millisecond || gap > 10*time.Second {
		t.Errorf("it was killed after %v, want 300ms", gap)
	}
	m.ends(0)
}

func TestAStopMayHaveSteps(t *testing.T) {
	t.Parallel()
	m := start(t, noting(`steps = [{ signal = "USR2", timeout = "100ms" }, { signal = "INT", timeout = "100ms" }, { signal = "TERM", timeout = "100ms" }]`, "term=ignore"))
	m.serves(1)
	m.signal(syscall.SIGTERM)
	m.ends(0)
	if got := m.read("notes"); got != "1 0 start\n1 0 USR2\n1 0 INT\n1 0 TERM\n" {
		t.Errorf("the worker was told %q", got)
	}
	m.await(says(workerKilled))
}

// parent is a worker with a child in its process group, which notes that it was told to go.
const parent = `
[program.web]
command = ["sh", "-c", "trap 'echo parent >>{dir}/notes; {wait} exit 0' TERM; sh -c \"trap 'echo child >>{dir}/notes; exit 0' TERM; echo >&$NOTIFY_FD; sleep 1000 & wait\" & wait"]
ready.method = "notify"
`

func TestTheStopSignalIsForTheWorkerAlone(t *testing.T) {
	t.Parallel()
	m := start(t, strings.Replace(parent, "{wait}", "", 1))
	m.serves(1)
	m.signal(syscall.SIGTERM)
	m.ends(0)
	if got := m.read("notes"); got != "parent\n" {
		t.Errorf("who was told: %q", got)
	}
}

func TestTheStopSignalIsForTheGroupWhereGroupSaysSo(t *testing.T) {
	t.Parallel()
	m := start(t, strings.Replace(parent, "{wait}", "wait;", 1)+"[program.web.stop]\ngroup = true\n")
	m.serves(1)
	m.signal(syscall.SIGTERM)
	m.ends(0)
	if got := m.read("notes"); !strings.Contains(got, "child\n") {
		t.Errorf("who was told: %q", got)
	}
}

func TestGrandchildrenAreKilledWhenTheirWorkerHasEnded(t *testing.T) {
	t.Parallel()
	m := start(t, webWith("fork"))
	m.serves(1)
	m.reload()
	m.serves(2)
	m.gone(1)
	// The worker of the second generation and its child are there, nothing of the first.
	m.until("the child of the first worker is gone", func() bool { return len(m.processes()) == 3 })
}

func TestGrandchildrenAreKilledWhenTheirWorkerCrashes(t *testing.T) {
	t.Parallel()
	m := start(t, webWith("fork"))
	m.serves(1)
	must(t, syscall.Kill(m.worker(1), syscall.SIGKILL))
	m.awaitN(2, says(workerReady))
	m.until("the child of the first worker is gone", func() bool { return len(m.processes()) == 3 })
}

func TestGrandchildrenAreKilledWithAWorkerThatIgnoresItsStopSignal(t *testing.T) {
	t.Parallel()
	m := start(t, webWith("fork", "term=ignore")+"[program.web.stop]\ntimeout = \"100ms\"\n")
	m.serves(1)
	m.signal(syscall.SIGTERM)
	m.ends(0) // sees that no process is left
}

// leaver is a worker with a child in a session of its own, whose PID is in the file "child".
const leaver = `
[program.web]
command = ["sh", "-c", "setsid sh -c 'echo $$ >{dir}/child; exec sleep 1000' & exec \"$@\"", "sh", {worker}]
ready.method = "notify"
`

// leaverRuns starts leaver and returns the child.
func leaverRuns(t *testing.T) (m *master, child int) {
	need(t, "setsid")
	m = start(t, leaver)
	m.serves(1)
	m.until("the child is there", func() bool { return strings.HasSuffix(text(m.path("child")), "\n") })
	return m, number(m.path("child"))
}

func TestAChildThatLeftTheGroupDoesNotOutliveItsWorker(t *testing.T) {
	t.Parallel()
	m, child := leaverRuns(t)
	must(t, syscall.Kill(m.worker(1), syscall.SIGKILL))
	m.until("the child is gone", func() bool { return !alive(child) })
}

func TestAChildThatLeftTheGroupDoesNotOutliveSupervisord(t *testing.T) {
	t.Parallel()
	m, child := leaverRuns(t)
	m.signal(syscall.SIGTERM)
	m.ends(0)
	if alive(child) {
		t.Error("the child is there still")
	}
}

func TestMoreDrainingGenerationsThanMaxDrainingCostTheOldest(t *testing.T) {
	t.Parallel()
	m := start(t, noting("max_draining = 2\ntimeout = \"1h\"\n", "term=ignore"))
	for generation := 1; generation <= 4; generation++ {
		m.serves(generation)
		if generation < 4 {
			m.reload()
		}
	}
	killed := m.await(says(workerKilled))
	if killed.Generation != 1 {
		t.Errorf("the log says %s", killed.text)
	}
	m.gone(1)
	if !alive(m.worker(2)) || !alive(m.worker(3)) {
		t.Error("a younger one was killed, too")
	}
	m.signal(syscall.SIGQUIT)
	m.ends(0)
}

func TestADrainingGenerationGoesWhenItsTimeIsUpAndTheServingOneStays(t *testing.T) {
	t.Parallel()
	m := start(t, noting("timeout = \"200ms\"\n", "term=ignore"))
	m.serves(1)
	m.reload()
	m.serves(2)
	if gone := m.gone(1); gone.Killed != 1 {
		t.Errorf("the log says %s", gone.text)
	}
	ask(t, m.address(), "/")
}

func TestARequestInHandIsAnsweredAfterTERM(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	answer := promise(t, m.address(), "/slow?d=700ms")
	time.Sleep(100 * time.Millisecond) // the worker has it
	m.signal(syscall.SIGTERM)
	if got := answer(); !strings.Contains(got, "generation=1 ") {
		t.Errorf("the answer is %q", got)
	}
	m.ends(0)
}
