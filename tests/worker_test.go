package tests

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/proc"
)

// These tests inspect from outside what a worker gets. The worker is sleep(1), which changes none of it.

// sockets is plain with one listener of each kind.
const sockets = lab.Plain + `
[[program.web.listen]]
name = "http"
address = "127.0.0.1:{port}"
[[program.web.listen]]
address = "unix:{dir}/s"
[[program.web.listen]]
name = "dns"
address = "udp:127.0.0.1:{port}"
[[program.web.listen]]
name = "old"
address = "unix:@{abstract}"
`

// withSockets starts sockets and returns its port and its abstract name.
func withSockets(t *testing.T) (m *lab.Supervisord, port, abstract string) {
	m = lab.Prepare(t)
	_, port, _ = net.SplitHostPort(lab.Reserve(t))
	abstract = filepath.Base(m.Dir)
	m.Start(strings.NewReplacer("{port}", port, "{abstract}", abstract).Replace(sockets))
	m.Serves(1)
	return m, port, abstract
}

func TestWorkerGetsItsSocketsFrom3InTheOrderOfTheConfiguration(t *testing.T) {
	t.Parallel()
	m, port, abstract := withSockets(t)
	var names []string
	for fd := 3; fd <= 6; fd++ {
		name, err := unix.Getsockname(lab.Steal(t, m.WorkerPID(1), fd))
		lab.Must(t, err)
		switch a := name.(type) {
		case *unix.SockaddrInet4:
			names = append(names, strconv.Itoa(a.Port))
		case *unix.SockaddrUnix:
			names = append(names, a.Name)
		}
	}
	if want := []string{port, m.Path("s"), port, "@" + abstract}; !slices.Equal(names, want) {
		t.Errorf("the descriptors from 3 on are %q, want %q", names, want)
	}
}

func TestWorkerGetsServerStarterPort(t *testing.T) {
	t.Parallel()
	m, port, abstract := withSockets(t)
	want := fmt.Sprintf("127.0.0.1:%s=3;%s=4;127.0.0.1:%s=5;@%s=6", port, m.Path("s"), port, abstract)
	if got := lab.Environment(t, m.WorkerPID(1))["SERVER_STARTER_PORT"]; got != want {
		t.Errorf("SERVER_STARTER_PORT is %q, want %q", got, want)
	}
}

func TestServerStarterPortIsThereAndEmptyWithoutListeners(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Plain)
	if got, ok := lab.Environment(t, m.WorkerPID(1))["SERVER_STARTER_PORT"]; !ok || got != "" {
		t.Errorf("SERVER_STARTER_PORT is %q, there: %v", got, ok)
	}
}

func TestWorkerGetsTheNumberOfItsGeneration(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Plain)
	for generation := 1; generation <= 2; generation++ {
		m.Serves(generation)
		for _, name := range []string{"SERVER_STARTER_GENERATION", "SUPERVISORD_GENERATION"} {
			if got := lab.Environment(t, m.WorkerPID(generation))[name]; got != strconv.Itoa(generation) {
				t.Errorf("in generation %d %s is %q", generation, name, got)
			}
		}
		m.Reload()
	}
}

func TestWorkerGetsSystemdsVariablesWithItsOwnPID(t *testing.T) {
	t.Parallel()
	m, _, _ := withSockets(t)
	env := lab.Environment(t, m.WorkerPID(1))
	for name, want := range map[string]string{
		"LISTEN_FDS": "4", "LISTEN_PID": strconv.Itoa(m.WorkerPID(1)),
		"LISTEN_FDNAMES": "http:unix-" + m.Path("s") + ":dns:old",
	} {
		if env[name] != want {
			t.Errorf("%s is %q, want %q", name, env[name], want)
		}
	}
}

func TestWorkerKnowsItsProgramAndItsSlot(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Plain+"workers = 3\n")
	m.Serves(1)
	for n := range 3 {
		env := lab.Environment(t, m.Await(lab.Says(lab.WorkerRuns), lab.Slot(n)).PID)
		if env["SUPERVISORD_PROGRAM"] != "web" || env["SUPERVISORD_SLOT"] != strconv.Itoa(n) {
			t.Errorf("the worker of slot %d gets %s and %s", n, env["SUPERVISORD_PROGRAM"], env["SUPERVISORD_SLOT"])
		}
	}
}

func TestEveryWorkerHasItsOwnNotifySocket(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Plain+"workers = 2\n")
	m.Serves(1)
	var paths []string
	for n := range 2 {
		path := lab.Environment(t, m.Await(lab.Says(lab.WorkerRuns), lab.Slot(n)).PID)["NOTIFY_SOCKET"]
		if stat, err := os.Stat(path); err != nil || stat.Mode()&os.ModeSocket == 0 {
			t.Errorf("NOTIFY_SOCKET is %q: %v", path, err)
		}
		paths = append(paths, path)
	}
	if paths[0] == paths[1] {
		t.Errorf("both have %s", paths[0])
	}
	m.Reload()
	m.Gone(1)
	for _, path := range paths {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is left after its worker exited", path)
		}
	}
}

func TestListenerIsAtTheDescriptorThatItAsksFor(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Plain+`compat.starter_names.in = "8080"
[[program.web.listen]]
name = "in"
address = "127.0.0.1:0"
fd = 0
[[program.web.listen]]
address = "udp:127.0.0.1:0"
name = "dns"
`)
	m.Serves(1)
	fds, env := lab.Descriptors(t, m.WorkerPID(1)), lab.Environment(t, m.WorkerPID(1))
	if !strings.HasPrefix(fds[0], "socket:") || !strings.HasPrefix(fds[3], "socket:") || fds[0] == fds[3] {
		t.Errorf("descriptors are %v", fds)
	}
	if got := env["SERVER_STARTER_PORT"]; got != "8080=0;127.0.0.1:0=3" {
		t.Errorf("SERVER_STARTER_PORT is %q", got)
	}
	if env["LISTEN_FDS"] != "1" || env["LISTEN_FDNAMES"] != "dns" {
		t.Errorf("LISTEN_FDS is %q, LISTEN_FDNAMES %q", env["LISTEN_FDS"], env["LISTEN_FDNAMES"])
	}
}

func TestBracesInACommandThatNameNoListenerAreLeftAlone(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, `[program.web]
command = ["sh", "-c", "echo \"$*\" >{dir}/out; exec sleep 1000", "sh", "{other} {pid} {fd:in}"]
ready = { delay = "10ms", accepts = false }
[[program.web.listen]]
name = "in"
address = "127.0.0.1:0"
fd = 7
`)
	m.Serves(1)
	if got := m.Read("out"); got != "{other} {pid} 7\n" {
		t.Errorf("the command has %q", got)
	}
}

func TestWorkerGetsNoOtherDescriptor(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	stray, err := os.Open("/dev/null")
	lab.Must(t, err)
	defer stray.Close()
	m.Via = []string{"sh", "-c", `exec "$@" 7</dev/null 8</dev/zero`, "sh"} // what supervisord itself inherited
	m.Start(lab.Plain + "[[program.web.listen]]\naddress = \"127.0.0.1:0\"\n")
	m.Serves(1)
	fds := lab.Descriptors(t, m.WorkerPID(1))
	delete(fds, number0(lab.Environment(t, m.WorkerPID(1))["NOTIFY_FD"]))
	for n := range fds {
		if n > 3 {
			t.Errorf("descriptor %d is %s", n, fds[n])
		}
	}
	if fds[0] != "/dev/null" || !strings.HasPrefix(fds[3], "socket:") {
		t.Errorf("descriptors are %v", fds)
	}
}

func number0(s string) int { n, _ := strconv.Atoi(s); return n }

func TestWorkerHasNoSignalBlockedOrIgnored(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Via = []string{lab.Need(t, "env"), "--ignore-signal=PIPE,USR2,CHLD", "--block-signal=USR1,WINCH"}
	if out, err := exec.Command(m.Via[0], append(m.Via[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("this env(1) cannot ignore and block signals: %s", out)
	}
	m.Start(lab.Plain)
	m.Serves(1)
	s := lab.ProcStatus(m.WorkerPID(1))
	for _, key := range []string{"SigBlk", "SigIgn", "SigCgt"} {
		if strings.Trim(s[key], "0") != "" {
			t.Errorf("%s is %s", key, s[key])
		}
	}
}

func TestWorkerHasTheSoftFileLimitThatSupervisordWasStartedWith(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Via = []string{"sh", "-c", `ulimit -S -n 777 && exec "$@"`, "sh"}
	m.Start(lab.Plain)
	m.Serves(1)
	if got := lab.SoftLimit(t, m.WorkerPID(1), "Max open files"); got != "777" {
		t.Errorf("the soft limit is %s, want 777", got)
	}
}

func TestWorkersDoNotGetTheVariablesThatSystemdSetsForSupervisord(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	theirs := []string{"WATCHDOG_USEC=1000000000", "MAINPID=1", "FDSTORE=1", "MANAGERPID=1", "LISTEN_PIDFDID=1",
		"SERVER_STARTER_GENERATION=9", "SUPERVISORD_X=1", "NOTIFY_FD=99"}
	m.Env = append(slices.Clone(theirs), "KEPT=yes")
	m.Start(lab.Plain)
	m.Serves(1)
	env := lab.Environment(t, m.WorkerPID(1))
	for _, kv := range theirs {
		if k, v, _ := strings.Cut(kv, "="); env[k] == v {
			t.Errorf("the worker has %s", kv)
		}
	}
	if env["KEPT"] != "yes" {
		t.Error("the worker lacks other variables of supervisord")
	}
}

func TestEveryWorkerHasItsOwnProcessGroup(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Plain+"workers = 2\n")
	m.Serves(1)
	for _, l := range m.AwaitN(2, lab.Says(lab.WorkerRuns)) {
		if p, err := proc.ReadStat(l.PID); err != nil || p.Group != l.PID {
			t.Errorf("worker %d is in group %d (%v)", l.PID, p.Group, err)
		}
	}
}

func TestCommandMayNameADescriptor(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, `
[program.web]
command = ["sh", "-c", "sleep 1000 & wait", "{fd:two}", "x{fd:one}y", "{other}"]
ready = { delay = "10ms", accepts = false }
[[program.web.listen]]
name = "one"
address = "127.0.0.1:0"
[[program.web.listen]]
name = "two"
address = "127.0.0.1:0"
`)
	m.Serves(1)
	if got := lab.Cmdline(m.WorkerPID(1)); !strings.HasSuffix(got, "wait 4 x3y {other}") {
		t.Errorf("the command is %q", got)
	}
}

func TestEnvironmentMayNameADescriptor(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Plain+`environment = { BIND = "fd://{fd:two}", OTHER = "{two} {slot}" }
[[program.web.listen]]
address = "127.0.0.1:0"
[[program.web.listen]]
name = "two"
address = "127.0.0.1:0"
`)
	m.Serves(1)
	has(t, lab.Environment(t, m.WorkerPID(1)), map[string]string{"BIND": "fd://4", "OTHER": "{two} {slot}"})
}

func TestSocketIsBlockingAndStaysSoOverReloads(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Plain+"[[program.web.listen]]\naddress = \"127.0.0.1:0\"\n")
	m.Serves(1)
	for generation := 2; generation <= 4; generation++ {
		m.Reload()
		m.Serves(generation)
		if lab.FDFlags(t, m.WorkerPID(generation), 3)&unix.O_NONBLOCK != 0 {
			t.Fatalf("in generation %d the socket does not block", generation)
		}
	}
}

// A spawn must not change the mode that a worker has set, because all workers share the socket. A Go worker sets it.
func TestSpawnLeavesTheModeOfTheSocketsAlone(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.WebWith("term=ignore")+"[program.web.stop]\ntimeout = \"1h\"\n[program.web.restart]\n")
	m.Serves(1)
	m.Reload()
	m.Serves(2)
	if lab.FDFlags(t, m.WorkerPID(1), 3)&unix.O_NONBLOCK == 0 {
		t.Error("a spawn made the socket of a serving worker blocking")
	}
	m.Signal(syscall.SIGQUIT)
	m.Ends(0)
}

func TestNonblockMakesTheSocketNonBlocking(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Plain+"[[program.web.listen]]\naddress = \"127.0.0.1:0\"\nnonblock = true\n")
	m.Serves(1)
	if lab.FDFlags(t, m.WorkerPID(1), 3)&unix.O_NONBLOCK == 0 {
		t.Error("the socket blocks")
	}
}

func TestSocketIsTCPAndNotMPTCP(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Plain+"[[program.web.listen]]\naddress = \"127.0.0.1:0\"\n")
	m.Serves(1)
	protocol, err := unix.GetsockoptInt(lab.Steal(t, m.WorkerPID(1), 3), unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err != nil || protocol != unix.IPPROTO_TCP {
		t.Errorf("the protocol is %d, %v", protocol, err)
	}
}

func TestPortWithoutAHostIsForIPv4AndIPv6(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(lab.Web, "127.0.0.1:0", ":0", 1))
	m.Serves(1)
	_, port, err := net.SplitHostPort(m.Address())
	lab.Must(t, err)
	lab.Ask(t, "127.0.0.1:"+port, "/")
	if ln, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		t.Skip("this machine has no IPv6")
	} else {
		ln.Close()
	}
	lab.Ask(t, "[::1]:"+port, "/")
}

func TestEnvironmentIsAddedToSupervisordsOwn(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Env = []string{"A=own", "B=own"}
	m.Start(lab.Plain + `environment = { B = "configured", C = "a b" }`)
	m.Serves(1)
	env := lab.Environment(t, m.WorkerPID(1))
	if env["A"] != "own" || env["B"] != "configured" || env["C"] != "a b" {
		t.Errorf("A=%q B=%q C=%q", env["A"], env["B"], env["C"])
	}
}

func TestEnvironmentFilesAndFoldersAreReadAtEveryGeneration(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.File("env", "A=file1\nB=file1\n")
	m.File("env.d/B", "folder1\n")
	m.File("env.d/C", "folder1\nmore")
	m.Start(lab.Plain + `
environment = { A = "configured", D = "configured" }
environment_file = ["env", "-absent", "env.d"]
`)
	m.Serves(1)
	words := func(pid int) string {
		e := lab.Environment(t, pid)
		return strings.Join([]string{e["A"], e["B"], e["C"], e["D"]}, " ")
	}
	if got := words(m.WorkerPID(1)); got != "file1 folder1 folder1 configured" {
		t.Errorf("the first generation has %s", got)
	}
	m.File("env", "A=file2\n")
	m.File("env.d/C", "folder2\n")
	m.Reload()
	m.Serves(2)
	if got := words(m.WorkerPID(2)); got != "file2 folder1 folder2 configured" {
		t.Errorf("the second generation has %s", got)
	}
}

func TestMissingEnvironmentFileFailsTheTrialAlone(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.File("env", "WORD=1\n")
	m.Start(lab.Web + "[program.other]\ncommand = [{sleep}]\nenvironment_file = [\"env\"]\nready.delay = \"10ms\"\n")
	m.Await(lab.Says(lab.GenerationServes), lab.Program("other"))
	lab.Must(t, os.Remove(m.Path("env")))
	m.Reload()
	failed := m.Await(lab.Says(lab.TrialFailed), lab.Program("other"))
	if failed.Step != "prepare" || failed.Serving != 1 || !strings.Contains(failed.Reason, m.Path("env")) {
		t.Errorf("the log says %s", failed.Text)
	}
	m.Await(lab.Says(lab.GenerationServes), lab.Program("web"), lab.Gen(2))
}

func TestDirectoryIsResolvedAgainAtEveryGeneration(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	for _, release := range []string{"r1", "r2"} {
		lab.Must(t, os.Mkdir(m.Path(release), 0o755))
	}
	lab.Must(t, os.Symlink("r1", m.Path("current")))
	m.Start(lab.Plain + "directory = \"{dir}/current\"\n")
	m.Serves(1)
	lab.Must(t, os.Symlink("r2", m.Path("next")))
	lab.Must(t, os.Rename(m.Path("next"), m.Path("current")))
	m.Reload()
	if got, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", m.WorkerPID(1))); got != m.Path("r1") {
		t.Errorf("the first generation runs in %q", got)
	}
	m.Serves(2)
	if got, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", m.WorkerPID(2))); got != m.Path("r2") {
		t.Errorf("the second generation runs in %q", got)
	}
}

// A crash between the move of the link and the reload mixes no versions, however the configuration names a path of the
// release.
func TestCrashedWorkerIsReplacedFromTheReleaseOfItsGeneration(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ config, has string }{
		"relative": {`command = ["./server"]`, ""},
		"program":  {`command = ["{dir}/current/server"]`, ""},
		"argument": {`command = ["sh", "-c", "A=$1 B=$2 exec ./server", "{dir}/current/sh", "{dir}/current/a", ` +
			`"--config={dir}/current/b"]`, "--config=R1/b"},
		"environment": {"command = [\"./server\"]\n" +
			"environment = { GEMFILE = \"{dir}/current/Gemfile\", PATH = \"/bin:{dir}/current/bin:{dir}/current\" }",
			"PATH=/bin:R1/bin:R1"},
		"file":   {"command = [\"./server\"]\nenvironment_file = \"{dir}/env\"", "ROOT=R1"},
		"PATH":   {"command = [\"server\"]\nenvironment = { PATH = \"{dir}/current\" }", "PATH=R1"},
		"beside": {"command = [\"./server\"]\nenvironment = { A = \"{dir}/currently\", B = \"x{dir}/current\" }", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Prepare(t)
			for _, release := range []string{"r1", "r2"} {
				lab.Must(t, os.Mkdir(m.Path(release), 0o755))
				lab.Must(t, os.Link(lab.Built.Hello, m.Path(release+"/server")))
			}
			lab.Must(t, os.Symlink("r1", m.Path("current")))
			m.File("env", "ROOT="+m.Path("current")+"\n")
			m.Start("[program.web]\n" + c.config +
				"\ndirectory = \"{dir}/current\"\nready.method = \"notify\"\nlisten = [\"127.0.0.1:0\"]\n")
			m.Serves(1)
			before := releaseOf(m, m.WorkerPID(1))
			lab.Must(t, os.Symlink("r2", m.Path("next")))
			lab.Must(t, os.Rename(m.Path("next"), m.Path("current")))
			last := m.Last()
			lab.Must(t, syscall.Kill(m.WorkerPID(1), syscall.SIGKILL))
			after := releaseOf(m, m.Await(lab.After(last), lab.Says(lab.WorkerReady)).PID)
			if after != before || strings.Contains(after, m.Path("r2")) ||
				!strings.Contains(after, strings.ReplaceAll(c.has, "R1", m.Path("r1"))) {
				t.Errorf("the replacement has\n%s\nand not\n%s", after, before)
			}
			m.CtlOK("reload")
			if next := releaseOf(m, m.WorkerPID(2)); strings.Contains(next, m.Path("r1")) {
				t.Errorf("the next generation has\n%s", next)
			}
		})
	}
}

// releaseOf is what a worker has of a release: its executable, directory, arguments and environment.
func releaseOf(m *lab.Supervisord, pid int) string {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	lab.Must(m.T, err)
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	lab.Must(m.T, err)
	env := lab.Environment(m.T, pid)
	return strings.Join([]string{exe, cwd, lab.Cmdline(pid), "ROOT=" + env["ROOT"], "GEMFILE=" + env["GEMFILE"],
		"PATH=" + env["PATH"], env["A"], env["B"], env["PWD"]}, "\n")
}

func TestCheckWarnsOfAPathThatDoesNotFollowTheRelease(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	lab.Must(t, os.Mkdir(m.Path("r1"), 0o755))
	lab.Must(t, os.Symlink("r1", m.Path("current")))
	for config, warns := range map[string]bool{
		`command = ["sh", "-c", "cd {dir}/current && exec sleep 1"]`:                                     true,
		"command = [\"sleep\", \"1\"]\nenvironment = { OPTS = \"-I{dir}/current/lib\" }":                 true,
		"command = [\"sleep\", \"1\"]\nenvironment = { OPTS = \"-Dx={dir}/current\", A = \"{dir}/r1\" }": false,
		`command = ["sleep", "1", "{dir}/current-of-another"]`:                                           false,
	} {
		m.Write("[program.web]\n" + config + "\ndirectory = \"{dir}/current\"\n")
		if out := m.CtlOK("check"); strings.Contains(out, "current, a link, inside a text") != warns {
			t.Errorf("%s: check says %s", config, out)
		}
	}
}

func TestLimitsAreSet(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Plain+`limits = { nofile = 100, core = 0, umask = "0027", nice = 3, oom_score_adj = 500, `+
		`no_new_privileges = true }`)
	m.Serves(1)
	p := m.WorkerPID(1)
	adjust := lab.Number(fmt.Sprintf("/proc/%d/oom_score_adj", p))
	nice, err := unix.Getpriority(unix.PRIO_PROCESS, p)
	lab.Must(t, err)
	s := lab.ProcStatus(p)
	if got := lab.SoftLimit(t, p, "Max open files"); got != "100" {
		t.Errorf("nofile is %s", got)
	}
	if s["Umask"] != "0027" || s["NoNewPrivs"] != "1" || adjust != 500 || 20-nice != 3 {
		t.Errorf("umask %s, no_new_privs %s, oom_score_adj %d, nice %d", s["Umask"], s["NoNewPrivs"], adjust, 20-nice)
	}
}

func TestAutoIsOneWorkerForEachCPU(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Plain+"workers = \"auto\"\n")
	m.Serves(1)
	if got, want := m.Count(lab.Says(lab.WorkerRuns)), runtime.GOMAXPROCS(0); got != want {
		t.Errorf("there are %d workers, want %d", got, want)
	}
}

func TestOutputGoesToTheConfiguredFiles(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, `
[program.web]
command = ["sh", "-c", "echo to stdout; echo to stderr >&2; exec sleep 1000"]
stdout = "{dir}/out.log"
stderr = "{dir}/err.log"
ready.delay = "10ms"
`)
	m.Until("the lines are in the files",
		func() bool { return lab.Size(m.Path("out.log")) > 0 && lab.Size(m.Path("err.log")) > 0 })
	if out, errs := m.Read("out.log"), m.Read("err.log"); out != "to stdout\n" || errs != "to stderr\n" {
		t.Errorf("stdout has %q, stderr %q", out, errs)
	}
}

func TestOutputIsAppendedToALogFile(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.File("out.log", "before\n")
	m.Start(strings.Replace(lab.Plain, "{sleep}", `"sh", "-c", "echo now; exec sleep 1000"`, 1) +
		"stdout = \"{dir}/out.log\"\n")
	m.Until("something is appended", func() bool { return m.Read("out.log") == "before\nnow\n" })
}

func TestOutputThatIsInheritedIsSupervisordsOwn(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(lab.Plain, "{sleep}", `"sh", "-c", "echo hello from a worker; exec sleep 1000"`, 1))
	m.Await(lab.Contains("hello from a worker"))
}

func TestLastLinesOfALogFileReachItBeforeTheEnd(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(lab.Plain, "{sleep}",
		`"sh", "-c", "trap 'i=0; while [ $i -lt 500 ]; do echo line $i; i=$((i+1)); done; exit 0' TERM; sleep 1000 & wait"`,
		1)+
		"stdout = \"{dir}/out.log\"\n")
	m.Serves(1)
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
	if got := strings.Count(m.Read("out.log"), "\n"); got != 500 {
		t.Errorf("%d of 500 lines arrived", got)
	}
}

func TestWorkerFindsItsDirectoryInPWD(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Env = []string{"PWD=/of/who/started/it"}
	m.Start("[program.web]\ncommand = [\"env\"]\ndirectory = \"/usr\"\nrestart.when = \"never\"\n")
	m.Await(lab.Contains("PWD=/usr"))
	m.Never(lab.Contains("PWD=/of"))
}

// A worker that makes an inherited stream non-blocking, as Node does, does so for itself: otherwise its neighbours lose
// lines.
func TestWorkerMakesAnInheritedStreamNonBlockingForItselfOnly(t *testing.T) {
	t.Parallel()
	const inherits = "stdout = \"inherit\"\nstderr = \"inherit\"\n"
	m := lab.Start(t, strings.Replace(lab.Web, "[[", inherits+"[[", 1)+fmt.Sprintf(`
[program.node]
command = [%q, "-c", "import os, signal; os.set_blocking(1, False); os.set_blocking(2, False); os.write(int(os.environ['NOTIFY_FD']), b'\\n'); signal.pause()"]
ready.method = "notify"
`, lab.Need(t, "python3"))+inherits)
	m.Await(lab.Says(lab.GenerationServes), lab.Program("node"))
	m.Await(lab.Says(lab.GenerationServes), lab.Program("web"))
	pid := func(program string) int { return m.Await(lab.Says(lab.WorkerRuns), lab.Program(program)).PID }
	for _, fd := range []int{1, 2} {
		for name, c := range map[string]struct {
			pid  int
			want bool
		}{"supervisord": {m.PID(), false}, "web": {pid("web"), false}, "node": {pid("node"), true}} {
			if got := lab.FDFlags(t, c.pid, fd)&unix.O_NONBLOCK != 0; got != c.want {
				t.Errorf("descriptor %d of %s is non-blocking: %t, want %t", fd, name, got, c.want)
			}
		}
	}
}
