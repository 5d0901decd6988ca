package lab

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Exists reports whether a file exists. A dangling symbolic link does.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Occupy listens on an address of its own until the end of the test.
func Occupy(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	Must(t, err)
	t.Cleanup(func() { ln.Close() })
	return ln.Addr().String()
}

// Need finds a program and skips the test if it is not installed.
func Need(t testing.TB, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("%s is not installed", program)
	}
	return path
}

// Fetched returns the path of something that scripts/test keeps for the next run, and skips the test if it is not
// there.
func Fetched(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.UserCacheDir()
	Must(t, err)
	path := filepath.Join(dir, "supervisord-servers", name)
	if !Exists(path) {
		t.Skipf("%s is missing; scripts/test fetches it", path)
	}
	return path
}

// TerminalCommand is the beginning of a command line: it runs the rest on a terminal and copies what that writes.
func TerminalCommand(t testing.TB) []string {
	return []string{Need(t, "python3"), "-c", `
import os, pty, signal, sys
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
for forwarded in (signal.SIGTERM, signal.SIGINT):
    signal.signal(forwarded, lambda number, _: os.kill(pid, number))
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

// NeedRoot skips a test that only root can run: "only root can " + why.
func NeedRoot(t testing.TB, why string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can " + why)
	}
}

// Size is the size of a file in bytes; 0 if there is none.
func Size(path string) int64 {
	stat, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return stat.Size()
}

// Number reads a number from a file; 0 if there is none.
func Number(path string) int {
	n, _ := strconv.Atoi(strings.TrimSpace(Text(path)))
	return n
}

// Text reads a file; "" if there is none.
func Text(path string) string {
	raw, _ := os.ReadFile(path)
	return string(raw)
}

// Gate makes a FIFO at which workers with the argument gate=PATH wait.
func (m *Supervisord) Gate(name string) string {
	m.T.Helper()
	Must(m.T, syscall.Mkfifo(m.Path(name), 0o666))
	Must(m.T, os.Chmod(m.Path(name), 0o666))
	return m.Path(name)
}

// Open opens a gate for the workers that wait there, or for the next one that comes.
func (m *Supervisord) Open(gate string) {
	m.T.Helper()
	m.Until("a worker waits at the gate", func() bool {
		f, err := os.OpenFile(gate, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			f.Close()
		}
		return err == nil
	})
}

// Reserve returns a TCP address that the kernel gives to no other process until the end of the test, but on which
// supervisord can listen: the port is bound, and another socket may bind to the same one, because both have
// SO_REUSEADDR and this one does not listen.
func Reserve(t testing.TB) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	Must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	Must(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	Must(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	at, err := unix.Getsockname(fd)
	Must(t, err)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(at.(*unix.SockaddrInet4).Port))
}
