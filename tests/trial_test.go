package tests

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// failing starts web, then reloads with what change makes of its configuration, which must fail the trial and leave the
// serving generation exactly as it was. It returns the line that says why.
func failing(t *testing.T, change func(config string) string) line {
	t.Helper()
	m := start(t, web)
	m.serves(1)
	before := m.worker(1)
	m.write(change(web))
	m.reload()
	failed := m.await(says(trialFailed))
	if failed.Generation != 2 || failed.Serving != 1 || failed.Level != "error" {
		t.Errorf("the log says %s", failed.text)
	}
	m.gone(2)
	m.untouched(before)
	if n := m.count(func(l line) bool { return l.Level == "error" }); n != 1 {
		t.Errorf("there are %d errors in the log, want one", n)
	}
	return failed
}

// untouched fails unless the worker that served before is alive, was told nothing, and still answers.
func (m *master) untouched(worker int) {
	m.t.Helper()
	if !alive(worker) {
		m.t.Errorf("worker %d, which served, is gone", worker)
	}
	m.never(says(workerTold), pid(worker))
	if got := ask(m.t, m.address(), "/"); !strings.Contains(got, "generation=1 ") {
		m.t.Errorf("there answers %s", got)
	}
}

func TestATrialThatCannotBeExecutedLeavesTheServingGenerationAlone(t *testing.T) {
	t.Parallel()
	failed := failing(t, func(c string) string { return strings.Replace(c, "{worker}", `"{dir}/nothing"`, 1) })
	if failed.Step != "exec" || !strings.Contains(failed.Reason, "no such file") {
		t.Errorf("the log says %s", failed.text)
	}
}

func TestATrialWhoseUserMayNotEnterItsDirectoryLeavesTheServingGenerationAlone(t *testing.T) {
	t.Parallel()
	asRoot(t, "run a worker as another user")
	private := t.TempDir()
	must(t, os.Chmod(private, 0o700))
	failed := failing(t, func(c string) string {
		return strings.Replace(c, "[[", "user = \"nobody\"\ndirectory = \""+private+"\"\n[[", 1)
	})
	if failed.Step != "directory" || !strings.Contains(failed.Reason, "permission denied") {
		t.Errorf("the log says %s", failed.text)
	}
}

func TestAUserThatDoesNotExistIsRefusedWithTheConfiguration(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	m.write(strings.Replace(web, "[[", "user = \"nobody-of-this-name\"\n[[", 1))
	m.reload()
	if l := m.await(says(refused)); !strings.Contains(l.Error, "nobody-of-this-name") {
		t.Errorf("the log says %s", l.text)
	}
	m.untouched(m.worker(1))
}

func TestATrialWhoseDirectoryIsMissingLeavesTheServingGenerationAlone(t *testing.T) {
	t.Parallel()
	failed := failing(t, func(c string) string { return strings.Replace(c, "[[", "directory = \"{dir}/nothing\"\n[[", 1) })
	if failed.Step != "prepare" || !strings.Contains(failed.Reason, "nothing") {
		t.Errorf("the log says %s", failed.text)
	}
}

func TestATrialWhosePreflightFailsLeavesTheServingGenerationAlone(t *testing.T) {
	t.Parallel()
	failed := failing(t, func(c string) string {
		return c + "[program.web.reload]\npreflight = [\"sh\", \"-c\", \"echo this is broken >&2; exit 9\"]\n"
	})
	if failed.Step != "preflight" || !strings.Contains(failed.Reason, "9") || strings.Join(failed.Stderr, "") != "this is broken" {
		t.Errorf("the log says %s", failed.text)
	}
}

func TestATrialWhosePreflightTakesTooLongLeavesTheServingGenerationAlone(t *testing.T) {
	t.Parallel()
	failed := failing(t, func(c string) string {
		return c + "[program.web.reload]\npreflight = [\"sh\", \"-c\", \"sleep 1000; sleep 1000\"]\npreflight_timeout = \"200ms\"\n"
	})
	if failed.Step != "preflight" || !strings.Contains(failed.Reason, "200ms") {
		t.Errorf("the log says %s", failed.text)
	}
}

func TestATrialThatExitsLeavesTheServingGenerationAlone(t *testing.T) {
	t.Parallel()
	failed := failing(t, func(c string) string { return strings.Replace(c, "{worker}", `{worker}, "exit=6"`, 1) })
	if failed.Step != "start" || !strings.Contains(failed.Reason, "6") || failed.PID == 0 || failed.Worker == 0 {
		t.Errorf("the log says %s", failed.text)
	}
}

func TestATrialThatIsKilledBySignalSaysSo(t *testing.T) {
	t.Parallel()
	failed := failing(t, func(c string) string { return strings.Replace(c, "{worker}", `"sh", "-c", "kill -SEGV $$"`, 1) })
	if failed.Step != "start" || !strings.Contains(failed.Reason, "SIGSEGV") {
		t.Errorf("the log says %s", failed.text)
	}
}

func TestATrialThatNeverGetsReadyLeavesTheServingGenerationAlone(t *testing.T) {
	t.Parallel()
	failed := failing(t, func(c string) string {
		return strings.Replace(c, "{worker}", `{worker}, "ready=never"`, 1) + "timeout = \"200ms\"\n"
	})
	if failed.Step != "ready" {
		t.Errorf("the log says %s", failed.text)
	}
}

func TestATrialThatDiesInItsSoakLeavesTheServingGenerationAlone(t *testing.T) {
	t.Parallel()
	failed := failing(t, func(c string) string {
		return strings.Replace(c, "{worker}", `{worker}, "die=100ms"`, 1) + "[program.web.reload]\nsoak = \"20s\"\n"
	})
	if failed.Step != "soak" || !strings.Contains(failed.Reason, "4") {
		t.Errorf("the log says %s", failed.text)
	}
}

func TestAFailedTrialIsExplainedByItsLastLinesOfStderr(t *testing.T) {
	t.Parallel()
	failed := failing(t, func(c string) string {
		c = strings.Replace(c, "{worker}", `{worker}, "say=cannot find the database", "exit=1"`, 1)
		return strings.Replace(c, "[[", "stderr = \"{dir}/err.log\"\n[[", 1)
	})
	if strings.Join(failed.Stderr, "") != "cannot find the database" {
		t.Errorf("the log says %s", failed.text)
	}
}

func TestOneWorkerOfManyThatFailsIsEnoughToFailTheTrial(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.start("[program.web]\nworkers = 3\ncommand = [\"sh\", \"-c\", \"test $SUPERVISORD_SLOT = 2 && test -e {dir}/bad && exit 1; echo >&$NOTIFY_FD; exec sleep 1000\"]\nready.method = \"notify\"\n")
	m.serves(1)
	m.file("bad", "")
	m.reload()
	if failed := m.await(says(trialFailed)); failed.Slot != 2 {
		t.Errorf("the log says %s", failed.text)
	}
	m.gone(2)
	for _, l := range m.awaitN(3, says(workerRuns), gen(1)) {
		if !alive(l.PID) {
			t.Errorf("worker %d of the first generation is gone", l.PID)
		}
	}
}

func TestAReloadThatIsMendedServes(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.start(webWith("failif={dir}/bad"))
	m.serves(1)
	m.file("bad", "")
	m.reload()
	m.await(says(trialFailed), gen(2))
	must(t, os.Remove(m.path("bad")))
	m.reload()
	m.serves(3)
	m.gone(1)
}

func TestHUPDuringATrialIsExactlyOneMoreWithTheNewestConfiguration(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	gate := m.fifo("gate")
	m.start(web)
	m.serves(1)
	m.write(webWith("gate="+gate) + "[program.web.environment]\nWORD = \"two\"\n")
	m.reload()
	m.worker(2)
	for _, word := range []string{"three", "four", "five"} {
		m.write(web + "[program.web.environment]\nWORD = \"" + word + "\"\n")
		m.await(says(reloadQueued), after(m.reload()))
	}
	m.open(gate)
	m.serves(2)
	m.serves(3)
	m.gone(2)
	if got := ask(t, m.address(), "/"); !strings.Contains(got, "generation=3 ") || !strings.Contains(got, "word=five") {
		t.Errorf("there answers %s", got)
	}
	m.never(says(trialBegan), gen(4))
}

func TestHUPDuringATrialThatFailsIsOneMore(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	gate := m.fifo("gate")
	m.start(web)
	m.serves(1)
	m.write(webWith("gate="+gate, "hangif="+m.path("config.toml")) + "timeout = \"1s\"\n")
	m.reload()
	m.worker(2)
	m.write(web)
	m.reload()
	m.await(says(trialFailed), gen(2))
	m.serves(3)
}

func TestAHundredHUPsDuringATrialAreOneMoreGeneration(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	gate := m.fifo("gate")
	m.start(web)
	m.serves(1)
	m.write(webWith("gate=" + gate))
	m.reload()
	m.worker(2)
	for range 100 {
		m.signal(syscall.SIGHUP)
	}
	m.settle()
	m.open(gate)
	m.worker(3)
	m.open(gate)
	m.serves(3)
	m.gone(2)
	m.never(says(trialBegan), gen(4))
}

func TestAHundredHUPsAtOnceEndWithOneGenerationThatServes(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	for range 100 {
		m.signal(syscall.SIGHUP)
	}
	m.await(says(generationServes), func(l line) bool { return l.Generation > 1 })
	m.settle()
	if n := len(m.workers()); n != 1 {
		t.Errorf("there are %d workers", n)
	}
	if served, began := m.count(says(generationServes)), m.count(says(trialBegan)); served != began || served > 101 {
		t.Errorf("%d generations began and %d served", began, served)
	}
	m.never(says(trialFailed))
}

// settle waits until the log has been silent for a while: signals leave no trace between kill(2) and whoever takes them.
func (m *master) settle() {
	m.t.Helper()
	for {
		_, more := m.log.all()
		select {
		case <-more:
		case <-time.After(300 * time.Millisecond):
			return
		}
	}
}

func TestHUPDuringADrainStartsAtOnce(t *testing.T) {
	t.Parallel()
	m := start(t, webWith("term=ignore"))
	m.serves(1)
	m.reload()
	m.serves(2)
	began := time.Now()
	m.reload()
	m.serves(3)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if !alive(m.worker(1)) || !alive(m.worker(2)) {
		t.Error("nothing drains any more")
	}
	m.signal(syscall.SIGQUIT)
	m.ends(0)
}

func TestHUPWithABadConfigurationIsOneErrorAndNothingElse(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	m.write(web + "nonsense = true\n[program.other]\ncommand = [{sleep}]\n")
	asked := m.reload()
	err := m.await(says(refused))
	if err.Level != "error" || !strings.Contains(err.Error, m.path("config.toml")+":") || !strings.Contains(err.Error, "nonsense") {
		t.Errorf("the log says %s", err.text)
	}
	m.write(web)
	m.signal(syscall.SIGHUP)
	m.serves(2)
	if n := m.count(after(asked), func(l line) bool { return l.Level == "error" }); n != 1 {
		t.Errorf("there are %d errors, want one", n)
	}
	m.never(program("other"))
	if began := m.await(says(trialBegan), gen(2)); began.n < err.n {
		t.Error("a generation began with the bad configuration")
	}
}

func TestATrialThatIsStoppedByTERMLeavesNothing(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.start(webWith("hangif={dir}/hang"))
	m.serves(1)
	m.file("hang", "")
	m.reload()
	m.worker(2)
	m.signal(syscall.SIGTERM)
	m.ends(0)
}

func TestAFirstStartThatFailsIsRetriedWithBackoff(t *testing.T) {
	t.Parallel()
	m := start(t, webWith("exit=1")+`
[program.web.restart]
backoff = { min = "20ms", max = "150ms" }
`)
	var waits []time.Duration
	for _, l := range m.awaitN(6, says(startRetry)) {
		waits = append(waits, l.after())
	}
	if waits[0] > 20*time.Millisecond || waits[1] <= waits[0] || waits[2] <= waits[1] || waits[5] > 150*time.Millisecond || waits[5] < 100*time.Millisecond {
		t.Errorf("the waits are %v: want them to double from 20ms to 150ms, less a fifth", waits)
	}
}

func TestClientsWaitWhileTheFirstStartIsRetried(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.file("bad", "")
	m.start(webWith("failif={dir}/bad") + "[program.web.restart]\nbackoff = { min = \"50ms\", max = \"50ms\" }\n")
	m.awaitN(2, says(startRetry))
	answer := promise(t, m.address(), "/")
	m.awaitN(4, says(startRetry))
	must(t, os.Remove(m.path("bad")))
	if got := answer(); !strings.Contains(got, "generation=") {
		t.Errorf("the answer is %q", got)
	}
}

func TestAClientThatConnectsBeforeTheWorkerIsUpGetsItsAnswer(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.start(strings.Replace(web, "{worker}", `"sh", "-c", "while ! test -e {dir}/go; do sleep 0.02; done; exec \"$@\"", "sh", {worker}`, 1))
	m.worker(1)
	answer := promise(t, m.address(), "/")
	m.file("go", "")
	answer()
}

func TestHUPMendsAFirstStartWithoutWaitingForTheBackoff(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.file("bad", "")
	m.start(webWith("failif={dir}/bad") + "[program.web.restart]\nbackoff = { min = \"1h\", max = \"1h\" }\n")
	m.await(says(startRetry))
	must(t, os.Remove(m.path("bad")))
	m.reload()
	m.serves(2)
}
