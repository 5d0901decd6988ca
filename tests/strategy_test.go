package tests

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// gated is a program of n workers that wait at a gate once the file "wait" exists.
func gated(workers int, strategy string) string {
	return fmt.Sprintf(`
[program.web]
command = ["sh", "-c", "if test -e {dir}/wait; then read x <{dir}/gate; fi; exec \"$@\"", "sh",
	{worker}, "note={dir}/notes"]
workers = %d
[[program.web.listen]]
address = "127.0.0.1:0"
[program.web.ready]
method = "notify"
[program.web.reload]
strategy = %q
`, workers, strategy)
}

// census counts the running workers at each entry of the log.
func census(lines []lab.Entry) (most, fewest int) {
	living, served := 0, false
	fewest = 1 << 30
	for _, l := range lines {
		switch l.Msg {
		case lab.WorkerRuns:
			living++
		case lab.WorkerStopped, lab.WorkerDied:
			living--
		case lab.GenerationServes:
			served = true
		}
		most = max(most, living)
		if served {
			fewest = min(fewest, living)
		}
	}
	return most, fewest
}

func TestAllStopsNoOldWorkerBeforeEveryNewOneIsReady(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, `
[program.web]
command = ["sh", "-c", """
test $SUPERVISORD_SLOT$SUPERVISORD_GENERATION = 12 && read x <{dir}/gate; echo >&$NOTIFY_FD; exec sleep 1000"""]
workers = 2
ready.method = "notify"
`)
	gate := m.Gate("gate")
	m.Serves(1)
	m.Reload()
	m.Await(lab.Says(lab.WorkerReady), lab.Gen(2), lab.Slot(0))
	m.Await(lab.Says(lab.WorkerRuns), lab.Gen(2), lab.Slot(1))
	time.Sleep(100 * time.Millisecond) // time for what must not happen
	m.Never(lab.Says(lab.WorkerTold))
	m.Open(gate)
	m.Gone(1)
}

func TestRollingHasAtMostMaxSurgeMoreWorkersThanUsual(t *testing.T) {
	t.Parallel()
	for _, surge := range []int{1, 2} {
		m := lab.Start(t, gated(4, "rolling")+fmt.Sprintf("max_surge = %d\n", surge))
		m.Serves(1)
		m.Reload()
		m.Serves(2)
		m.Gone(1)
		if most, fewest := census(m.Lines()); most > 4+surge || fewest < 4 {
			t.Errorf("with max_surge = %d there were %d to %d workers, want 4 to %d", surge, fewest, most, 4+surge)
		}
		m.Finish()
	}
}

func TestFailedRollingReloadRestoresTheReplacedWorkers(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Start(`
[program.web]
command = ["sh", "-c", "test $SUPERVISORD_SLOT = 2 && test $SUPERVISORD_GENERATION = 2 && exit 1; exec \"$@\"",
	"sh", {worker}]
workers = 3
[[program.web.listen]]
address = "127.0.0.1:0"
[program.web.ready]
method = "notify"
[program.web.reload]
strategy = "rolling"
`)
	m.Serves(1)
	m.Reload()
	failed := m.Await(lab.Says(lab.TrialFailed))
	if failed.Slot != 2 || failed.Serving != 1 {
		t.Errorf("the log says %s", failed.Text)
	}
	m.Gone(2)
	back := m.AwaitN(5, lab.Says(lab.WorkerReady), lab.Gen(1))
	if _, fewest := census(m.Lines()); fewest < 3 {
		t.Errorf("at one point only %d workers ran", fewest)
	}
	for _, l := range back[3:] {
		if !lab.Alive(l.PID) {
			t.Errorf("the restored worker in slot %d has exited", l.Slot)
		}
	}
	if got := lab.Ask(t, m.Address(), "/"); !strings.Contains(got, "generation=1 ") {
		t.Errorf("the answer is %s", got)
	}
}

func TestSoakDelaysTheServingOfATrial(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web+"[program.web.reload]\nsoak = \"300ms\"\n")
	m.Serves(1)
	m.Reload()
	ready := m.Await(lab.Says(lab.WorkerReady), lab.Gen(2))
	if gap := m.Serves(2).Time.Sub(ready.Time); gap < 290*time.Millisecond {
		t.Errorf("the generation served %v after it was ready", gap)
	}
	if told := m.Await(lab.Says(lab.WorkerTold), lab.Gen(1)); told.Time.Sub(ready.Time) < 290*time.Millisecond {
		t.Error("the old worker was told to stop during the soak")
	}
}

// The old workers have gone for the new one, so nothing serves until they are back.
func TestFailedStopFirstReloadSaysWhenTheOldGenerationServesAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		worker string
		code   int
		says   []string
	}{
		"dies": {"failif={dir}/bad", 11,
			[]string{"generation 2 failed", "at step start", "; nothing served for ", "; generation 1 serves again"}},
		"never ready": {"hangif={dir}/bad", 12, []string{"generation 2 failed", "at step ready", "; nothing serves"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Prepare(t)
			m.Start(lab.WebWith("env", c.worker, "boot=300ms") +
				"timeout = \"2s\"\n[program.web.reload]\nstrategy = \"stop-first\"\n")
			m.Serves(1)
			m.File("bad", "")
			reload := m.CtlStart("reload")
			m.Await(lab.Says(lab.TrialFailed), lab.Gen(2))
			if name == "dies" {
				lab.Must(t, os.Remove(m.Path("bad")))
			}
			out := reload.Ends(c.code)
			for _, word := range c.says {
				if !strings.Contains(out, word) || strings.Contains(out, "still serves") {
					t.Errorf("reload says %s, want %q", out, word)
				}
			}
			if strings.Contains(out, "serves again") {
				lab.Ask(t, m.Address(), "/") // at once, without a retry
			}
		})
	}
}
