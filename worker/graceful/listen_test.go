package graceful_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/dialect"
	"example.org/supervisord/socket/inherit"
)

// ask starts a process with these environment variables and sockets. The process asks for listeners ("name|address"
// each; "*" for all that are left); ask returns its results line by line. "PID" in a value stands for the PID of the
// process.
func ask(t *testing.T, sockets []*os.File, env []string, questions ...string) []string {
	t.Helper()
	script := "exec \"$0\""
	for i, v := range env {
		name, value, _ := strings.Cut(v, "=")
		if value == "PID" {
			script = name + "=$$ " + script
			env[i] = "_=" // set by the shell
		}
	}
	cmd := exec.Command("sh", "-c", script, os.Args[0])
	cmd.Env = append(append(os.Environ(), "GRACEFUL_TEST_WORKER=ask", "GORACE=atexit_sleep_ms=0",
		"TEST_ASK="+strings.Join(questions, ",")), env...)
	cmd.ExtraFiles = sockets
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	for i, w := range want {
		if !strings.Contains(got[i], w) {
			t.Errorf("line %d is %q, want %q in it", i, got[i], w)
		}
	}
}

// told returns the variables that describe these sockets to a worker.
func told(sockets ...dialect.Passed) []string {
	for i := range sockets {
		sockets[i].FD = inherit.FirstFD + i
	}
	return dialect.Message{Sockets: sockets}.Environment()
}

// {0} and {1} are the addresses of two sockets of the master, {p0} and {p1} their ports.
func TestInheritedSocketsAreFound(t *testing.T) {
	t.Parallel()
	m := newMaster(t)
	at := []string{m.addr, m.listen()}
	var pairs []string
	for i, a := range at {
		_, port, err := net.SplitHostPort(a)
		must.Do(t, err)
		pairs = append(pairs, fmt.Sprintf("{%d}", i), a, fmt.Sprintf("{p%d}", i), port)
	}
	fill := strings.NewReplacer(pairs...)
	named := func(names ...string) (env []string) {
		var passed []dialect.Passed
		for i, name := range names {
			passed = append(passed, dialect.Passed{Name: name, Address: addr(at[i])})
		}
		return append(told(passed...), "LISTEN_PID=PID")
	}
	type questions map[string]string // and the answers
	type asked struct {
		env []string
		all questions
	}
	rows := map[string]asked{
		"by name": {named("http", "admin"), questions{"admin|:1": "{1}", "http|:1": "{0}",
			"nope|:1": `no inherited socket has this name: "nope"; there are: "http", "admin"`}},
		"twice": {named("http"), questions{
			"http|:1,http|:1": "{0}\nthe inherited socket \"http\" was already given out"}},
		"by address, without a name":    {named("", ""), questions{"admin|{1}": "{1}", "http|{0}": "{0}"}},
		"the only one has another name": {named("admin"), questions{"http|127.0.0.1:1": `there are: "admin"`}},
		"systemd's, which has no name":  {[]string{"LISTEN_PID=PID", "LISTEN_FDS=1"}, questions{"http|:1": "{0}"}},
		"of start_server": {[]string{"SERVER_STARTER_PORT={0}=3;{p1}=4"}, questions{"admin|:{p1}": "{1}", "http|{0}": "{0}",
			"*": "{0} {1}", "nope|127.0.0.1:1": "no inherited socket"}},
		"malformed, which panics the listener package": {[]string{"SERVER_STARTER_PORT=a"},
			questions{"http|:1": "SERVER_STARTER_PORT is malformed"}},
		"not there": {[]string{"LISTEN_PID=PID", "LISTEN_FDS=99"},
			questions{"http|:1": "the inherited sockets cannot be used"}},
		"of start_server, at a port": {[]string{"SERVER_STARTER_PORT=1:2=3"}, questions{"http|:1": "{0}"}},
		"meant for another process":  {[]string{"LISTEN_PID=1", "LISTEN_FDS=1"}, questions{"http|unix:@{p0}": "@{p0}"}},
	}
	for _, host := range []string{"127.0.0.1", "0.0.0.0", "", "[::1]", "[::]", "localhost"} {
		a := addr(host + fill.Replace(":{p0}"))
		rows["the only one, as "+host] = asked{append(told(dialect.Passed{Name: a.String(), Address: a}), "LISTEN_PID=PID"),
			questions{"http|127.0.0.1:1": "{0}"}}
	}
	for name, c := range rows {
		for question, want := range c.all {
			var env []string
			for _, v := range c.env {
				env = append(env, fill.Replace(v))
			}
			got := strings.Join(ask(t, m.sockets, env, fill.Replace(question)), "\n")
			if want := fill.Replace(want); !strings.Contains(got, want) {
				t.Errorf("%s: %s gives %q, want %q in it", name, question, got, want)
			}
		}
	}
}

func TestWithoutInheritedSocketsListenerOpensTheAddress(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	abstract := fmt.Sprintf("@graceful-test-%d", os.Getpid())
	got := ask(t, nil, []string{"SERVER_STARTER_PORT="}, "a|127.0.0.1:0", "b|unix:"+path, "c|unix:"+abstract, "*")
	expect(t, got, "127.0.0.1:", path, abstract, "none")
	if _, err := os.Stat(path); err == nil {
		t.Error("the socket's file was left behind")
	}
}

func TestAddressInUseErrorSaysThatNoSocketWasInherited(t *testing.T) {
	t.Parallel()
	m := newMaster(t)
	expect(t, ask(t, nil, nil, "http|"+m.addr), "address already in use (no socket was inherited")
}

func TestDatagramSocket(t *testing.T) {
	t.Parallel()
	fd := must.Get(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))(t)
	must.Do(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	f := os.NewFile(uintptr(fd), "udp")
	defer f.Close()
	name := must.Get(unix.Getsockname(fd))(t)
	port := name.(*unix.SockaddrInet4).Port
	env := []string{"LISTEN_PID=PID", "LISTEN_FDS=1", "LISTEN_FDNAMES=dns"}
	expect(t, ask(t, []*os.File{f}, env, "dns|:1", "udp dns|:1"), "no inherited socket", fmt.Sprintf("127.0.0.1:%d", port))
}

func TestChildrenOfTheWorkerGetNeitherSocketsNorVariables(t *testing.T) {
	t.Parallel()
	m := newMaster(t)
	m.listen()
	env := append(told(dialect.Passed{Name: "http", Address: addr(m.addr)},
		dialect.Passed{Name: "admin", Address: addr(m.addr)}),
		"LISTEN_PID=PID", "NOTIFY_SOCKET=/nowhere", "WATCHDOG_USEC=1000000")
	for _, e := range [][]string{env, {"SERVER_STARTER_PORT=" + m.addr + "=3;x=4"}} {
		expect(t, ask(t, m.sockets, e, "http|"+m.addr, "child"), m.addr, "sockets 0 variables 0")
	}
}

// addr parses a valid address.
func addr(s string) socket.Address {
	a, err := socket.ParseAddress(s)
	if err != nil {
		panic(err)
	}
	return a
}
