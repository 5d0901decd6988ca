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
	if out := m.CtlOK("reload"); !strings.Contains(out, "generation 1 is kept until ") ||
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

func TestNextReloadEndsTheKeptGenerationAndKeepsTheOneBefore(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, keeps("1h"))
	m.Serves(1)
	m.CtlOK("reload")
	m.CtlOK("reload")
	m.Gone(1)
	m.CtlOK("rollback")
	if got := lab.Ask(t, m.Address(), "/"); !strings.Contains(got, "generation=2 ") {
		t.Errorf("%s answers", got)
	}
}

func TestRollbackToAGenerationThatIsGoneSaysSinceWhen(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, keeps("200ms"))
	m.Serves(1)
	m.CtlOK("reload")
	m.Gone(1)
	m.CtlFails(1, []string{"generation 1", "since ", "reload with the old version"}, "rollback")
	if got := lab.Ask(t, m.Address(), "/"); !strings.Contains(got, "generation=2 ") {
		t.Errorf("%s answers", got)
	}
}

func TestRollbackIsRefusedWithARemedy(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, keeps("1h")+
		"[program.other]\ncommand = [{sleep}]\nready = { method = \"delay\", delay = \"10ms\" }\n")
	m.AwaitN(2, lab.Says(lab.GenerationServes))
	m.CtlFails(1, []string{"no program keeps", "reload with the old version", "other, web"}, "rollback")
	m.CtlFails(1, []string{"reload.keep"}, "rollback", "other")
	m.CtlFails(1, []string{"there is no such program: wbe"}, "rollback", "wbe")
	m.CtlOK("reload", "web")
	m.CtlFails(2, []string{"name the program", "web (generation 1 is kept until "}, "rollback")
	m.CtlOK("reload", "web", "--canary", "5%", "--hold")
	m.CtlFails(1, []string{"abort"}, "rollback", "web")
	m.CtlOK("abort", "web")
	m.CtlOK("rollback", "web")
}

func TestClientThatWaitsForAReloadThatIsRolledBackIsTold(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, keeps("1h"))
	m.Serves(1)
	waits := m.CtlStart("reload", "--drained")
	m.Serves(2)
	m.CtlOK("rollback")
	if out := waits.Ends(13); !strings.Contains(out, "web: generation 2 was rolled back") ||
		!strings.Contains(out, "generation 1 serves") {
		t.Errorf("it says %s", out)
	}
}

func TestWorkerThatCrashesAfterARollbackIsReplacedByTheOldVersion(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(keeps("1h"), "[[", "environment = { WORD = \"old\" }\n[[", 1))
	m.Serves(1)
	m.Write(strings.Replace(keeps("1h"), "[[", "environment = { WORD = \"new\" }\n[[", 1))
	m.CtlOK("reload")
	m.CtlOK("rollback")
	last := m.Last()
	lab.Get(m.Address(), "/die") // there is no answer
	m.Await(lab.After(last), lab.Says(lab.WorkerReady))
	if got := lab.Ask(t, m.Address(), "/"); !strings.Contains(got, "word=old") {
		t.Errorf("%s answers", got)
	}
}
