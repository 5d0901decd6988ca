package tests

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
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

func TestSocketIsTCPAndNotMPTCP(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Plain+"[[program.web.listen]]\naddress = \"127.0.0.1:0\"\n")
	m.Serves(1)
	protocol, err := unix.GetsockoptInt(lab.Steal(t, m.WorkerPID(1), 3), unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err != nil || protocol != unix.IPPROTO_TCP {
		t.Errorf("the protocol is %d, %v", protocol, err)
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
