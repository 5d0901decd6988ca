package inherit_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/leftover"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/dialect"
	"example.org/supervisord/socket/inherit"
)

// TestMain is also the program that these tests start: with childMark set it prints what it has inherited.
func TestMain(m *testing.M) {
	if os.Getenv(childMark) == "" {
		leftover.Main(m)
	}
	environ := os.Environ()
	for i, v := range environ {
		environ[i] = strings.ReplaceAll(v, "SELF", fmt.Sprint(os.Getpid()))
		if v == "LISTEN_PIDFDID=OWN" {
			environ[i] = "LISTEN_PIDFDID=" + ownPidfd()
		}
	}
	var r reply
	found, err := inherit.FromEnvironment(environ, os.Getpid())
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
	Found       []inherit.Socket
	Err         string
	CloseOnExec []bool
}

// inheritedBy starts a process with the descriptors from 3 up and returns what it has inherited.
func inheritedBy(t testing.TB, fds []int, environ ...string) reply {
	t.Helper()
	r, w, err := os.Pipe()
	must.Do(t, err)
	defer func() { _ = r.Close() }()
	files := []uintptr{0, w.Fd(), 2}
	for _, fd := range fds {
		files = append(files, uintptr(fd))
	}
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"child"},
		&syscall.ProcAttr{Env: append(environ, childMark+"=1", "GORACE=atexit_sleep_ms=0"), Files: files})
	_ = w.Close()
	must.Do(t, err)
	var answer reply
	decodeErr := json.NewDecoder(r).Decode(&answer)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil || status.ExitStatus() != 0 || decodeErr != nil {
		t.Fatal(err, status, decodeErr)
	}
	return answer
}

// opened returns a table with one socket, and its descriptor.
func opened(t *testing.T, address string) (bound string, at dialect.Passed, fd int) {
	t.Helper()
	a := must.Get(socket.ParseAddress(address))(t)
	r, err := socket.Spec{Name: "a", Address: a}.Resolve(t.Context())
	table := socket.NewTable()
	t.Cleanup(func() { _ = table.Close() })
	must.Do(t, errors.Join(err, table.Update([]socket.Want{{Resolved: r}})))
	return table.Address(r.Key()), dialect.Passed{Address: a}, table.FDs(r.Key())[0]
}

func TestWorkerInheritsTheSocketsOfTheTable(t *testing.T) {
	path := t.TempDir() + "/s"
	var sockets []dialect.Passed
	var bound []string
	var fds []int
	for i, l := range [][2]string{{"http", "127.0.0.1:0"}, {"admin", "unix:" + path}, {"dns", "udp:127.0.0.1:0"},
		{"unix:@" + t.Name(), "unix:@" + t.Name()}} {
		at, s, fd := opened(t, l[1])
		s.Name, s.FD = l[0], inherit.FirstFD+i
		bound, sockets, fds = append(bound, at), append(sockets, s), append(fds, fd)
	}
	environ := dialect.Message{Sockets: sockets}.Environment()
	got := inheritedBy(t, fds, append(environ, "LISTEN_PID=SELF", "LISTEN_PIDFDID=OWN")...)
	expected := []inherit.Socket{
		{3, "http", "127.0.0.1:0", "tcp", bound[0], true, false, false},
		{4, "admin", path, "unix", path, true, false, false},
		{5, "dns", "127.0.0.1:0", "udp", bound[2], true, false, false},
		{6, "unix-@" + t.Name(), "@" + t.Name(), "unix", "@" + t.Name(), true, false, false},
	}
	if got.Err != "" || fmt.Sprint(got.Found) != fmt.Sprint(expected) {
		t.Errorf("found %v, %s", got.Found, got.Err)
	}
	if fmt.Sprint(got.CloseOnExec) != "[true true true true]" {
		t.Error("not every descriptor is close-on-exec")
	}
}

func TestOnlyOwnSocketsAreTaken(t *testing.T) {
	at, _, fd := opened(t, "127.0.0.1:0")
	var pipe [2]int
	must.Do(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	connected := must.Get(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	defer func() {
		for _, fd := range append(pipe[:], connected[:]...) {
			_ = unix.Close(fd)
		}
	}()
	starter := inherit.Socket{3, "127.0.0.1:8080", "127.0.0.1:8080", "tcp", at, true, false, false}
	for variables, c := range map[string]struct {
		fds   []int
		found []inherit.Socket
	}{
		"LISTEN_PID=1 LISTEN_FDS=1": {[]int{fd}, nil}, "LISTEN_FDS=1": {[]int{fd}, nil}, "LISTEN_PID=SELF": {[]int{fd}, nil},
		"LISTEN_PID=SELF LISTEN_FDS=0":                  {[]int{fd}, nil},
		"LISTEN_PID=SELF LISTEN_FDS=0 LISTEN_FDNAMES=":  {[]int{fd}, nil},
		"LISTEN_PID=SELF LISTEN_FDS=1 LISTEN_PIDFDID=1": {[]int{fd}, nil},
		"SERVER_STARTER_PORT=":                          {[]int{fd}, nil},
		"SERVER_STARTER_PORT=127.0.0.1:8080=3":          {[]int{fd}, []inherit.Socket{starter}},
		"LISTEN_PID=SELF LISTEN_FDS=2": {[]int{pipe[0], connected[0]}, []inherit.Socket{ // which have no network
			{3, "unknown", "", "", "", false, false, false}, {4, "unknown", "", "unix", "", false, false, false}}},
	} {
		if got := inheritedBy(t, c.fds, strings.Fields(variables)...); got.Err != "" ||
			fmt.Sprint(got.Found) != fmt.Sprint(c.found) {
			t.Errorf("%s: found %+v", variables, got)
		}
	}
	if got := inheritedBy(t, pipe[:1], "SERVER_STARTER_PORT=80=3"); !strings.Contains(got.Err,
		`"80", is not a listening socket`) {
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

func FuzzEnvironmentRoundTrip(f *testing.F) {
	f.Add("http", "127.0.0.1:80", "", "unix:/run/a b")
	f.Add("a:b", "[::1]:80", "x;y", "udp::53")
	f.Add("=", "unix:@x", "\n", "unix:/a/b")
	f.Fuzz(func(t *testing.T, name1, address1, name2, address2 string) {
		a, err1 := socket.ParseAddress(address1)
		b, err2 := socket.ParseAddress(address2)
		if err1 != nil || err2 != nil {
			return
		}
		sockets := []dialect.Passed{{Name: name1, Address: a, FD: 3}, {Name: name2, Address: b, FD: 4}}
		environ := append(dialect.Message{Sockets: sockets}.Environment(), "LISTEN_PID=7")
		for _, v := range environ {
			if strings.Count(v, "\n") > 0 {
				t.Fatalf("%q is corrupt", v)
			}
		}
		found, err := inherit.Parse(environ, 7)
		if err != nil || len(found) != 2 {
			t.Fatalf("%q: %v, %v", environ, found, err)
		}
		for i, s := range sockets {
			want := inherit.Socket{FD: s.FD, Name: inherit.FDName(s.Name), Starter: s.Address.StarterName()}
			if found[i] != want {
				t.Errorf("%q: found %+v, want %+v", environ, found[i], want)
			}
		}
	})
}
