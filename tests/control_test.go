package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/proc"
)

func TestReloadReturnsWhenTheNewGenerationServes(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	if out := m.CtlOK("reload"); strings.Count(out, "web: generation 2 serves after ") != 1 {
		// the event and the verdict are one line
		t.Errorf("the output is %q", out)
	}
	if got := lab.Ask(t, m.Address(), "/"); !strings.Contains(got, "generation=2 ") {
		t.Errorf("the answer is %s", got)
	}
}

func TestReloadOfOneProgramLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web+"[program.other]\ncommand = [{sleep}]\nready = { method = \"delay\", delay = \"10ms\" }\n")
	m.AwaitN(2, lab.Says(lab.GenerationServes))
	m.CtlOK("reload", "web")
	m.Never(lab.Says(lab.GenerationServes), lab.Gen(2), func(l lab.Entry) bool { return l.Program == "other" })
	m.Serves(2)
}

func TestReloadExitCodes(t *testing.T) {
	const captured = "[program.web]\nstderr = \"capture\"\n"
	for name, c := range map[string]struct {
		config string
		args   []string
		code   int
		words  []string
	}{
		"a failed preflight": {lab.Web + "[program.web.reload]\npreflight = [\"sh\", \"-c\", \"echo no luck >&2; exit 7\"]\n",
			nil, 10, []string{"web: generation 2 failed at step preflight", "no luck", "generation 1 still serves"}},
		"what cannot be prepared": {strings.Replace(lab.Web, "[[", "environment_file = [\"{dir}/none\"]\n[[", 1),
			nil, 10, []string{"step prepare", "none"}},
		"a worker that ends": {strings.Replace(lab.WebWith("say=out of luck", "exit=3"), "[program.web]\n", captured, 1),
			nil, 11, []string{"slot 0", "step start", "status 3", "its last lines:", "out of luck",
				"generation 1 still serves"}},
		"a worker that cannot be executed": {strings.Replace(lab.Web, "{worker}", `"{dir}/nothing"`, 1),
			nil, 11, []string{"step exec", "no such file"}},
		"a worker that is not ready": {strings.Replace(lab.WebWith("ready=never"), "method", "timeout = \"200ms\"\nmethod",
			1),
			nil, 12, []string{"step ready", "not ready within"}},
		"no end in time": {lab.WebWith("boot=20s"),
			[]string{"--timeout", "1s"}, 14, []string{"timed out waiting"}},
		"a refused configuration": {lab.Web + "workerz = 2\n",
			nil, 78, []string{"refused", "workerz", "nothing has changed"}},
		"a program that is not there": {lab.Web,
			[]string{"wbe"}, 1, []string{"there is no such program: wbe", "web"}},
		"a canary without an end": {lab.Web, []string{"--canary", "1"}, 2, []string{"hold"}},
		"an hour's wait":          {lab.Web, []string{"--timeout", "25h"}, 2, []string{"24h"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, lab.Web)
			m.Serves(1)
			first := m.WorkerPID(1)
			m.Write(c.config)
			m.CtlFails(c.code, c.words, append([]string{"reload"}, c.args...)...)
			if !lab.Alive(first) {
				t.Error("the worker that served is gone")
			}
		})
	}
}

func TestDrainedFailsIfTheOldGenerationHadToBeKilled(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.WebWith("term=ignore")+"[program.web.stop]\ntimeout = \"200ms\"\n")
	m.Serves(1)
	m.CtlFails(16, []string{"1 of the old workers had to be killed"}, "reload", "--drained")
	m.CtlFails(16, []string{"had to be killed"}, "stop", "web")
}

func TestFailedStartHasTheExitCodesOfAReload(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	m.CtlOK("stop", "web")
	m.Write(lab.WebWith("exit=3") + "[program.web.restart]\nbackoff = { min = \"1h\", max = \"1h\" }\n")
	// the old worker keeps draining stopped and has the new configuration
	m.CtlFails(0, []string{"nothing to replace"}, "reload")
	m.CtlFails(11, []string{"step start", "status 3", "nothing serves"}, "start", "web")
	m.CtlFails(14, []string{"timed out waiting"}, "start", "web", "--timeout", "1s") // it waits for its next try
	m.CtlOK("stop", "web")
}

func TestDrainedWaitsForTheEndOfTheOldGenerationAndGivesAReceipt(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.WebWith("term=300ms"))
	m.Serves(1)
	first := m.WorkerPID(1)
	out := m.CtlOK("reload", "--drained", "-v")
	if lab.Alive(first) || !strings.Contains(out, "generation 1 has ended after") ||
		!strings.Contains(out, "report on web, generation 2: serves") {
		t.Errorf("the old worker lives (%v), or the output is incomplete: %s", lab.Alive(first), out)
	}
	v := ask(t, m, described(t, "Report"), 0, "reload", "--drained")
	if p := v.Programs[0]; v.Outcome != "serves" || p.Generation != 3 || p.Reload.Generation != 3 ||
		p.Reload.Drain < 3e8 || !p.Drained || *p.DrainMS < 300 {
		t.Errorf("the document is %+v", v)
	}
}

func TestReceiptOfADrainingReloadSaysSo(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.WebWith("term=20s"))
	m.Serves(1)
	out := m.CtlOK("reload", "-v")
	if !strings.Contains(out, "report on web, generation 2: serves") || !strings.Contains(out, "the drain continues") ||
		strings.Contains(out, ", drain ") {
		t.Errorf("the output is %s", out)
	}
	p := ask(t, m, described(t, "Report"), 0, "reload").Programs[0]
	if r := p.Reload; r.Generation != 3 || r.Replaced != 2 || r.Outcome != "serves" || r.Took <= 0 || r.Ended != "" ||
		p.Drained {
		t.Errorf("the report is %+v", p)
	}
	m.Write(lab.WebWith("exit=3"))
	m.CtlFails(11, []string{"report on web, generation 4: worker"}, "reload", "-v")
	m.CtlOK("kill", "web", "--generation", "1")
	m.Await(lab.Says("reload report"), lab.Gen(2), lab.Contains(`"replaced":1`), lab.Contains(`"drain_ms":`))
	m.CtlOK("kill", "web", "--generation", "2")
	m.CtlOK("kill", "web", "--generation", "3")
}

func TestAbortedReloadReportsTheAbort(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	m.Write(lab.WebWith("boot=20s"))
	a := m.CtlStart("reload")
	m.WorkerPID(2)
	m.CtlOK("abort", "web", "--reason", "second thoughts")
	if out := a.Ends(13); !strings.Contains(out, "second thoughts") ||
		!strings.Contains(out, "generation 1 still serves") {
		t.Errorf("the output is %q", out)
	}
	m.CtlFails(1, []string{"web has no canary or reload in progress"}, "abort", "web")
}

func TestReloadReportsThatItsProgramWasStoppedMeanwhile(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	m.Write(lab.WebWith("boot=20s"))
	a := m.CtlStart("reload")
	m.WorkerPID(2)
	m.CtlOK("stop", "web")
	if out := a.Ends(13); !strings.Contains(out, "stopped") {
		t.Errorf("the output is %q", out)
	}
}

func TestCtrlCEndsTheWaitingAndNotTheReload(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	gate := m.Gate("gate")
	m.Start(lab.Web)
	m.Serves(1)
	m.Write(lab.WebWith("gate=" + gate))
	a := m.CtlStart("reload")
	m.WorkerPID(2)
	lab.Must(t, a.Cmd.Process.Signal(syscall.SIGINT))
	if out := a.Ends(130); !strings.Contains(out, "the operation continues") {
		t.Errorf("the output is %q", out)
	}
	m.Open(gate)
	m.Serves(2)
}

func TestMissingSupervisordHasItsOwnExitCode(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Write(lab.Web)
	m.CtlFails(69, []string{"does not answer", m.Path("run/control.sock")}, "reload")
	m.Write("control = \"off\"\n" + lab.Web)
	m.CtlFails(69, []string{"control is off"}, "status")
}

func TestReloadWhoseSupervisordIsKilledHasAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	m.Write(lab.WebWith("boot=20s"))
	a := m.CtlStart("reload", "--timeout", "2s")
	m.WorkerPID(2)
	m.Signal(syscall.SIGKILL)
	m.Wait()
	m.Sweep()
	if out := a.Ends(15); !strings.Contains(out, "outcome unknown") {
		t.Errorf("the output is %q", out)
	}
}

func TestReloadIsNotAnsweredByANewSupervisordInstance(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	m.Write(lab.WebWith("boot=20s"))
	a := m.CtlStart("reload")
	a.Says("generation 2 starts") // without this answer it would ask again
	lab.Must(t, a.Cmd.Process.Signal(syscall.SIGSTOP))
	m.Die()
	m.Start(lab.Web)
	m.Serves(1)
	m.CtlOK("reload") // generation 2 of another instance
	lab.Must(t, a.Cmd.Process.Signal(syscall.SIGCONT))
	if out := a.Ends(15); !strings.Contains(out, "began anew") {
		t.Errorf("the output is %q", out)
	}
}

func TestWaitingReloadCommandSurvivesAnUpgrade(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	gate := m.Gate("gate")
	m.Start(lab.Web)
	m.Serves(1)
	m.Write(lab.WebWith("gate=" + gate))
	a := m.CtlStart("reload", "--drained")
	m.WorkerPID(2)
	last := m.Upgrade(lab.Upgraded)
	m.Upgrade(lab.Upgraded)
	m.Open(gate)
	m.Await(lab.After(last), lab.Says(lab.GenerationServes), lab.Gen(2))
	if out := a.Ends(0); !strings.Contains(out, "web: generation 2 serves") ||
		!strings.Contains(out, "generation 1 has ended") {
		t.Errorf("the output is %q", out)
	}
}

func TestFailureDuringAnUpgradeIsNotReportedAsSuccess(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	m.Start(lab.Web)
	m.Serves(1)
	gate := m.Gate("gate")
	m.Write(strings.Replace(lab.WebWith("gate="+gate, "die=0s"), "[program.web.ready]",
		"[program.web.reload]\nsoak = \"20s\"\n[program.web.ready]", 1))
	a := m.CtlStart("reload")
	m.WorkerPID(2)
	lab.Must(t, a.Cmd.Process.Signal(syscall.SIGSTOP)) // it continues only after the upgrade
	m.Upgrade(lab.Upgraded)
	m.Open(gate)
	m.Await(lab.Says(lab.TrialFailed))
	m.Await(lab.Says(lab.GenerationGone), lab.Gen(2))
	m.Upgrade(lab.Upgraded)
	lab.Must(t, a.Cmd.Process.Signal(syscall.SIGCONT))
	if out := a.Ends(11); !strings.Contains(out, "exited with status 4") ||
		!strings.Contains(out, "generation 1 still serves") {
		t.Errorf("the output is %q", out)
	}
}

func TestControlSocketSurvivesAnUpgradeAndIsRemovedAtTheEnd(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	m.Start(lab.Web)
	m.Serves(1)
	before, err := os.Stat(m.Path("run/control.sock"))
	lab.Must(t, err)
	m.Upgrade(lab.Upgraded)
	m.CtlOK("status")
	now, err := os.Stat(m.Path("run/control.sock"))
	lab.Must(t, err)
	if !os.SameFile(before, now) || now.Mode().Perm() != 0o660 {
		t.Errorf("the socket was replaced, or its mode is %v", now.Mode())
	}
	m.Finish() // fails if a socket is left
}

func TestRequestWithoutPermissionIsRefusedWithReason(t *testing.T) {
	t.Parallel()
	lab.NeedRoot(t, "be somebody else")
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	lab.Must(t, os.Chmod(m.Path("run/control.sock"), 0o666))
	lab.Must(t, os.Chmod(m.Path("run"), 0o755))
	as := func(args ...string) (string, int) {
		cmd := exec.Command(lab.Built.Supervisord, append(args, "-c", m.Path("config.toml"))...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	for _, args := range [][]string{{"reload"}, {"status"}} {
		if out, code := as(args...); code != 77 || !strings.Contains(out, "control_group") {
			t.Errorf("%v: exit code %d: %s", args, code, out)
		}
	}
	lab.Must(t, os.Chmod(m.Path("run/control.sock"), 0o660))
	if out, code := as("status"); code != 77 || !strings.Contains(out, "control_group") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestCanaryIsHeldAndPromoted(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(lab.Web, "[[", "workers = 2\n[[", 1))
	m.Serves(1)
	if out := m.CtlOK("reload", "--canary", "1", "--hold"); !strings.Contains(out, "held") {
		t.Errorf("the output is %q", out)
	}
	if out := m.CtlOK("status"); !strings.Contains(out, "canary") {
		t.Errorf("the status is %s", out)
	}
	m.CtlOK("promote", "web")
	m.Serves(2)
	m.CtlOK("reload", "--canary", "1", "--for", "200ms")
	m.Serves(3)
	m.CtlOK("reload", "--canary", "1", "--hold", "--for", "200ms") // promoted automatically after this time
	m.Serves(4)
}

func TestCanaryWithForIsPromotedAutomatically(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(lab.Web, "[[", "workers = 2\n[[", 1))
	m.Serves(1)
	out := m.CtlOK("reload", "--canary", "1", "--for", "300ms")
	if strings.Contains(out, "promote or abort") || !strings.Contains(out, "is promoted in 300ms if it stays well") ||
		!strings.Contains(out, "generation 2 serves") {
		t.Errorf("the output is %s", out)
	}
}

func TestStartOfARunningProgramSaysSinceWhenItRuns(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	for _, args := range [][]string{{"start", "web"}, {"start", "web", "--no-wait"}} {
		if out := m.CtlOK(args...); !strings.Contains(out, "web: already running: generation 1 has served since 20") ||
			strings.Contains(out, "serves after") {
			t.Errorf("%v says %s", args, out)
		}
	}
	if out := m.CtlOK("start", "web", "--json"); !strings.Contains(out, `"since": "20`) ||
		!strings.Contains(out, `"outcome": "serves"`) {
		t.Errorf("the output is %s", out)
	}
	m.CtlOK("stop", "web")
	if out := m.CtlOK("start", "web"); !strings.Contains(out, "web: generation 2 serves after") {
		t.Errorf("the output is %s", out)
	}
}

func TestStopOfAStoppedProgramSaysSo(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	if out := m.CtlOK("stop", "web"); !strings.Contains(out, "web: stopped") {
		t.Errorf("the output is %s", out)
	}
	for _, args := range [][]string{{"stop", "web"}, {"stop", "web", "--no-wait"}} {
		if out := m.CtlOK(args...); !strings.Contains(out, "web: already stopped") {
			t.Errorf("%v says %s", args, out)
		}
	}
	m.CtlOK("restart", "web")
	m.Serves(2)
}

func TestStatusDoesNotListGoneGenerationsAsDraining(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web+"[program.web.restart]\nbackoff = { min = \"1h\", max = \"1h\" }\n")
	m.Serves(1)
	lab.Must(t, syscall.Kill(m.WorkerPID(1), syscall.SIGKILL))
	m.Await(lab.Says(lab.WorkerDied))
	// without backoff: the first failure
	m.Await(lab.Says(lab.WorkerRuns), lab.Gen(1), func(l lab.Entry) bool { return l.Worker == 2 })
	lab.Must(t, syscall.Kill(m.AwaitN(2, lab.Says(lab.WorkerRuns), lab.Gen(1))[1].PID, syscall.SIGKILL))
	m.AwaitN(2, lab.Says(lab.WorkerDied))
	if out := m.CtlOK("reload"); !strings.Contains(out, "generation 1 has ended") ||
		strings.Contains(out, "generation 1 drains") {
		t.Errorf("the output is %s", out)
	}
}

func TestStatusReadyFailsUnlessEverythingServes(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web+strings.ReplaceAll(lab.Plain, "web", "job"))
	m.Await(lab.Says(lab.GenerationServes), lab.Program("web"))
	m.Await(lab.Says(lab.GenerationServes), lab.Program("job"))
	m.CtlOK("status", "--ready")
	m.CtlOK("stop", "job")
	m.CtlFails(1, []string{"not every program serves: job down"}, "status", "--ready")
	m.CtlOK("status", "web", "--ready")
}

func TestStopStartRestartAndScale(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	m.CtlOK("stop", "web")
	if pids := m.PIDs(); len(pids) > 0 {
		t.Errorf("stopped, it has %v", pids)
	}
	m.CtlOK("stop", "web") // again
	if out := m.CtlOK("reload"); !strings.Contains(out, "nothing to replace") {
		t.Errorf("reload says %q", out)
	}
	m.CtlOK("start", "web")
	m.Serves(2)
	m.CtlOK("restart", "web")
	m.Serves(3)
	if out := m.CtlOK("scale", "web", "3"); out != "web: 3 workers (was 1)\n" {
		t.Errorf("scale says %q", out)
	}
	m.Until("three workers", func() bool { return len(m.PIDs()) == 3 })
	m.CtlOK("scale", "web", "1")
	m.Until("one worker", func() bool { return len(m.PIDs()) == 1 })
	m.CtlFails(2, []string{"use `supervisord stop web`"}, "scale", "web", "0")
	m.CtlFails(1, []string{"no generation 99", "those with workers: 3"}, "kill", "web", "--generation", "99")
}

func TestSignalAndKill(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(lab.Web, "{worker}", `{worker}, "note={dir}/note"`, 1))
	m.Serves(1)
	first := m.WorkerPID(1)
	if out := m.CtlOK("signal", "web", "usr2"); out != "web: USR2 sent to the workers\n" {
		t.Errorf("signal says %q", out)
	}
	m.Until("USR2 is noted", func() bool { return strings.Contains(m.Read("note"), "USR2") })
	m.Await(lab.Says(lab.GenerationServes))
	m.CtlFails(2, []string{`"NOSUCH" is not a signal`}, "signal", "web", "NOSUCH")
	m.CtlFails(2, []string{"generation"}, "kill", "web")
	m.CtlOK("kill", "web", "--generation", "1")
	m.Until("the worker is gone", func() bool { return !lab.Alive(first) })
}

func TestContradictoryFlagsAreAnErrorWithRemedy(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	for want, args := range map[string][]string{
		"remove one, and after `supervisord promote`": {"reload", "--canary", "1", "--hold", "--drained"},
		"--no-wait does not wait: remove one":         {"reload", "--no-wait", "--drained"},
		"contradict each other: remove one":           {"reload", "--no-wait", "--wait"},
		"supervisord events --json":                   {"status", "--json", "--watch"},
		"--ready excludes --watch and --json":         {"status", "--json", "--ready"},
	} {
		m.CtlFails(2, []string{want}, args...)
	}
	m.Never(lab.Gen(2))
}

func TestEventsAreOneObjectALine(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	cmd := exec.Command(lab.Built.Supervisord, "events", "--json", "-c", m.Path("config.toml"))
	cmd.Env = m.Environ()
	out, err := cmd.StdoutPipe()
	lab.Must(t, err)
	lab.Must(t, cmd.Start())
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	lines := json.NewDecoder(out)
	seen := make(chan struct{})
	var reloads sync.WaitGroup
	reloads.Go(func() { // again, if supervisord had not read the client's request yet
		for {
			select {
			case <-seen:
				return
			default:
				m.Ctl("reload")
			}
		}
	})
	defer reloads.Wait()
	defer close(seen)
	for {
		var u struct {
			Time    time.Time
			Program string
			ID      string
		}
		lab.Must(t, lines.Decode(&u))
		if u.Program != "web" || u.Time.IsZero() {
			t.Errorf("an event is %+v", u)
		}
		if u.ID == "generation_serves" {
			break
		}
	}
	lab.Must(t, cmd.Process.Signal(syscall.SIGINT))
	if err := cmd.Wait(); err != nil {
		t.Errorf("Ctrl-C counts as a failure: %v", err)
	}
}

func TestLogLevelChanges(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, "log_level = \"info\"\n"+lab.Web)
	m.Serves(1)
	m.Never(func(l lab.Entry) bool { return l.Level == "debug" })
	if out := m.CtlOK("log-level", "debug"); out != "log level debug, until the configuration is read again\n" {
		t.Errorf("log-level says %q", out)
	}
	m.CtlOK("reload")
	m.Await(func(l lab.Entry) bool { return l.Level == "debug" })
	m.CtlFails(2, []string{"write one of debug, info, warn, error"}, "log-level", "loud")
}

func TestLogsShowsTheOutputOfWorkers(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(lab.WebWith("say=hear hear"), "[[", "stderr = \"capture\"\n[[", 1))
	m.Serves(1)
	m.Until("the output is read", func() bool { return m.CtlOK("logs", "web", "-n", "1") == "hear hear\n" })
}

func TestStatusAgreesWithTheKernel(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(lab.WebWith("fork"), "[[", "workers = 2\n[[", 1))
	m.Serves(1)
	var conns []net.Conn
	for range 5 {
		c, err := net.Dial("tcp", m.Address())
		lab.Must(t, err)
		defer c.Close()
		conns = append(conns, c)
	}
	m.Until("five connections are seen", func() bool {
		time.Sleep(200 * time.Millisecond) // a measurement is cached for a second
		n := 0
		for _, w := range m.Status().Programs[0].Generations[0].Workers {
			n += w.Connections
		}
		return n == len(conns)
	})
	s := m.Status()
	p := s.Programs[0]
	if s.PID != m.PID() || p.Name != "web" || p.State != "up" || p.Listeners[0].Address != m.Address() ||
		p.Generations[0].Role != "serving" {
		t.Errorf("the status is %+v", s)
	}
	for _, w := range p.Generations[0].Workers {
		resident := 0
		for _, pid := range append(proc.Children(w.PID), w.PID) {
			kb := 0
			fmt.Sscan(lab.ProcStatus(pid)["VmRSS"], &kb)
			resident += kb << 10
		}
		if w.Processes != 2 || w.State != "ready" || float64(w.Memory) < 0.7*float64(resident) ||
			float64(w.Memory) > 1.3*float64(resident) {
			t.Errorf("a worker is %+v; /proc says %d bytes", w, resident)
		}
		if n, err := ssCount(p.Listeners[0].Address, w.PID); err == nil && n != w.Connections {
			t.Errorf("worker %d has %d connections, ss says %d", w.PID, w.Connections, n)
		}
	}
}

func TestStatusExplainsUnknownConnectionCounts(t *testing.T) {
	t.Parallel()
	lab.NeedRoot(t, "run a worker as another user")
	m := lab.Prepare(t)
	m.Via = []string{lab.Need(t, "setpriv"), "--bounding-set", "-sys_ptrace"}
	m.Start(strings.Replace(lab.Hello, "\n[[", "\nuser = \"nobody\"\n[[", 1))
	m.Serves(1)
	c, err := net.Dial("tcp", m.Address())
	lab.Must(t, err)
	defer c.Close()
	m.Until("the reason is in the status", func() bool {
		return strings.Contains(m.Status().Programs[0].Generations[0].Workers[0].ConnectionsError, "CAP_SYS_PTRACE")
	})
	m.Until("the reason is in the text output too", func() bool {
		out := m.CtlOK("status")
		return strings.Contains(out, "CONNS is not known: cannot look into process") &&
			strings.Contains(out, "CAP_SYS_PTRACE")
	})
	lab.Must(t, c.Close())
}

// ssCount returns the number of connections of a process that ss(8) reports.
func ssCount(address string, pid int) (int, error) {
	ss, err := exec.LookPath("ss")
	if err != nil {
		return 0, err
	}
	out, err := exec.Command(ss, "-Htnp", "state", "established", "src", address).Output()
	return strings.Count(string(out), fmt.Sprintf("pid=%d,", pid)), err
}

func TestStatusSaysThatNobodyAccepts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config string
		stop   bool
	}{
		"never": {lab.Plain + lab.Listener("127.0.0.1:0"), false}, "stopped": {lab.Web, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, c.config)
			m.Serves(1)
			if c.stop {
				lab.Must(t, syscall.Kill(m.WorkerPID(1), syscall.SIGSTOP))
				defer syscall.Kill(m.WorkerPID(1), syscall.SIGCONT)
			}
			conn, err := net.Dial("tcp", m.Address())
			lab.Must(t, err)
			defer conn.Close()
			if out := m.CtlOK("status"); strings.Contains(out, "nobody accepts") {
				t.Errorf("at once: %s", out)
			}
			m.Until("status says it", func() bool {
				return strings.Contains(m.CtlOK("status"), "queue 1/4096, nobody accepts: one has waited for 2")
			})
		})
	}
}

func TestStatusShowsTheAcceptQueue(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, "[program.deaf]\ncommand = [{sleep}]\nready = { delay = \"10ms\", accepts = false }\n"+
		"[[program.deaf.listen]]\nname = \"http\"\naddress = \"127.0.0.1:0\"\nbacklog = 7\n")
	m.Serves(1)
	for range 3 {
		c, err := net.Dial("tcp", m.Address())
		lab.Must(t, err)
		defer c.Close()
	}
	m.Until("three connections wait", func() bool {
		q := m.Status().Programs[0].Listeners[0].Queue
		return q.Waiting == 3 && q.Limit == 7
	})
	if out := m.CtlOK("status"); !strings.Contains(out, "queue 3/7") {
		t.Errorf("the status is %s", out)
	}
}

func TestStatusForPeopleShowsAFailedReload(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	m.Write(lab.WebWith("exit=3"))
	m.Ctl("reload")
	out := m.CtlOK("status", "web")
	if !strings.Contains(out, "web up, generation 1 (1 worker), last deploy failed\n") ||
		!strings.Contains(out, "last reload: generation 2 failed: worker 2 (slot 0, PID ") ||
		!strings.Contains(out, "serving") {
		t.Errorf("the status is %s", out)
	}
	m.Write(lab.Web)
	m.CtlOK("reload")
	if out := m.CtlOK("status", "web"); strings.Contains(out, "deploy failed") {
		t.Errorf("after a deploy that serves the status is %s", out)
	}
	m.CtlFails(1, []string{"there is no such program: wbe"}, "status", "wbe")
}

func output(out string, _ int) string { return out }

func TestProgramsAreCompleted(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	if out := output(m.Run("__complete", "stop", "-c", m.Path("config.toml"), "")); !strings.HasPrefix(out, "web\tup\n") {
		t.Errorf("the completion is %q", out)
	}
	if out := output(m.Run("__complete", "start_server", "--handover", "")); !strings.HasPrefix(out, "share\nsteer\n") {
		t.Errorf("the completion of --handover is %q", out)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if out := m.CtlOK("completion", shell); !strings.Contains(out, "__complete") {
			t.Errorf("completion for %s does not ask: %.200s", shell, out)
		}
	}
}

// commands returns the commands that --help lists.
func commands(m *lab.Supervisord) []string {
	m.T.Helper()
	out, _ := m.Run("--help")
	_, list, _ := strings.Cut(out, "\nRun:\n")
	list, _, _ = strings.Cut(list, "\nFlags:\n")
	var names []string
	for _, found := range regexp.MustCompile(`(?m)^  (\w[\w-]*)  `).FindAllStringSubmatch(list, -1) {
		if name := found[1]; name != "completion" && name != "exit-status" {
			names = append(names, name)
		}
	}
	if len(names) < 15 {
		m.T.Fatalf("--help lists only %q", names)
	}
	return names
}

// flagsOf returns the flags that the help of a command lists.
func flagsOf(m *lab.Supervisord, command string) []string {
	m.T.Helper()
	out, _ := m.Run(command, "--help")
	_, list, _ := strings.Cut(out, "\nFlags:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	var names []string
	for _, found := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--([\w-]+)`).FindAllStringSubmatch(list, -1) {
		if found[1] != "help" {
			names = append(names, found[1])
		}
	}
	return names
}

func TestEveryCommandAndFlagIsCompleted(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	all := output(m.Run("__complete", ""))
	for _, command := range commands(m) {
		if !strings.Contains(all, "\n"+command+"\t") && !strings.HasPrefix(all, command+"\t") {
			t.Errorf("%s is not completed: %s", command, all)
		}
		args := []string{"__complete", command, "--"}
		if command == "kill" { // has a required flag, which is the only completion until it is given
			args = []string{"__complete", command, "--generation=1", "--"}
		}
		flags := output(m.Run(args...)) + strings.Join(args, " ")
		for _, flag := range flagsOf(m, command) {
			if !strings.Contains(flags, "--"+flag) {
				t.Errorf("%s --%s is not completed: %s", command, flag, flags)
			}
		}
	}
}

func TestManualPageHasEveryCommand(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	if out, code := m.Run("docs", "man", m.Dir); code != 0 {
		t.Fatal(out)
	}
	page := m.Read("supervisord.1")
	for _, command := range commands(m) {
		if !strings.Contains(page, "\n.SS \""+strings.ReplaceAll(command, "-", `\-`)) {
			t.Errorf("%s is missing", command)
		}
		for _, flag := range flagsOf(m, command) {
			if !strings.Contains(page, `\-\-`+strings.ReplaceAll(flag, "-", `\-`)) {
				t.Errorf("--%s of %s is missing", flag, command)
			}
		}
	}
	for _, word := range []string{"reload [PROGRAM...]", "status [PROGRAM]", "EXIT STATUS", `\-\-drained`,
		"had to be killed"} {
		if !strings.Contains(page, word) {
			t.Errorf("%q is missing", word)
		}
	}
	if man, err := exec.LookPath("groff"); err == nil {
		if out, err := exec.Command(man, "-man", "-Tutf8", "-ww", "-z",
			m.Path("supervisord.1")).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("groff says %s %v", out, err)
		}
	}
}

// twins prepares two supervisords with the same runtime_dir; only the first is started.
func twins(t *testing.T) (first, second *lab.Supervisord) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sv")
	lab.Must(t, err)
	t.Cleanup(func() {
		if left, _ := filepath.Glob(dir + "/*.sock"); len(left) > 0 {
			t.Errorf("%v is left", left)
		}
		os.RemoveAll(dir)
	})
	config := "[supervisor]\nruntime_dir = \"" + dir + "\"\n" + lab.Web
	first, second = lab.Prepare(t), lab.WithOwnBinary(t)
	first.File("config.toml", config)
	second.File("config.toml", config)
	first.Launch("-c", first.Path("config.toml"))
	first.Serves(1)
	first.Until("it answers", func() bool { _, code := first.Ctl("status"); return code == 0 })
	return first, second
}

func TestTwoSupervisordsWithTheSameRuntimeDirectoryAreFoundByTheirConfigurations(t *testing.T) {
	t.Parallel()
	m, other := twins(t)
	other.CtlFails(69, []string{"runs with " + m.Path("config.toml")}, "status")
	other.Launch("-c", other.Path("config.toml"))
	if l := other.Await(lab.Contains("answers there")); l.Level != "warn" {
		t.Errorf("the log says %s", l.Text)
	}
	other.Serves(1)
	for _, one := range []*lab.Supervisord{m, other} {
		if s := one.Status(); s.PID != one.PID() {
			t.Errorf("the answer is from PID %d, want %d", s.PID, one.PID())
		}
	}
	lab.Must(t, os.Symlink(m.Dir, other.Path("link")))
	if out, code := m.Run("status", "-c", other.Path("link/config.toml")); code != 0 ||
		!strings.Contains(out, fmt.Sprint(m.PID())) {
		t.Errorf("through a symlink: exit code %d: %s", code, out)
	}
	m.Finish()
	m.CtlFails(69, []string{"does not answer"}, "status")
}

func TestControlSocketAtAnotherPathSurvivesAnUpgrade(t *testing.T) {
	t.Parallel()
	m, other := twins(t)
	other.Launch("-c", other.Path("config.toml"))
	other.Serves(1)
	m.Finish()
	other.Upgrade(lab.Upgraded)
	if s := other.Status(); s.PID != other.PID() {
		t.Errorf("the answer is from PID %d, want %d", s.PID, other.PID())
	}
}

func TestSecondSupervisordDoesNotTakeTheControlSocketAway(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	other := lab.Prepare(t)
	other.Start("control = \"" + m.Path("run/control.sock") + "\"\n" + lab.Web)
	other.Await(lab.Contains("answers there"))
	other.Serves(1)
	other.Finish()
	if s := m.Status(); s.PID != m.PID() {
		t.Errorf("the answer is from PID %d, want %d", s.PID, m.PID())
	}
}

func TestStaleControlSocketIsReplaced(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	path := m.Path("run/control.sock")
	lab.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	lab.Must(t, err)
	l.SetUnlinkOnClose(false)
	l.Close()
	if _, err := net.Dial("unix", path); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("the socket is not stale: %v", err)
	}
	m.Start(lab.Web)
	m.Serves(1)
	m.Until("it answers", func() bool { _, code := m.Ctl("status"); return code == 0 })
}

func TestControlSocketThatCannotOpenAtTheStartOpensLater(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, "control = \"{dir}/later/control.sock\"\n"+lab.Web)
	m.Serves(1)
	m.Await(lab.Contains("no control socket"))
	lab.Must(t, os.Mkdir(m.Path("later"), 0o755))
	m.Await(lab.Says("the control socket is open now"))
	if out := m.CtlOK("reload", "--socket", m.Path("later/control.sock")); !strings.Contains(out, "generation 2 serves") {
		t.Errorf("the output is %q", out)
	}
}
