package usage

import (
	"crypto/rand"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/must"
)

// fdOf returns the descriptor of a listener or connection, which keeps owning it.
func fdOf(t *testing.T, l any) int {
	t.Helper()
	raw := must.Get(l.(syscall.Conn).SyscallConn())(t)
	fd := -1
	must.Do(t, raw.Control(func(n uintptr) { fd = int(n) }))
	return fd
}

// listen listens without accepting.
func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l := must.Get(net.Listen(network, address))(t)
	t.Cleanup(func() { l.Close() })
	return l
}

func dial(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c := must.Get(net.Dial(l.Addr().Network(), l.Addr().String()))(t)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestAcceptQueueCountsWaitingConnections(t *testing.T) {
	for network, address := range map[string]string{"tcp4": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")} {
		l := listen(t, network, address)
		fd := fdOf(t, l)
		if waiting, limit, err := queueOf(fd); err != nil || waiting != 0 || limit < 1 {
			t.Errorf("%s: the empty queue is %d of %d, %v", network, waiting, limit, err)
		}
		for range 3 {
			dial(t, l)
		}
		// A client is connected before the queue of the listener contains it.
		must.Become(t, network+": three wait", func() bool { n, _, err := queueOf(fd); return err == nil && n == 3 })
		if c, err := l.Accept(); err == nil {
			defer c.Close()
		}
		must.Become(t, network+": two wait", func() bool { n, _, err := queueOf(fd); return err == nil && n == 2 })
	}
}

func TestOtherDescriptorsHaveNoQueue(t *testing.T) {
	l := listen(t, "tcp4", "127.0.0.1:0")
	if _, _, err := queueOf(fdOf(t, dial(t, l))); !errors.Is(err, errNoQueue) {
		t.Errorf("a connection: %v", err)
	}
	f := must.Get(os.Open("/dev/null"))(t)
	defer f.Close()
	if _, _, err := queueOf(int(f.Fd())); err == nil {
		t.Error("a file has a queue")
	}
	if _, _, err := queueOf(-1); err == nil {
		t.Error("nothing has a queue")
	}
}

func count(pids []int, addresses []string) (int, error) {
	c := processes().connections([]query{{PIDs: pids, Addresses: addresses}}, time.Time{})[0]
	return c.Open, c.Err
}

// sleeper starts a child in its own process group.
func sleeper(t *testing.T, files ...*os.File) *exec.Cmd {
	t.Helper()
	child := exec.Command("sleep", "1000")
	child.ExtraFiles = files
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must.Do(t, child.Start())
	t.Cleanup(func() { child.Process.Kill(); child.Wait() })
	return child
}

// TestManyQueriesAreAnsweredTogether has a child that holds the connections of one of two listeners, and a thousand
// queries.
func TestManyQueriesAreAnsweredTogether(t *testing.T) {
	mine, childs := listen(t, "tcp4", "127.0.0.1:0"), listen(t, "tcp4", "127.0.0.1:0")
	for range 2 {
		dial(t, mine)
		c := must.Get(mine.Accept())(t)
		defer c.Close()
	}
	dial(t, childs)
	c := must.Get(childs.Accept())(t)
	f := must.Get(c.(*net.TCPConn).File())(t)
	c.Close()
	child := sleeper(t, f)
	f.Close()
	table := processes()
	at := []string{mine.Addr().String(), childs.Addr().String()}
	queries := []query{{[]int{os.Getpid()}, at}, {[]int{child.Process.Pid}, at}, {[]int{child.Process.Pid}, at[:1]},
		{[]int{os.Getpid()}, nil}}
	for range 1000 {
		queries = append(queries, query{[]int{child.Process.Pid}, at[1:]})
	}
	counts := table.connections(queries, time.Time{})
	for i, want := range []int{3, 1, 0, 0, 1} { // the child is a descendant of this process
		if counts[i].Open != want || counts[i].Err != nil {
			t.Errorf("query %d: %+v, want %d", i, counts[i], want)
		}
	}
	if c := table.connections(queries[:1], time.Now().Add(-time.Second))[0]; !errors.Is(c.Err, errLate) {
		t.Errorf("after the deadline: %+v", c)
	}
	if p, n := table.group(child.Process.Pid); n != 1 || p.Parent != os.Getpid() || p.Resident < 0 || p.Began <= 0 {
		t.Errorf("the child is %+v, of %d", p, n)
	}
}

func TestConnectionsOfAProcessAreCounted(t *testing.T) {
	self, other := []int{os.Getpid()}, []int{sleeper(t).Process.Pid}
	for network, address := range map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0", "tcp": ":0",
		"unix": filepath.Join(t.TempDir(), "s"), "unixpacket": "@" + rand.Text()} {
		l, err := net.Listen(network, address)
		if err != nil && network == "tcp6" {
			continue // no IPv6 here
		}
		if err != nil {
			t.Fatal(err)
		}
		at := []string{l.Addr().String()}
		var accepted []net.Conn
		for range 3 {
			dial(t, l)
			c := must.Get(l.Accept())(t)
			accepted = append(accepted, c)
		}
		if n, err := count(self, at); err != nil || n != 3 {
			t.Errorf("%s: %d connections, %v; want 3", network, n, err)
		}
		accepted[0].Close()
		if n, err := count(self, append(at, at...)); err != nil || n != 2 {
			t.Errorf("%s: %d connections, %v; want 2", network, n, err)
		}
		if n, err := count(other, at); n != 0 || err != nil {
			t.Errorf("%s: another process has %d of them", network, n)
		}
		for _, c := range accepted {
			c.Close()
		}
		l.Close()
	}
}

func TestEndedProcessHasNoConnections(t *testing.T) {
	if n, err := count([]int{1 << 29}, []string{"127.0.0.1:80"}); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
