package socket

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket/inherit"
)

// canBind reports whether another process can listen at the address, with or without SO_REUSEPORT.
func canBind(t testing.TB, address string, shared bool) bool {
	t.Helper()
	at := addrPort(t, address)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, number(shared))
	err = unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
	if err == nil {
		err = unix.Listen(fd, 1)
	}
	if err != nil && !errors.Is(err, unix.EADDRINUSE) {
		t.Fatal(err)
	}
	return err == nil
}

// arrive makes connections and checks that all arrive at one socket.
func arrive(t testing.TB, ln *Lane, n int) {
	t.Helper()
	arriveAt(t, ln.Address(), ln.FD(0), n)
}

func arriveAt(t testing.TB, address string, fd, n int) {
	t.Helper()
	for range n {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_ = unix.Close(accepted(t, fd))
	}
}

func TestReusePortChangesInPlace(t *testing.T) {
	spec := Spec{Name: "web", Address: addr("127.0.0.1:0")}
	table, w, fd := opened(t, spec)
	address := table.Address(w.Key())
	if canBind(t, address, true) {
		t.Error("the socket is shared too early")
	}
	w.ReusePort = true
	apply(t, table, w)
	if table.FD(w.Key(), 0) != fd || !canBind(t, address, true) || canBind(t, address, false) {
		t.Error("the socket is not shared, or another process can bind it without SO_REUSEPORT")
	}
	w.ReusePort = false
	apply(t, table, w)
	if table.FD(w.Key(), 0) != fd || option(t, fd, unix.SOL_SOCKET, unix.SO_REUSEPORT) != 0 || canBind(t, address, false) {
		t.Error("the socket is still shared")
	}
	arriveAt(t, table.Address(w.Key()), table.FD(w.Key(), 0), 5)
}

// TestReusePortGetsAllConnectionsWhileEarlierSocketsAreOpen changes a listener whose generations have sockets of
// their own.
func TestReusePortGetsAllConnectionsWhileEarlierSocketsAreOpen(t *testing.T) {
	table := newTable(t)
	w := want(t, Spec{Name: "web", Address: addr("127.0.0.1:0"), PerSlot: true, Handover: Steer})
	w.Slots = 2
	apply(t, table, w)
	old := held(t, table, w)
	if err := serve(table, old); err != nil {
		t.Fatal(err)
	}
	w.PerSlot, w.ReusePort = false, true
	apply(t, table, w)
	next := held(t, table, w)
	if err := serve(table, next); err != nil {
		t.Fatal(err)
	}
	arrive(t, next[0], 50)
	table.Release(old)
	arrive(t, next[0], 50)
	if n := len(table.Export()); n != 1 {
		t.Errorf("%d sockets are open", n)
	}
	stranger, err := (&net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (failed error) {
		return errors.Join(c.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		}), failed)
	}}).Listen(t.Context(), "tcp", table.Address(w.Key()))
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	got := make(chan bool, 1)
	go func() {
		c, err := stranger.Accept()
		if err == nil {
			c.Close()
		}
		got <- err == nil
	}()
	for range 50 {
		dial(t, "tcp", table.Address(w.Key())).Close()
	}
	select {
	case <-got:
	case <-time.After(time.Minute):
		t.Error("another process gets no connection")
	}
}

func isNonBlock(t testing.TB, fd int) bool {
	t.Helper()
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		t.Fatal(err)
	}
	return flags&unix.O_NONBLOCK != 0
}

func TestNonblockOfAnUnusedSocketChangesInPlace(t *testing.T) {
	path, _ := onDisk(t)
	for _, s := range []Spec{path, {Address: addr("127.0.0.1:0")}, {Address: addr("127.0.0.1:0"), Handover: Steer},
		{Address: addr("udp:127.0.0.1:0")}} {
		table, w, fd := opened(t, s)
		w.NonBlock = true
		if err := table.Update([]Want{w, want(t, Spec{Address: addr("192.0.2.77:80")})}); err == nil || isNonBlock(t, fd) {
			t.Errorf("%s: error %v, and it is changed", s.Address, err)
		}
		apply(t, table, w)
		if lanes := held(t, table, w); lanes[0].FD(0) != fd || !isNonBlock(t, fd) {
			t.Errorf("%s was not changed", s.Address)
		}
		_ = table.Close()
	}
}

func TestChangesThatTheKernelDoesNotAllowSayTheRemedy(t *testing.T) {
	path, _ := onDisk(t)
	nonBlock := func(w *Want) { w.NonBlock = true }
	for name, c := range map[string]struct {
		spec        Spec
		change      func(*Want)
		key, remedy string
	}{
		"unix":       {path, nonBlock, "nonblock", "stop"},
		"reuse_port": {Spec{Address: addr("127.0.0.1:0"), ReusePort: true}, nonBlock, "nonblock", "stop"},
		"shared":     {Spec{Address: addr("127.0.0.1:0")}, nonBlock, "nonblock", "stop"},
		"interface": {Spec{Address: addr(freePort(t))}, func(w *Want) { w.Interface = "lo" }, "interface",
			"restart supervisord"},
		"ipv6_only": {Spec{Address: addr(":0")}, func(w *Want) { w.at.dual = false }, "ipv6_only", "restart supervisord"},
		"address": {Spec{Address: addr(freePort(t))}, func(w *Want) { w.at.ip = netip.IPv4Unspecified() }, "address",
			"restart supervisord"},
	} {
		table := newTable(t)
		w := want(t, c.spec)
		apply(t, table, w)
		held(t, table, w)
		before := table.Export()
		c.change(&w)
		err := table.Update([]Want{w})
		change, is := errors.AsType[*ChangeError](err)
		if !is || change.Key != c.key || change.Spec != w.Spec || !strings.Contains(change.Remedy, c.remedy) {
			t.Errorf("%s: %v", name, err)
		}
		if !slices.Equal(before, table.Export()) {
			t.Errorf("%s: sockets are %v, not %v", name, table.Export(), before)
		}
		_ = table.Close()
	}
}

// handedOver returns the sockets of a table as the next supervisor receives them.
func handedOver(t testing.TB, table *Table) []inherit.Socket {
	t.Helper()
	var all []inherit.Socket
	for _, n := range table.Export() {
		fd, err := unix.FcntlInt(uintptr(n.FD), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		i, err := inherit.Examine(fd, n.Name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, i)
	}
	return all
}

func TestSocketWithARemovedPathIsReboundForTheNextGeneration(t *testing.T) {
	spec, path := onDisk(t)
	table, w, fd := opened(t, spec)
	old := held(t, table, w)
	spoil(t, path, true)
	if table.Stranded(w.Key()) {
		t.Error("the socket was not bound again yet")
	}
	apply(t, table, w)
	if !table.Stranded(w.Key()) || old[0].FD(0) != fd {
		t.Error("the generation has lost its socket, or the loss was not reported")
	}
	refusing := func() {
		t.Helper()
		if _, err := net.Dial("unix", path); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("a client gets %v", err)
		}
	}
	refusing()
	trial := held(t, table, w)
	if table.Stranded(w.Key()) {
		t.Error("a generation has the new socket")
	}
	dial(t, "unix", path)
	table.Release(trial)
	refusing()
	trial = held(t, table, w)
	table.Release(old)
	if isOpen(fd) {
		t.Error("the old socket is open")
	}
	dial(t, "unix", path)
	accepted(t, trial[0].FD(0))
}

func TestUnreachableSocketComesBackToItsGeneration(t *testing.T) {
	spec, path := onDisk(t)
	before, w, _ := opened(t, spec)
	old := held(t, before, w)
	spoil(t, path, true)
	table := newTable(t)
	table.Offer(handedOver(t, before))
	again := recorded(t, old...)
	if err := errors.Join(table.Resume(again)...); err != nil {
		t.Fatal(err)
	}
	if inodeOf(t, again[0].FD(0)) != inodeOf(t, old[0].FD(0)) {
		t.Error("the generation has another socket")
	}
	apply(t, table, w)
	if !table.Stranded(w.Key()) {
		t.Error("the socket was not bound again")
	}
}
