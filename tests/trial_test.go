package tests

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// failing starts web and reloads it with the configuration that change returns. The trial must fail and the serving
// generation stay untouched. It returns the log entry of the failure.
func failing(t *testing.T, change func(config string) string) lab.Entry {
	t.Helper()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	before := m.WorkerPID(1)
	m.Write(change(lab.Web))
	m.Reload()
	failed := m.Await(lab.Says(lab.TrialFailed))
	if failed.Generation != 2 || failed.Serving != 1 || failed.Level != "error" {
		t.Errorf("the log says %s", failed.Text)
	}
	m.Gone(2)
	m.Untouched(before)
	if n := m.Count(func(l lab.Entry) bool { return l.Level == "error" }); n != 1 {
		t.Errorf("there are %d errors in the log, want one", n)
	}
	return failed
}

func TestTrialThatCannotBeExecutedLeavesTheServingGenerationAlone(t *testing.T) {
	t.Parallel()
	failed := failing(t, func(c string) string { return strings.Replace(c, "{worker}", `"{dir}/nothing"`, 1) })
	if failed.Step != "exec" || !strings.Contains(failed.Reason, "no such file") {
		t.Errorf("the log says %s", failed.Text)
	}
}

func TestTrialWithAForbiddenDirectoryLeavesTheServingGenerationAlone(t *testing.T) {
	t.Parallel()
	lab.NeedRoot(t, "run a worker as another user")
	private := t.TempDir()
	lab.Must(t, os.Chmod(private, 0o700))
	failed := failing(t, func(c string) string {
		return strings.Replace(c, "[[", "user = \"nobody\"\ndirectory = \""+private+"\"\n[[", 1)
	})
	if failed.Step != "directory" || !strings.Contains(failed.Reason, "permission denied") {
		t.Errorf("the log says %s", failed.Text)
	}
}

func TestUserThatDoesNotExistIsRefusedWithTheConfiguration(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	m.Write(strings.Replace(lab.Web, "[[", "user = \"nobody-of-this-name\"\n[[", 1))
	m.Reload()
	if l := m.Await(lab.Says(lab.Refused)); !strings.Contains(l.Error, "nobody-of-this-name") {
		t.Errorf("the log says %s", l.Text)
	}
	m.Untouched(m.WorkerPID(1))
}

func TestTrialWithAMissingDirectoryLeavesTheServingGenerationAlone(t *testing.T) {
	t.Parallel()
	failed := failing(t, func(c string) string { return strings.Replace(c, "[[", "directory = \"{dir}/nothing\"\n[[", 1) })
	if failed.Step != "prepare" || !strings.Contains(failed.Reason, "nothing") {
		t.Errorf("the log says %s", failed.Text)
	}
}

func TestTrialWhosePreflightFailsLeavesTheServingGenerationAlone(t *testing.T) {
	t.Parallel()
	failed := failing(t, func(c string) string {
		return c + "[program.web.reload]\npreflight = [\"sh\", \"-c\", \"echo this is broken >&2; exit 9\"]\n"
	})
	if failed.Step != "preflight" || !strings.Contains(failed.Reason, "9") ||
		strings.Join(failed.Stderr, "") != "this is broken" {
		t.Errorf("the log says %s", failed.Text)
	}
}

func TestTrialWhosePreflightTimesOutLeavesTheServingGenerationAlone(t *testing.T) {
	t.Parallel()
	failed := failing(t, func(c string) string {
		return c + "timeout = \"200ms\"\n[program.web.reload]\npreflight = [\"sh\", \"-c\", \"sleep 1000; sleep 1000\"]\n"
	})
	if failed.Step != "preflight" || !strings.Contains(failed.Reason, "200ms") {
		t.Errorf("the log says %s", failed.Text)
	}
}

func TestTrialThatExitsLeavesTheServingGenerationAlone(t *testing.T) {
	t.Parallel()
	failed := failing(t, func(c string) string { return strings.Replace(c, "{worker}", `{worker}, "exit=6"`, 1) })
	if failed.Step != "start" || !strings.Contains(failed.Reason, "6") || failed.PID == 0 || failed.Worker == 0 {
		t.Errorf("the log says %s", failed.Text)
	}
}

func TestTrialKilledByASignalNamesTheSignal(t *testing.T) {
	t.Parallel()
	failed := failing(t, func(c string) string { return strings.Replace(c, "{worker}", `"sh", "-c", "kill -SEGV $$"`, 1) })
	if failed.Step != "start" || !strings.Contains(failed.Reason, "SIGSEGV") {
		t.Errorf("the log says %s", failed.Text)
	}
}

func TestTrialThatNeverGetsReadyLeavesTheServingGenerationAlone(t *testing.T) {
	t.Parallel()
	failed := failing(t, func(c string) string {
		return strings.Replace(c, "{worker}", `{worker}, "ready=never"`, 1) + "timeout = \"200ms\"\n"
	})
	if failed.Step != "ready" {
		t.Errorf("the log says %s", failed.Text)
	}
}

func TestTrialThatDiesInItsSoakLeavesTheServingGenerationAlone(t *testing.T) {
	t.Parallel()
	failed := failing(t, func(c string) string {
		return strings.Replace(c, "{worker}", `{worker}, "die=100ms"`, 1) + "[program.web.reload]\nsoak = \"20s\"\n"
	})
	if failed.Step != "soak" || !strings.Contains(failed.Reason, "4") {
		t.Errorf("the log says %s", failed.Text)
	}
}

func TestFailedTrialIsExplainedByItsLastLinesOfStderr(t *testing.T) {
	t.Parallel()
	failed := failing(t, func(c string) string {
		c = strings.Replace(c, "{worker}", `{worker}, "say=cannot find the database", "exit=1"`, 1)
		return strings.Replace(c, "[[", "stderr = \"{dir}/err.log\"\n[[", 1)
	})
	if strings.Join(failed.Stderr, "") != "cannot find the database" {
		t.Errorf("the log says %s", failed.Text)
	}
}

func TestOneWorkerOfManyThatFailsIsEnoughToFailTheTrial(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Start("[program.web]\nworkers = 3\n" +
		"command = [\"sh\", \"-c\", \"test $SUPERVISORD_SLOT = 2 && test -e {dir}/bad && exit 1; echo >&$NOTIFY_FD; exec " +
		"sleep 1000\"]\nready.method = \"notify\"\n")
	m.Serves(1)
	m.File("bad", "")
	m.Reload()
	if failed := m.Await(lab.Says(lab.TrialFailed)); failed.Slot != 2 {
		t.Errorf("the log says %s", failed.Text)
	}
	m.Gone(2)
	for _, l := range m.AwaitN(3, lab.Says(lab.WorkerRuns), lab.Gen(1)) {
		if !lab.Alive(l.PID) {
			t.Errorf("worker %d of the first generation is gone", l.PID)
		}
	}
}

func TestCorrectedReloadServes(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Start(lab.WebWith("failif={dir}/bad"))
	m.Serves(1)
	m.File("bad", "")
	m.Reload()
	m.Await(lab.Says(lab.TrialFailed), lab.Gen(2))
	lab.Must(t, os.Remove(m.Path("bad")))
	m.Reload()
	m.Serves(3)
	m.Gone(1)
}

func TestHUPDuringATrialMakesOneMoreReloadWithTheNewestConfiguration(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	gate := m.Gate("gate")
	m.Start(lab.Web)
	m.Serves(1)
	m.Write(lab.WebWith("gate="+gate) + "[program.web.environment]\nWORD = \"two\"\n")
	m.Reload()
	m.WorkerPID(2)
	for _, word := range []string{"three", "four", "five"} {
		m.Write(lab.Web + "[program.web.environment]\nWORD = \"" + word + "\"\n")
		m.Await(lab.Says(lab.ReloadQueued), lab.After(m.Reload()))
	}
	m.Open(gate)
	m.Serves(2)
	m.Serves(3)
	m.Gone(2)
	if got := lab.Ask(t, m.Address(), "/"); !strings.Contains(got, "generation=3 ") ||
		!strings.Contains(got, "word=five") {
		t.Errorf("the answer is %s", got)
	}
	m.Never(lab.Says(lab.TrialBegan), lab.Gen(4))
}

func TestHUPDuringATrialThatFailsIsOneMore(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	gate := m.Gate("gate")
	m.Start(lab.Web)
	m.Serves(1)
	m.Write(lab.WebWith("gate="+gate, "hangif="+m.Path("config.toml")) + "timeout = \"1s\"\n")
	m.Reload()
	m.WorkerPID(2)
	m.Write(lab.Web)
	m.Reload()
	m.Await(lab.Says(lab.TrialFailed), lab.Gen(2))
	m.Serves(3)
}

func TestHundredHUPsDuringATrialMakeOneMoreGeneration(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	gate := m.Gate("gate")
	m.Start(lab.Web)
	m.Serves(1)
	m.Write(lab.WebWith("gate=" + gate))
	m.Reload()
	m.WorkerPID(2)
	for range 100 {
		m.Signal(syscall.SIGHUP)
	}
	m.Settle()
	m.Open(gate)
	m.WorkerPID(3)
	m.Open(gate)
	m.Serves(3)
	m.Gone(2)
	m.Never(lab.Says(lab.TrialBegan), lab.Gen(4))
}

func TestHundredHUPsAtOnceEndWithOneGenerationThatServes(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	for range 100 {
		m.Signal(syscall.SIGHUP)
	}
	m.Await(lab.Says(lab.GenerationServes), func(l lab.Entry) bool { return l.Generation > 1 })
	m.Reloaded()
	m.Until("one worker is left", func() bool { return len(m.Living()) == 1 })
	if served, began := m.Count(lab.Says(lab.GenerationServes)), m.Count(lab.Says(lab.TrialBegan)); served != began ||
		served > 101 {
		t.Errorf("%d generations began and %d served", began, served)
	}
	m.Never(lab.Says(lab.TrialFailed))
}

func TestHUPDuringADrainStartsAtOnce(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.WebWith("term=ignore"))
	m.Serves(1)
	m.Reload()
	m.Serves(2)
	began := time.Now()
	m.Reload()
	m.Serves(3)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
	if !lab.Alive(m.WorkerPID(1)) || !lab.Alive(m.WorkerPID(2)) {
		t.Error("nothing drains anymore")
	}
	m.Signal(syscall.SIGQUIT)
	m.Ends(0)
}

func TestHUPWithInvalidConfigurationLogsOneErrorAndChangesNothing(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	m.Write(lab.Web + "nonsense = true\n[program.other]\ncommand = [{sleep}]\n")
	asked := m.Reload()
	err := m.Await(lab.Says(lab.Refused))
	if err.Level != "error" || !strings.Contains(err.Error, m.Path("config.toml")+":") ||
		!strings.Contains(err.Error, "nonsense") {
		t.Errorf("the log says %s", err.Text)
	}
	m.Write(lab.Web)
	m.Signal(syscall.SIGHUP)
	m.Serves(2)
	if n := m.Count(lab.After(asked), func(l lab.Entry) bool { return l.Level == "error" }); n != 1 {
		t.Errorf("there are %d errors, want one", n)
	}
	m.Never(lab.Program("other"))
	if began := m.Await(lab.Says(lab.TrialBegan), lab.Gen(2)); began.N < err.N {
		t.Error("a generation began with the bad configuration")
	}
}

func TestTrialThatIsStoppedByTERMLeavesNothing(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Start(lab.WebWith("hangif={dir}/hang"))
	m.Serves(1)
	m.File("hang", "")
	m.Reload()
	m.WorkerPID(2)
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
}

func TestFirstStartThatFailsIsRetriedWithBackoff(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.WebWith("exit=1")+`
[program.web.restart]
backoff = { min = "20ms", max = "150ms" }
`)
	var waits []time.Duration
	for _, l := range m.AwaitN(6, lab.Says(lab.StartRetry)) {
		waits = append(waits, l.AfterDuration())
	}
	if waits[0] > 20*time.Millisecond || waits[1] <= waits[0] || waits[2] <= waits[1] || waits[5] > 150*time.Millisecond ||
		waits[5] < 100*time.Millisecond {
		t.Errorf("the waits are %v: want them to double from 20ms to 150ms, less a fifth", waits)
	}
}

func TestClientsWaitWhileTheFirstStartIsRetried(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.File("bad", "")
	m.Start(lab.WebWith("failif={dir}/bad") + "[program.web.restart]\nbackoff = { min = \"50ms\", max = \"50ms\" }\n")
	m.AwaitN(2, lab.Says(lab.StartRetry))
	answer := lab.Promise(t, m.Address(), "/")
	m.AwaitN(4, lab.Says(lab.StartRetry))
	lab.Must(t, os.Remove(m.Path("bad")))
	if got := answer(); !strings.Contains(got, "generation=") {
		t.Errorf("the answer is %q", got)
	}
}

func TestClientThatConnectsBeforeTheWorkerIsUpGetsItsAnswer(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Start(strings.Replace(lab.Web, "{worker}",
		`"sh", "-c", "while ! test -e {dir}/go; do sleep 0.02; done; exec \"$@\"", "sh", {worker}`, 1))
	m.WorkerPID(1)
	answer := lab.Promise(t, m.Address(), "/")
	m.File("go", "")
	answer()
}

func TestHUPRetriesAFirstStartWithoutWaitingForTheBackoff(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.File("bad", "")
	m.Start(lab.WebWith("failif={dir}/bad") + "[program.web.restart]\nbackoff = { min = \"1h\", max = \"1h\" }\n")
	m.Await(lab.Says(lab.StartRetry))
	lab.Must(t, os.Remove(m.Path("bad")))
	m.Reload()
	m.Serves(2)
}
