package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/must"
)

// waits are the functions of tests that sleep, but for the pause of a loop, or that wait no longer than a time below
// patient, by the reason why they may. None of the reasons makes a test fail on a slow machine: what takes longer there
// is waited for longer. In a bubble of testing/synctest the clock runs by itself, and no reason is needed.
var waits = map[string][]string{
	"what must not happen leaves no event, and a slow machine only makes the test blind": {
		"internal/lab/supervisord.go: Settle",
		"internal/systemd/server_test.go: quiet",
		"socket/history_test.go: checkPaused",
		"tests/attack/pause_test.go: TestPauseSurvivesADeathOfSupervisord",
		"tests/attack/watch_test.go: TestWorkerThatWritesIntoItsWatchedFolderDoesNotReloadWithoutEnd",
		"tests/attack/worker_test.go: TestProbesThatGetNoAnswerLeaveNoDescriptors",
		"tests/faults/operations_test.go: waits",
		"tests/resources_test.go: TestIdleItDoesNotWakeUp",
		"worker/accept_test.go: notYet",
		"worker/graceful/http_test.go: TestLargeAnswerIsSentWhole",
		"worker/graceful/notify_test.go: TestWatchdogIsPingedWhileAliveReturnsTrue",
		"worker/graceful/notify_test.go: TestWatchdogOfAnotherProcessIsNotPinged",
	},
	"so much time must have passed for the program or the kernel, and more does no harm": {
		"internal/observe/binary_test.go: TestNothingWakesUpWhileNobodyLooks",
		"socket/diag/watch_test.go: TestConnectionClosedByItsClient",
		"socket/diag/watch_test.go: TestConnectionPassesThroughAllPhases",
		"socket/diag/watch_test.go: TestRequestInTheTickOfTheAnswerBeforeItIsInHand",
		"socket/diag/watch_test.go: TestTLSHandshakeIsInHand",
		"socket/diag/watch_test.go: TestUnacknowledgedAnswerIsUnderWay",
		"tests/attack/queues_test.go: TestDeferredClientIsAnsweredByTheGenerationToWhichItHasConnected",
		"tests/signals_test.go: TestSecondTERMMeansNow",
	},
	"it is how long the worker, the client, the network or the outage under test takes": {
		"examples/grpc_test.go: kinds",
		"internal/lab/worker/main.go: boot",
		"internal/lab/worker/main.go: leave",
		"internal/lab/worker/main.go: serve",
		"internal/lab/distance.go: carry",
		"internal/prove/main_test.go: workers",
		"supervisor/record/read_test.go: TestPIDFileOfADeadProcessIsTakenWhenItsLastChildUnlocksIt",
		"tests/attack/suspend_test.go: TestMasterThatWasStoppedDoesNotFailTrialsThatWereReadyInTime",
		"tests/servers/tftp_test.go: fetch",
		"worker/graceful/http2_test.go: hammer",
		"worker/graceful/serve_test.go: Serve",
		"worker/graceful/serve_test.go: TestServersRunTogetherAndAreDrainedTogether",
		"worker/graceful/workers_test.go: Serve",
		"worker/graceful/workers_test.go: workers",
	},
	"some requests, lines or steps must have gone by, and any number will do": {
		"examples/examples_test.go: redeploy",
		"internal/lab/load/load_test.go: TestAbandonCutsRequestsInFlight",
		"internal/prove/prove_test.go: TestInterruptGivesAPartialVerdict",
		"tests/servers/site_test.go: redeploy",
		"worker/spawn/spawn_test.go: TestThousandForksBesideABusyGarbageCollector",
	},
	"a pause between looks at what tells no event; they end when it holds": {
		"internal/foreign/foreign_test.go: TestLookThatIsStuckIsLeftAlone",
		"internal/lab/browser/browser.go: end",
		"tests/attack/clients_test.go: controlSocket",
	},
	"the limit itself, or a client that gives up, is under test": {
		"internal/control/server_test.go: TestOneUserCannotKeepOthersOut",
		"internal/control/server_test.go: lingering",
		"internal/systemd/fdstore_test.go: TestDescriptorThatDoesNotFitIsRefusedUntilSystemdReads",
		"tests/attack/clients_test.go: sendLingering",
		"tests/attack/control_test.go: TestHostileClientsDoNotDisturbReloadsUnderLoad",
		"worker/graceful/example_test.go: ExampleOptions",
		"worker/output/logfile_test.go: TestLogThatIsNotReadCostsLinesAndNoTime",
		"worker/ready/probe_test.go: TestProbeOfAListenerByTCPNeedsAWorkerThatAccepts",
	},
}

// patient is how long a test waits at least for what should happen at once.
const patient = 30 * time.Second

// unlisted are directories in which time is the subject: a soak is what happens in so many minutes.
var unlisted = []string{"tests/soak", "examples/measure"}

// TestNoTestWaitsForTime finds time.Sleep and short limits in tests and in what only tests use.
func TestNoTestWaitsForTime(t *testing.T) {
	found := map[string][]string{}
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, "../../")
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (slices.Contains(unlisted, name) || entry.Name() == "testdata"):
			return fs.SkipDir
		case strings.HasSuffix(name, "_test.go"), strings.HasSuffix(name, ".go") && (strings.HasPrefix(name,
			"tests/") || strings.HasPrefix(name, "internal/lab/")):
			return findWaits(path, name, found)
		}
		return nil
	})
	must.Do(t, err)
	for _, places := range waits {
		for _, place := range places {
			if found[place] == nil {
				t.Errorf("%s is in waits, but does not wait for time any more", place)
			}
			delete(found, place)
		}
	}
	for place, lines := range found {
		t.Errorf("%s waits for time in %s: wait for an event, or say in waits why not", place, strings.Join(lines, ", "))
	}
}

// findWaits adds the waits in a file to found, by file and function.
func findWaits(path, name string, found map[string][]string) error {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, 0)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` }) {
		return nil
	}
	for _, decl := range file.Decls {
		place := name + ": " + declares(decl)
		ast.Inspect(decl, func(n ast.Node) bool {
			loop, is := n.(*ast.ForStmt)
			if is && loop.Post != nil {
				loop.Post = nil // the pause of a loop
			}
			if call, is := n.(*ast.CallExpr); is && waitsForTime(call) {
				found[place] = append(found[place], fmt.Sprintf("line %d", set.Position(call.Pos()).Line))
			}
			return true
		})
	}
	return nil
}

// declares returns the name of a function, or of the first variable of a declaration.
func declares(decl ast.Decl) string {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		return d.Name.Name
	case *ast.GenDecl:
		if v, is := d.Specs[0].(*ast.ValueSpec); is {
			return v.Names[0].Name
		}
	}
	return ""
}

// limits are the functions that end a wait after a time, which is one of their arguments.
var limits = []string{"time.After", "time.NewTimer", "time.AfterFunc", "context.WithTimeout",
	"context.WithTimeoutCause",
	"net.DialTimeout", "Now.Add"}

// waitsForTime reports whether a call sleeps, or ends a wait after less than patient.
func waitsForTime(call *ast.CallExpr) bool {
	called := calledName(call)
	if called == "time.Sleep" {
		return true
	}
	return slices.Contains(limits, called) && slices.ContainsFunc(call.Args, func(arg ast.Expr) bool {
		d, literal := durationOf(arg)
		return literal && d > 0 && d < patient
	})
}

// calledName returns the name of what is called: "time.Sleep", or "Now.Add" for time.Now().Add.
func calledName(call *ast.CallExpr) string {
	f, is := call.Fun.(*ast.SelectorExpr)
	if !is {
		return ""
	}
	switch of := f.X.(type) {
	case *ast.Ident:
		return of.Name + "." + f.Sel.Name
	case *ast.CallExpr:
		if calledName(of) == "time.Now" {
			return "Now." + f.Sel.Name
		}
	}
	return ""
}

// durationOf returns the value of a duration such as 5*time.Second.
func durationOf(e ast.Expr) (d time.Duration, literal bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		n, err := strconv.ParseInt(e.Value, 0, 64)
		return time.Duration(n), err == nil
	case *ast.SelectorExpr:
		d, literal = map[string]time.Duration{"Nanosecond": 1, "Microsecond": time.Microsecond,
			"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}[e.Sel.Name]
		return d, literal
	case *ast.BinaryExpr:
		x, known := durationOf(e.X)
		y, alsoKnown := durationOf(e.Y)
		return x * y, known && alsoKnown && e.Op == token.MUL
	}
	return 0, false
}
