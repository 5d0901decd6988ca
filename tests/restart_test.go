package tests

import (
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

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
