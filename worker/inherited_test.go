package worker

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/lab/unit"
	"example.org/supervisord/internal/proc"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/spawn"
)

// sleeper starts "sleep" and returns its life and PID, so that the test can inspect an undisturbed process from
// outside.
func sleeper(t *testing.T, l *Launcher, change func(*Spec)) (*subject, int) {
	t.Helper()
	spec := command("sleep", "100")
	spec.Stderr.Kind = output.Null
	if change != nil {
		change(&spec)
	}
	s := start(t, l, spec)
	pid := next[life.Spawned](s).PID
	return s, pid
}

func (s *subject) kill() life.Exited {
	s.t.Helper()
	if err := s.w.Signal(syscall.SIGKILL, true); err != nil {
		s.t.Error(err)
	}
	for {
		if e, ok := s.next().(life.Exited); ok {
			return e
		}
	}
}

// status returns a field of /proc/PID/status.
func status(t *testing.T, pid int, key string) string {
	t.Helper()
	data := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))(t)
	_, rest, _ := strings.Cut(string(data), "\n"+key+":")
	value, _, _ := strings.Cut(rest, "\n")
	return strings.Join(strings.Fields(value), " ")
}

func descriptors(t *testing.T, pid int) []int {
	t.Helper()
	return slices.Sorted(maps.Keys(must.Get(proc.Descriptors(pid))(t)))
}

// rawSocket returns a socket of this kind and with these flags. It is bound, listens if it can, and is not in Go's
// poller.
func rawSocket(t *testing.T, kind int) int {
	t.Helper()
	fd := must.Get(unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0))(t)
	t.Cleanup(func() { unix.Close(fd) })
	must.Do(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	if kind&unix.SOCK_STREAM != 0 {
		must.Do(t, unix.Listen(fd, 10))
	}
	return fd
}

func flags(t *testing.T, fd int) int {
	t.Helper()
	return must.Get(unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0))(t)
}

func TestModeOfSharedSocketsIsNeverTouched(t *testing.T) {
	l := launcher(t)
	fds := []int{rawSocket(t, unix.SOCK_STREAM), rawSocket(t, unix.SOCK_STREAM|unix.SOCK_NONBLOCK)}
	before := []int{flags(t, fds[0]), flags(t, fds[1])}
	check := func(when string) {
		t.Helper()
		if got := []int{flags(t, fds[0]), flags(t, fds[1])}; !slices.Equal(got, before) {
			t.Errorf("after %s: %v instead of %v", when, got, before)
		}
	}
	log := logFile(t)
	for _, out := range []output.Destination{{Kind: output.Null}, {Kind: output.Inherit},
		{Kind: output.ToFile, File: log.LogFile}} {
		s, _ := sleeper(t, l, func(spec *Spec) { spec.Sockets, spec.Stdout, spec.Stderr = fds, out, out })
		check("a start with output " + string(out.Kind))
		s.kill()
		check("the end of it")
	}
	short, none := command("true"), command("./none")
	short.Sockets, none.Sockets = fds, fds
	must.Do(t, l.Run(t.Context(), short))
	check("Run")
	next[life.Exited](start(t, l, none))
	check("a start that failed")
}

func TestStringsThatAreNotUTF8ArriveBesideThoseLargerThanAPipe(t *testing.T) {
	f := tempFile(t)
	spec := command("/bin/sh", "-c", `printf '%s|%s' "$1" "$V" >&3`, "sh", "\xff\xfe")
	spec.Environment = []string{"V=\x80", "A=" + strings.Repeat("x", 100_000), "B=" + strings.Repeat("x", 100_000)}
	spec.Sockets = []int{int(f.Fd())}
	next[life.Exited](started(t, launcher(t), spec))
	if got, _ := os.ReadFile(f.Name()); string(got) != "\xff\xfe|\x80" {
		t.Errorf("%q", got)
	}
}

func TestOOMScoreOfTheSupervisorIsNotInherited(t *testing.T) {
	own := must.Get(os.ReadFile("/proc/self/oom_score_adj"))(t)
	if os.Geteuid() != 0 {
		t.Skip("only root may lower the score again")
	}
	os.WriteFile("/proc/self/oom_score_adj", []byte("250"), 0)
	defer os.WriteFile("/proc/self/oom_score_adj", own, 0)
	s, pid := sleeper(t, launcher(t), nil)
	defer s.kill()
	if got, _ := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid)); string(got) != "0\n" {
		t.Errorf("%s", got)
	}
}

func needRoot(t *testing.T, what string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip(what + " needs root")
	}
}

func TestOwnCredentialNeedsNoPrivilege(t *testing.T) {
	groups, _ := unix.Getgroups()
	c := &spawn.Credential{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	for _, g := range groups {
		c.Groups = append(c.Groups, uint32(g))
	}
	s, _ := sleeper(t, launcher(t), func(spec *Spec) { spec.Credential = c })
	s.kill()
}

func TestJournalStreamIsSetOnlyForTheStreamItNames(t *testing.T) {
	t.Setenv("JOURNAL_STREAM", "8:1")
	for kind, want := range map[output.Kind]int{output.Inherit: 1, output.Null: 0} {
		spec := Spec{Stderr: output.Destination{Kind: kind}}
		spec.Environment = []string{"JOURNAL_STREAM=8:1"}
		if got := spec.withoutOwn(); len(got) != want {
			t.Errorf("stderr %s: %q", kind, got)
		}
	}
}

func tempFile(t *testing.T) *os.File {
	t.Helper()
	f := must.Get(os.Create(filepath.Join(t.TempDir(), "file")))(t)
	t.Cleanup(func() { f.Close() })
	return f
}

// TestInheritedStreamHasADescriptionOfItsOwn: of a FIFO, a pipe and a terminal; others stay what they are, and a FIFO
// without a reader makes nobody wait.
func TestInheritedStreamHasADescriptionOfItsOwn(t *testing.T) {
	open := func(path string, flags int) int {
		fd := must.Get(unix.Open(path, flags|unix.O_CLOEXEC, 0o600))(t)
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	unread := unit.FIFO(t)
	reader := open(unread, unix.O_RDONLY|unix.O_NONBLOCK)
	noReader := open(unread, unix.O_WRONLY)
	unix.Dup3(open(os.DevNull, unix.O_RDONLY), reader, unix.O_CLOEXEC) //nolint:errcheck // the last reader goes
	_, write := pipe(t)
	sockets := must.Get(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	t.Cleanup(func() { closeAll(sockets[:]) })
	master := open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY)
	number := must.Get(unix.IoctlGetInt(master, unix.TIOCGPTN))(t)
	must.Do(t, unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0))
	for _, c := range []struct {
		name string
		fd   int
		own  bool
	}{
		{"a FIFO", open(unit.FIFO(t), unix.O_RDWR), true},
		{"a pipe", int(write.Fd()), true},
		{"a terminal", open(fmt.Sprintf("/dev/pts/%d", number), unix.O_RDWR|unix.O_NOCTTY), true},
		{"the other end of a terminal", master, false},
		{"a FIFO without a reader", noReader, false},
		{"a file", open(filepath.Join(t.TempDir(), "file"), unix.O_WRONLY|unix.O_CREAT), false},
		{"/dev/null", open(os.DevNull, unix.O_WRONLY), false},
		{"a socket", sockets[0], false},
	} {
		a := new(attempt)
		fd := a.inherited(c.fd)
		unix.SetNonblock(fd, true)
		flags, err := unix.FcntlInt(uintptr(c.fd), unix.F_GETFL, 0)
		if own := flags&unix.O_NONBLOCK == 0; err != nil || own != c.own {
			t.Errorf("%s: a description of its own: %t, want %t (%v)", c.name, own, c.own, err)
		}
		a.closeTheirs()
	}
}
