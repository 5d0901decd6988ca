package prove_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/load"
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

func TestGoodWorkerPasses(t *testing.T) {
	t.Parallel()
	o := newSite(t, "hello", "").prove()
	passed(t, o)
	if o.Protocol != "http" || !o.Child || o.Latency.Before == nil || o.Latency.During == nil ||
		o.Latency.During.P99 <= 0 {
		t.Errorf("findings: %+v", o.Findings)
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
	if !connections["new"] || !connections["reused"] {
		t.Errorf("lost on %v, want on new and on reused connections", connections)
	}
}

// What they lose of reused connections, and whether they do, is a race that the clients decide.
func TestSteeredLosesNothingNew(t *testing.T) {
	t.Parallel()
	for _, worker := range []string{"shutdown", "exit"} {
		t.Run(worker, func(t *testing.T) {
			t.Parallel()
			o := newSite(t, worker, "").prove()
			if o.Findings == nil || o.Requests.Answered == 0 {
				t.Fatalf("findings: %+v", o.Findings)
			}
			for _, l := range o.Losses {
				if l.Connection == "new" {
					t.Errorf("lost on a new connection: %+v", l)
				}
			}
			for _, r := range o.Reloads {
				if r.Quiet == nil {
					t.Errorf("how long reload %d had to wait for quiet is not known", r.Number)
				}
			}
			if o.Requests.Lost > 0 {
				blames(t, o, exits, closes)
			}
		})
	}
}

func TestExitOnTermOfASharedSocketIsFound(t *testing.T) {
	t.Parallel()
	s := newSite(t, "exit", "")
	s.share()
	o := s.prove()
	loses(t, o, load.Closed, load.Reset)
	blames(t, o, exits, closes)
}

func TestServerErrorsAreFound(t *testing.T) {
	t.Parallel()
	o := newSite(t, "busy", "").prove()
	loses(t, o, load.Status5)
	blames(t, o, errorsOut, closes, exits)
}

func TestWorkerWithAPortOfItsOwnIsFound(t *testing.T) {
	t.Parallel()
	s := newSite(t, "own", "")
	s.edit(briefDrain, `reload.strategy = "stop-first"`)
	s.edit("listen = [", "environment.OWN_ADDRESS = \""+s.address+"\"\n# [")
	s.edit("workers = 2", "workers = 1")
	o := s.prove("--url", "http://"+s.address+"/") // one program: --program can be omitted
	loses(t, o, load.Refused)
	blames(t, o, deaf)
}

func TestStartThatClientsWaitForIsFound(t *testing.T) {
	t.Parallel()
	s := newSite(t, "slow", "")
	s.edit(briefDrain, `reload.strategy = "stop-first"`)
	o := s.prove("--timeout", "1s", "--reloads", "1", "--rate", "50")
	loses(t, o, load.TimedOut)
	blames(t, o, waits)
}

func TestFailedReloadIsReported(t *testing.T) {
	t.Parallel()
	s := newSite(t, "hello", "")
	flag := filepath.Join(filepath.Dir(s.file), "there")
	s.edit("workers = 2", `workers = 2
environment_file = "`+flag+`"`)
	if err := os.WriteFile(flag, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c := s.command("--duration", "3s")
	s.begin(c) // the first reload is not due yet
	if err := os.Remove(flag); err != nil {
		t.Fatal(err)
	}
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

func TestKilledWorkerIsReported(t *testing.T) {
	t.Parallel()
	o := newSite(t, "stubborn", `stop = { timeout = "200ms" }`).prove("--timeout", "2s")
	if o.Findings == nil || o.Workers.Killed == 0 {
		t.Fatal("no worker was killed")
	}
	loses(t, o, load.Closed, load.Reset)
	blames(t, o, kills)
}

func TestPrematureReadinessIsFound(t *testing.T) {
	t.Parallel()
	o := newSite(t, "early", "").prove("--reloads", "2", "--duration", "5s")
	if o.Findings == nil || o.Requests.Kinds[load.Status5] == 0 {
		t.Fatal("there were no errors")
	}
	blames(t, o, early)
	for _, c := range o.Causes {
		if strings.Contains(c.Headline, "without being reloaded") {
			t.Errorf("cause: %+v, but the reload is to blame", c)
		}
	}
}

func TestKilledWorkersAreSeenFromOutside(t *testing.T) {
	t.Parallel()
	s := newSite(t, "stubborn", `stop = { timeout = "200ms" }`)
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
	s.edit(briefDrain, `drain.timeout = "0s"`)
	t.Cleanup(func() {
		for _, pid := range s.alive() {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	o := s.prove("--pid", strconv.Itoa(s.start()))
	if o.Findings == nil || len(o.Workers.Old) > 0 || len(o.Workers.LeftBehind) == 0 ||
		!strings.Contains(strings.Join(o.Warnings, "\n"), "sleep (PID ") {
		t.Error("no process is reported")
	}
}

func TestConnectAndCloseWithoutHTTP(t *testing.T) {
	t.Parallel()
	o := newSite(t, "tcp", "").prove()
	passed(t, o)
	if o.Protocol != "tcp" {
		t.Errorf("protocol %s, want tcp", o.Protocol)
	}
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	s := newSite(t, "hello", "")
	dir, err := os.MkdirTemp("", "p") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s.edit(s.address, "unix:"+dir+"/s")
	o := s.prove("--url", "/healthz")
	passed(t, o)
	if !strings.HasPrefix(o.Target, "unix:") {
		t.Errorf("target %q", o.Target)
	}
}

func TestRunningSupervisordByPID(t *testing.T) {
	t.Parallel()
	s := newSite(t, "hello", "")
	pid := s.start()
	o := s.prove("--pid", strconv.Itoa(pid))
	passed(t, o)
	if o.Child || o.PID != pid {
		t.Errorf("child %v, PID %d, want that of the one that runs, %d", o.Child, o.PID, pid)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("the supervisord that was running has exited: %v", err)
	}
}

func TestUpgradeInTheMiddleIsSurvived(t *testing.T) {
	t.Parallel()
	s := newSite(t, "hello", "")
	pid := s.start()
	c := s.command("--pid", strconv.Itoa(pid), "--duration", "4s")
	s.begin(c)
	s.answers("generation=2 ")
	if err := syscall.Kill(pid, syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	o := s.wait(c)
	if o.code != 0 || o.Findings == nil || o.Workers.KilledKnown || o.Requests.Lost > 0 || len(o.Reloads) != 3 {
		t.Errorf("exit %d, want 0, nothing lost in 3 reloads, and that a killed worker may have been missed", o.code)
	}
}

func TestRunningSupervisordByPIDFile(t *testing.T) {
	t.Parallel()
	s := newSite(t, "shutdown", "")
	pid := s.start()
	o := s.prove()
	loses(t, o, load.Closed, load.Reset)
	if o.Child || o.PID != pid {
		t.Errorf("child %v, PID %d, want that of the one that runs, %d", o.Child, o.PID, pid)
	}
}

func TestQuietLogMakesNoDifference(t *testing.T) {
	t.Parallel()
	s := newSite(t, "hello", "")
	s.edit("[supervisor]", "[supervisor]\nlog_level = \"error\"")
	passed(t, s.prove())
}

func TestInterruptGivesAPartialVerdict(t *testing.T) {
	t.Parallel()
	s := newSite(t, "hello", "")
	c := s.command("--duration", "1m")
	s.begin(c)
	time.Sleep(2 * time.Second) // for some answers; no event tells
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	o := s.wait(c)
	if o.code != 1 || o.Findings == nil || o.Verdict != "interrupted" || o.Requests.Answered == 0 || o.Requests.Lost != 0 {
		t.Fatalf("exit %d, want 1 and a verdict that says interrupted, with answers and no loss", o.code)
	}
}

// wellFormed fails the test unless file is XML with these words.
func wellFormed(t *testing.T, file string, words ...string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(text))
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

func TestMistakesAreExplained(t *testing.T) {
	t.Parallel()
	s := newSite(t, "hello", "")
	for _, c := range []struct {
		flags string
		want  string
	}{
		{"--program nobody", `there is no program "nobody" in the configuration: it has web`},
		{"--url ftp://x/", "write for example http://"},
		{"--url foo", "write for example http://"},
		{"--url http://127.0.0.1:1/", "check --url"},
		{"--url /nowhere", "answers \"404 Not Found\" before anything was reloaded"},
		{"--rate 1", "--rate must be 2 or more"},
		{"--reloads 0", "--reloads must be 1 or more"},
		{"--duration 1ms", "--duration must be a second or more"},
		{"--pid 999999999", "cannot prove process 999999999: supervisord does not answer"},
		{"--pid " + strconv.Itoa(os.Getpid()), "check that supervisord runs, and that this is its socket"},
		{"--plot /nowhere/x.svg", "--plot: "},
		{"--rate 1000000 --duration 10h", "choose less of one"},
	} {
		code := 1
		if strings.Contains(c.want, " must be ") || strings.Contains(c.want, "choose less") ||
			strings.Contains(c.want, "for example") {
			code = 2 // of the command line alone
		}
		o := s.prove(strings.Fields(c.flags)...)
		if o.code != code || o.Findings != nil || !strings.Contains(o.stderr, c.want) {
			t.Errorf("%s: exit %d, output %q; want %d and %q", c.flags, o.code, o.stderr, code, c.want)
		}
	}
}

func TestProcessOtherThanSupervisordIsLeftAlone(t *testing.T) {
	t.Parallel()
	c := exec.Command("sleep", "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Wait()
	defer c.Process.Kill()
	o := newSite(t, "hello", "").prove("--pid", strconv.Itoa(c.Process.Pid))
	if o.code != 1 || !strings.Contains(o.stderr, "cannot prove process ") {
		t.Errorf("exit %d, output %q", o.code, o.stderr)
	}
	if err := c.Process.Signal(syscall.Signal(0)); err != nil {
		t.Error("it was ended")
	}
}

func TestShortLingerIsFound(t *testing.T) {
	t.Parallel()
	s := newSite(t, "hello", "")
	s.edit(`/hello"`, `/hello", "-linger", "50ms"`)
	// so that at any moment many connections are idle for longer, before their first request
	loses(t, s.prove("--round-trip", "200ms"), load.Closed)
}

func TestOnlyThisMachineIsHitUnasked(t *testing.T) {
	t.Parallel()
	s := newSite(t, "hello", "")
	_, port, _ := strings.Cut(s.address, ":")
	s.edit(s.address, "192.0.2.1:"+port)
	if o := s.prove(); o.code != 1 || !strings.Contains(o.stderr, "use --url http://192.0.2.1:"+port+"/") {
		t.Errorf("exit %d, output %q", o.code, o.stderr)
	}
}

func TestProgramThatDoesNotStartIsExplained(t *testing.T) {
	t.Parallel()
	s := newSite(t, "hello", "")
	s.edit(`/hello"`, `/hello", "-fail"`)
	if o := s.prove(); o.code != 1 ||
		!strings.Contains(o.stderr, "program web does not start: start: exited with status 1") {
		t.Errorf("exit %d, output %q", o.code, o.stderr)
	}
}

func TestAddressInUseIsExplained(t *testing.T) {
	t.Parallel()
	s := newSite(t, "hello", "")
	ln, err := net.Listen("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if o := s.prove(); o.code != 1 || !strings.Contains(o.stderr, "address already in use") {
		t.Errorf("exit %d, output %q", o.code, o.stderr)
	}
}

func TestSupervisordThatRunsIsNotUsedUnasked(t *testing.T) {
	t.Parallel()
	s := newSite(t, "hello", "")
	s.edit("pid_file", "# pid_file")
	pid := s.start()
	if o := s.prove(); o.code != 1 ||
		!strings.Contains(o.stderr, fmt.Sprintf("process %d already runs with this configuration: use --pid %d", pid, pid)) {
		t.Errorf("exit %d, output %q", o.code, o.stderr)
	}
}

func TestAnotherSupervisordIsNotAChild(t *testing.T) {
	t.Parallel()
	first, second := newSite(t, "hello", ""), newSite(t, "hello", "")
	first.start()
	second.edit(filepath.Dir(second.file)+"\"\n[program", filepath.Dir(first.file)+"\"\n[program")
	passed(t, second.prove())
}

func TestControlThatIsOffIsExplained(t *testing.T) {
	t.Parallel()
	s := newSite(t, "hello", "")
	s.edit("[supervisor]", "[supervisor]\ncontrol = \"off\"")
	if o := s.prove(); !strings.Contains(o.stderr, "control is off") ||
		!strings.Contains(o.stderr, "set control in [supervisor]") {
		t.Errorf("exit %d, output %q", o.code, o.stderr)
	}
}
