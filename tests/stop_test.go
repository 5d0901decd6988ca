package tests

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// noting is web with workers that note the signals they get, and a table [program.web.stop].
func noting(stop string, args ...string) string {
	return lab.WebWith(append(args, "note={dir}/notes")...) + "[program.web.stop]\n" + stop
}

func TestStopSignalIsAsConfigured(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, noting("signal = \"QUIT\"\n"))
	m.Serves(1)
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
	if got := m.Read("notes"); got != "1 0 start\n1 0 QUIT\n" {
		t.Errorf("the worker received %q", got)
	}
}

func TestWorkerThatIgnoresItsStopSignalIsKilledAtTheTimeout(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, noting("timeout = \"300ms\"\n", "term=ignore"))
	m.Serves(1)
	m.Signal(syscall.SIGTERM)
	told := m.Await(lab.Says(lab.WorkerTold))
	killed := m.Await(lab.Says(lab.WorkerKilled))
	if gap := killed.Time.Sub(told.Time); gap < 290*time.Millisecond || gap > 10*time.Second {
		t.Errorf("it was killed after %v, want 300ms", gap)
	}
	m.Ends(0)
}

func TestStopMayHaveSteps(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, noting(`steps = [{ signal = "USR2", timeout = "700ms" }, { signal = "INT", timeout = "700ms" }, `+
		`{ signal = "TERM", timeout = "700ms" }]`, "term=ignore"))
	m.Serves(1)
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
	if got := m.Read("notes"); got != "1 0 start\n1 0 USR2\n1 0 INT\n1 0 TERM\n" {
		t.Errorf("the worker received %q", got)
	}
	m.Await(lab.Says(lab.WorkerKilled))
}

// parent is a worker with a child in its process group; the child notes its stop signal.
const parent = `
[program.web]
command = ["sh", "-c", "trap 'echo parent >>{dir}/notes; {wait} exit 0' TERM; sh -c \"trap 'echo child >>{dir}/notes; exit 0' TERM; echo >&$NOTIFY_FD; sleep 1000 & wait\" & wait"]
ready.method = "notify"
`

func TestStopSignalIsForTheWorkerAlone(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(parent, "{wait}", "", 1))
	m.Serves(1)
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
	if got := m.Read("notes"); got != "parent\n" {
		t.Errorf("signals received: %q", got)
	}
}

func TestStopSignalGoesToTheGroupWithStopGroup(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(parent, "{wait}", "wait;", 1)+"[program.web.stop]\ngroup = true\n")
	m.Serves(1)
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
	if got := m.Read("notes"); !strings.Contains(got, "child\n") {
		t.Errorf("signals received: %q", got)
	}
}

func TestGrandchildrenAreKilledWhenTheirWorkerHasEnded(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.WebWith("fork"))
	m.Serves(1)
	m.Reload()
	m.Serves(2)
	m.Gone(1)
	// Three processes: the worker of the second generation, its child, and nothing of the first.
	m.Until("the child of the first worker has exited", func() bool { return len(m.Processes()) == 3 })
}

func TestGrandchildrenAreKilledWhenTheirWorkerCrashes(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.WebWith("fork"))
	m.Serves(1)
	lab.Must(t, syscall.Kill(m.WorkerPID(1), syscall.SIGKILL))
	m.AwaitN(2, lab.Says(lab.WorkerReady))
	m.Until("the child of the first worker has exited", func() bool { return len(m.Processes()) == 3 })
}

func TestGrandchildrenAreKilledWithAWorkerThatIgnoresItsStopSignal(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.WebWith("fork", "term=ignore")+"[program.web.stop]\ntimeout = \"100ms\"\n")
	m.Serves(1)
	m.Signal(syscall.SIGTERM)
	m.Ends(0) // checks that no process is left
}

// leaver is a worker with a child in another session, whose PID is in the file "child".
const leaver = `
[program.web]
command = ["sh", "-c", "setsid sh -c 'echo $$ >{dir}/child; exec sleep 1000' & exec \"$@\"", "sh", {worker}]
ready.method = "notify"
`

// leaverRuns starts leaver and returns the child.
func leaverRuns(t *testing.T) (m *lab.Supervisord, child int) {
	lab.Need(t, "setsid")
	m = lab.Start(t, leaver)
	m.Serves(1)
	m.Until("the child runs", func() bool { return strings.HasSuffix(lab.Text(m.Path("child")), "\n") })
	return m, lab.Number(m.Path("child"))
}

func TestChildThatLeftTheGroupDoesNotOutliveItsWorker(t *testing.T) {
	t.Parallel()
	m, child := leaverRuns(t)
	lab.Must(t, syscall.Kill(m.WorkerPID(1), syscall.SIGKILL))
	m.Until("the child has exited", func() bool { return !lab.Alive(child) })
}

func TestChildThatLeftTheGroupDoesNotOutliveSupervisord(t *testing.T) {
	t.Parallel()
	m, child := leaverRuns(t)
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
	if lab.Alive(child) {
		t.Error("the child is still running")
	}
}

func TestReloadWaitsWhileMaxDrainingGenerationsDrain(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, noting("timeout = \"1h\"\n", "term=ignore")+"[program.web.reload]\nmax_draining = 2\n")
	for generation := 1; generation <= 3; generation++ {
		m.Serves(generation)
		if generation < 3 {
			m.Reload()
		}
	}
	const waits = "2 generations drain, as many as reload.max_draining allows"
	m.CtlFails(14, []string{"a reload waits: as many old generations drain as max_draining allows",
		"the reload is still running; it waits: " + waits}, "reload", "--timeout", "1s")
	if out := m.CtlOK("status"); !strings.Contains(out, "a reload waits (requested): "+waits) ||
		!strings.Contains(out, "until a generation has gone") {
		t.Errorf("the status is %s", out)
	}
	m.CtlFails(1, []string{waits}, "reload", "--canary", "1", "--hold")
	waiting := m.CtlStart("reload")
	m.AwaitN(2, lab.Says(lab.ReloadFull))
	m.Never(lab.Says(lab.WorkerKilled))
	m.CtlOK("kill", "web", "--generation", "1")
	if out := waiting.Ends(0); !strings.Contains(out, "generation 4 serves") {
		t.Errorf("the output is %s", out)
	}
	if !lab.Alive(m.WorkerPID(2)) || !lab.Alive(m.WorkerPID(3)) {
		t.Error("a younger generation was killed too")
	}
	m.Signal(syscall.SIGQUIT)
	m.Ends(0)
}

func TestReloadThatWaitsForADrainSurvivesAnUpgrade(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	m.Start(noting("timeout = \"1h\"\n", "term=ignore") + "[program.web.reload]\nmax_draining = 1\n")
	m.Serves(1)
	m.Reload()
	m.Serves(2)
	waiting := m.CtlStart("reload")
	m.Await(lab.Says(lab.ReloadFull))
	m.Upgrade(lab.Upgraded)
	m.CtlOK("kill", "web", "--generation", "1")
	if out := waiting.Ends(0); !strings.Contains(out, "generation 3 serves") {
		t.Errorf("the output is %s", out)
	}
	m.Signal(syscall.SIGQUIT)
	m.Ends(0)
}

func TestDrainingGenerationIsKilledAtItsDeadlineAndTheServingOneStays(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, noting("timeout = \"200ms\"\n", "term=ignore"))
	m.Serves(1)
	m.Reload()
	m.Serves(2)
	if gone := m.Gone(1); gone.Killed != 1 {
		t.Errorf("the log says %s", gone.Text)
	}
	lab.Ask(t, m.Address(), "/")
}

func TestRequestInFlightIsAnsweredAfterTERM(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.WebWith("note={dir}/notes"))
	m.Serves(1)
	answer := lab.Promise(t, m.Address(), "/slow?d=700ms")
	m.Until("the worker has the request", func() bool { return strings.Contains(m.Read("notes"), "1 0 slow\n") })
	m.Signal(syscall.SIGTERM)
	if got := answer(); !strings.Contains(got, "generation=1 ") {
		t.Errorf("the answer is %q", got)
	}
	m.Ends(0)
}

func TestReplacedWorkerGetsTheReloadSignal(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, noting("signal = \"INT\"\n")+"[program.web.compat]\nreload_signal = \"QUIT\"\n")
	m.Serves(1)
	m.Reload()
	m.Gone(1)
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
	if got := m.Read("notes"); got != "1 0 start\n2 0 start\n1 0 QUIT\n2 0 INT\n" {
		t.Errorf("the workers received %q", got)
	}
}

func TestINTSendsTheWorkersTheINTSignal(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, noting("signal = \"QUIT\"\n")+"[program.web.compat]\nint_signal = \"TERM\"\n")
	m.Serves(1)
	m.Signal(syscall.SIGINT)
	m.Ends(0)
	if got := m.Read("notes"); got != "1 0 start\n1 0 TERM\n" {
		t.Errorf("the worker received %q", got)
	}
}

func TestStopWithoutADeadlineWaitsForASecondStop(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, noting("timeout = \"infinity\"\n", "term=ignore"))
	m.Serves(1)
	m.Signal(syscall.SIGTERM)
	m.Await(lab.Says(lab.WorkerTold))
	time.Sleep(500 * time.Millisecond)
	m.Never(lab.Says(lab.WorkerKilled))
	m.Signal(syscall.SIGTERM)
	m.Await(lab.Says(lab.WorkerKilled))
	m.Ends(0)
}
