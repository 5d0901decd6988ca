package socket

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain is also the program that the tests here start: with childMark set it says what it has inherited.
func TestMain(m *testing.M) {
	if os.Getenv(childMark) == "" {
		os.Exit(m.Run())
	}
	environ := os.Environ()
	for i, v := range environ {
		environ[i] = strings.ReplaceAll(v, "SELF", fmt.Sprint(os.Getpid()))
		if v == "LISTEN_PIDFDID=OWN" {
			environ[i] = "LISTEN_PIDFDID=" + ownPidfd()
		}
	}
	var r reply
	found, err := Inherited(environ, os.Getpid())
	if r.Found = found; err != nil {
		r.Err = err.Error()
	}
	for _, f := range found {
		flags, err := unix.FcntlInt(uintptr(f.FD), unix.F_GETFD, 0)
		r.CloseOnExec = append(r.CloseOnExec, err == nil && flags&unix.FD_CLOEXEC != 0)
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		os.Exit(1)
	}
}

const childMark = "SOCKET_TEST_CHILD"

func ownPidfd() string {
	var st unix.Stat_t
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil || unix.Fstat(fd, &st) != nil {
		return ""
	}
	return fmt.Sprint(st.Ino)
}

type reply struct {
	Found       []Inherit
	Err         string
	CloseOnExec []bool
}

// inheritedBy starts a process with the descriptors at 3 and up and asks what it has inherited.
func inheritedBy(t testing.TB, fds []int, environ ...string) reply {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	files := []uintptr{0, w.Fd(), 2}
	for _, fd := range fds {
		files = append(files, uintptr(fd))
	}
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"child"}, &syscall.ProcAttr{Env: append(environ, childMark+"=1", "GORACE=atexit_sleep_ms=0"), Files: files})
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	var answer reply
	decodeErr := json.NewDecoder(r).Decode(&answer)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil || status.ExitStatus() != 0 || decodeErr != nil {
		t.Fatal(err, status, decodeErr)
	}
	return answer
}

func TestWorkerFindsWhatTheTableHands(t *testing.T) {
	spec, path := onDisk(t)
	spec.Name = "admin"
	table := newTable(t)
	wants := []Want{want(t, Spec{Name: "http", Address: "127.0.0.1:0"}), want(t, spec), want(t, Spec{Name: "dns", Address: "udp:127.0.0.1:0"}), want(t, Spec{Address: "unix:@" + t.Name()})}
	apply(t, table, wants...)
	var passed []Passed
	var fds []int
	for _, w := range wants {
		passed = append(passed, Passed{Name: w.Name, Address: w.Spec.Address})
		fds = append(fds, table.FD(w.Key(), 0))
	}
	got := inheritedBy(t, fds, append(told(nil, passed...), "LISTEN_PID=SELF", "LISTEN_PIDFDID=OWN")...)
	expected := []Inherit{
		{3, "http", "127.0.0.1:0", "tcp", table.Address(wants[0].Key()), true, false, false},
		{4, "admin", path, "unix", path, true, false, false},
		{5, "dns", "127.0.0.1:0", "udp", table.Address(wants[2].Key()), true, false, false},
		{6, "unix-@" + t.Name(), "@" + t.Name(), "unix", "@" + t.Name(), true, false, false},
	}
	if got.Err != "" || fmt.Sprint(got.Found) != fmt.Sprint(expected) {
		t.Errorf("found %v, %s", got.Found, got.Err)
	}
	if fmt.Sprint(got.CloseOnExec) != "[true true true true]" {
		t.Error("not every descriptor is close-on-exec")
	}
}

func TestDescriptorsOfAnotherProcessAreNotTaken(t *testing.T) {
	_, _, fd := opened(t, Spec{Address: "127.0.0.1:0"})
	for _, environ := range [][]string{
		{"LISTEN_PID=1", "LISTEN_FDS=1"},
		{"LISTEN_FDS=1"},
		{"LISTEN_PID=SELF"},
		{"LISTEN_PID=SELF", "LISTEN_FDS=0"},
		{"LISTEN_PID=SELF", "LISTEN_FDS=0", "LISTEN_FDNAMES="},
		{"LISTEN_PID=SELF", "LISTEN_FDS=1", "LISTEN_PIDFDID=1"},
		{"SERVER_STARTER_PORT="},
	} {
		if got := inheritedBy(t, []int{fd}, environ...); got.Err != "" || len(got.Found) != 0 {
			t.Errorf("%q: %v", environ, got)
		}
	}
}

func TestServerStarterAloneIsEnough(t *testing.T) {
	table, w, fd := opened(t, Spec{Address: "127.0.0.1:0"})
	got := inheritedBy(t, []int{fd}, "SERVER_STARTER_PORT=127.0.0.1:8080=3")
	if got.Err != "" || fmt.Sprint(got.Found) != fmt.Sprint([]Inherit{{3, "127.0.0.1:8080", "127.0.0.1:8080", "tcp", table.Address(w.Key()), true, false, false}}) {
		t.Errorf("found %v", got)
	}
}

func TestOtherDescriptorsHaveNoNetwork(t *testing.T) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	connected, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, fd := range append(pipe[:], connected[:]...) {
			_ = unix.Close(fd)
		}
	}()
	got := inheritedBy(t, []int{pipe[0], connected[0]}, "LISTEN_PID=SELF", "LISTEN_FDS=2")
	if got.Err != "" || fmt.Sprint(got.Found) != fmt.Sprint([]Inherit{{3, "unknown", "", "", "", false, false, false}, {4, "unknown", "", "unix", "", false, false, false}}) {
		t.Errorf("found %+v", got)
	}
	got = inheritedBy(t, []int{pipe[0]}, "SERVER_STARTER_PORT=80=3")
	if !strings.Contains(got.Err, `"80", is no listening socket`) {
		t.Errorf("got %+v", got)
	}
}

func TestMalformedVariablesAreErrors(t *testing.T) {
	for variables, words := range map[string]string{
		"LISTEN_PID=x LISTEN_FDS=1":                                                 "LISTEN_PID is malformed",
		"LISTEN_PID=0 LISTEN_FDS=1":                                                 "LISTEN_PID is malformed",
		"LISTEN_PID=SELF LISTEN_FDS=-1":                                             "LISTEN_FDS is malformed",
		"LISTEN_PID=SELF LISTEN_FDS=2000000000":                                     "LISTEN_FDS is malformed",
		"LISTEN_PID=SELF LISTEN_FDS=1000000000":                                     "bad file descriptor",
		"LISTEN_PID=SELF LISTEN_FDS=2 LISTEN_FDNAMES=a":                             "1 names for LISTEN_FDS=2",
		"LISTEN_PID=SELF LISTEN_FDS=1 LISTEN_FDNAMES=a:b":                           "2 names for LISTEN_FDS=1",
		"SERVER_STARTER_PORT=80":                                                    "SERVER_STARTER_PORT is malformed",
		"SERVER_STARTER_PORT==3":                                                    "SERVER_STARTER_PORT is malformed",
		"SERVER_STARTER_PORT=80=x":                                                  "SERVER_STARTER_PORT is malformed",
		"SERVER_STARTER_PORT=80=-3":                                                 "SERVER_STARTER_PORT is malformed",
		"SERVER_STARTER_PORT=80=3;":                                                 "SERVER_STARTER_PORT is malformed",
		"SERVER_STARTER_PORT=80=999999":                                             "not open",
		"LISTEN_PID=SELF LISTEN_FDS=99 LISTEN_FDNAMES=a" + strings.Repeat(":a", 98): "not open",
	} {
		got := inheritedBy(t, nil, strings.Fields(variables)...)
		if !strings.Contains(got.Err, words) {
			t.Errorf("%s: %q does not say %q", variables, got.Err, words)
		}
	}
}
