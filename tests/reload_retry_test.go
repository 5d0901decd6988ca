package tests

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

func TestFailedReloadIsRetriedUntilOneServes(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.WebWith("failif={dir}/bad")+"[program.web.compat]\nretry = \"200ms\"\n")
	m.Serves(1)
	m.File("bad", "")
	m.Reload()
	m.Await(lab.Says(lab.TrialFailed), lab.Gen(2))
	m.Await(lab.Says(lab.ReloadRetry), lab.Gen(2))
	m.Await(lab.Says(lab.TrialFailed), lab.Gen(3))
	if !lab.Alive(m.WorkerPID(1)) {
		t.Error("the serving worker has exited")
	}
	lab.Must(t, os.Remove(m.Path("bad")))
	served := m.Await(lab.Says(lab.GenerationServes), func(l lab.Entry) bool { return l.Generation > 3 })
	m.Gone(1)
	time.Sleep(500 * time.Millisecond)
	m.Never(lab.Says(lab.TrialBegan), func(l lab.Entry) bool { return l.Generation > served.Generation })
}

func TestReloadEveryReloadsPeriodically(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web+"[program.web.reload]\nevery = \"1s\"\n")
	for generation := 1; generation <= 3; generation++ {
		m.Serves(generation)
	}
	began := m.AwaitN(3, lab.Says(lab.TrialBegan))
	served := m.AwaitN(2, lab.Says(lab.GenerationServes))
	if gap := began[2].Time.Sub(served[1].Time); gap < 900*time.Millisecond {
		t.Errorf("the third generation began %s after the second served", gap)
	}
	if !strings.Contains(began[2].Reason, "1s have passed") {
		t.Errorf("the reason is %q", began[2].Reason)
	}
}

func TestRestartGenerationNewReplacesACrashedWorkerWithANewGeneration(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.File("env/COLOUR", "red\n")
	m.Start(strings.Replace(lab.Web, "[[", "environment_file = \"{dir}/env\"\n[[", 1) +
		"[program.web.compat]\ngeneration = \"new\"\n")
	m.Serves(1)
	m.File("env/COLOUR", "blue\n")
	lab.Must(t, syscall.Kill(m.WorkerPID(1), syscall.SIGKILL))
	m.Serves(2)
	if got := lab.Environment(t, m.WorkerPID(2))["COLOUR"]; got != "blue" {
		t.Errorf("the new generation has %q", got)
	}
	m.Gone(1)
}
