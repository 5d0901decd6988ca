package tests

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAWorkerThatCrashesIsReplacedInItsSlotFromTheSameSnapshot(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.file("env", "WORD=before\n")
	m.start(strings.Replace(web, "[[", "workers = 2\nenvironment_file = [\"env\"]\n[[", 1))
	m.serves(1)
	m.file("env", "WORD=after\n")
	crashed := m.await(says(workerRuns), slot(1))
	must(t, syscall.Kill(crashed.PID, syscall.SIGKILL))
	died := m.await(says(workerDied))
	if died.PID != crashed.PID || died.Slot != 1 || !strings.Contains(died.Reason, "SIGKILL") || died.Level != "warn" {
		t.Errorf("the log says %s", died.text)
	}
	again := m.await(says(workerReady), after(died))
	env := environment(t, again.PID)
	if again.Slot != 1 || again.Generation != 1 || env["WORD"] != "before" || env["SUPERVISORD_GENERATION"] != "1" || env["SUPERVISORD_SLOT"] != "1" {
		t.Errorf("in its place there is %s with WORD=%s", again.text, env["WORD"])
	}
	m.never(says(trialBegan), gen(2))
}

func TestTheFirstCrashIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	m := start(t, web+"[program.web.restart]\nbackoff = { min = \"1h\", max = \"1h\" }\n")
	m.serves(1)
	must(t, syscall.Kill(m.worker(1), syscall.SIGKILL))
	m.awaitN(2, says(workerReady))
}

func TestAWorkerThatCrashesAgainAndAgainIsStartedWithBackoff(t *testing.T) {
	t.Parallel()
	m := start(t, webWith("die=1ms")+"[program.web.restart]\nbackoff = { min = \"20ms\", max = \"150ms\" }\n")
	var waits []time.Duration
	for _, l := range m.awaitN(7, says(slotRetry)) {
		waits = append(waits, l.after())
	}
	if waits[0] != 0 || waits[1] > 20*time.Millisecond || waits[2] <= waits[1] || waits[3] <= waits[2] || waits[6] > 150*time.Millisecond || waits[6] < 100*time.Millisecond {
		t.Errorf("the waits are %v: want 0, then 20ms doubling up to 150ms, less a fifth", waits)
	}
}

func TestTheBackoffBeginsAnewOnceAWorkerWasStable(t *testing.T) {
	t.Parallel()
	m := start(t, webWith("die=300ms")+"[program.web.restart]\nbackoff = { min = \"1h\", max = \"1h\" }\nstable_after = \"100ms\"\n")
	for _, l := range m.awaitN(3, says(slotRetry)) {
		if l.after() != 0 {
			t.Errorf("the log says %s", l.text)
		}
	}
}

func TestAWorkerOfTheServingGenerationThatNeverGetsReadyAgainIsReplaced(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.start(webWith("hangif={dir}/hang") + "timeout = \"200ms\"\n[program.web.restart]\nbackoff = { min = \"10ms\", max = \"10ms\" }\n")
	m.serves(1)
	m.file("hang", "")
	must(t, syscall.Kill(m.worker(1), syscall.SIGKILL))
	m.awaitN(4, says(workerRuns))
}

func TestOnFailureAWorkerThatExitsWith0IsNotReplaced(t *testing.T) {
	t.Parallel()
	m := start(t, web+"[program.web.restart]\nwhen = \"on-failure\"\n")
	m.serves(1)
	must(t, syscall.Kill(m.worker(1), syscall.SIGTERM)) // it exits with 0
	m.await(says(workerDied))
	time.Sleep(200 * time.Millisecond) // for what must not happen
	if n := m.count(says(workerRuns)); n != 1 {
		t.Errorf("%d workers were started", n)
	}
}

func TestOnFailureAWorkerThatCrashesIsReplaced(t *testing.T) {
	t.Parallel()
	m := start(t, web+"[program.web.restart]\nwhen = \"on-failure\"\n")
	m.serves(1)
	must(t, syscall.Kill(m.worker(1), syscall.SIGKILL))
	m.awaitN(2, says(workerReady))
}

func TestNeverAWorkerThatCrashesIsNotReplaced(t *testing.T) {
	t.Parallel()
	m := start(t, web+"[program.web.restart]\nwhen = \"never\"\n")
	m.serves(1)
	must(t, syscall.Kill(m.worker(1), syscall.SIGKILL))
	m.await(says(workerDied))
	time.Sleep(200 * time.Millisecond) // for what must not happen
	if n := m.count(says(workerRuns)); n != 1 {
		t.Errorf("%d workers were started", n)
	}
}

func TestHUPStartsAProgramAgainThatHasFinished(t *testing.T) {
	t.Parallel()
	m := start(t, web+"[program.web.restart]\nwhen = \"never\"\n")
	m.serves(1)
	must(t, syscall.Kill(m.worker(1), syscall.SIGKILL))
	m.await(says(workerDied))
	m.reload()
	m.serves(2)
}

func TestACrashDuringATrialIsReplacedAsWell(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.start(webWith("hangif={dir}/hang"))
	m.serves(1)
	must(t, syscall.Kill(m.worker(1), 0))
	m.write(webWith("ready=never"))
	m.reload()
	m.worker(2)
	must(t, syscall.Kill(m.worker(1), syscall.SIGKILL))
	m.awaitN(2, says(workerReady), gen(1))
	ask(t, m.address(), "/")
}

func TestRequestsThatWaitOutliveACrash(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	must(t, syscall.Kill(m.worker(1), syscall.SIGSTOP))
	answer := promise(t, m.address(), "/")
	must(t, syscall.Kill(m.worker(1), syscall.SIGKILL))
	answer()
}
