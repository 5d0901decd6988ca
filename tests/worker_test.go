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

func TestAutoIsOneWorkerForEachCPU(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Plain+"workers = \"auto\"\n")
	m.Serves(1)
	if got, want := m.Count(lab.Says(lab.WorkerRuns)), runtime.GOMAXPROCS(0); got != want {
		t.Errorf("there are %d workers, want %d", got, want)
	}
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
