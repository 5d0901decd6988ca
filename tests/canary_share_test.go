package tests

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// shareOf makes n connections and returns how many percent of them a generation has answered.
func shareOf(m *lab.Supervisord, generation, n int) float64 {
	m.T.Helper()
	address, answered := m.Address(), 0
	for range n {
		if strings.Contains(lab.Ask(m.T, address, "/"), fmt.Sprintf("generation=%d ", generation)) {
			answered++
		}
	}
	return 100 * float64(answered) / float64(n)
}

// near makes n connections and fails unless a generation answers this many percent of them, within five standard
// deviations: chance goes beyond once in 1.7 million. Small shares go beyond them more often, but hardly ever by 1.5
// points.
func near(m *lab.Supervisord, what string, generation, n int, want float64) {
	m.T.Helper()
	got, bound := shareOf(m, generation, n), max(1.5, 5*math.Sqrt(want*(100-want)/float64(n)))
	if math.Abs(got-want) > bound {
		m.T.Errorf("%s: %.2f%% of %d connections, want %g%%, give or take %.2f", what, got, n, want, bound)
	}
}

func TestCanaryGetsItsShareWithOneWorker(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	first := m.WorkerPID(1)
	if out := m.CtlOK("reload", "--canary", "5%", "--hold"); !strings.Contains(out,
		"web: the canary, generation 2, is well with 5% of the new connections and waits: promote or abort it") {
		t.Errorf("the verdict is %s", out)
	}
	near(m, "as a canary of 5%", 2, 3000, 5)
	if out := m.CtlOK("status"); !strings.Contains(out, "canary 5%") || !strings.Contains(out, "serving 95%") {
		t.Errorf("the status is %s", out)
	}
	if out := m.CtlOK("promote", "web", "--canary", "0.5%"); !strings.Contains(out,
		"is well with 0.5% of the new connections") {
		t.Errorf("the verdict is %s", out)
	}
	near(m, "lowered to 0.5%", 2, 2000, 0.5)
	m.CtlOK("promote", "web", "--canary", "97.25%")
	near(m, "raised to 97.25%", 2, 2000, 97.25)
	if !lab.Alive(first) {
		t.Error("the generation that serves has lost its worker")
	}
	if out := m.CtlOK("promote", "web", "--timeout", "30s"); !strings.Contains(out, "web: generation 2 serves") {
		t.Errorf("the verdict is %s", out)
	}
	if got := shareOf(m, 2, 200); got != 100 {
		t.Errorf("promoted: %g%% of the connections", got)
	}
	m.Gone(1)
}

func TestAbortedCanaryGetsNothingMoreAndLosesNothing(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	m.CtlOK("reload", "--canary", "50%", "--hold")
	trial := m.WorkerPID(2)
	address := m.Address()
	l := lab.PressNew(t, address, 4, 10*time.Millisecond)
	m.Until("the canary answers", func() bool { return len(l.Attempts()) > 200 })
	var slow []func() string
	for range 30 { // with a canary of half of the connections, all are at the old generation once in a billion times
		slow = append(slow, lab.Promise(t, address, "/slow?d=500ms"))
	}
	if out := m.CtlOK("abort", "web"); !strings.Contains(out, "aborted") {
		t.Errorf("it says %s", out)
	}
	if got := shareOf(m, 1, 200); got != 100 {
		t.Errorf("aborted: the old generation has %g%% of the connections", got)
	}
	finished := 0
	for _, answer := range slow {
		if strings.Contains(answer(), "generation=2 ") {
			finished++
		}
	}
	m.Gone(2)
	if l.Lossless(t) != 2 || finished == 0 || lab.Alive(trial) {
		t.Errorf("the canary finished %d requests; it lives: %v", finished, lab.Alive(trial))
	}
	m.Untouched(m.WorkerPID(1))
}
