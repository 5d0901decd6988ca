package program

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// sentences are what a person reads of each kind.
var sentences = map[string]Report{
	"generation 2 starts (requested by root (uid 0, pid 7))": {Kind: TrialBegan,
		Generation: 2, Serving: 1, Reason: "requested", AskedBy: "root (uid 0, pid 7)"},
	"generation 1 starts (start)": {Kind: TrialBegan,
		Generation: 1, Reason: "start"},
	"a reload waits until the one before it has ended (by signal HUP from bash (pid 7, uid 0))": {Kind: ReloadQueued,
		Reason: "HUP", AskedBy: "signal HUP from bash (pid 7, uid 0)"},
	"a reload waits until the canary is promoted (abort drops it) (the page; by bob)": {Kind: ReloadHeld,
		Reason: "the page", AskedBy: "bob"},
	"a reload waits: as many old generations drain as max_draining allows": {Kind: ReloadFull},
	"the waiting reload is dropped (a watched file changed)": {Kind: ReloadDropped,
		Generation: 4, Reason: "a watched file changed", Reload: &ReloadRecord{}},
	"watched files change with every generation, so reloads for them wait 1m0s: they are logs": {Kind: ReloadDamped,
		Reason: "they are logs", After: time.Minute},
	"the canary, generation 3, is promoted (by bob)": {Kind: CanaryPromoted,
		Generation: 3, AskedBy: "bob"},
	"the number of workers changes: 4 workers instead of 2 (by bob)": {Kind: Scaled,
		Reason: "4 workers instead of 2", AskedBy: "bob"},
	"signal USR1 is sent to the workers (by bob)": {Kind: SignalSent,
		Particulars: Particulars{Signal: "USR1"}, AskedBy: "bob"},
	"signal USR1 is sent to the workers of generation 3": {Kind: SignalSent,
		Particulars: Particulars{Signal: "USR1"}, Generation: 3},
	"the canary, generation 3, is well and waits: promote or abort it": {Kind: CanaryHeld,
		Generation: 3},
	"the canary, generation 3, is well with 5% of the new connections, and is promoted in 30s if it stays well": {
		Kind: CanaryWatched, Generation: 3, After: 30 * time.Second, Reload: &ReloadRecord{Passage: Passage{Share: 500}}},
	"the canary is refused, and nothing has changed: another generation was on trial": {Kind: CanaryRefused,
		Reason: "another generation was on trial"},
	"generation 3 failed: worker 4 (slot 1, PID 99) at step start: exited with status 3": {Kind: TrialFailed,
		Generation: 3, Worker: 4, Slot: 1, PID: 99, End: End{Step: "start"}, Reason: "exited with status 3", AskedBy: "bob"},
	"generation 3 failed at step abort: no longer wanted (by bob)": {Kind: TrialFailed,
		Generation: 3, End: End{Step: "abort"}, Reason: "no longer wanted", AskedBy: "bob"},
	"the reload is tried again in 5s": {Kind: ReloadRetry,
		Generation: 3, Serving: 2, After: 5 * time.Second},
	"no worker is up; retrying in 200ms": {Kind: StartRetry,
		Generation: 3, After: 200 * time.Millisecond},
	"generation 2 serves again after 300ms": {Kind: ServesAgain,
		Generation: 2, Serving: 2, Took: 300 * time.Millisecond},
	"nothing serves: generation 2 does not get ready again": {Kind: NothingServes,
		Generation: 2},
	"generation 3 serves after 26ms": {Kind: GenerationServes,
		Generation: 3, Serving: 2, Took: 26 * time.Millisecond, Reason: "HUP"},
	"generation 2 has ended after 1.5s; 1 of its workers had to be killed": {Kind: GenerationGone,
		Generation: 2, Took: 1500 * time.Millisecond, Particulars: Particulars{Killed: 1}},
	"generation 2 has ended after 30ms": {Kind: GenerationGone,
		Generation: 2, Took: 30 * time.Millisecond},
	"generation 2 is kept for 10m0s: `supervisord rollback web` returns to it": {Kind: GenerationKept,
		Generation: 2, Serving: 3, After: 10 * time.Minute},
	"generation 2 has no connections or flows in use any more after 13ms": {Kind: GenerationQuiet,
		Generation: 2, Serving: 3, Took: 13 * time.Millisecond},
	"drain.timeout is over: generation 2 is stopped with connections in use after 10s: 2 unread": {Kind: GenerationBusy,
		Generation: 2, Took: 10 * time.Second, Reason: Look{Unread: 2}.String()},
	"generation 2 has no worker left; connections that waited were reset: 1": {Kind: ConnectionsReset,
		Generation: 2, Particulars: Particulars{Reset: 1}},
	"rolled back from generation 3: generation 2 serves again (by bob)": {Kind: RolledBack,
		Generation: 2, Serving: 3, AskedBy: "bob"},
	"the canary, generation 3, gets another share of the new connections: 25% (by bob)": {Kind: ShareChanged,
		Generation: 3, AskedBy: "bob", Reload: &ReloadRecord{Passage: Passage{Share: 2500}}},
	"the path of listener http is put back: its path was removed": {Kind: PathRestored,
		Particulars: Particulars{Listener: "http"}, Reason: "its path was removed"},
	"clients do not find the socket of listener http: nginx answers there": {Kind: PathTaken,
		Particulars: Particulars{Listener: "http"}, Reason: "nginx answers there"},
	"paused: new connections wait, for 30s at most (by bob)": {Kind: Paused,
		After: 30 * time.Second, AskedBy: "bob"},
	"resumed after 12s: new connections are accepted again (by bob)": {Kind: Resumed,
		Took: 12 * time.Second, AskedBy: "bob"},
	"worker 4 of generation 3 (PID 99) runs in slot 1": {Kind: WorkerSpawned,
		Generation: 3, Worker: 4, Slot: 1, PID: 99},
	"worker 4 of generation 3 is ready after 26ms": {Kind: WorkerReady,
		Generation: 3, Worker: 4, Took: 26 * time.Millisecond},
	"waiting for worker 4 of generation 3 (PID 7) to be ready: it has not said READY=1": {Kind: WorkerAwaited,
		Generation: 3, Worker: 4, PID: 7, Reason: "it has not said READY=1"},
	"worker 4 of generation 3 (PID 7) is not ready yet: no process waits on 127.0.0.1:80": {Kind: WorkerStrange,
		Generation: 3, Worker: 4, PID: 7, Reason: "no process waits on 127.0.0.1:80"},
	"worker 4 of generation 3 was not ready in time: not ready within 30s": {Kind: WorkerLate,
		Generation: 3, Worker: 4, Reason: "not ready within 30s"},
	"worker 4 of generation 3 is to be replaced: max_age": {Kind: WorkerLeaving,
		Generation: 3, Worker: 4, Reason: "max_age"},
	"worker 4 of generation 3 is told to stop with TERM, and has 30s to end": {Kind: WorkerStopping,
		Generation: 3, Worker: 4, Particulars: Particulars{Signal: "TERM"}, After: 30 * time.Second},
	"worker 4 of generation 3 continues without its first process: PID 7 killed by SIGTERM": {Kind: WorkerOutlived,
		Generation: 3, Worker: 4, Reason: "PID 7 killed by SIGTERM"},
	"worker 4 of generation 3 is killed: still alive after stop.timeout": {Kind: WorkerKilled,
		Generation: 3, Worker: 4, Reason: "still alive after stop.timeout"},
	"worker 4 of generation 3 has stopped after 5ms: exited with status 0": {Kind: WorkerStopped,
		Generation: 3, Worker: 4, Took: 5 * time.Millisecond, Reason: "exited with status 0"},
	"worker 4 of generation 3 died: exited with status 1": {Kind: WorkerDied,
		Generation: 3, Worker: 4, Reason: "exited with status 1"},
	"worker 4 of generation 3 died at step exec: no such file": {Kind: WorkerDied,
		Generation: 3, Worker: 4, End: End{Step: "exec"}, Reason: "no such file"},
	"slot 1 of generation 3 gets a new worker in 200ms": {Kind: SlotRetry,
		Generation: 3, Slot: 1, After: 200 * time.Millisecond},
	"slot 0 of generation 3 gets a new worker at once": {Kind: SlotRetry,
		Generation: 3},
	"the program stops (by signal TERM from systemd (pid 1, uid 0))": {Kind: StopBegan,
		Reason: "TERM", AskedBy: "signal TERM from systemd (pid 1, uid 0)"},
	"the program has stopped": {Kind: StopEnded},
	"the program has stopped; 2 workers had to be killed": {Kind: StopEnded,
		Stop: &StopRecord{Killed: 2}},
	"the start waits for cache, db and queue (requested by bob)": {Kind: StartWaits,
		Particulars: Particulars{Awaits: []string{"cache", "db", "queue"}}, Reason: "requested", AskedBy: "bob"},
}

func TestEveryReportIsASentence(t *testing.T) {
	said := map[ReportKind]bool{}
	for want, r := range sentences {
		if got := r.Text("web"); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", r.Kind, got, want)
		}
		said[r.Kind] = true
	}
	for kind := range kinds {
		if !said[kind] {
			t.Errorf("%s has no example here", kind)
		}
	}
}

func TestEveryKindOfReportHasWordsAndAnIDOfItsOwn(t *testing.T) {
	constants := reportKinds(t)
	if len(constants) == 0 || len(constants) != len(kinds) {
		t.Errorf("%d kinds have %d rows", len(constants), len(kinds))
	}
	seen := map[string]ReportKind{}
	for _, kind := range constants {
		words, has := kinds[kind]
		if !has || words.level == "" || !regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`).MatchString(string(kind)) {
			t.Errorf("%q has the words %+v", kind, words)
		}
		sentence := kind.Sentence()
		if other, twice := seen[sentence]; twice || strings.ContainsAny(sentence, "{}") || strings.Contains(sentence, "  ") {
			t.Errorf("%s has the sentence %q, as %q", kind, sentence, other)
		}
		seen[sentence] = kind
	}
}

// reportKinds returns every constant that is a kind of report.
func reportKinds(t *testing.T) (list []ReportKind) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "report.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.ValueSpec)
		if !ok || len(s.Values) != 1 {
			return true
		}
		if kind, ok := s.Type.(*ast.Ident); ok && kind.Name == "ReportKind" {
			text, _ := strconv.Unquote(s.Values[0].(*ast.BasicLit).Value)
			list = append(list, ReportKind(text))
		}
		return true
	})
	return list
}

func TestACleanEndOfAWorkerIsNoWarning(t *testing.T) {
	for clean, want := range map[bool]Level{true: info, false: warn} {
		if got := (&Report{Kind: WorkerDied, End: End{Clean: clean}}).Level(); got != want {
			t.Errorf("clean %v: %s", clean, got)
		}
	}
}

// The list of events in docs/logs.md is between these lines.
const (
	listOfEvents = "../../docs/logs.md"
	listBegins   = "| `event` | level | `msg` |\n| --- | --- | --- |\n"
)

func TestDocsListEveryEvent(t *testing.T) {
	var list strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(&list, "| `%s` | %s | %s |\n", kind, kinds[kind].level, kind.Sentence())
	}
	text, err := os.ReadFile(listOfEvents)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), listBegins)
	old, after, ends := strings.Cut(rest, "\n\n")
	if !found || !ends {
		t.Fatalf("%s has no list of events", listOfEvents)
	}
	if *update {
		text := before + listBegins + list.String() + "\n" + after
		if err := os.WriteFile(listOfEvents, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if old+"\n" != list.String() {
		t.Errorf("the list of events in docs/logs.md is not that of the code; regenerate it with: go test " +
			"./supervisor/program -run DocsListEveryEvent -update")
	}
}

func TestDurationsForPeopleAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1400 * time.Microsecond: "1ms", 999 * time.Millisecond: "999ms", time.Second: "1s", 1360 * time.Millisecond: "1.4s",
		time.Minute: "1m0s", 61400 * time.Millisecond: "1m1s", time.Hour: "1h0m", 90*time.Minute + 40*time.Second: "1h31m",
	} {
		if got := Short(d); got != want {
			t.Errorf("%d is %s, want %s", d, got, want)
		}
	}
}

func TestWhatBeginsOrWaitsPromisesANumber(t *testing.T) {
	promise := regexp.MustCompile(`^(a reload|the start) waits|^generation starts`)
	for kind := range kinds {
		if r := (&Report{Kind: kind}); r.Promises() != promise.MatchString(kind.Sentence()) {
			t.Errorf("%s promises a number: %v", kind, r.Promises())
		}
	}
}
