package worker

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/ready"
	"example.org/supervisord/worker/spawn"
)

// sleeper starts "sleep" and returns its life and PID, so that the test can inspect an undisturbed process from
// outside.
func sleeper(t *testing.T, l *Launcher, change func(*Spec)) (*subject, int) {
	t.Helper()
	spec := Spec{Execution: spawn.Execution{Command: []string{"sleep", "100"}}, Ready: ready.Check{Method: ready.Notify},
		Stderr: output.Destination{Kind: output.Null}}
	if change != nil {
		change(&spec)
	}
	s := start(t, l, spec)
	pid := must[life.Spawned](s).PID
	t.Cleanup(func() {})
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

// eventually polls a condition for which there is no event.
func eventually(is func() bool) bool {
	for range 5000 {
		if is() {
			return true
		}
		time.Sleep(2 * time.Millisecond)
	}
	return false
}

// status returns a field of /proc/PID/status.
func status(t *testing.T, pid int, key string) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "\n"+key+":")
	value, _, _ := strings.Cut(rest, "\n")
	return strings.Join(strings.Fields(value), " ")
}

func descriptors(t *testing.T, pid int) []int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	var fds []int
	for _, e := range list {
		n, _ := strconv.Atoi(e.Name())
		fds = append(fds, n)
	}
	slices.Sort(fds)
	return fds
}

// rawListener returns a listening socket that is not in Go's poller.
func rawListener(t *testing.T, flags int) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|flags, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	if err == nil {
		err = unix.Listen(fd, 10)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func flags(t *testing.T, fd int) int {
	t.Helper()
	n, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestWorkerHasItsSocketsAtTheirNumbersAndNoOtherDescriptor(t *testing.T) {
	l := launcher(t)
	a, b, c := rawListener(t, 0), rawListener(t, 0), rawListener(t, 0)
	leak, err := os.Open(os.DevNull) // without close-on-exec, like the leak of a careless library
	if err != nil {
		t.Fatal(err)
	}
	defer leak.Close()
	unix.FcntlInt(leak.Fd(), unix.F_SETFD, 0)
	s, pid := sleeper(t, l, func(spec *Spec) { spec.Sockets, spec.Places = []int{a, b, c}, []int{0, 9, 3} })
	defer s.kill()
	var got []int
	if !eventually(func() bool { // sleep opens other files at first
		got = descriptors(t, pid)
		return slices.Equal(got, []int{0, 1, 2, 3, 9, 10})
	}) {
		t.Fatalf("it has %v, want 0 to 3, 9, and NOTIFY_FD at 10", got)
	}
	for place, fd := range map[int]int{0: a, 9: b, 3: c} {
		theirs, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, place))
		ours, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if theirs != ours {
			t.Errorf("%d is %s, want %s", place, theirs, ours)
		}
	}
}

func TestModeOfSharedSocketsIsNeverTouched(t *testing.T) {
	l := launcher(t)
	fds := []int{rawListener(t, 0), rawListener(t, unix.SOCK_NONBLOCK)}
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
	if err := l.Run(t.Context(), Spec{Execution: spawn.Execution{Command: []string{"true"}}, Sockets: fds}); err != nil {
		t.Error(err)
	}
	check("Run")
	s := start(t, l, Spec{Execution: spawn.Execution{Command: []string{"./none"}}, Sockets: fds})
	must[life.Exited](s)
	check("a start that failed")
}

func TestWorkerHasDefaultSignalsAndAnEmptyMask(t *testing.T) {
	signal.Ignore(syscall.SIGUSR1, syscall.SIGPIPE, syscall.SIGHUP)
	defer signal.Reset(syscall.SIGUSR1, syscall.SIGPIPE, syscall.SIGHUP)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var blocked, old unix.Sigset_t
	blocked.Val[0] = 1<<(unix.SIGUSR2-1) | 1<<(unix.SIGTERM-1)
	unix.PthreadSigmask(unix.SIG_BLOCK, &blocked, &old)
	defer unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)

	l := launcher(t)
	s := &subject{t: t, events: make(chan life.Event, 10)}
	s.w = newWorker(l, Spec{Execution: spawn.Execution{Command: []string{"sleep", "100"}}}, s.post)
	if err := s.w.spawn(); err != nil { // on this thread, whose mask the new process inherits
		t.Fatal(err)
	}
	l.workers.Go(s.w.postAll)
	pid := must[life.Spawned](s).PID
	defer s.kill()
	for _, key := range []string{"SigBlk", "SigIgn"} {
		if got := strings.Trim(status(t, pid, key), "0"); got != "" {
			t.Errorf("%s %s", key, got)
		}
	}
}

func TestStringsThatAreNotUTF8Arrive(t *testing.T) {
	l := launcher(t)
	f := tempFile(t)
	s := start(t, l, Spec{
		Execution: spawn.Execution{Command: []string{"/bin/sh", "-c", `printf '%s|%s' "$1" "$V" >&3`, "sh", "\xff\xfe"},
			Environment: []string{"V=\x80"}},
		Sockets: []int{int(f.Fd())},
	})
	for {
		if _, ok := s.next().(life.Exited); ok {
			break
		}
	}
	if got, _ := os.ReadFile(f.Name()); string(got) != "\xff\xfe|\x80" {
		t.Errorf("%q", got)
	}
}

func TestEnvironmentLargerThanAPipeArrives(t *testing.T) {
	spec := role("report")
	for i := range 20 {
		spec.Environment = append(spec.Environment, fmt.Sprintf("BIG%d=%s", i, strings.Repeat("x", 50_000)))
	}
	if m := report(t, launcher(t), spec); len(m["env.BIG19"]) != 50_000 {
		t.Error("it did not")
	}
}

func limitOf(t *testing.T, pid, resource int) unix.Rlimit {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, resource, nil, &limit); err != nil {
		t.Fatal(err)
	}
	return limit
}

// Go raises its soft limit at the start. A child that Go starts has the original limit, like the shell that started
// this test.
func TestSoftFileLimitIsTheOneBeforeGoRaisedIt(t *testing.T) {
	l := launcher(t)
	pid, err := syscall.ForkExec("/bin/sleep", []string{"sleep", "100"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := limitOf(t, pid, unix.RLIMIT_NOFILE)
	syscall.Kill(pid, syscall.SIGKILL)
	s, worker := sleeper(t, l, nil)
	defer s.kill()
	if got := limitOf(t, worker, unix.RLIMIT_NOFILE); got != want {
		t.Errorf("%v instead of %v", got, want)
	}
}

func TestOOMScoreOfTheSupervisorIsNotInherited(t *testing.T) {
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
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

func TestNegativeNice(t *testing.T) {
	needRoot(t, "a negative nice")
	nice := -5
	s, pid := sleeper(t, launcher(t), func(spec *Spec) { spec.Limits.Nice = &nice })
	defer s.kill()
	if got, err := unix.Getpriority(unix.PRIO_PROCESS, pid); err != nil || 20-got != nice {
		t.Error("nice", 20-got, err)
	}
}

func needRoot(t *testing.T, what string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip(what + " needs root")
	}
}

func TestCredentialsWithSupplementaryGroups(t *testing.T) {
	needRoot(t, "another user")
	s, pid := sleeper(t, launcher(t), func(spec *Spec) {
		spec.Credential = &spawn.Credential{UID: 70001, GID: 70002, Groups: []uint32{70003, 70004}}
	})
	defer s.kill()
	for key, want := range map[string]string{
		"Uid": "70001 70001 70001 70001", "Gid": "70002 70002 70002 70002", "Groups": "70003 70004",
		"CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapInh": "0000000000000000",
	} {
		if got := status(t, pid, key); got != want {
			t.Errorf("%s: %s", key, got)
		}
	}
}

func TestAmbientCapabilitiesSurviveTheChangeOfUser(t *testing.T) {
	needRoot(t, "a capability")
	s, pid := sleeper(t, launcher(t), func(spec *Spec) {
		spec.Credential = &spawn.Credential{UID: 70001, GID: 70001}
		spec.Limits.AmbientCapabilities = []string{"cap_net_bind_service"}
		spec.Limits.NoNewPrivileges = true
	})
	defer s.kill()
	for _, key := range []string{"CapAmb", "CapEff", "CapPrm", "CapInh"} {
		if got := status(t, pid, key); got != "0000000000000400" {
			t.Errorf("%s %s", key, got)
		}
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

func TestDirectoryIsEnteredBeforeTheCommandIsLookedUp(t *testing.T) {
	dir := t.TempDir()
	os.Mkdir(filepath.Join(dir, "bin"), 0o755)
	os.WriteFile(filepath.Join(dir, "bin", "hello"), []byte("#!/bin/sh\nexit 42\n"), 0o755)
	l := launcher(t)
	for _, spec := range []Spec{
		{Execution: spawn.Execution{Command: []string{"./bin/hello"}, Directory: dir}},
		{Execution: spawn.Execution{Command: []string{"hello"},
			Environment: []string{"PATH=/nonexistent:/etc/hosts:bin:/bin"}, Directory: dir}},
	} {
		s := start(t, l, spec)
		must[life.Spawned](s)
		if !isReadyOrExit(s, 42) {
			t.Errorf("%v did not run", spec.Command)
		}
	}
}

// isReadyOrExit reads events until the exit and compares the status.
func isReadyOrExit(s *subject, code int) bool {
	for {
		if e, ok := s.next().(life.Exited); ok {
			return e.Known && e.Status.ExitStatus() == code
		}
	}
}

func TestInheritableOmitsVariablesOfTheSupervisor(t *testing.T) {
	got := Inheritable([]string{"PATH=/bin", "NOTIFY_SOCKET=/x", "LISTEN_FDNAMES=a", "SERVER_STARTER_PORT=1",
		"WATCHDOG_USEC=5",
		"SUPERVISORD_SLOT=1", "HOME=/", "FDSTORE=1", "MY_NOTIFY_SOCKET=1"})
	if !slices.Equal(got, []string{"PATH=/bin", "HOME=/", "MY_NOTIFY_SOCKET=1"}) {
		t.Error(got)
	}
}

func TestJournalStreamIsSetOnlyForTheStreamItNames(t *testing.T) {
	t.Setenv("JOURNAL_STREAM", "8:1")
	l := launcher(t)
	for kind, want := range map[output.Kind]string{output.Inherit: "8:1", output.Null: ""} {
		spec := role("report", "JOURNAL_STREAM=8:1")
		spec.Stderr.Kind = kind
		if got := report(t, l, spec)["env.JOURNAL_STREAM"]; got != want {
			t.Errorf("stderr %s: %q", kind, got)
		}
	}
}

func tempFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestInheritedStreamHasADescriptionOfItsOwn: of a FIFO, a pipe and a terminal; others stay what they are, and a FIFO
// without a reader makes nobody wait.
func TestInheritedStreamHasADescriptionOfItsOwn(t *testing.T) {
	open := func(path string, flags int) int {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	unread := filepath.Join(t.TempDir(), "unread")
	if err := unix.Mkfifo(unread, 0o600); err != nil {
		t.Fatal(err)
	}
	reader := open(unread, unix.O_RDONLY|unix.O_NONBLOCK)
	noReader := open(unread, unix.O_WRONLY)
	unix.Dup3(open(os.DevNull, unix.O_RDONLY), reader, unix.O_CLOEXEC) //nolint:errcheck // the last reader goes
	var pipe, sockets [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	sockets, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(append(pipe[:], sockets[:]...)) })
	master := open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY)
	number, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		fd   int
		own  bool
	}{
		{"a FIFO", open(fifo, unix.O_RDWR), true},
		{"a pipe", pipe[1], true},
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
