package tests

import (
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

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
