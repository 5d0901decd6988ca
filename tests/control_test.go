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
	"syscall"
	"testing"
	"time"
)

// ctl runs a command that asks the supervisord, and returns what it wrote and its exit code.
func (m *master) ctl(args ...string) (out string, code int) {
	m.t.Helper()
	return m.run(append(args, "-c", m.path("config.toml"))...)
}

// well is ctl where exit code 0 is expected.
func (m *master) well(args ...string) string {
	m.t.Helper()
	out, code := m.ctl(args...)
	if code != 0 {
		m.t.Fatalf("supervisord %s: exit code %d: %s", strings.Join(args, " "), code, out)
	}
	return out
}

// fails is ctl where another exit code is expected, and these words.
func (m *master) fails(code int, words []string, args ...string) {
	m.t.Helper()
	out, got := m.ctl(args...)
	if got != code {
		m.t.Errorf("supervisord %s: exit code %d, want %d: %s", strings.Join(args, " "), got, code, out)
	}
	for _, w := range words {
		if !strings.Contains(out, w) {
			m.t.Errorf("supervisord %s: there is no %q in: %s", strings.Join(args, " "), w, out)
		}
	}
}

// asked is a command that asks, under way.
type asked struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  *strings.Builder
	done chan struct{}
}

// asks starts a command that asks.
func (m *master) asks(args ...string) *asked {
	m.t.Helper()
	a := &asked{m.t, exec.Command(built.supervisord, append(args, "-c", m.path("config.toml"))...), &strings.Builder{}, make(chan struct{})}
	a.cmd.Env = []string{"GORACE=atexit_sleep_ms=0"} // without the mark: it is no part of what the supervisord leaves
	a.cmd.Dir, a.cmd.Stdout, a.cmd.Stderr = m.dir, a.out, a.out
	must(m.t, a.cmd.Start())
	go func() { a.cmd.Wait(); close(a.done) }()
	m.t.Cleanup(func() { a.cmd.Process.Kill(); <-a.done })
	return a
}

// ends waits for the end of the command, with this exit code.
func (a *asked) ends(code int) string {
	a.t.Helper()
	select {
	case <-a.done:
	case <-time.After(patience):
		a.t.Fatalf("%v has not ended", a.cmd.Args)
	}
	if got := a.cmd.ProcessState.ExitCode(); got != code {
		a.t.Errorf("%v: exit code %d, want %d: %s", a.cmd.Args[1:], got, code, a.out)
	}
	return a.out.String()
}

func TestReloadReturnsWhenTheNewGenerationServes(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	if out := m.well("reload"); !strings.Contains(out, "web: generation 2 serves after ") {
		t.Errorf("it says %q", out)
	}
	if got := ask(t, m.address(), "/"); !strings.Contains(got, "generation=2 ") {
		t.Errorf("there answers %s", got)
	}
}

func TestReloadOfOneProgramLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	m := start(t, web+"[program.other]\ncommand = [{sleep}]\nready = { method = \"delay\", delay = \"10ms\" }\n")
	m.awaitN(2, says(generationServes))
	m.well("reload", "web")
	m.never(says(generationServes), gen(2), func(l line) bool { return l.Program == "other" })
	m.serves(2)
}

func TestReloadExitCodes(t *testing.T) {
	const captured = "[program.web]\nstderr = \"capture\"\n"
	for name, c := range map[string]struct {
		config string
		args   []string
		code   int
		words  []string
	}{
		"a failed preflight": {web + "[program.web.reload]\npreflight = [\"sh\", \"-c\", \"echo no luck >&2; exit 7\"]\n",
			nil, 10, []string{"web: generation 2 failed at step preflight", "no luck", "generation 1 still serves"}},
		"what cannot be prepared": {strings.Replace(web, "[[", "environment_file = [\"{dir}/none\"]\n[[", 1),
			nil, 10, []string{"step prepare", "none"}},
		"a worker that ends": {strings.Replace(webWith("say=out of luck", "exit=3"), "[program.web]\n", captured, 1),
			nil, 11, []string{"slot 0", "step start", "status 3", "its last lines:", "out of luck", "generation 1 still serves"}},
		"a worker that cannot be executed": {strings.Replace(web, "{worker}", `"{dir}/nothing"`, 1),
			nil, 11, []string{"step exec", "no such file"}},
		"a worker that is not ready": {strings.Replace(webWith("ready=never"), "method", "timeout = \"200ms\"\nmethod", 1),
			nil, 12, []string{"step ready", "not ready within"}},
		"no end in time": {webWith("boot=20s"),
			[]string{"--timeout", "1s"}, 14, []string{"it goes on"}},
		"a refused configuration": {web + "workerz = 2\n",
			nil, 78, []string{"refused", "workerz", "nothing has changed"}},
		"a program that is not there": {web,
			[]string{"wbe"}, 1, []string{"there is no such program: wbe", "web"}},
		"a canary without an end": {web, []string{"--canary", "1"}, 1, []string{"hold"}},
		"an hour's wait":          {web, []string{"--timeout", "25h"}, 1, []string{"24h"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := start(t, web)
			m.serves(1)
			first := m.worker(1)
			m.write(c.config)
			m.fails(c.code, c.words, append([]string{"reload"}, c.args...)...)
			if !alive(first) {
				t.Error("the worker that served is gone")
			}
		})
	}
}

func TestDrainedFailsIfTheOldGenerationHadToBeKilled(t *testing.T) {
	t.Parallel()
	m := start(t, webWith("term=ignore")+"[program.web.stop]\ntimeout = \"200ms\"\n")
	m.serves(1)
	m.fails(16, []string{"1 of the old workers had to be killed"}, "reload", "--drained")
	m.fails(16, []string{"had to be killed"}, "stop", "web")
}

func TestWhatIsStartedAndFailsHasTheExitCodesOfAReload(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	m.well("stop", "web")
	m.write(webWith("exit=3") + "[program.web.restart]\nbackoff = { min = \"1h\", max = \"1h\" }\n")
	m.fails(0, []string{"nothing to do"}, "reload") // it stays stopped, with the new configuration
	m.fails(11, []string{"step start", "status 3", "nothing serves"}, "start", "web")
	m.fails(14, []string{"it goes on"}, "start", "web", "--timeout", "1s") // it waits for its next try
	m.well("stop", "web")
}

func TestDrainedWaitsForTheEndOfTheOldGenerationAndGivesAReceipt(t *testing.T) {
	t.Parallel()
	m := start(t, webWith("term=300ms"))
	m.serves(1)
	first := m.worker(1)
	out := m.well("reload", "--drained", "-v")
	if alive(first) || !strings.Contains(out, "generation 1 has ended after") || !strings.Contains(out, "receipt of web, generation 2: served") {
		t.Errorf("the old worker lives (%v), or this is missing something: %s", alive(first), out)
	}
	var v struct {
		Outcome  string
		Programs []struct{ Generation int }
		Receipts []struct {
			Generation int
			Drain      int64 `json:"drain_ns"`
		}
	}
	must(t, json.Unmarshal([]byte(lastObject(m.well("reload", "--drained", "--json"))), &v))
	if v.Outcome != "serves" || v.Programs[0].Generation != 3 || len(v.Receipts) != 1 || v.Receipts[0].Generation != 3 || v.Receipts[0].Drain < 3e8 {
		t.Errorf("the verdict is %+v", v)
	}
}

func TestTheReceiptOfAReloadThatStillDrainsSaysSo(t *testing.T) {
	t.Parallel()
	m := start(t, webWith("term=20s"))
	m.serves(1)
	out := m.well("reload", "-v")
	if !strings.Contains(out, "receipt of web, generation 2: served") || !strings.Contains(out, "the drain goes on") || strings.Contains(out, ", drain ") {
		t.Errorf("it says %s", out)
	}
	var v struct {
		Receipts []struct {
			Generation, Replaced int
			Outcome, Ended       string
			Took                 int64 `json:"took_ns"`
		}
	}
	must(t, json.Unmarshal([]byte(lastObject(m.well("reload", "--json"))), &v))
	if len(v.Receipts) != 1 || v.Receipts[0].Generation != 3 || v.Receipts[0].Replaced != 2 || v.Receipts[0].Outcome != "served" || v.Receipts[0].Took <= 0 || v.Receipts[0].Ended != "" {
		t.Errorf("the receipts are %+v", v.Receipts)
	}
	m.write(webWith("exit=3"))
	m.fails(11, []string{"receipt of web, generation 4: failed"}, "reload", "-v")
	m.well("kill", "web", "--generation", "1")
	m.await(says("reload receipt"), gen(2), contains(`"replaced":1`), contains(`"drain":"`))
	m.well("kill", "web", "--generation", "2")
	m.well("kill", "web", "--generation", "3")
}

// lastObject is the JSON at the end of what a command wrote to stdout and stderr.
func lastObject(out string) string { return out[max(0, strings.Index(out, "\n{")):] }

func TestAReloadThatIsAbortedSaysSo(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	m.write(webWith("boot=20s"))
	a := m.asks("reload")
	m.worker(2)
	m.well("abort", "web", "--reason", "second thoughts")
	if out := a.ends(13); !strings.Contains(out, "second thoughts") || !strings.Contains(out, "generation 1 still serves") {
		t.Errorf("it says %q", out)
	}
	m.fails(1, []string{"has no trial"}, "abort", "web")
}

func TestAReloadOfAProgramThatIsStoppedMeanwhileSaysSo(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	m.write(webWith("boot=20s"))
	a := m.asks("reload")
	m.worker(2)
	m.well("stop", "web")
	if out := a.ends(13); !strings.Contains(out, "stopped") {
		t.Errorf("it says %q", out)
	}
}

func TestCtrlCEndsTheWaitingAndNotTheReload(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	gate := m.fifo("gate")
	m.start(web)
	m.serves(1)
	m.write(webWith("gate=" + gate))
	a := m.asks("reload")
	m.worker(2)
	must(t, a.cmd.Process.Signal(syscall.SIGINT))
	if out := a.ends(130); !strings.Contains(out, "goes on") {
		t.Errorf("it says %q", out)
	}
	m.open(gate)
	m.serves(2)
}

func TestNobodyThereIsAnExitCodeOfItsOwn(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.write(web)
	m.fails(69, []string{"does not answer", m.path("run/control.sock")}, "reload")
	m.write("control = \"off\"\n" + web)
	m.fails(69, []string{"control is off"}, "status")
}

func TestAReloadWhoseSupervisordIsKilledSaysThatItIsNotKnown(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	m.write(webWith("boot=20s"))
	a := m.asks("reload", "--timeout", "2s")
	m.worker(2)
	m.signal(syscall.SIGKILL)
	<-m.ended
	m.over = true
	m.sweep()
	if out := a.ends(15); !strings.Contains(out, "cannot be found out") {
		t.Errorf("it says %q", out)
	}
}

func TestAReloadIsNotAnsweredByASupervisordThatHasBegunAnew(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	m.write(webWith("boot=20s"))
	a := m.asks("reload")
	m.worker(2)
	must(t, a.cmd.Process.Signal(syscall.SIGSTOP))
	m.die()
	m.start(web)
	m.serves(1)
	m.well("reload") // somebody else's generation 2
	must(t, a.cmd.Process.Signal(syscall.SIGCONT))
	if out := a.ends(15); !strings.Contains(out, "has begun anew") {
		t.Errorf("it says %q", out)
	}
}

func TestAReloadThatWaitsGoesOnOverAnUpgrade(t *testing.T) {
	t.Parallel()
	m := withOwnBinary(t)
	gate := m.fifo("gate")
	m.start(web)
	m.serves(1)
	m.write(webWith("gate=" + gate))
	a := m.asks("reload", "--drained")
	m.worker(2)
	last := m.upgrade(upgraded)
	m.upgrade(upgraded)
	m.open(gate)
	m.await(after(last), says(generationServes), gen(2))
	if out := a.ends(0); !strings.Contains(out, "web: generation 2 serves") || !strings.Contains(out, "generation 1 has ended") {
		t.Errorf("it says %q", out)
	}
}

func TestAFailureDuringAnUpgradeIsNotTakenForASuccess(t *testing.T) {
	t.Parallel()
	m := withOwnBinary(t)
	m.start(web)
	m.serves(1)
	gate := m.fifo("gate")
	m.write(strings.Replace(webWith("gate="+gate, "die=0s"), "[program.web.ready]", "[program.web.reload]\nsoak = \"20s\"\n[program.web.ready]", 1))
	a := m.asks("reload")
	m.worker(2)
	must(t, a.cmd.Process.Signal(syscall.SIGSTOP)) // it looks again when all is over
	m.upgrade(upgraded)
	m.open(gate)
	m.await(says(trialFailed))
	m.await(says(generationGone), gen(2))
	m.upgrade(upgraded)
	must(t, a.cmd.Process.Signal(syscall.SIGCONT))
	if out := a.ends(11); !strings.Contains(out, "exited with status 4") || !strings.Contains(out, "generation 1 still serves") {
		t.Errorf("it says %q", out)
	}
}

func TestTheControlSocketIsTheSameOverAnUpgradeAndGoneAtTheEnd(t *testing.T) {
	t.Parallel()
	m := withOwnBinary(t)
	m.start(web)
	m.serves(1)
	before, err := os.Stat(m.path("run/control.sock"))
	must(t, err)
	m.upgrade(upgraded)
	m.well("status")
	now, err := os.Stat(m.path("run/control.sock"))
	must(t, err)
	if !os.SameFile(before, now) || now.Mode().Perm() != 0o660 {
		t.Errorf("it is another one, or its mode is %v", now.Mode())
	}
	m.finish() // and fails if a socket is left
}

func TestWhoMayNotIsTold(t *testing.T) {
	t.Parallel()
	asRoot(t, "be somebody else")
	m := start(t, "control_mode = \"0666\"\n"+web)
	m.serves(1)
	must(t, os.Chmod(m.path("run"), 0o755))
	as := func(args ...string) (string, int) {
		cmd := exec.Command(built.supervisord, append(args, "-c", m.path("config.toml"))...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	for _, args := range [][]string{{"reload"}, {"status"}} {
		if out, code := as(args...); code != 77 || !strings.Contains(out, "control_group") {
			t.Errorf("%v: exit code %d: %s", args, code, out)
		}
	}
	must(t, os.Chmod(m.path("run/control.sock"), 0o660))
	if out, code := as("status"); code != 77 || !strings.Contains(out, "control_group") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestACanaryIsHeldAndPromoted(t *testing.T) {
	t.Parallel()
	m := start(t, strings.Replace(web, "[[", "workers = 2\n[[", 1))
	m.serves(1)
	if out := m.well("reload", "--canary", "1", "--hold"); !strings.Contains(out, "held") {
		t.Errorf("it says %q", out)
	}
	if out := m.well("status"); !strings.Contains(out, "canary") {
		t.Errorf("the status is %s", out)
	}
	m.well("promote", "web")
	m.serves(2)
	m.well("reload", "--canary", "1", "--for", "200ms")
	m.serves(3)
	m.well("reload", "--canary", "1", "--hold", "--for", "200ms") // holds for so long, and decides by itself
	m.serves(4)
}

func TestStopStartRestartAndScale(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	m.well("stop", "web")
	if pids := m.pids(); len(pids) > 0 {
		t.Errorf("stopped, it has %v", pids)
	}
	m.well("stop", "web") // again
	if out := m.well("reload"); !strings.Contains(out, "nothing to do") {
		t.Errorf("reload says %q", out)
	}
	m.well("start", "web")
	m.serves(2)
	m.well("restart", "web")
	m.serves(3)
	m.well("scale", "web", "3")
	m.until("three workers", func() bool { return len(m.pids()) == 3 })
	m.well("scale", "web", "1")
	m.until("one worker", func() bool { return len(m.pids()) == 1 })
	m.fails(1, []string{"stop the program"}, "scale", "web", "0")
	m.fails(1, []string{"no generation 99", "there is 3"}, "kill", "web", "--generation", "99")
}

func TestSignalAndKill(t *testing.T) {
	t.Parallel()
	m := start(t, strings.Replace(web, "{worker}", `{worker}, "note={dir}/note"`, 1))
	m.serves(1)
	first := m.worker(1)
	m.well("signal", "web", "usr2")
	m.until("USR2 is noted", func() bool { return strings.Contains(m.read("note"), "USR2") })
	m.await(says(generationServes))
	m.fails(1, []string{`"NOSUCH" is no signal`}, "signal", "web", "NOSUCH")
	m.fails(1, []string{"generation"}, "kill", "web")
	m.well("kill", "web", "--generation", "1")
	m.until("the worker is gone", func() bool { return !alive(first) })
}

func TestEventsAreOneObjectALine(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	cmd := exec.Command(built.supervisord, "events", "--json", "-c", m.path("config.toml"))
	cmd.Env = m.environ()
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	lines := json.NewDecoder(out)
	m.until("it follows", func() bool { return connected(m.path("run/control.sock")) })
	m.well("reload")
	for {
		var u struct {
			Time    time.Time
			Program string
			Kind    string
		}
		must(t, lines.Decode(&u))
		if u.Program != "web" || u.Time.IsZero() {
			t.Errorf("an event is %+v", u)
		}
		if u.Kind == generationServes {
			break
		}
	}
	must(t, cmd.Process.Signal(syscall.SIGINT))
	if err := cmd.Wait(); err != nil {
		t.Errorf("Ctrl-C is no failure, but %v", err)
	}
}

// connected reports whether a client is connected to a unix socket.
func connected(path string) bool {
	text, _ := os.ReadFile("/proc/net/unix")
	for _, line := range strings.Split(string(text), "\n") {
		if f := strings.Fields(line); len(f) == 8 && f[5] == "03" && f[7] == path {
			return true
		}
	}
	return false
}

func TestTheLogLevelChanges(t *testing.T) {
	t.Parallel()
	m := start(t, "log_level = \"info\"\n"+web)
	m.serves(1)
	m.never(func(l line) bool { return l.Level == "debug" })
	m.well("log-level", "debug")
	m.well("reload")
	m.await(func(l line) bool { return l.Level == "debug" })
	m.fails(1, []string{"use debug, info, warn or error"}, "log-level", "loud")
}

func TestLogsShowsWhatWorkersWrote(t *testing.T) {
	t.Parallel()
	m := start(t, strings.Replace(webWith("say=hear hear"), "[[", "stderr = \"capture\"\n[[", 1))
	m.serves(1)
	if out := m.well("logs", "web", "-n", "1"); out != "hear hear\n" {
		t.Errorf("it says %q", out)
	}
}

// statusJSON is a part of what status --json says.
type statusJSON struct {
	PID      int
	Programs []struct {
		Name, State string
		Generations []struct {
			Role    string
			Workers []struct {
				PID, Processes, Connections int
				Memory                      int64
				State                       string
				ConnectionsError            string `json:"connections_error"`
			}
		}
		Listeners []struct {
			Address string
			Queue   struct{ Waiting, Limit int }
		}
	}
}

func (m *master) status() (s statusJSON) {
	m.t.Helper()
	must(m.t, json.Unmarshal([]byte(m.well("status", "--json")), &s))
	return s
}

func TestStatusAgreesWithTheKernel(t *testing.T) {
	t.Parallel()
	m := start(t, strings.Replace(webWith("fork"), "[[", "workers = 2\n[[", 1))
	m.serves(1)
	var conns []net.Conn
	for range 5 {
		c, err := net.Dial("tcp", m.address())
		must(t, err)
		defer c.Close()
		conns = append(conns, c)
	}
	m.until("five connections are seen", func() bool {
		time.Sleep(200 * time.Millisecond) // what was measured is kept for a second
		n := 0
		for _, w := range m.status().Programs[0].Generations[0].Workers {
			n += w.Connections
		}
		return n == len(conns)
	})
	s := m.status()
	p := s.Programs[0]
	if s.PID != m.pid() || p.Name != "web" || p.State != "up" || p.Listeners[0].Address != m.address() || p.Generations[0].Role != "serving" {
		t.Errorf("the status is %+v", s)
	}
	for _, w := range p.Generations[0].Workers {
		resident := 0
		for _, pid := range append(childrenOf(w.PID), w.PID) {
			kb := 0
			fmt.Sscan(status(pid)["VmRSS"], &kb)
			resident += kb << 10
		}
		if w.Processes != 2 || w.State != "ready" || float64(w.Memory) < 0.7*float64(resident) || float64(w.Memory) > 1.3*float64(resident) {
			t.Errorf("a worker is %+v; /proc says %d bytes", w, resident)
		}
		if n, err := ssCount(p.Listeners[0].Address, w.PID); err == nil && n != w.Connections {
			t.Errorf("worker %d has %d connections, ss says %d", w.PID, w.Connections, n)
		}
	}
}

func TestStatusSaysWhyConnectionsAreNotKnown(t *testing.T) {
	t.Parallel()
	asRoot(t, "run a worker as another user")
	m := prepare(t)
	m.via = []string{need(t, "setpriv"), "--bounding-set", "-sys_ptrace"}
	m.start(strings.Replace(hello, "\n[[", "\nuser = \"nobody\"\n[[", 1))
	m.serves(1)
	c, err := net.Dial("tcp", m.address())
	must(t, err)
	defer c.Close()
	m.until("it is said", func() bool {
		return strings.Contains(m.status().Programs[0].Generations[0].Workers[0].ConnectionsError, "CAP_SYS_PTRACE")
	})
	m.until("it is said to people, too", func() bool {
		out := m.well("status")
		return strings.Contains(out, "CONNS is not known: cannot look into process") && strings.Contains(out, "CAP_SYS_PTRACE")
	})
	must(t, c.Close())
}

// ssCount is how many connections ss(8) sees in a process.
func ssCount(address string, pid int) (int, error) {
	ss, err := exec.LookPath("ss")
	if err != nil {
		return 0, err
	}
	out, err := exec.Command(ss, "-Htnp", "state", "established", "src", address).Output()
	return strings.Count(string(out), fmt.Sprintf("pid=%d,", pid)), err
}

func TestStatusShowsTheAcceptQueue(t *testing.T) {
	t.Parallel()
	m := start(t, "[program.deaf]\ncommand = [{sleep}]\nready = { method = \"delay\", delay = \"10ms\" }\n[[program.deaf.listen]]\nname = \"http\"\naddress = \"127.0.0.1:0\"\nbacklog = 7\n")
	m.serves(1)
	for range 3 {
		c, err := net.Dial("tcp", m.address())
		must(t, err)
		defer c.Close()
	}
	m.until("three wait", func() bool {
		q := m.status().Programs[0].Listeners[0].Queue
		return q.Waiting == 3 && q.Limit == 7
	})
	if out := m.well("status"); !strings.Contains(out, "queue 3/7") {
		t.Errorf("the status is %s", out)
	}
}

func TestStatusForPeopleShowsAFailedReload(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	m.write(webWith("exit=3"))
	m.ctl("reload")
	if out := m.well("status", "web"); !strings.Contains(out, "last reload: generation 2 failed at step start") || !strings.Contains(out, "serving") {
		t.Errorf("the status is %s", out)
	}
	m.fails(1, []string{"there is no such program: wbe"}, "status", "wbe")
}

func output(out string, _ int) string { return out }

func TestProgramsAreCompleted(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	if out := output(m.run("__complete", "stop", "-c", m.path("config.toml"), "")); !strings.HasPrefix(out, "web\tup\n") {
		t.Errorf("the completion is %q", out)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if out := m.well("completion", shell); !strings.Contains(out, "__complete") {
			t.Errorf("completion for %s does not ask: %.200s", shell, out)
		}
	}
}

// commands are those that --help lists.
func (m *master) commands() []string {
	m.t.Helper()
	out, _ := m.run("--help")
	_, list, _ := strings.Cut(out, "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	var names []string
	for line := range strings.Lines(list) {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), " "); name != "help" && name != "completion" {
			names = append(names, name)
		}
	}
	if len(names) < 15 {
		m.t.Fatalf("there are only the commands %q", names)
	}
	return names
}

// flagsOf are the flags that the help of a command lists.
func (m *master) flagsOf(command string) []string {
	m.t.Helper()
	out, _ := m.run(command, "--help")
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
	m := prepare(t)
	all := output(m.run("__complete", ""))
	for _, command := range m.commands() {
		if !strings.Contains(all, "\n"+command+"\t") && !strings.HasPrefix(all, command+"\t") {
			t.Errorf("%s is not completed: %s", command, all)
		}
		args := []string{"__complete", command, "--"}
		if command == "kill" { // of which one flag is required, and completed alone until it is there
			args = []string{"__complete", command, "--generation=1", "--"}
		}
		flags := output(m.run(args...)) + strings.Join(args, " ")
		for _, flag := range m.flagsOf(command) {
			if !strings.Contains(flags, "--"+flag) {
				t.Errorf("%s --%s is not completed: %s", command, flag, flags)
			}
		}
	}
}

func TestTheManualPageHasEveryCommand(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	if out, code := m.run("docs", "man", m.dir); code != 0 {
		t.Fatal(out)
	}
	page := m.read("supervisord.1")
	for _, command := range m.commands() {
		if !strings.Contains(page, "\n.SS \""+strings.ReplaceAll(command, "-", `\-`)) {
			t.Errorf("there is no %s in it", command)
		}
		for _, flag := range m.flagsOf(command) {
			if !strings.Contains(page, `\fB\-\-`+strings.ReplaceAll(flag, "-", `\-`)+`\fR`) {
				t.Errorf("there is no --%s of %s in it", flag, command)
			}
		}
	}
	for _, word := range []string{"reload [PROGRAM...]", "status [PROGRAM]", "EXIT STATUS", `\-\-drained`, "had to be killed"} {
		if !strings.Contains(page, word) {
			t.Errorf("there is no %q in it", word)
		}
	}
	if man, err := exec.LookPath("groff"); err == nil {
		if out, err := exec.Command(man, "-man", "-Tutf8", "-ww", "-z", m.path("supervisord.1")).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("groff says %s %v", out, err)
		}
	}
}

// twins are two supervisords with one runtime_dir, of which the second is not started yet.
func twins(t *testing.T) (first, second *master) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sv")
	must(t, err)
	t.Cleanup(func() {
		if left, _ := filepath.Glob(dir + "/*.sock"); len(left) > 0 {
			t.Errorf("%v is left", left)
		}
		os.RemoveAll(dir)
	})
	config := "[supervisor]\nruntime_dir = \"" + dir + "\"\n" + web
	first, second = prepare(t), withOwnBinary(t)
	first.file("config.toml", config)
	second.file("config.toml", config)
	first.launch("-c", first.path("config.toml"))
	first.serves(1)
	first.until("it answers", func() bool { _, code := first.ctl("status"); return code == 0 })
	return first, second
}

func TestTwoSupervisordsWithTheSameRuntimeDirectoryAreFoundByTheirConfigurations(t *testing.T) {
	t.Parallel()
	m, other := twins(t)
	other.fails(69, []string{"runs with " + m.path("config.toml")}, "status")
	other.launch("-c", other.path("config.toml"))
	if l := other.await(contains("another process answers there")); l.Level != "warn" {
		t.Errorf("it is said as %s", l.text)
	}
	other.serves(1)
	for _, one := range []*master{m, other} {
		if s := one.status(); s.PID != one.pid() {
			t.Errorf("there answers %d, not %d", s.PID, one.pid())
		}
	}
	must(t, os.Symlink(m.dir, other.path("link")))
	if out, code := m.run("status", "-c", other.path("link/config.toml")); code != 0 || !strings.Contains(out, fmt.Sprint(m.pid())) {
		t.Errorf("through a symlink: exit code %d: %s", code, out)
	}
	m.finish()
	m.fails(69, []string{"does not answer"}, "status")
}

func TestTheControlSocketElsewhereStaysOverAnUpgrade(t *testing.T) {
	t.Parallel()
	m, other := twins(t)
	other.launch("-c", other.path("config.toml"))
	other.serves(1)
	m.finish()
	other.upgrade(upgraded)
	if s := other.status(); s.PID != other.pid() {
		t.Errorf("there answers %d, not %d", s.PID, other.pid())
	}
}

func TestASecondSupervisordDoesNotTakeTheControlSocketAway(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	other := prepare(t)
	other.start("control = \"" + m.path("run/control.sock") + "\"\n" + web)
	other.await(contains("another process answers there"))
	other.serves(1)
	other.finish()
	if s := m.status(); s.PID != m.pid() {
		t.Errorf("there answers %d, not %d", s.PID, m.pid())
	}
}

func TestAStaleControlSocketIsReplaced(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	path := m.path("run/control.sock")
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	must(t, err)
	l.SetUnlinkOnClose(false)
	l.Close()
	if _, err := net.Dial("unix", path); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("it is not stale: %v", err)
	}
	m.start(web)
	m.serves(1)
	m.until("it answers", func() bool { _, code := m.ctl("status"); return code == 0 })
}
