package tests

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/supervisor"
)

func TestCrashedWorkerIsReplacedInItsSlotFromTheSameSnapshot(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.File("env", "WORD=before\n")
	m.Start(strings.Replace(lab.Web, "[[", "workers = 2\nenvironment_file = [\"env\"]\n[[", 1))
	m.Serves(1)
	m.File("env", "WORD=after\n")
	crashed := m.Await(lab.Says(lab.WorkerRuns), lab.Slot(1))
	lab.Must(t, syscall.Kill(crashed.PID, syscall.SIGKILL))
	died := m.Await(lab.Says(lab.WorkerDied))
	if died.PID != crashed.PID || died.Slot != 1 || !strings.Contains(died.Reason, "SIGKILL") || died.Level != "warn" {
		t.Errorf("the log says %s", died.Text)
	}
	again := m.Await(lab.Says(lab.WorkerReady), lab.After(died))
	env := lab.Environment(t, again.PID)
	if again.Slot != 1 || again.Generation != 1 || env["WORD"] != "before" || env["SUPERVISORD_GENERATION"] != "1" ||
		env["SUPERVISORD_SLOT"] != "1" {
		t.Errorf("it was replaced by %s with WORD=%s", again.Text, env["WORD"])
	}
	m.Never(lab.Says(lab.TrialBegan), lab.Gen(2))
}

func TestFirstCrashIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web+"[program.web.restart]\nbackoff = { min = \"1h\", max = \"1h\" }\n")
	m.Serves(1)
	lab.Must(t, syscall.Kill(m.WorkerPID(1), syscall.SIGKILL))
	m.AwaitN(2, lab.Says(lab.WorkerReady))
}

func TestWorkerThatCrashesAgainAndAgainIsStartedWithBackoff(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.WebWith("die=1ms")+
		"[program.web.restart]\nbudget = 0\nbackoff = { min = \"20ms\", max = \"150ms\" }\n")
	var waits []time.Duration
	for _, l := range m.AwaitN(7, lab.Says(lab.SlotRetry)) {
		waits = append(waits, l.AfterDuration())
	}
	if waits[0] != 0 || waits[1] > 20*time.Millisecond || waits[2] <= waits[1] || waits[3] <= waits[2] ||
		waits[6] > 150*time.Millisecond || waits[6] < 100*time.Millisecond {
		t.Errorf("the waits are %v: want 0, then 20ms doubling up to 150ms, less a fifth", waits)
	}
}

func TestFirstCrashesAreReplacedWithoutAWaitUntilTheBudgetIsSpent(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web+"[program.web.restart]\nbudget = 3\nbackoff = { min = \"1h\", max = \"1h\" }\n")
	m.Serves(1)
	for n := 1; n <= 5; n++ {
		ready := m.AwaitN(n, lab.Says(lab.WorkerReady))[n-1]
		lab.Must(t, syscall.Kill(ready.PID, syscall.SIGKILL))
	}
	for i, l := range m.AwaitN(5, lab.Says(lab.SlotRetry)) {
		if waits := l.AfterDuration() > 0; waits != (i == 4) {
			t.Errorf("after crash %d the log says %s", i+1, l.Text)
		}
	}
}

func TestBackoffBeginsAnewOnceAWorkerWasStable(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.WebWith("die=1s")+
		"[program.web.restart]\nbackoff = { min = \"1h\", max = \"1h\" }\nstable_after = \"100ms\"\n")
	for _, l := range m.AwaitN(3, lab.Says(lab.SlotRetry)) {
		if l.AfterDuration() != 0 {
			t.Errorf("the log says %s", l.Text)
		}
	}
}

func TestWorkerOfTheServingGenerationThatNeverGetsReadyAgainIsReplaced(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Start(lab.WebWith("hangif={dir}/hang") +
		"timeout = \"2s\"\n[program.web.restart]\nbackoff = { min = \"10ms\", max = \"10ms\" }\n")
	m.Serves(1)
	m.File("hang", "")
	lab.Must(t, syscall.Kill(m.WorkerPID(1), syscall.SIGKILL))
	m.AwaitN(4, lab.Says(lab.WorkerRuns))
}

func TestOnFailureAWorkerThatExitsWith0IsNotReplaced(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web+"[program.web.restart]\nwhen = \"on-failure\"\n")
	m.Serves(1)
	lab.Must(t, syscall.Kill(m.WorkerPID(1), syscall.SIGTERM)) // it exits with 0
	m.Await(lab.Says(lab.WorkerDied))
	time.Sleep(200 * time.Millisecond) // time for what must not happen
	if n := m.Count(lab.Says(lab.WorkerRuns)); n != 1 {
		t.Errorf("%d workers were started", n)
	}
}

func TestOnFailureAWorkerThatCrashesIsReplaced(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web+"[program.web.restart]\nwhen = \"on-failure\"\n")
	m.Serves(1)
	lab.Must(t, syscall.Kill(m.WorkerPID(1), syscall.SIGKILL))
	m.AwaitN(2, lab.Says(lab.WorkerReady))
}

func TestNeverAWorkerThatCrashesIsNotReplaced(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web+"[program.web.restart]\nwhen = \"never\"\n")
	m.Serves(1)
	lab.Must(t, syscall.Kill(m.WorkerPID(1), syscall.SIGKILL))
	m.Await(lab.Says(lab.WorkerDied))
	time.Sleep(200 * time.Millisecond) // time for what must not happen
	if n := m.Count(lab.Says(lab.WorkerRuns)); n != 1 {
		t.Errorf("%d workers were started", n)
	}
}

func TestHUPStartsAProgramAgainThatHasFinished(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web+"[program.web.restart]\nwhen = \"never\"\n")
	m.Serves(1)
	lab.Must(t, syscall.Kill(m.WorkerPID(1), syscall.SIGKILL))
	m.Await(lab.Says(lab.WorkerDied))
	m.Reload()
	m.Serves(2)
}

func TestCrashDuringATrialIsReplacedAsWell(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Start(lab.WebWith("hangif={dir}/hang"))
	m.Serves(1)
	lab.Must(t, syscall.Kill(m.WorkerPID(1), 0))
	m.Write(lab.WebWith("ready=never"))
	m.Reload()
	m.WorkerPID(2)
	lab.Must(t, syscall.Kill(m.WorkerPID(1), syscall.SIGKILL))
	m.AwaitN(2, lab.Says(lab.WorkerReady), lab.Gen(1))
	lab.Ask(t, m.Address(), "/")
}

func TestRequestsThatWaitOutliveACrash(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	lab.Must(t, syscall.Kill(m.WorkerPID(1), syscall.SIGSTOP))
	answer := lab.Promise(t, m.Address(), "/")
	lab.Must(t, syscall.Kill(m.WorkerPID(1), syscall.SIGKILL))
	answer()
}

func TestCrashOfOneProgramLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web+"[program.bad]\ncommand = [\"false\"]\nready.delay = \"1s\"\n[program.bad.restart]\n"+
		"backoff = { min = \"10ms\", max = \"10ms\" }\n")
	m.Await(lab.Says(lab.GenerationServes), lab.Program("web"))
	m.AwaitN(5, lab.Says(lab.StartRetry), lab.Program("bad"))
	m.Never(lab.Says(lab.WorkerTold), lab.Program("web"))
	m.Never(lab.Says(lab.WorkerDied), lab.Program("web"))
	lab.Ask(t, m.Address(), "/")
}

func TestUpgradeKeepsRestartsAndLastCrash(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	pid := m.WorkerPID(1)
	lab.Must(t, syscall.Kill(pid, syscall.SIGKILL))
	m.AwaitN(2, lab.Says(lab.WorkerReady))
	m.CtlOK("upgrade")
	var st supervisor.Status
	lab.Must(t, json.Unmarshal([]byte(m.CtlOK("status", "--json")), &st))
	if p := st.Program("web"); p.Restarts != 1 || p.LastCrash == nil || p.LastCrash.Worker != 1 ||
		!strings.Contains(p.LastCrash.Reason, "SIGKILL") || time.Since(p.LastCrash.At) > time.Minute {
		t.Errorf("%d restarts, last crash %+v", p.Restarts, p.LastCrash)
	}
}

// TestStartThatFailsAgainIsTwoLines: at night it is enough to read why, and when supervisord tries again.
func TestStartThatFailsAgainIsTwoLines(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, "log_level = \"info\"\n[program.web]\ncommand = [\"false\"]\nready.delay = \"1m\"\n"+
		"restart.backoff = { min = \"10ms\", max = \"10ms\" }\n")
	m.AwaitN(4, lab.Says(lab.StartRetry))
	slow := lab.Says("waiting for worker to be ready") // where a process takes seconds to end
	of := func(generation int) int {
		return m.Count(lab.Gen(generation), func(l lab.Entry) bool { return !slow(l) })
	}
	if first, next := of(1), of(2); first != 3 || next != 2 || of(3) != 2 {
		t.Errorf("the log has %d lines on the first start, and %d on the second", first, next)
	}
}
