package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"
	"time"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// told is an update on web with everything that some kind may have.
func told(r program.Report) supervisor.Update {
	return supervisor.Update{Program: "web", Report: r}
}

// sentences are what `events` prints for each kind.
var sentences = map[string]program.Report{
	"generation 2 starts (requested by root (uid 0, pid 7))":                                           {Kind: program.TrialBegan, Generation: 2, Serving: 1, Reason: "requested", AskedBy: "root (uid 0, pid 7)"},
	"generation 1 starts (start)":                                                                      {Kind: program.TrialBegan, Generation: 1, Reason: "start"},
	"a reload waits until the generation on trial is decided (by signal HUP from bash (pid 7, uid 0))": {Kind: program.ReloadQueued, Reason: "HUP", AskedBy: "signal HUP from bash (pid 7, uid 0)"},
	"a reload waits until the canary is promoted (abort drops it) (the page; by bob)":                  {Kind: program.ReloadHeld, Reason: "the page", AskedBy: "bob"},
	"a reload waits: as many old generations drain as max_draining allows":                             {Kind: program.ReloadFull},
	"the reload is given up before it began (a watched file changed)":                                  {Kind: program.ReloadDropped, Generation: 4, Reason: "a watched file changed", Reload: &program.ReloadRecord{}},
	"watched files change with every generation, so reloads for them wait 1m0s: they are logs":         {Kind: program.ReloadDamped, Reason: "they are logs", After: time.Minute},
	"the canary, generation 3, is promoted (by bob)":                                                   {Kind: program.CanaryPromoted, Generation: 3, AskedBy: "bob"},
	"4 workers instead of 2 (by bob)":                                                                  {Kind: program.Scaled, Reason: "4 workers instead of 2", AskedBy: "bob"},
	"USR1 is sent to the workers (by bob)":                                                             {Kind: program.SignalSent, Signal: "USR1", AskedBy: "bob"},
	"USR1 is sent to the workers of generation 3":                                                      {Kind: program.SignalSent, Signal: "USR1", Generation: 3},
	"the canary, generation 3, is well and waits: promote or abort it":                                 {Kind: program.CanaryHeld, Generation: 3},
	"the canary, generation 3, gets 5% of the new connections, is well, and is promoted in 30s if it stays well": {Kind: program.CanaryWatched, Generation: 3,
		After: 30 * time.Second, Reload: &program.ReloadRecord{Passage: program.Passage{Share: 500}}},
	"the canary is refused, and nothing has changed: another generation was on trial": {Kind: program.CanaryRefused, Reason: "another generation was on trial"},
	"generation 3 failed at step start, worker 4: exited with status 3":               {Kind: program.TrialFailed, Generation: 3, Worker: 4, Step: "start", Reason: "exited with status 3", AskedBy: "bob"},
	"generation 3 failed at step abort: no longer wanted (by bob)":                    {Kind: program.TrialFailed, Generation: 3, Step: "abort", Reason: "no longer wanted", AskedBy: "bob"},
	"the reload is tried again in 5s":                                                 {Kind: program.ReloadRetry, Generation: 3, Serving: 2, After: 5 * time.Second},
	"nothing serves; the next attempt follows in 200ms":                               {Kind: program.StartRetry, Generation: 3, After: 200 * time.Millisecond},
	"generation 2 serves again after 300ms":                                           {Kind: program.ServesAgain, Generation: 2, Serving: 2, Took: 300 * time.Millisecond},
	"nothing serves: generation 2 does not get ready again":                           {Kind: program.NothingServes, Generation: 2},
	"generation 3 serves after 26ms":                                                  {Kind: program.GenerationServes, Generation: 3, Serving: 2, Took: 26 * time.Millisecond, Reason: "HUP"},
	"generation 2 has ended after 1.5s; 1 of its workers had to be killed":            {Kind: program.GenerationGone, Generation: 2, Took: 1500 * time.Millisecond, Killed: 1},
	"generation 2 has ended after 30ms":                                               {Kind: program.GenerationGone, Generation: 2, Took: 30 * time.Millisecond},
	"generation 2 is kept for 10m0s: `supervisord rollback web` returns to it":        {Kind: program.GenerationKept, Generation: 2, Serving: 3, After: 10 * time.Minute},
	"generation 2 has no connections in hand any more after 13ms":                     {Kind: program.GenerationQuiet, Generation: 2, Serving: 3, Took: 13 * time.Millisecond},
	"generation 2 is told to stop with connections in hand after 10s: 2 unread":       {Kind: program.GenerationBusy, Generation: 2, Took: 10 * time.Second, Reload: &program.ReloadRecord{Passage: program.Passage{Left: &program.Look{Unread: 2}}}},
	"generation 2 has no worker left; 1 connection was reset that waited":             {Kind: program.ConnectionsReset, Generation: 2, Reset: 1},
	"generation 2 serves again: generation 3 is rolled back (by bob)":                 {Kind: program.RolledBack, Generation: 2, Serving: 3, AskedBy: "bob"},
	"the canary, generation 3, gets 25% of the new connections from now on (by bob)":  {Kind: program.ShareChanged, Generation: 3, AskedBy: "bob", Reload: &program.ReloadRecord{Passage: program.Passage{Share: 2500}}},
	"the path of listener http is put back: its path was removed":                     {Kind: program.PathRestored, Listener: "http", Reason: "its path was removed"},
	"clients do not find the socket of listener http: nginx answers there":            {Kind: program.PathTaken, Listener: "http", Reason: "nginx answers there"},
	"paused: new connections wait, for 30s at most (by bob)":                          {Kind: program.Paused, After: 30 * time.Second, AskedBy: "bob"},
	"resumed after 12s: new connections are accepted again (by bob)":                  {Kind: program.Resumed, Took: 12 * time.Second, AskedBy: "bob"},
	"worker 4 of generation 3 starts (slot 1, PID 99)":                                {Kind: program.WorkerSpawned, Generation: 3, Worker: 4, Slot: 1, PID: 99},
	"worker 4 of generation 3 is ready after 26ms":                                    {Kind: program.WorkerReady, Generation: 3, Worker: 4, Took: 26 * time.Millisecond},
	"worker 4 of generation 3 was not ready in time: not ready within 30s":            {Kind: program.WorkerLate, Generation: 3, Worker: 4, Reason: "not ready within 30s"},
	"worker 4 of generation 3 is to be replaced: max_age":                             {Kind: program.WorkerLeaving, Generation: 3, Worker: 4, Reason: "max_age"},
	"worker 4 of generation 3 gets TERM, and has 30s to end":                          {Kind: program.WorkerStopping, Generation: 3, Worker: 4, Signal: "TERM", After: 30 * time.Second},
	"worker 4 of generation 3 is killed: still alive after stop.timeout":              {Kind: program.WorkerKilled, Generation: 3, Worker: 4, Reason: "still alive after stop.timeout"},
	"worker 4 of generation 3 has ended after 5ms: exited with status 0":              {Kind: program.WorkerStopped, Generation: 3, Worker: 4, Took: 5 * time.Millisecond, Reason: "exited with status 0"},
	"worker 4 of generation 3 ended unexpectedly: exited with status 1":               {Kind: program.WorkerDied, Generation: 3, Worker: 4, Reason: "exited with status 1"},
	"worker 4 of generation 3 could not be started, at step exec: no such file":       {Kind: program.WorkerDied, Generation: 3, Worker: 4, Step: "exec", Reason: "no such file"},
	"slot 1 of generation 3 gets a new worker in 200ms":                               {Kind: program.SlotRetry, Generation: 3, Slot: 1, After: 200 * time.Millisecond},
	"slot 0 of generation 3 gets a new worker at once":                                {Kind: program.SlotRetry, Generation: 3},
	"stops (by signal TERM from systemd (pid 1, uid 0))":                              {Kind: program.StopBegan, Reason: "TERM", AskedBy: "signal TERM from systemd (pid 1, uid 0)"},
	"has stopped": {Kind: program.StopEnded},
	"has stopped; 2 workers had to be killed": {Kind: program.StopEnded, Stop: &program.StopRecord{Killed: 2}},
}

func TestEveryEventIsASentence(t *testing.T) {
	kinds := reportKinds(t)
	for want, r := range sentences {
		if got := sentence(told(r)); got != "web: "+want {
			t.Errorf("%s:\n%s\nwant\n%s", r.Kind.ID(), got, want)
		}
		delete(kinds, r.Kind)
	}
	for kind := range kinds {
		t.Errorf("%q has no example here", kind)
	}
}

// reportKinds returns every kind of report that there is.
func reportKinds(t *testing.T) map[program.ReportKind]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../supervisor/program/report.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[program.ReportKind]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.ValueSpec)
		if !ok || len(s.Values) != 1 {
			return true
		}
		if kind, ok := s.Type.(*ast.Ident); ok && kind.Name == "ReportKind" {
			text, _ := strconv.Unquote(s.Values[0].(*ast.BasicLit).Value)
			kinds[program.ReportKind(text)] = true
		}
		return true
	})
	return kinds
}

func TestAnUnknownEventKeepsItsOwnWords(t *testing.T) {
	if got := sentence(told(program.Report{Kind: "worker dreams", Worker: 1, Reason: "of sheep"})); got != "web: worker dreams: of sheep" {
		t.Errorf("the sentence is %q", got)
	}
}
