package tests

import (
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// keeps is Web with reload.keep.
func keeps(length string) string {
	return lab.Web + "[program.web.reload]\nkeep = \"" + length + "\"\n"
}

func TestRollbackSwitchesBackAtOnceAndStartsNothing(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(keeps("1h"), "[[", "workers = 2\n[[", 1))
	m.Serves(1)
	if out := m.CtlOK("reload"); !strings.Contains(out, "generation 1 is kept for ") ||
		!strings.Contains(out, "`supervisord rollback web`") {
		t.Errorf("the verdict of the reload is %s", out)
	}
	if out := m.CtlOK("status"); !strings.Contains(out, "generation 1 is kept for ") {
		t.Errorf("the status is %s", out)
	}
	workers := m.Processes()
	address := m.Address()
	l := lab.PressNew(t, address, 4, 10*time.Millisecond)
	slow := lab.Promise(t, address, "/slow?d=1500ms")
	if out := m.CtlOK("rollback"); !strings.Contains(out,
		"web: generation 1 serves again; generation 2 gets no new connections and drains") {
		t.Errorf("the verdict is %s", out)
	}
	for range 100 {
		if got := lab.Ask(t, address, "/"); !strings.Contains(got, "generation=1 ") {
			t.Fatalf("rolled back to generation 1, and %s answers", got)
		}
	}
	if got := slow(); !strings.Contains(got, "generation=2 ") {
		t.Errorf("a request that generation 2 had in hand is answered by %s", got)
	}
	m.Gone(2)
	l.Lossless(t)
	if now := m.PIDs(); len(now) != 2 || !slices.Contains(workers, now[0]) || !slices.Contains(workers, now[1]) ||
		m.Count(lab.Says(lab.WorkerRuns)) != 4 {
		t.Errorf("the workers are %v; there were %v", now, workers)
	}
	m.Await(lab.Says("rolled back: generation serves again"), lab.Contains(`"asked_by":"root (uid 0`))
	if out := m.CtlOK("status"); !strings.Contains(out, "last reload: generation 2 was rolled back, ") {
		t.Errorf("the status is %s", out)
	}
	m.CtlFails(1, []string{"reload with the old version"}, "rollback")
}
