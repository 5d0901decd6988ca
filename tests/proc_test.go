package tests

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sort"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What /proc says of a process, for a look at it from outside (proc(5)).

func cmdline(pid int) string {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.ReplaceAll(strings.TrimRight(string(raw), "\x00"), "\x00", " ")
}

// alive tells whether a process runs and is no zombie.
func alive(pid int) bool {
	state := status(pid)["State"]
	return state != "" && !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

// status is /proc/PID/status; empty when there is no such process.
func status(pid int) map[string]string {
	return table(fmt.Sprintf("/proc/%d/status", pid))
}

func table(path string) map[string]string {
	raw, _ := os.ReadFile(path)
	found := map[string]string{}
	for l := range strings.Lines(string(raw)) {
		if k, v, ok := strings.Cut(l, ":"); ok {
			found[k] = strings.TrimSpace(v)
		}
	}
	return found
}

// environment is what a process was executed with.
func environment(t testing.TB, pid int) map[string]string {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	must(t, err)
	found := map[string]string{}
	for kv := range strings.SplitSeq(strings.TrimRight(string(raw), "\x00"), "\x00") {
		k, v, _ := strings.Cut(kv, "=")
		found[k] = v
	}
	return found
}

// descriptors says where those of a process lead, by number.
func descriptors(t testing.TB, pid int) map[int]string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	must(t, err)
	found := map[int]string{}
	for _, e := range entries {
		n, _ := strconv.Atoi(e.Name())
		if to, err := os.Readlink(dir + "/" + e.Name()); err == nil {
			found[n] = to
		}
	}
	return found
}

// flags are the flags of a descriptor of a process, as open(2) has them.
func flags(t testing.TB, pid, fd int) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(table(fmt.Sprintf("/proc/%d/fdinfo/%d", pid, fd))["flags"], 8, 64)
	must(t, err)
	return n
}

// softLimit is a line of /proc/PID/limits: "Max open files".
func softLimit(t testing.TB, pid int, name string) string {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	must(t, err)
	for l := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(l, name); ok {
			return strings.Fields(rest)[0]
		}
	}
	t.Fatalf("there is no limit %q", name)
	return ""
}

// groupOf is the process group.
func groupOf(pid int) int {
	group, _ := unix.Getpgid(pid)
	return group
}

// listening maps the inodes of the TCP sockets that listen to their addresses.
func listening(t testing.TB) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		for in := bufio.NewScanner(f); in.Scan(); {
			fields := strings.Fields(in.Text())
			if len(fields) < 10 || fields[3] != "0A" {
				continue
			}
			host, hex, _ := strings.Cut(fields[1], ":")
			port, _ := strconv.ParseUint(hex, 16, 16)
			ip := "127.0.0.1"
			if len(host) == 32 && host != strings.Repeat("0", 32) {
				ip = "::1"
			}
			found["socket:["+fields[9]+"]"] = net.JoinHostPort(ip, strconv.FormatUint(port, 10))
		}
		f.Close()
	}
	return found
}

// addresses are those that a process listens on by TCP, in the order of its descriptors.
func addresses(t testing.TB, pid int) []string {
	t.Helper()
	at := listening(t)
	fds := descriptors(t, pid)
	var numbers []int
	for n, to := range fds {
		if at[to] != "" {
			numbers = append(numbers, n)
		}
	}
	sort.Ints(numbers)
	var found []string
	for _, n := range numbers {
		found = append(found, at[fds[n]])
	}
	return found
}

// steal gets a descriptor of another process, to ask the kernel about the socket behind it (pidfd_getfd(2)).
func steal(t testing.TB, pid, fd int) int {
	t.Helper()
	pidfd, err := unix.PidfdOpen(pid, 0)
	must(t, err)
	defer unix.Close(pidfd)
	n, err := unix.PidfdGetfd(pidfd, fd, 0)
	if err == unix.EPERM {
		t.Skip("this needs the right to trace the supervisord (CAP_SYS_PTRACE, or kernel.yama.ptrace_scope = 0)")
	}
	must(t, err)
	t.Cleanup(func() { unix.Close(n) })
	return n
}

// address is where the only TCP listener of a supervisord is.
func (m *master) address() string {
	m.t.Helper()
	found := addresses(m.t, m.cmd.Process.Pid)
	if len(found) != 1 {
		m.t.Fatalf("supervisord listens on %v, want one address", found)
	}
	return found[0]
}

// occupy listens on an address of its own until the end of the test.
func occupy(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { ln.Close() })
	return ln.Addr().String()
}

// need skips a test for which a program is missing.
func need(t testing.TB, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("%s is not installed", program)
	}
	return path
}

// terminalCommand runs a command on a terminal and copies what it writes there.
func terminalCommand(t testing.TB) []string {
	return []string{need(t, "python3"), "-c", `
import os, pty, signal, sys
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
while True:
    try:
        data = os.read(fd, 4096)
    except OSError:
        break
    if not data:
        break
    os.write(1, data)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
`}
}

// asRoot skips a test that an ordinary user cannot make.
func asRoot(t testing.TB, why string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can " + why)
	}
}
