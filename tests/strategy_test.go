package tests

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// gated is a program of n workers that wait at a gate once there is a file "wait".
func gated(workers int, strategy string) string {
	return fmt.Sprintf(`
[program.web]
command = ["sh", "-c", "if test -e {dir}/wait; then read x <{dir}/gate; fi; exec \"$@\"", "sh", {worker}, "note={dir}/notes"]
workers = %d
[[program.web.listen]]
address = "127.0.0.1:0"
[program.web.ready]
method = "notify"
[program.web.reload]
strategy = %q
`, workers, strategy)
}

// census counts the workers that live, at every step of the log.
func census(lines []line) (most, fewest int) {
	living, served := 0, false
	fewest = 1 << 30
	for _, l := range lines {
		switch l.Msg {
		case workerRuns:
			living++
		case workerStopped, workerDied:
			living--
		case generationServes:
			served = true
		}
		most = max(most, living)
		if served {
			fewest = min(fewest, living)
		}
	}
	return most, fewest
}

// lines are all there are.
func (m *master) lines() []line {
	found, _ := m.log.all()
	return found
}

func TestAllNoOldWorkerGoesBeforeEveryNewOneIsReady(t *testing.T) {
	t.Parallel()
	m := start(t, gated(3, "all"))
	m.serves(1)
	m.reload()
	m.gone(1)
	last := m.awaitN(3, says(workerReady), gen(2))[2]
	if told := m.await(says(workerTold), gen(1)); told.n < last.n {
		t.Errorf("a worker was told to go before the last of the new ones was ready")
	}
	if most, _ := census(m.lines()); most != 6 {
		t.Errorf("there were up to %d workers, want 6", most)
	}
}

func TestAllNoOldWorkerGoesWhileOneNewOneIsNotReady(t *testing.T) {
	t.Parallel()
	m := start(t, `
[program.web]
command = ["sh", "-c", "test $SUPERVISORD_SLOT$SUPERVISORD_GENERATION = 12 && read x <{dir}/gate; echo >&$NOTIFY_FD; exec sleep 1000"]
workers = 2
ready.method = "notify"
`)
	gate := m.fifo("gate")
	m.serves(1)
	m.reload()
	m.await(says(workerReady), gen(2), slot(0))
	m.await(says(workerRuns), gen(2), slot(1))
	time.Sleep(100 * time.Millisecond) // for what must not happen
	m.never(says(workerTold))
	m.open(gate)
	m.gone(1)
}

func TestRollingHasAtMostMaxSurgeMoreWorkersThanUsual(t *testing.T) {
	t.Parallel()
	for _, surge := range []int{1, 2} {
		m := start(t, gated(4, "rolling")+fmt.Sprintf("max_surge = %d\n", surge))
		m.serves(1)
		m.reload()
		m.serves(2)
		m.gone(1)
		if most, fewest := census(m.lines()); most > 4+surge || fewest < 4 {
			t.Errorf("with max_surge = %d there were %d to %d workers, want 4 to %d", surge, fewest, most, 4+surge)
		}
		m.finish()
	}
}

func TestRollingReplacesSlotBySlot(t *testing.T) {
	t.Parallel()
	m := start(t, gated(3, "rolling"))
	m.serves(1)
	m.reload()
	m.gone(1)
	for n := range 3 {
		ready := m.await(says(workerReady), gen(2), slot(n))
		told := m.await(says(workerTold), gen(1), slot(n))
		if told.n < ready.n {
			t.Errorf("in slot %d the old one went before the new one was ready", n)
		}
		if n > 0 {
			if before := m.await(says(workerTold), gen(1), slot(n-1)); ready.n < before.n {
				t.Errorf("slot %d was replaced before slot %d", n, n-1)
			}
		}
	}
}

func TestRollingPutsBackWhatWasReplacedWhenItFails(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.start(`
[program.web]
command = ["sh", "-c", "test $SUPERVISORD_SLOT = 2 && test $SUPERVISORD_GENERATION = 2 && exit 1; exec \"$@\"", "sh", {worker}]
workers = 3
[[program.web.listen]]
address = "127.0.0.1:0"
[program.web.ready]
method = "notify"
[program.web.reload]
strategy = "rolling"
`)
	m.serves(1)
	m.reload()
	failed := m.await(says(trialFailed))
	if failed.Slot != 2 || failed.Serving != 1 {
		t.Errorf("the log says %s", failed.text)
	}
	m.gone(2)
	back := m.awaitN(5, says(workerReady), gen(1))
	if _, fewest := census(m.lines()); fewest < 3 {
		t.Errorf("at one moment there were only %d workers", fewest)
	}
	for _, l := range back[3:] {
		if !alive(l.PID) {
			t.Errorf("the worker that was put back in slot %d is gone", l.Slot)
		}
	}
	if got := ask(t, m.address(), "/"); !strings.Contains(got, "generation=1 ") {
		t.Errorf("there answers %s", got)
	}
}

func TestStopFirstNeverRunsTwoGenerationsAtOnce(t *testing.T) {
	t.Parallel()
	m := start(t, gated(2, "stop-first"))
	m.serves(1)
	m.reload()
	m.serves(2)
	if most, _ := census(m.lines()); most != 2 {
		t.Errorf("there were %d workers at once, want 2", most)
	}
	if m.awaitN(2, says(workerStopped), gen(1))[1].n > m.await(says(workerRuns), gen(2)).n {
		t.Error("a new worker ran before the last old one had gone")
	}
}

func TestStopFirstStartsTheOldGenerationAgainWhenTheNewOneFails(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.start(gated(1, "stop-first"))
	m.serves(1)
	m.write(strings.Replace(gated(1, "stop-first"), `"note={dir}/notes"`, `"exit=1"`, 1))
	m.reload()
	m.await(says(trialFailed), gen(2))
	m.awaitN(2, says(workerReady), gen(1))
	if got := ask(t, m.address(), "/"); !strings.Contains(got, "generation=1 ") {
		t.Errorf("there answers %s", got)
	}
}

func TestStopFirstKeepsTheOldGenerationWhenThePreflightFails(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.start(gated(1, "stop-first") + "preflight = [\"test\", \"!\", \"-e\", \"{dir}/bad\"]\n")
	m.serves(1)
	m.file("bad", "")
	m.reload()
	m.await(says(trialFailed), step("preflight"))
	m.untouched(m.worker(1))
}

func TestClientsWaitWhileStopFirstReplaces(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.start(gated(1, "stop-first"))
	gate := m.fifo("gate")
	m.serves(1)
	m.file("wait", "")
	m.reload()
	m.worker(2)
	answer := promise(t, m.address(), "/")
	m.open(gate)
	if got := answer(); !strings.Contains(got, "generation=2 ") {
		t.Errorf("there answers %s", got)
	}
}

func TestASoakedTrialServesLaterByTheSoak(t *testing.T) {
	t.Parallel()
	m := start(t, web+"[program.web.reload]\nsoak = \"300ms\"\n")
	m.serves(1)
	m.reload()
	ready := m.await(says(workerReady), gen(2))
	if gap := m.serves(2).Time.Sub(ready.Time); gap < 290*time.Millisecond {
		t.Errorf("it served %v after it was ready", gap)
	}
	if told := m.await(says(workerTold), gen(1)); told.Time.Sub(ready.Time) < 290*time.Millisecond {
		t.Error("the old one was told to go within the soak")
	}
}

func TestAPreflightThatPassesComesBeforeAnythingIsStarted(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.start(webWith("note={dir}/notes") + `
[program.web.reload]
preflight = ["sh", "-c", "echo $SUPERVISORD_GENERATION preflight in $PWD with $WORD >>{dir}/notes"]
[program.web.environment]
WORD = "hello"
`)
	m.serves(1)
	m.reload()
	m.serves(2)
	notes := strings.Split(m.read("notes"), "\n")
	if len(notes) < 4 || !strings.HasSuffix(notes[0], "preflight in "+m.dir+" with hello") || notes[1] != "1 0 start" || !strings.Contains(notes[2], "preflight") {
		t.Errorf("what happened: %q", notes)
	}
}

func TestAGenerationChangesItsNumberOfWorkers(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"all", "rolling", "stop-first"} {
		m := start(t, gated(3, strategy))
		m.serves(1)
		m.write(gated(1, strategy))
		m.reload()
		m.serves(2)
		m.gone(1)
		m.write(gated(4, strategy))
		m.reload()
		m.serves(3)
		m.gone(2)
		if n := len(m.workers()); n != 4 {
			t.Errorf("%s: there are %d workers, want 4", strategy, n)
		}
		m.finish()
	}
}

// workers lists the processes that live, as the log has them.
func (m *master) workers() []int {
	var living []int
	for _, l := range m.lines() {
		if l.Msg == workerRuns && alive(l.PID) {
			living = append(living, l.PID)
		}
	}
	return living
}

func TestAReloadThatChangesTheStrategyFollowsTheNewOne(t *testing.T) {
	t.Parallel()
	m := start(t, gated(2, "all"))
	m.serves(1)
	m.write(gated(2, "stop-first"))
	m.reload()
	m.serves(2)
	if m.awaitN(2, says(workerStopped), gen(1))[1].n > m.await(says(workerRuns), gen(2)).n {
		t.Error("a new worker ran before the last old one had gone")
	}
}
