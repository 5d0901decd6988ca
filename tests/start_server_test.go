package tests

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// starter prepares a master that is started as start_server, with a runtime directory of its own.
func starter(t *testing.T) *master {
	t.Helper()
	m := prepare(t)
	m.env = append(m.env, "RUNTIME_DIRECTORY="+m.path("run"))
	return m
}

// startServer starts start_server; in the words {dir} and the words {worker} are filled in.
func (m *master) startServer(words ...string) {
	m.t.Helper()
	m.launch(m.starterWords(words)...)
}

// runServer runs it to its end.
func (m *master) runServer(words ...string) (out string, code int) {
	m.t.Helper()
	return m.run(m.starterWords(words)...)
}

func (m *master) starterWords(words []string) []string {
	args := []string{"start_server"}
	for _, w := range words {
		if w == "{worker}" {
			args = append(args, built.self, workerWord)
			continue
		}
		args = append(args, m.fill(w))
	}
	return args
}

// started waits for the nth worker and returns its PID.
func (m *master) started(n int) int {
	m.t.Helper()
	l := m.awaitN(n, contains("starting new worker "))[n-1]
	pid, err := strconv.Atoi(strings.TrimPrefix(l.text, "starting new worker "))
	must(m.t, err)
	return pid
}

// files are the flags for a pid file and a status file.
func (m *master) files(words ...string) []string {
	return append([]string{"--pid-file={dir}/web.pid", "--status-file={dir}/web.status"}, words...)
}

// starterLines is what start_server has written, less the PIDs.
func (m *master) starterLines(pids ...int) []string {
	all, _ := m.log.all()
	var lines []string
	for _, l := range all {
		text := strings.ReplaceAll(l.text, fmt.Sprintf("(pid:%d)", m.pid()), "(pid:SERVER)")
		for i, pid := range pids {
			text = strings.ReplaceAll(text, strconv.Itoa(pid), fmt.Sprintf("PID%d", i+1))
		}
		lines = append(lines, text)
	}
	return lines
}

func (m *master) wrote(want []string, pids ...int) {
	m.t.Helper()
	if got := m.starterLines(pids...); !slices.Equal(got, want) {
		m.t.Errorf("it wrote\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestStartServerGivesItsWorkerWhatTheReferenceGives(t *testing.T) {
	t.Parallel()
	m := starter(t)
	m.startServer("--port=127.0.0.1:0", "--port", "localhost:u0", "--path=./s", "--kill-old-delay=0", "--enable-auto-restart", "--", "sleep", "1000")
	env := environment(t, m.started(1))
	if got := env["SERVER_STARTER_PORT"]; got != "127.0.0.1:0=3;localhost:0=4;./s=5" {
		t.Errorf("SERVER_STARTER_PORT is %q", got)
	}
	for name, want := range map[string]string{"SERVER_STARTER_GENERATION": "1", "KILL_OLD_DELAY": "0", "ENABLE_AUTO_RESTART": "1", "LISTEN_FDS": "", "LISTEN_PID": ""} {
		if env[name] != want {
			t.Errorf("%s is %q, want %q", name, env[name], want)
		}
	}
	if got := status(m.started(1))["SigIgn"]; got != "0000000000001000" {
		t.Errorf("it ignores %s, want SIGPIPE", got)
	}
	stat, err := os.Stat(m.path("s"))
	must(t, err)
	if stat.Mode().Perm() != 0o777 {
		t.Errorf("the socket has mode %o", stat.Mode().Perm())
	}
	m.signal(syscall.SIGTERM)
	m.ends(0)
	if _, err := os.Lstat(m.path("s")); err == nil {
		t.Error("the socket is left")
	}
}

func TestStartServerPutsASocketAtTheDescriptorThatWasAskedFor(t *testing.T) {
	t.Parallel()
	m := starter(t)
	m.startServer("--port=127.0.0.1:0=0", "--port=127.0.0.2:0=9", "--", "sleep", "1000")
	if got := environment(t, m.started(1))["SERVER_STARTER_PORT"]; got != "127.0.0.1:0=0;127.0.0.2:0=9" {
		t.Errorf("SERVER_STARTER_PORT is %q", got)
	}
	fds := descriptors(t, m.started(1))
	if !strings.HasPrefix(fds[0], "socket:") || !strings.HasPrefix(fds[9], "socket:") {
		t.Errorf("descriptors are %v", fds)
	}
	m.await(contains("socket is duplicated to file descriptor 9"))
}

func TestStartServerWithoutPortsTellsOfNone(t *testing.T) {
	t.Parallel()
	m := starter(t)
	m.startServer("sleep", "1000")
	if got, there := environment(t, m.started(1))["SERVER_STARTER_PORT"]; got != "" || !there {
		t.Errorf("SERVER_STARTER_PORT is %q, there: %v", got, there)
	}
}

func TestStartServerWritesTheLinesAndTheFilesOfTheReference(t *testing.T) {
	t.Parallel()
	m := starter(t)
	m.startServer(m.files("--port=127.0.0.1:0", "--", "{worker}")...)
	first := m.started(1)
	m.statusFile(fmt.Sprintf("1:%d\n", first))
	if got := m.read("web.pid"); got != fmt.Sprintf("%d\n", m.pid()) {
		t.Errorf("the pid file has %q", got)
	}
	m.signal(syscall.SIGHUP)
	second := m.started(2)
	m.statusFile(fmt.Sprintf("2:%d\n", second))
	must(t, syscall.Kill(second, syscall.SIGKILL))
	third := m.started(3)
	m.statusFile(fmt.Sprintf("3:%d\n", third))
	m.signal(syscall.SIGTERM)
	m.ends(0)
	m.wrote([]string{
		"start_server (pid:SERVER) starting now...",
		"starting new worker PID1",
		"received HUP, spawning a new worker",
		"starting new worker PID2",
		"new worker is now running, sending TERM to old workers:PID1",
		"killing old workers",
		"old worker PID1 died, status:0",
		"worker PID2 died unexpectedly with status:9, restarting",
		"starting new worker PID3",
		"received TERM, sending TERM to all workers:PID3",
		"worker PID3 died, status:0",
		"exiting",
	}, first, second, third)
	for _, name := range []string{"web.pid", "web.status", "run/" + runtimeName(m)} {
		if _, err := os.Stat(m.path(name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
}

// runtimeName is the folder of the only start_server of a test.
func runtimeName(m *master) string {
	left, _ := os.ReadDir(m.path("run"))
	if len(left) == 0 {
		return "none"
	}
	return left[0].Name()
}

func TestStartServerCountsFailedWorkersAndTriesOn(t *testing.T) {
	t.Parallel()
	m := starter(t)
	m.file("bad", "")
	m.startServer(m.files("--interval=1", "--", "{worker}", "failif={dir}/bad")...)
	m.awaitN(2, contains(" seems to have failed to start, exit status:768"))
	must(t, os.Remove(m.path("bad")))
	m.until("one serves", func() bool { _, err := os.Stat(m.path("web.status")); return err == nil })
	generation, _, _ := strings.Cut(m.read("web.status"), ":")
	if n, _ := strconv.Atoi(generation); n < 3 {
		t.Errorf("generation %d serves after two that failed", n)
	}
	before := m.read("web.status")
	m.file("bad", "")
	m.signal(syscall.SIGHUP)
	m.awaitN(4, contains(" seems to have failed to start, exit status:768"))
	if got := m.read("web.status"); got != before {
		t.Errorf("while new workers fail the status is %q, want %q", got, before)
	}
	must(t, os.Remove(m.path("bad")))
	m.await(contains("killing old workers"))
	if n := m.count(contains("received HUP")); n != 1 {
		t.Errorf("HUP is in the log %d times", n)
	}
}

func TestStartServerReadsEnvdirForEveryGenerationAlsoAfterADeath(t *testing.T) {
	t.Parallel()
	m := starter(t)
	m.file("env/COLOUR", "red\nignored\n")
	m.startServer("--envdir=env", "--", "sleep", "1000")
	first := m.started(1)
	if env := environment(t, first); env["COLOUR"] != "red" || env["ENVDIR"] != "env" {
		t.Errorf("COLOUR is %q, ENVDIR %q", env["COLOUR"], env["ENVDIR"])
	}
	m.file("env/COLOUR", "blue\n")
	time.Sleep(1200 * time.Millisecond) // it is ready
	must(t, syscall.Kill(first, syscall.SIGKILL))
	if got := environment(t, m.started(2))["COLOUR"]; got != "blue" {
		t.Errorf("after a death COLOUR is %q", got)
	}
	must(t, os.Remove(m.path("env/COLOUR")))
	m.signal(syscall.SIGHUP)
	if got, there := environment(t, m.started(3))["COLOUR"]; there {
		t.Errorf("after its file has gone COLOUR is %q", got)
	}
}

func TestStartServerSendsTheSignalsThatItIsTold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		end  syscall.Signal
		want string
	}{{syscall.SIGTERM, "QUIT"}, {syscall.SIGINT, "TERM"}} {
		m := starter(t)
		m.startServer(m.files("--signal-on-hup=usr2", "--signal-on-term=SIGQUIT", "--ready=notify", "--", "{worker}", "note={dir}/notes")...)
		m.statusFile(fmt.Sprintf("1:%d\n", m.started(1)))
		m.signal(syscall.SIGHUP)
		m.await(contains("sending USR2 to old workers"))
		m.statusFile(fmt.Sprintf("2:%d\n", m.started(2)))
		m.signal(c.end)
		m.ends(0)
		if got, want := m.read("notes"), "1 0 start\n2 0 start\n1 0 USR2\n2 0 "+c.want+"\n"; got != want {
			t.Errorf("the workers were told\n%swant\n%s", got, want)
		}
	}
}

func TestStartServerEndsWithTheExitCodesOfTheReference(t *testing.T) {
	t.Parallel()
	m := starter(t)
	taken := occupy(t)
	m.file("file", "")
	for _, c := range []struct {
		words string
		code  int
		says  string
	}{
		{"", 255, "server program not specified"},
		{"--nope", 1, "unknown option: nope"},
		{"--interval=soon x", 1, "number expected"},
		{"--daemonize x", 255, "--log-file option must be specified together with --daemonize"},
		{"--restart", 255, "--restart option requires --pid-file and --status-file"},
		{"--stop", 255, "--stop option requires --pid-file"},
		{"--stop --pid-file=none", 2, "failed to open file:none: no such file"},
		{"--port=web x", 255, "invalid ``port'' value:web"},
		{"--port=" + taken + " true", 98, "address already in use"},
		{"--path=/none/s true", 2, "no such file or directory"},
		{"--log-file=/none/l true", 2, "failed to open log file:/none/l"},
		{"--version", 0, "0.35\n"},
		{"--help", 0, "--signal-on-hup"},
		{"true --port=80", 1, "stands behind the command"},
	} {
		if out, code := m.runServer(strings.Fields(c.words)...); code != c.code || !strings.Contains(out, c.says) {
			t.Errorf("start_server %s: exit code %d, want %d; it says\n%s\nwant %s", c.words, code, c.code, out, c.says)
		}
	}
}

func TestTheBinaryUnderTheNameStartServerIsStartServer(t *testing.T) {
	t.Parallel()
	m := starter(t)
	must(t, os.Symlink(built.supervisord, m.path("start_server")))
	out, err := exec.Command(m.path("start_server"), "--version").CombinedOutput()
	if err != nil || string(out) != "0.35\n" {
		t.Errorf("it says %q, %v", out, err)
	}
}

func TestRestartReturnsWhenOnlyTheNewGenerationIsLeftHoweverManyFailedBefore(t *testing.T) {
	t.Parallel()
	m := starter(t)
	m.startServer(m.files("--", "{worker}", "failif={dir}/bad", "term=300ms")...)
	m.statusFile(fmt.Sprintf("1:%d\n", m.started(1)))
	m.file("bad", "")
	go func() {
		for m.count(contains("seems to have failed")) < 2 {
			time.Sleep(20 * time.Millisecond)
		}
		os.Remove(m.path("bad"))
	}()
	if out, code := m.runServer(m.files("--restart")...); code != 0 || out != "" {
		t.Errorf("exit code %d, %s", code, out)
	}
	if text := m.read("web.status"); strings.HasPrefix(text, "1:") || strings.Count(text, "\n") != 1 {
		t.Errorf("then the status is %q", text)
	}
	if alive(m.started(1)) {
		t.Error("the old worker lives")
	}
}

func TestRestartSaysWhenTheNewWorkersDoNotComeUp(t *testing.T) {
	t.Parallel()
	m := starter(t)
	m.startServer(m.files("--", "{worker}", "failif={dir}/bad")...)
	m.statusFile(fmt.Sprintf("1:%d\n", m.started(1)))
	m.file("bad", "")
	if out, code := m.runServer(m.files("--restart", "--timeout=2")...); code != 14 || !strings.Contains(out, "the new workers have failed") {
		t.Errorf("exit code %d, %s", code, out)
	}
	m.statusFile(fmt.Sprintf("1:%d\n", m.started(1)))
}

func TestRestartSaysWhenTheOldWorkersDoNotEnd(t *testing.T) {
	t.Parallel()
	m := starter(t)
	m.startServer(m.files("--stop-timeout=60", "--", "{worker}", "term=ignore")...)
	m.statusFile(fmt.Sprintf("1:%d\n", m.started(1)))
	if out, code := m.runServer(m.files("--restart", "--timeout=3s")...); code != 14 || !strings.Contains(out, "generation 2 serves, but workers of older ones have not ended") {
		t.Errorf("exit code %d, %s", code, out)
	}
	m.signal(syscall.SIGQUIT)
	m.ends(0)
}

func TestRestartSaysWhenTheServerEnds(t *testing.T) {
	t.Parallel()
	m := starter(t)
	m.startServer(m.files("--", "{worker}", "hangif={dir}/bad")...)
	m.statusFile(fmt.Sprintf("1:%d\n", m.started(1)))
	go func() {
		for m.count(contains("received HUP")) == 0 {
			time.Sleep(20 * time.Millisecond)
		}
		m.cmd.Process.Signal(syscall.SIGTERM)
	}()
	if out, code := m.runServer(m.files("--restart")...); code != 255 || !strings.Contains(out, "it has ended") {
		t.Errorf("exit code %d, %s", code, out)
	}
	m.ends(0)
}

func TestStopReturnsWhenTheServerHasEnded(t *testing.T) {
	t.Parallel()
	m := starter(t)
	m.startServer(m.files("--", "{worker}", "term=500ms")...)
	m.statusFile(fmt.Sprintf("1:%d\n", m.started(1)))
	out, code := m.runServer(m.files("--stop")...)
	if code != 0 || !strings.Contains(out, fmt.Sprintf("stopping now (pid:%d)...", m.pid())) {
		t.Errorf("exit code %d, %s", code, out)
	}
	if alive(m.pid()) {
		t.Error("it lives")
	}
	m.ends(0)
}

func TestStopSaysWhenTheServerDoesNotEndAndAnotherOneKills(t *testing.T) {
	t.Parallel()
	m := starter(t)
	m.startServer(m.files("--", "{worker}", "term=ignore")...)
	m.statusFile(fmt.Sprintf("1:%d\n", m.started(1)))
	if out, code := m.runServer(m.files("--stop", "--timeout=1500ms")...); code != 14 || !strings.Contains(out, "waits for its workers") {
		t.Errorf("exit code %d, %s", code, out)
	}
	if _, code := m.runServer(m.files("--stop")...); code != 0 {
		t.Errorf("exit code %d", code)
	}
	m.await(contains("is killed"))
	m.ends(0)
}

func TestASecondTERMAtOnceIsStillTheFirst(t *testing.T) {
	t.Parallel()
	m := starter(t)
	m.startServer(m.files("--", "{worker}", "term=300ms")...)
	m.statusFile(fmt.Sprintf("1:%d\n", m.started(1)))
	m.signal(syscall.SIGTERM)
	m.await(contains("received TERM"))
	m.signal(syscall.SIGTERM)
	m.ends(0)
	m.never(contains("is killed"))
}

func TestAStalePIDFileGetsNobodyASignal(t *testing.T) {
	t.Parallel()
	m := starter(t)
	stranger := exec.Command("sleep", "1000")
	must(t, stranger.Start())
	defer stranger.Wait()
	defer stranger.Process.Kill()
	m.file("web.pid", strconv.Itoa(stranger.Process.Pid)+"\n")
	m.file("web.status", "1:1\n")
	for _, what := range []string{"--stop", "--restart"} {
		if out, code := m.runServer(m.files(what)...); code != int(syscall.ESRCH) || !strings.Contains(out, "nobody has it locked") {
			t.Errorf("%s: exit code %d, %s", what, code, out)
		}
	}
	if !alive(stranger.Process.Pid) {
		t.Error("a stranger was ended")
	}
}

func TestThePIDFileOfALiveStartServerIsLeftAlone(t *testing.T) {
	t.Parallel()
	m := starter(t)
	m.startServer(m.files("--", "sleep", "1000")...)
	m.started(1)
	if out, code := m.runServer(m.files("--", "sleep", "1000")...); code != 1 || !strings.Contains(out, "already running") {
		t.Errorf("exit code %d, %s", code, out)
	}
	if got := m.read("web.pid"); got != fmt.Sprintf("%d\n", m.pid()) {
		t.Errorf("the pid file has %q", got)
	}
}

func TestWhatStandsAtThePathIsOnlyReplacedIfItIsAStaleSocket(t *testing.T) {
	t.Parallel()
	m := starter(t)
	m.file("file", "precious")
	if out, code := m.runServer("--path={dir}/file", "--", "true"); code == 0 || m.read("file") != "precious" {
		t.Errorf("exit code %d, %s", code, out)
	}
	live, err := net.Listen("unix", m.path("live"))
	must(t, err)
	defer live.Close()
	if out, code := m.runServer("--path={dir}/live", "--", "true"); code != int(syscall.EADDRINUSE) {
		t.Errorf("exit code %d, %s", code, out)
	}
	stale, err := net.Listen("unix", m.path("stale"))
	must(t, err)
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	stale.Close()
	m.startServer("--path=stale", "--", "sleep", "1000")
	m.started(1)
}

func TestDaemonizeReturnsWhenTheFirstWorkerIsReady(t *testing.T) {
	t.Parallel()
	m := starter(t)
	words := m.files("--daemonize", "--log-file={dir}/log", "--port=127.0.0.1:0", "--", "{worker}")
	out, code := m.runServer(words...)
	if code != 0 {
		t.Fatalf("exit code %d, %s", code, out)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(m.read("web.pid")))
	must(t, err)
	if session, err := syscall.Getpgid(pid); err != nil || session != pid {
		t.Errorf("it is in the process group %d, %v", session, err)
	}
	if fds := descriptors(t, pid); fds[0] != "/dev/null" || fds[1] != m.path("log") || fds[2] != m.path("log") {
		t.Errorf("its descriptors are %v", fds)
	}
	m.until("the status is there", func() bool {
		text, _ := os.ReadFile(m.path("web.status"))
		return strings.HasPrefix(string(text), "1:")
	})
	if out, code := m.runServer(m.files("--stop")...); code != 0 {
		t.Errorf("exit code %d, %s", code, out)
	}
	if text := m.read("log"); !strings.HasPrefix(text, "starting new worker ") || !strings.HasSuffix(text, "exiting\n") {
		t.Errorf("the log is\n%s", text)
	}
	m.nothingLeftOf()
}

// nothingLeftOf is nothingLeft for what m did not start itself.
func (m *master) nothingLeftOf() {
	m.t.Helper()
	m.until("every process has gone", func() bool { return len(m.processes()) == 0 })
}

func TestDaemonizeSaysWhenTheFirstWorkerFailsAndTheServerTriesOn(t *testing.T) {
	t.Parallel()
	m := starter(t)
	m.file("bad", "")
	out, code := m.runServer(m.files("--daemonize", "--log-file={dir}/log", "--", "{worker}", "failif={dir}/bad")...)
	if code != 11 || !strings.Contains(out, "the first worker failed: exited with status 3") {
		t.Errorf("exit code %d, %s", code, out)
	}
	must(t, os.Remove(m.path("bad")))
	m.until("a worker is ready", func() bool { _, err := os.Stat(m.path("web.status")); return err == nil })
	if out, code := m.runServer(m.files("--stop")...); code != 0 {
		t.Errorf("exit code %d, %s", code, out)
	}
	m.nothingLeftOf()
}

func TestDaemonizeSaysWhatIsWrongBeforeThereIsALog(t *testing.T) {
	t.Parallel()
	m := starter(t)
	out, code := m.runServer("--daemonize", "--log-file={dir}/log", "--port="+occupy(t), "--", "true")
	if code != 98 || !strings.Contains(out, "address already in use") {
		t.Errorf("exit code %d, %s", code, out)
	}
	m.nothingLeftOf()
}

func TestALogCommandThatDiesIsStartedAgainAndNothingIsLost(t *testing.T) {
	t.Parallel()
	m := starter(t)
	m.startServer(m.files("--log-file=| echo $$ >>{dir}/logger; exec cat >>{dir}/log", "--", "{worker}", "say=hello")...)
	m.statusFile("1:" + fmt.Sprint(m.logged("starting new worker ", 1)) + "\n")
	pids := strings.Fields(m.read("logger"))
	logger, err := strconv.Atoi(pids[0])
	must(t, err)
	must(t, syscall.Kill(logger, syscall.SIGKILL))
	m.until("the log command has ended", func() bool { return !alive(logger) }) // what it reads in its last moment is gone with it
	m.signal(syscall.SIGHUP)
	m.statusFile("2:" + fmt.Sprint(m.logged("starting new worker ", 2)) + "\n")
	m.signal(syscall.SIGTERM)
	m.ends(0)
	text := m.read("log")
	for _, want := range []string{"the log command has ended; it is started again", "received HUP", "killing old workers", "exiting"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the log:\n%s", want, text)
		}
	}
	if strings.Count(text, "hello") != 2 || len(strings.Fields(m.read("logger"))) != 2 {
		t.Errorf("the log is\n%s", text)
	}
}

// logged waits for the nth line of the log file that begins so, and returns the number behind it.
func (m *master) logged(prefix string, n int) int {
	m.t.Helper()
	found := 0
	m.until(fmt.Sprintf("the log has %d lines %q", n, prefix), func() bool {
		text, _ := os.ReadFile(m.path("log"))
		seen := 0
		for l := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(l, prefix); ok && strings.HasSuffix(l, "\n") {
				seen++
				found, _ = strconv.Atoi(strings.TrimSpace(rest))
			}
		}
		return seen >= n
	})
	return found
}

func TestANewWorkerThatDiesInTheDelayCostsTheOldOneNothing(t *testing.T) {
	t.Parallel()
	m := starter(t)
	m.startServer(m.files("--kill-old-delay=60", "--", "{worker}")...)
	first := m.started(1)
	m.statusFile(fmt.Sprintf("1:%d\n", first))
	m.signal(syscall.SIGHUP)
	second := m.started(2)
	m.await(contains("sleeping 60 secs before killing old workers"))
	m.statusFile(fmt.Sprintf("1:%d\n2:%d\n", first, second))
	must(t, syscall.Kill(second, syscall.SIGKILL))
	m.await(contains(fmt.Sprintf("worker %d died unexpectedly with status:9, restarting", second)))
	m.statusFile(fmt.Sprintf("1:%d\n3:%d\n", first, m.started(3)))
	m.signal(syscall.SIGTERM) // does not wait for the delay
	m.ends(0)
}

func TestStartServerReplacesItsWorkersByItself(t *testing.T) {
	t.Parallel()
	m := starter(t)
	m.startServer(m.files("--enable-auto-restart", "--auto-restart-interval=2", "--kill-old-delay=0", "--", "{worker}")...)
	m.await(contains("autorestart triggered (interval=2)"))
	m.await(contains("killing old workers"))
}

func TestAnUpgradedStartServerGoesOnWithItsFilesItsLogCommandAndItsLines(t *testing.T) {
	t.Parallel()
	m := starter(t)
	m.startServer(m.files("--log-file=| exec cat >>{dir}/log", "--port=127.0.0.1:0", "--", "{worker}")...)
	first := m.logged("starting new worker ", 1)
	m.statusFile(fmt.Sprintf("1:%d\n", first))
	m.signal(syscall.SIGUSR2)
	m.until("the new image waits for signals", func() bool {
		var caught uint64
		fmt.Sscanf(status(m.pid())["SigCgt"], "%x", &caught)
		return environment(t, m.pid())["SUPERVISORD_HANDOVER"] != "" && caught&1 != 0 // HUP
	})
	m.signal(syscall.SIGHUP)
	second := m.logged("starting new worker ", 2)
	m.statusFile(fmt.Sprintf("2:%d\n", second))
	m.signal(syscall.SIGTERM)
	m.ends(0)
	if text, want := m.read("log"), fmt.Sprintf("new worker is now running, sending TERM to old workers:%d\n", first); !strings.Contains(text, want) {
		t.Errorf("the log is\n%s, want in it %s", text, want)
	}
}
