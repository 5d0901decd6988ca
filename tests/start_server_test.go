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

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/proc"
)

// files holds the flags for a pid file and a status file.
func files(m *lab.Supervisord, words ...string) []string {
	return append([]string{"--pid-file={dir}/web.pid", "--status-file={dir}/web.status"}, words...)
}

// starterLines returns what start_server has written, without the PIDs.
func starterLines(m *lab.Supervisord, pids ...int) []string {
	all, _ := m.Log.All()
	var lines []string
	for _, l := range all {
		text := strings.ReplaceAll(l.Text, fmt.Sprintf("(pid:%d)", m.PID()), "(pid:SERVER)")
		for i, pid := range pids {
			text = strings.ReplaceAll(text, strconv.Itoa(pid), fmt.Sprintf("PID%d", i+1))
		}
		lines = append(lines, text)
	}
	return lines
}

func wrote(m *lab.Supervisord, want []string, pids ...int) {
	m.T.Helper()
	if got := starterLines(m, pids...); !slices.Equal(got, want) {
		m.T.Errorf("it wrote\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestStartServerWorkerGetsTheEnvironmentOfTheReference(t *testing.T) {
	t.Parallel()
	m := lab.PrepareStarter(t)
	m.StartServer("--port=127.0.0.1:0", "--port", "localhost:u0", "--path=./s", "--kill-old-delay=0",
		"--enable-auto-restart", "--", "sleep", "1000")
	env := lab.Environment(t, m.Started(1))
	if got := env["SERVER_STARTER_PORT"]; got != "127.0.0.1:0=3;localhost:0=4;./s=5" {
		t.Errorf("SERVER_STARTER_PORT is %q", got)
	}
	for name, want := range map[string]string{"SERVER_STARTER_GENERATION": "1", "KILL_OLD_DELAY": "0",
		"ENABLE_AUTO_RESTART": "1", "LISTEN_FDS": "", "LISTEN_PID": ""} {
		if env[name] != want {
			t.Errorf("%s is %q, want %q", name, env[name], want)
		}
	}
	if got := lab.ProcStatus(m.Started(1))["SigIgn"]; got != "0000000000001000" {
		t.Errorf("it ignores %s, want SIGPIPE", got)
	}
	stat, err := os.Stat(m.Path("s"))
	lab.Must(t, err)
	if stat.Mode().Perm() != 0o777 {
		t.Errorf("the socket has mode %o", stat.Mode().Perm())
	}
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
	if _, err := os.Lstat(m.Path("s")); err == nil {
		t.Error("the socket is left")
	}
}

func TestStartServerPutsASocketAtTheRequestedDescriptor(t *testing.T) {
	t.Parallel()
	m := lab.PrepareStarter(t)
	m.StartServer("--port=127.0.0.1:0=0", "--port=127.0.0.2:0=9", "--", "sleep", "1000")
	if got := lab.Environment(t, m.Started(1))["SERVER_STARTER_PORT"]; got != "127.0.0.1:0=0;127.0.0.2:0=9" {
		t.Errorf("SERVER_STARTER_PORT is %q", got)
	}
	fds := lab.Descriptors(t, m.Started(1))
	if !strings.HasPrefix(fds[0], "socket:") || !strings.HasPrefix(fds[9], "socket:") {
		t.Errorf("descriptors are %v", fds)
	}
	m.Await(lab.Contains("socket is duplicated to file descriptor 9"))
}

func TestStartServerWithoutPortsSetsAnEmptyVariable(t *testing.T) {
	t.Parallel()
	m := lab.PrepareStarter(t)
	m.StartServer("sleep", "1000")
	if got, there := lab.Environment(t, m.Started(1))["SERVER_STARTER_PORT"]; got != "" || !there {
		t.Errorf("SERVER_STARTER_PORT is %q, there: %v", got, there)
	}
}

func TestStartServerWritesTheLinesAndTheFilesOfTheReference(t *testing.T) {
	t.Parallel()
	m := lab.PrepareStarter(t)
	m.StartServer(files(m, "--port=127.0.0.1:0", "--", "{worker}", "note={dir}/notes")...)
	up := func(generation int) { // ready after --interval, it may not catch TERM yet
		m.Until("the worker catches signals", func() bool {
			return strings.Contains(lab.Text(m.Path("notes")), fmt.Sprintf("%d 0 start\n", generation))
		})
	}
	first := m.Started(1)
	up(1)
	statusFile(m, fmt.Sprintf("1:%d\n", first))
	if got := m.Read("web.pid"); got != fmt.Sprintf("%d\n", m.PID()) {
		t.Errorf("the pid file has %q", got)
	}
	m.Signal(syscall.SIGHUP)
	second := m.Started(2)
	statusFile(m, fmt.Sprintf("2:%d\n", second))
	lab.Must(t, syscall.Kill(second, syscall.SIGKILL))
	third := m.Started(3)
	up(3)
	statusFile(m, fmt.Sprintf("3:%d\n", third))
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
	wrote(m, []string{
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
		if _, err := os.Stat(m.Path(name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
}

// runtimeName returns the runtime directory of the only start_server of a test.
func runtimeName(m *lab.Supervisord) string {
	left, _ := os.ReadDir(m.Path("run"))
	if len(left) == 0 {
		return "none"
	}
	return left[0].Name()
}

func TestStartServerCountsFailedWorkersAndRetries(t *testing.T) {
	t.Parallel()
	m := lab.PrepareStarter(t)
	m.File("bad", "")
	m.StartServer(files(m, "--interval=3", "--", "{worker}", "failif={dir}/bad")...)
	m.AwaitN(2, lab.Contains(" seems to have failed to start, exit status:768"))
	lab.Must(t, os.Remove(m.Path("bad")))
	m.Until("one serves", func() bool { _, err := os.Stat(m.Path("web.status")); return err == nil })
	generation, _, _ := strings.Cut(m.Read("web.status"), ":")
	if n, _ := strconv.Atoi(generation); n < 3 {
		t.Errorf("generation %d serves after two failures", n)
	}
	before := m.Read("web.status")
	m.File("bad", "")
	m.Signal(syscall.SIGHUP)
	m.AwaitN(4, lab.Contains(" seems to have failed to start, exit status:768"))
	if got := m.Read("web.status"); got != before {
		t.Errorf("while new workers fail the status is %q, want %q", got, before)
	}
	lab.Must(t, os.Remove(m.Path("bad")))
	m.Await(lab.Contains("killing old workers"))
	if n := m.Count(lab.Contains("received HUP")); n != 1 {
		t.Errorf("HUP is in the log %d times", n)
	}
}

func TestStartServerReadsEnvdirForEveryGeneration(t *testing.T) {
	t.Parallel()
	m := lab.PrepareStarter(t)
	m.File("env/COLOUR", "red\nignored\n")
	m.StartServer(files(m, "--envdir=env", "--", "sleep", "1000")...)
	first := m.Started(1)
	if env := lab.Environment(t, first); env["COLOUR"] != "red" || env["ENVDIR"] != "env" {
		t.Errorf("COLOUR is %q, ENVDIR %q", env["COLOUR"], env["ENVDIR"])
	}
	m.File("env/COLOUR", "blue\n")
	statusFile(m, fmt.Sprintf("1:%d\n", first)) // it is ready
	lab.Must(t, syscall.Kill(first, syscall.SIGKILL))
	if got := lab.Environment(t, m.Started(2))["COLOUR"]; got != "blue" {
		t.Errorf("after the death of a worker COLOUR is %q", got)
	}
	lab.Must(t, os.Remove(m.Path("env/COLOUR")))
	m.Signal(syscall.SIGHUP)
	if got, there := lab.Environment(t, m.Started(3))["COLOUR"]; there {
		t.Errorf("after its file was removed COLOUR is %q", got)
	}
}

func TestStartServerSendsTheConfiguredSignals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		end  syscall.Signal
		want string
	}{{syscall.SIGTERM, "QUIT"}, {syscall.SIGINT, "TERM"}} {
		m := lab.PrepareStarter(t)
		m.StartServer(files(m, "--signal-on-hup=usr2", "--signal-on-term=SIGQUIT", "--ready=notify", "--", "{worker}",
			"note={dir}/notes")...)
		statusFile(m, fmt.Sprintf("1:%d\n", m.Started(1)))
		m.Signal(syscall.SIGHUP)
		m.Await(lab.Contains("sending USR2 to old workers"))
		statusFile(m, fmt.Sprintf("2:%d\n", m.Started(2)))
		m.Signal(c.end)
		m.Ends(0)
		if got, want := m.Read("notes"), "1 0 start\n2 0 start\n1 0 USR2\n2 0 "+c.want+"\n"; got != want {
			t.Errorf("the workers received\n%swant\n%s", got, want)
		}
	}
}

func TestLinkToStartServerIsStartServer(t *testing.T) {
	t.Parallel()
	m := lab.PrepareStarter(t)
	lab.Must(t, os.Symlink(lab.Built.StartServer, m.Path("start_server")))
	out, err := exec.Command(m.Path("start_server"), "--version").CombinedOutput()
	if err != nil || string(out) != "0.35\n" {
		t.Errorf("it says %q, %v", out, err)
	}
}

func TestRestartWaitsForANewerGenerationDespiteFailures(t *testing.T) {
	t.Parallel()
	m := lab.PrepareStarter(t)
	m.StartServer(files(m, "--ready=notify", "--", "{worker}", "failif={dir}/bad", "term=300ms")...)
	statusFile(m, fmt.Sprintf("1:%d\n", m.Started(1)))
	m.File("bad", "")
	go func() {
		for m.Count(lab.Contains("seems to have failed")) < 2 {
			time.Sleep(20 * time.Millisecond)
		}
		os.Remove(m.Path("bad"))
	}()
	if out, code := m.RunServer(files(m, "--restart")...); code != 0 || out != "" {
		t.Errorf("exit code %d, %s", code, out)
	}
	if text := m.Read("web.status"); strings.HasPrefix(text, "1:") || strings.Count(text, "\n") != 1 {
		t.Errorf("then the status is %q", text)
	}
	if lab.Alive(m.Started(1)) {
		t.Error("the old worker lives")
	}
}

func TestRestartReportsNewWorkersThatFail(t *testing.T) {
	t.Parallel()
	m := lab.PrepareStarter(t)
	m.StartServer(files(m, "--ready=notify", "--", "{worker}", "failif={dir}/bad")...)
	statusFile(m, fmt.Sprintf("1:%d\n", m.Started(1)))
	m.File("bad", "")
	if out, code := m.RunServer(files(m, "--restart", "--timeout=5")...); code != 14 ||
		!strings.Contains(out, "the new workers have failed") {
		t.Errorf("exit code %d, %s", code, out)
	}
	statusFile(m, fmt.Sprintf("1:%d\n", m.Started(1)))
}

func TestRestartReportsOldWorkersThatDoNotStop(t *testing.T) {
	t.Parallel()
	m := lab.PrepareStarter(t)
	m.StartServer(files(m, "--stop-timeout=60", "--ready=notify", "--", "{worker}", "term=ignore")...)
	statusFile(m, fmt.Sprintf("1:%d\n", m.Started(1)))
	if out, code := m.RunServer(files(m, "--restart", "--timeout=5s")...); code != 14 ||
		!strings.Contains(out, "generation 2 serves, but older workers are still stopping") {
		t.Errorf("exit code %d, %s", code, out)
	}
	m.Signal(syscall.SIGQUIT)
	m.Ends(0)
}

func TestRestartReportsAServerThatExits(t *testing.T) {
	t.Parallel()
	m := lab.PrepareStarter(t)
	m.StartServer(files(m, "--ready=notify", "--", "{worker}", "hangif={dir}/bad")...)
	statusFile(m, fmt.Sprintf("1:%d\n", m.Started(1)))
	m.File("bad", "") // the restart does not succeed before the server exits
	go func() {
		for m.Count(lab.Contains("received HUP")) == 0 {
			time.Sleep(20 * time.Millisecond)
		}
		m.Cmd.Process.Signal(syscall.SIGTERM)
	}()
	if out, code := m.RunServer(files(m, "--restart")...); code != 255 || !strings.Contains(out, "has exited") {
		t.Errorf("exit code %d, %s", code, out)
	}
	m.Ends(0)
}

func TestStopWaitsUntilTheServerHasExited(t *testing.T) {
	t.Parallel()
	m := lab.PrepareStarter(t)
	m.StartServer(files(m, "--ready=notify", "--", "{worker}", "term=500ms")...)
	statusFile(m, fmt.Sprintf("1:%d\n", m.Started(1)))
	out, code := m.RunServer(files(m, "--stop")...)
	if code != 0 || !strings.Contains(out, fmt.Sprintf("stopping now (pid:%d)...", m.PID())) {
		t.Errorf("exit code %d, %s", code, out)
	}
	if lab.Alive(m.PID()) {
		t.Error("the process is still running")
	}
	m.Ends(0)
}

func TestStopReportsAServerThatKeepsRunningAndASecondOneKills(t *testing.T) {
	t.Parallel()
	m := lab.PrepareStarter(t)
	m.StartServer(files(m, "--ready=notify", "--", "{worker}", "term=ignore")...)
	statusFile(m, fmt.Sprintf("1:%d\n", m.Started(1)))
	if out, code := m.RunServer(files(m, "--stop", "--timeout=1500ms")...); code != 14 ||
		!strings.Contains(out, "is waiting for its workers") {
		t.Errorf("exit code %d, %s", code, out)
	}
	if _, code := m.RunServer(files(m, "--stop")...); code != 0 {
		t.Errorf("exit code %d", code)
	}
	m.Await(lab.Contains("killing worker "))
	m.Ends(0)
}

func TestImmediateSecondTERMIsADuplicate(t *testing.T) {
	t.Parallel()
	m := lab.PrepareStarter(t)
	m.StartServer(files(m, "--ready=notify", "--", "{worker}", "term=2s")...)
	statusFile(m, fmt.Sprintf("1:%d\n", m.Started(1)))
	m.Signal(syscall.SIGTERM)
	m.Await(lab.Contains("received TERM"))
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
	m.Never(lab.Contains("is killed"))
}

func TestStalePIDFileLeadsToNoSignal(t *testing.T) {
	t.Parallel()
	m := lab.PrepareStarter(t)
	stranger := exec.Command("sleep", "1000")
	lab.Must(t, stranger.Start())
	defer stranger.Wait()
	defer stranger.Process.Kill()
	m.File("web.pid", strconv.Itoa(stranger.Process.Pid)+"\n")
	m.File("web.status", "1:1\n")
	for _, what := range []string{"--stop", "--restart"} {
		if out, code := m.RunServer(files(m, what)...); code != int(syscall.ESRCH) ||
			!strings.Contains(out, "no process has locked the file") {
			t.Errorf("%s: exit code %d, %s", what, code, out)
		}
	}
	if !lab.Alive(stranger.Process.Pid) {
		t.Error("a foreign process was stopped")
	}
}

func TestStartServerKeepsThePIDFileOfARunningOne(t *testing.T) {
	t.Parallel()
	m := lab.PrepareStarter(t)
	m.StartServer(files(m, "--", "sleep", "1000")...)
	m.Started(1)
	if out, code := m.RunServer(files(m, "--", "sleep", "1000")...); code != 1 ||
		!strings.Contains(out, "already running") {
		t.Errorf("exit code %d, %s", code, out)
	}
	if got := m.Read("web.pid"); got != fmt.Sprintf("%d\n", m.PID()) {
		t.Errorf("the pid file has %q", got)
	}
}

func TestStartServerReplacesOnlyAStaleSocketAtPath(t *testing.T) {
	t.Parallel()
	m := lab.PrepareStarter(t)
	m.File("file", "precious")
	if out, code := m.RunServer("--path={dir}/file", "--", "true"); code == 0 || m.Read("file") != "precious" {
		t.Errorf("exit code %d, %s", code, out)
	}
	live, err := net.Listen("unix", m.Path("live"))
	lab.Must(t, err)
	defer live.Close()
	if out, code := m.RunServer("--path={dir}/live", "--", "true"); code != int(syscall.EADDRINUSE) {
		t.Errorf("exit code %d, %s", code, out)
	}
	stale, err := net.Listen("unix", m.Path("stale"))
	lab.Must(t, err)
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	stale.Close()
	m.StartServer("--path=stale", "--", "sleep", "1000")
	m.Started(1)
}

func TestDaemonizeReturnsWhenTheFirstWorkerIsReady(t *testing.T) {
	t.Parallel()
	m := lab.PrepareStarter(t)
	words := files(m, "--daemonize", "--log-file={dir}/log", "--port=127.0.0.1:0", "--", "{worker}")
	out, code := m.RunServer(words...)
	if code != 0 {
		t.Fatalf("exit code %d, %s", code, out)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(m.Read("web.pid")))
	lab.Must(t, err)
	if session, err := syscall.Getpgid(pid); err != nil || session != pid {
		t.Errorf("it is in the process group %d, %v", session, err)
	}
	if fds := lab.Descriptors(t, pid); fds[0] != "/dev/null" || fds[1] != m.Path("log") || fds[2] != m.Path("log") {
		t.Errorf("its descriptors are %v", fds)
	}
	m.Until("the status file exists", func() bool {
		text, _ := os.ReadFile(m.Path("web.status"))
		return strings.HasPrefix(string(text), "1:")
	})
	if out, code := m.RunServer(files(m, "--stop")...); code != 0 {
		t.Errorf("exit code %d, %s", code, out)
	}
	if text := m.Read("log"); !strings.HasPrefix(text, "starting new worker ") || !strings.HasSuffix(text, "exiting\n") {
		t.Errorf("the log is\n%s", text)
	}
	nothingLeftOf(m)
}

// nothingLeftOf is nothingLeft for processes that m did not start itself.
func nothingLeftOf(m *lab.Supervisord) {
	m.T.Helper()
	m.Until("every process has exited", func() bool { return len(m.Processes()) == 0 })
}

func TestDaemonizeReportsAFailedFirstWorkerWhileTheServerRetries(t *testing.T) {
	t.Parallel()
	m := lab.PrepareStarter(t)
	m.File("bad", "")
	out, code := m.RunServer(files(m, "--daemonize", "--log-file={dir}/log", "--", "{worker}", "failif={dir}/bad")...)
	if code != 11 || !strings.Contains(out, "the first worker failed: exited with status 3") {
		t.Errorf("exit code %d, %s", code, out)
	}
	lab.Must(t, os.Remove(m.Path("bad")))
	m.Until("a worker is ready", func() bool { _, err := os.Stat(m.Path("web.status")); return err == nil })
	if out, code := m.RunServer(files(m, "--stop")...); code != 0 {
		t.Errorf("exit code %d, %s", code, out)
	}
	nothingLeftOf(m)
}

func TestDaemonizeReportsErrorsBeforeTheLogIsOpen(t *testing.T) {
	t.Parallel()
	m := lab.PrepareStarter(t)
	out, code := m.RunServer("--daemonize", "--log-file={dir}/log", "--port="+lab.Occupy(t), "--", "true")
	if code != 98 || !strings.Contains(out, "address already in use") {
		t.Errorf("exit code %d, %s", code, out)
	}
	nothingLeftOf(m)
}

func TestLogCommandThatDiesIsRestartedWithoutLosingLines(t *testing.T) {
	t.Parallel()
	m := lab.PrepareStarter(t)
	m.StartServer(files(m, "--log-file=| echo $$ >>{dir}/logger; exec cat >>{dir}/log", "--ready=notify", "--", "{worker}",
		"say=hello")...)
	statusFile(m, "1:"+fmt.Sprint(logged(m, "starting new worker ", 1))+"\n")
	m.Until("what the first worker says is in the log", func() bool { return strings.Contains(m.Read("log"), "hello\n") })
	pids := strings.Fields(m.Read("logger"))
	logger, err := strconv.Atoi(pids[0])
	lab.Must(t, err)
	lab.Must(t, syscall.Kill(logger, syscall.SIGKILL))
	// lines that it reads in its last moment are lost
	m.Until("the log command has ended", func() bool { return !lab.Alive(logger) })
	m.Signal(syscall.SIGHUP)
	statusFile(m, "2:"+fmt.Sprint(logged(m, "starting new worker ", 2))+"\n")
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
	text := m.Read("log")
	for _, want := range []string{"the log command has exited and will be restarted", "received HUP",
		"killing old workers", "exiting"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the log:\n%s", want, text)
		}
	}
	if strings.Count(text, "hello") != 2 || len(strings.Fields(m.Read("logger"))) != 2 {
		t.Errorf("the log is\n%s", text)
	}
}

// logged waits for the nth line of the log file with this prefix, and returns the number after the prefix.
func logged(m *lab.Supervisord, prefix string, n int) int {
	m.T.Helper()
	found := 0
	m.Until(fmt.Sprintf("the log has %d lines %q", n, prefix), func() bool {
		text, _ := os.ReadFile(m.Path("log"))
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

func TestOldWorkersStayWhenANewOneDiesDuringTheDelay(t *testing.T) {
	t.Parallel()
	m := lab.PrepareStarter(t)
	m.StartServer(files(m, "--kill-old-delay=60", "--", "{worker}")...)
	first := m.Started(1)
	statusFile(m, fmt.Sprintf("1:%d\n", first))
	m.Signal(syscall.SIGHUP)
	second := m.Started(2)
	m.Await(lab.Contains("sleeping 60 secs before killing old workers"))
	statusFile(m, fmt.Sprintf("1:%d\n2:%d\n", first, second))
	lab.Must(t, syscall.Kill(second, syscall.SIGKILL))
	m.Await(lab.Contains(fmt.Sprintf("worker %d died unexpectedly with status:9, restarting", second)))
	statusFile(m, fmt.Sprintf("1:%d\n3:%d\n", first, m.Started(3)))
	m.Signal(syscall.SIGTERM) // does not wait for the delay
	m.Ends(0)
}

func TestStartServerRestartsWorkersAutomatically(t *testing.T) {
	t.Parallel()
	m := lab.PrepareStarter(t)
	m.StartServer(files(m, "--enable-auto-restart", "--auto-restart-interval=2", "--kill-old-delay=0", "--",
		"{worker}")...)
	m.Await(lab.Contains("autorestart triggered (interval=2)"))
	m.Await(lab.Contains("killing old workers"))
}

func TestUpgradedStartServerKeepsItsFilesLogCommandAndLines(t *testing.T) {
	t.Parallel()
	m := lab.PrepareStarter(t)
	m.StartServer(files(m, "--log-file=| exec cat >>{dir}/log", "--port=127.0.0.1:0", "--", "{worker}")...)
	first := logged(m, "starting new worker ", 1)
	statusFile(m, fmt.Sprintf("1:%d\n", first))
	m.Signal(syscall.SIGUSR2)
	m.Until("the new image waits for signals", func() bool {
		environ, _ := proc.Environ(m.PID()) // fails while its first thread exits, before the executing thread takes its place
		if environ["SUPERVISORD_HANDOVER"] == "" {
			return false
		}
		var caught uint64 // read after the environment: before, it may be what the old image caught
		fmt.Sscanf(lab.ProcStatus(m.PID())["SigCgt"], "%x", &caught)
		return caught&1 != 0 // HUP
	})
	m.Signal(syscall.SIGHUP)
	second := logged(m, "starting new worker ", 2)
	statusFile(m, fmt.Sprintf("2:%d\n", second))
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
	if text, want := m.Read("log"), fmt.Sprintf("new worker is now running, sending TERM to old workers:%d\n",
		first); !strings.Contains(text, want) {
		t.Errorf("the log is\n%s\nwant in it %s", text, want)
	}
}

func TestStartServerSharesItsSocketUnlessToldToSteer(t *testing.T) {
	t.Parallel()
	for handover, sockets := range map[string]int{"share": 1, "steer": 2} {
		m := lab.PrepareStarter(t)
		address := lab.Reserve(t)
		words := []string{"--port=" + address, "--interval=0", `--set=dialect=["systemd", "start_server"]`}
		if handover == "steer" { // then a probe can reach the new worker at its port
			words = append(words, "--handover=steer", "--ready=http=http://{listener:"+address+"}/")
		}
		words = append(words, "--", "{worker}")
		m.StartServer(words...)
		old := m.Started(1)
		m.Until("it serves", func() bool { _, err := lab.Get(address, "/"); return err == nil })
		m.Signal(syscall.SIGHUP)
		m.Started(2)
		m.Await(lab.Contains(fmt.Sprintf("old worker %d died", old)))
		if got := lab.Addresses(t, m.PID()); len(got) != sockets {
			t.Errorf("%s: after a restart it listens at %v, want %d sockets", handover, got, sockets)
		}
		if body := lab.Ask(t, address, "/"); !strings.HasPrefix(body, "generation=2 ") {
			t.Errorf("%s: got %s", handover, body)
		}
		m.Finish()
	}
}
