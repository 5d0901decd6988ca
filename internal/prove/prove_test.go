package prove_test

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/proc"
	"example.org/supervisord/internal/prove"
)

// passed fails the test unless the proof passed without findings.
func passed(t *testing.T, o outcome) {
	t.Helper()
	if o.code != 0 || o.Findings == nil || !o.Passed() || len(o.Warnings) > 0 {
		t.Fatalf("exit %d, want 0 and a verdict without a warning", o.code)
	}
	if o.Requests.Sent < 100 || o.Requests.Answered != o.Requests.Sent {
		t.Errorf("requests: %+v, want all of many answered", o.Requests)
	}
	for _, r := range o.Reloads {
		if r.Outcome != "served" || r.Decided == nil || r.Settled == nil || r.Generation != r.Number+1 {
			t.Errorf("reload: %+v, want it served and settled with the next generation", r)
		}
	}
	if len(o.Reloads) != 3 {
		t.Errorf("%d reloads, want 3", len(o.Reloads))
	}
}

// Headlines, or a part of each.
const (
	exits     = "your worker exits on TERM without finishing its requests"
	closes    = "your worker closes idle connections on TERM while clients still use them"
	kills     = "supervisord had to kill your old workers"
	early     = "your worker says that it is ready before it can answer"
	errorsOut = "your worker answers with errors (5xx) while it stops"
	deaf      = "nothing listens at times"
	waits     = "clients waited too long for a worker"
)

// blames fails the test unless one of these causes is among those found, and they explain every loss. On a busy machine
// it need not be the first of them.
func blames(t *testing.T, o outcome, headlines ...string) {
	t.Helper()
	found := slices.ContainsFunc(o.Causes, func(c prove.Cause) bool {
		return slices.ContainsFunc(headlines, func(h string) bool { return strings.HasPrefix(c.Headline, h) })
	})
	if !found {
		t.Errorf("headline %q, causes %+v, want one of %q", o.Headline, o.Causes, headlines)
	}
	explained := 0
	for _, c := range o.Causes {
		explained += c.Lost
	}
	if explained != o.Requests.Lost {
		t.Errorf("%d of %d losses are explained", explained, o.Requests.Lost)
	}
}

// loses fails the test unless requests of one of these kinds were lost during a reload.
func loses(t *testing.T, o outcome, kinds ...load.LossKind) {
	t.Helper()
	if o.code != 1 || o.Findings == nil || o.Verdict != "failed" {
		t.Fatalf("exit %d, want 1 and a verdict that says failed", o.code)
	}
	n := 0
	for _, k := range kinds {
		n += o.Requests.Kinds[k]
	}
	if n == 0 || o.Requests.Lost == 0 {
		t.Errorf("lost %v, want some of %v", o.Requests.Kinds, kinds)
	}
	if len(o.Causes) == 0 || o.Causes[0].Remedy == "" {
		t.Errorf("causes: %+v, want one with a remedy", o.Causes)
	}
	for _, l := range o.Losses {
		if l.Reload == 0 || l.Stage == prove.Before {
			t.Errorf("lost before any reload: %+v", l)
		}
	}
}

// TestWorkersAreProved has a proof for each kind of worker. Without kinds of loss it passes.
func TestWorkersAreProved(t *testing.T) {
	t.Parallel()
	ends := []load.LossKind{load.Closed, load.Reset}
	stopFirst := []string{briefDrain, `reload.strategy = "stop-first"`}
	for name, c := range map[string]struct {
		worker, flags string
		edits         []string // old, new, …
		share, runs   bool     // the socket; the supervisord, before
		loses         []load.LossKind
		blames        []string
		also          func(o outcome) bool
	}{
		"a good one": {worker: "hello", also: func(o outcome) bool {
			return o.Protocol == "http" && o.Child && o.Latency.Before != nil && o.Latency.During != nil &&
				o.Latency.During.P99 > 0
		}},
		"one without HTTP":     {worker: "tcp", also: func(o outcome) bool { return o.Protocol == "tcp" }},
		"with a quiet log":     {worker: "hello", edits: []string{`log_level = "debug"`, `log_level = "error"`}},
		"that runs, by --pid":  {worker: "hello", flags: "--pid PID", runs: true},
		"that runs, by a file": {worker: "exit", share: true, runs: true, loses: ends},
		"exits on TERM":        {worker: "exit", share: true, loses: ends, blames: []string{exits, closes}},
		"answers with errors": {worker: "busy", loses: []load.LossKind{load.Status5},
			blames: []string{errorsOut, closes, exits}},
		// with one program, --program can be omitted
		"has a port of its own": {worker: "own", flags: "--url http://{address}/", loses: []load.LossKind{load.Refused},
			blames: []string{deaf}, edits: append([]string{"listen = [", "environment.OWN_ADDRESS = \"{address}\"\n# [",
				"workers = 2", "workers = 1"}, stopFirst...)},
		"starts slowly": {worker: "slow", flags: "--timeout 1s --reloads 1 --rate 50", edits: stopFirst,
			loses: []load.LossKind{load.TimedOut}, blames: []string{waits}},
		"is killed": {worker: "stubborn", flags: "--timeout 2s", loses: ends, blames: []string{kills},
			edits: []string{briefDrain, noDrain + "\n" + briefStop},
			also:  func(o outcome) bool { return o.Workers.Killed > 0 }},
		"is ready too early": {worker: "early", flags: "--reloads 2 --duration 5s", loses: []load.LossKind{load.Status5},
			blames: []string{early}, also: func(o outcome) bool { // and the reload is to blame
				return !slices.ContainsFunc(o.Causes, func(c prove.Cause) bool {
					return strings.Contains(c.Headline, "without being reloaded")
				})
			}},
		"at a unix socket": {worker: "hello", flags: "--url /healthz", edits: []string{"{address}", "unix:{dir}/s"},
			also: func(o outcome) bool { return strings.HasPrefix(o.Target, "unix:") }},
		// so that at any moment many connections are idle for longer, before their first request
		"lingers for a moment": {worker: "hello", flags: "--round-trip 200ms", loses: []load.LossKind{load.Closed},
			edits: []string{`/hello"`, `/hello", "-linger", "50ms"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, pid := newSite(t, c.worker, ""), 0
			if c.share {
				s.share()
			}
			s.edits(c.edits...)
			if c.runs {
				pid = s.start()
			}
			flags := strings.NewReplacer("PID", strconv.Itoa(pid), "{address}", s.address).Replace(c.flags)
			o := s.prove(strings.Fields(flags)...)
			if len(c.loses) == 0 {
				passed(t, o)
			} else {
				loses(t, o, c.loses...)
			}
			if len(c.blames) > 0 {
				blames(t, o, c.blames...)
			}
			if c.also != nil && !c.also(o) {
				t.Errorf("%+v; causes %+v; workers %+v", o.Judgement, o.Causes, o.Workers)
			}
			if c.runs && (o.Child || o.PID != pid || syscall.Kill(pid, 0) != nil) {
				t.Errorf("child %v, PID %d, want that of the one that runs, and still does, %d", o.Child, o.PID, pid)
			}
		})
	}
}

func TestPlainShutdownIsFound(t *testing.T) {
	t.Parallel()
	plot := filepath.Join(t.TempDir(), "plot.svg")
	s := newSite(t, "shutdown", "")
	s.share()
	o := s.prove("--plot", plot)
	loses(t, o, load.Closed, load.Reset)
	blames(t, o, exits, closes)
	wellFormed(t, plot, "web: ", "3 reloads", `class="closed"`, `class="median"`)
	connections := map[string]bool{}
	for _, l := range o.Losses {
		connections[l.Connection] = true
	}
	if listed := o.Requests.Lost == len(o.Losses); listed && (!connections["new"] || !connections["reused"]) {
		t.Errorf("lost on %v, want on new and on reused connections", connections)
	}
}

// What they lose of reused connections, and whether they do, is a race that the clients decide; and a request that
// is in hand when briefDrain is over may be cut.
func TestSteeredLosesNothingNew(t *testing.T) {
	t.Parallel()
	for _, worker := range []string{"shutdown", "exit"} {
		t.Run(worker, func(t *testing.T) {
			t.Parallel()
			o := newSite(t, worker, "").prove()
			if o.Findings == nil || o.Requests.Answered == 0 {
				t.Fatalf("findings: %+v", o.Findings)
			}
			cut := map[int]bool{}
			for _, r := range o.Reloads {
				if cut[r.Number] = r.Busy; r.Quiet == nil {
					t.Errorf("how long reload %d had to wait for quiet is not known", r.Number)
				}
			}
			for _, l := range o.Losses {
				if l.Connection == "new" && !cut[l.Reload] {
					t.Errorf("lost on a new connection: %+v", l)
				}
			}
			if o.Requests.Lost > 0 {
				blames(t, o, exits, closes)
			}
		})
	}
}

func TestFailedReloadIsReported(t *testing.T) {
	t.Parallel()
	s := newSite(t, "hello", "")
	flag := s.File("there", "")
	s.edits("workers = 2", "workers = 2\nenvironment_file = \"{dir}/there\"")
	c := s.command("--duration", "3s")
	s.begin(c) // the first reload is not due yet
	must.Do(t, os.Remove(flag))
	o := s.wait(c)
	if o.code != 1 || o.Findings == nil || o.Requests.Lost != 0 {
		t.Fatalf("exit %d, want 1 and nothing lost", o.code)
	}
	for _, r := range o.Reloads {
		if r.Outcome != "failed" || !strings.Contains(r.Reason, "there") {
			t.Errorf("reload: %+v, want failed for want of the file", r)
		}
	}
}

func TestKilledWorkersAreSeenFromOutside(t *testing.T) {
	t.Parallel()
	s := newSite(t, "stubborn", briefStop)
	o := s.prove("--pid", strconv.Itoa(s.start()), "--timeout", "2s")
	if o.Findings == nil {
		t.Fatal("there is no verdict")
	}
	if !o.Workers.KilledKnown {
		t.Skip("before Linux 6.15 only the parent learns the exit status of a process")
	}
	if o.Workers.Killed == 0 || len(o.Workers.Old) > 0 {
		t.Errorf("workers: %+v, want some killed and none there", o.Workers)
	}
}

func TestProcessesLeftBehindAreReported(t *testing.T) {
	t.Parallel()
	s := newSite(t, "litter", "")
	s.edits(briefDrain, noDrain)
	t.Cleanup(func() {
		for _, pid := range s.Processes() {
			if proc.Name(pid) == "sleep" {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	o := s.prove("--pid", strconv.Itoa(s.start()))
	if o.Findings == nil || len(o.Workers.Old) > 0 || len(o.Workers.LeftBehind) == 0 ||
		!strings.Contains(strings.Join(o.Warnings, "\n"), "sleep (PID ") {
		t.Error("no process is reported")
	}
}

func TestUpgradeInTheMiddleIsSurvived(t *testing.T) {
	t.Parallel()
	s := newSite(t, "hello", "")
	pid := s.start()
	c := s.command("--pid", strconv.Itoa(pid), "--duration", "4s")
	s.begin(c)
	s.Serves(2)
	must.Do(t, syscall.Kill(pid, syscall.SIGUSR2))
	o := s.wait(c)
	if o.code != 0 || o.Findings == nil || o.Workers.KilledKnown || o.Requests.Lost > 0 || len(o.Reloads) != 3 {
		t.Errorf("exit %d, want 0, nothing lost in 3 reloads, and that a killed worker may have been missed", o.code)
	}
}

func TestInterruptGivesAPartialVerdict(t *testing.T) {
	t.Parallel()
	s := newSite(t, "hello", "")
	c := s.command("--duration", "1m")
	s.begin(c)
	time.Sleep(2 * time.Second) // for some answers; no event tells
	must.Do(t, c.Process.Signal(os.Interrupt))
	o := s.wait(c)
	if o.code != 1 || o.Findings == nil || o.Verdict != "interrupted" || o.Requests.Answered == 0 || o.Requests.Lost != 0 {
		t.Fatalf("exit %d, want 1 and a verdict that says interrupted, with answers and no loss", o.code)
	}
}

// wellFormed fails the test unless file is XML with these words.
func wellFormed(t *testing.T, file string, words ...string) {
	t.Helper()
	text := must.Get(os.ReadFile(file))(t)
	d := xml.NewDecoder(bytes.NewReader(text))
	_, err := d.Token()
	for err == nil {
		_, err = d.Token()
	}
	if !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	for _, w := range words {
		if !bytes.Contains(text, []byte(w)) {
			t.Errorf("there is no %q in the plot", w)
		}
	}
}

// What cannot be proved is explained, and left as it is.
func TestRefusalsAreExplained(t *testing.T) {
	t.Parallel()
	other := exec.Command("sleep", "60")
	must.Do(t, other.Start())
	t.Cleanup(func() {
		if err := other.Process.Signal(syscall.Signal(0)); err != nil {
			t.Error("another process was ended")
		}
		other.Process.Kill()
		other.Wait()
	})
	occupied := lab.Occupy(t)
	for name, c := range map[string]struct {
		edits []string
		flags string
		runs  bool
		want  string
		code  int // 1, if it is 0
	}{
		"another machine": {edits: []string{"{address}", "192.0.2.1:80"}, want: "use --url http://192.0.2.1:80/"},
		"no start": {edits: []string{`/hello"`, `/hello", "-fail"`, `stderr = "null"`, ""},
			want: "program web does not start: start: exited with status 1; it said:\n\thello: told to fail"},
		"no start, logged": {edits: []string{`/hello"`, `/hello", "-fail"`, `stderr = "null"`, `stderr = "log"`},
			want: "program web does not start: start: exited with status 1\nits last lines:\n  hello: told to fail"},
		"address in use": {edits: []string{"{address}", occupied}, want: "address already in use"},
		"one that runs": {edits: []string{"pid_file", "# pid_file"}, runs: true,
			want: "process PID already runs with this configuration: use --pid PID"},
		"control is off": {edits: []string{"[supervisor]", "[supervisor]\ncontrol = \"off\""},
			want: ": set control in [supervisor]", code: 69},
		"another process": {flags: "--pid " + strconv.Itoa(other.Process.Pid),
			want: "check that supervisord runs, and that this is its socket"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, pid := newSite(t, "hello", ""), 0
			s.edits(c.edits...)
			if c.runs {
				pid = s.start()
			}
			want := strings.ReplaceAll(c.want, "PID", strconv.Itoa(pid))
			if o := s.prove(strings.Fields(c.flags)...); o.code != cmp.Or(c.code, 1) || !strings.Contains(o.stderr, want) {
				t.Errorf("exit %d, output %q, want %q", o.code, o.stderr, want)
			}
		})
	}
}

func TestAnotherSupervisordIsNotAChild(t *testing.T) {
	t.Parallel()
	first, second := newSite(t, "hello", ""), newSite(t, "hello", "")
	first.start()
	second.edits(second.Path("run"), first.Path("run"))
	passed(t, second.prove())
}
