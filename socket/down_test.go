package socket

import (
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket/inherit"
)

func setOpen(t testing.TB, table *Table, key string, open bool) {
	t.Helper()
	if _, err := table.SetOpen(key, open); err != nil {
		t.Fatal(err)
	}
	if table.Closed(key) == open {
		t.Errorf("closed: %v", !open)
	}
}

// refusesClients checks that a client is refused at once.
func refusesClients(t testing.TB, network, address string) {
	t.Helper()
	if conn, err := net.Dial(network, address); !errors.Is(err, unix.ECONNREFUSED) {
		if err == nil {
			_ = conn.Close()
		}
		t.Errorf("%s: a client gets %v", address, err)
	}
}

func TestClosedListenerRefusesAndOpensAgainAsItWas(t *testing.T) {
	spec, path := onDisk(t)
	spec.Mode, spec.Backlog = 0o600, 9
	for _, s := range []Spec{
		spec,
		{Name: "chosen", Address: addr("127.0.0.1:0"), Backlog: 9,
			TCPOptions: TCPOptions{DeferAccept: 5 * time.Second, FastOpen: 9, KeepAlive: 7 * time.Second}},
		{Address: addr(freePort(t)), Backlog: 9, NonBlock: true, ReusePort: true},
	} {
		table, w, _ := opened(t, s)
		network, address := w.at.network, table.Address(w.Key())
		client := dial(t, network, address)
		if _, err := client.Write([]byte("x")); err != nil { // otherwise defer_accept holds the connection back
			t.Fatal(err)
		}
		live := accepted(t, table.FD(w.Key(), 0))
		deferred := func() int {
			// 0 for unix, which has none
			n, _ := unix.GetsockoptInt(table.FD(w.Key(), 0), unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT)
			return n
		}
		before := deferred()
		setOpen(t, table, w.Key(), false)
		refusesClients(t, network, address)
		if network == "tcp" && (canBind(t, address, false) || !s.ReusePort && canBind(t, address, true)) {
			t.Errorf("%s: another process could bind it", address)
		}
		if _, err := unix.Write(live, []byte("y")); err != nil {
			t.Errorf("%s: a connection of before: %v", address, err)
		}
		if n, err := client.Read(make([]byte, 1)); n != 1 {
			t.Errorf("%s: a connection of before: %v", address, err)
		}
		setOpen(t, table, w.Key(), true)
		fd := table.FD(w.Key(), 0)
		if now := table.Address(w.Key()); now != address || s.NonBlock != isNonBlock(t, fd) || network == "unix" &&
			modeOf(t, path).Perm() != 0o600 {
			t.Errorf("%s: it is now at %s", address, now)
		}
		if network == "tcp" && (backlog(t, fd) != 9 || deferred() != before ||
			option(t, fd, unix.IPPROTO_TCP, unix.TCP_FASTOPEN) != s.FastOpen ||
			option(t, fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE) != number(s.KeepAlive > 0)) {
			t.Errorf("%s: options are lost", address)
		}
		again := dial(t, network, address)
		if _, err := again.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		accepted(t, fd)
		_ = table.Close()
	}
}

func TestClosingResetsQueuedConnections(t *testing.T) {
	spec, _ := onDisk(t)
	for _, s := range []Spec{spec, {Address: addr("127.0.0.1:0")}} {
		table, w, _ := opened(t, s)
		client := dial(t, w.at.network, table.Address(w.Key()))
		setOpen(t, table, w.Key(), false)
		if err := client.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Read(make([]byte, 1)); err == nil || errors.Is(err, unix.ETIMEDOUT) || isTimeout(err) {
			t.Errorf("%s: %v", s.Address, err)
		}
		_ = table.Close()
	}
}

func isTimeout(err error) bool {
	timeout, is := errors.AsType[net.Error](err)
	return is && timeout.Timeout()
}

func TestWorkerThatHasTheSocketAcceptsWhenItIsOpenAgain(t *testing.T) {
	table, w, fd := opened(t, Spec{Address: addr("127.0.0.1:0"), NonBlock: true})
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(own) }()
	setOpen(t, table, w.Key(), false)
	setOpen(t, table, w.Key(), true)
	dial(t, "tcp", table.Address(w.Key()))
	accepted(t, own)
}

func TestConnectionsThatTheWorkerClosedDoNotKeepAListenerClosed(t *testing.T) {
	table, w, fd := opened(t, Spec{Address: addr("127.0.0.1:0")})
	client := dial(t, "tcp", table.Address(w.Key()))
	_ = unix.Close(accepted(t, fd)) // this side enters TIME_WAIT once the client has closed
	_, _ = client.Read(make([]byte, 1))
	_ = client.Close()
	setOpen(t, table, w.Key(), false)
	setOpen(t, table, w.Key(), true)
	arriveAt(t, table.Address(w.Key()), table.FD(w.Key(), 0), 1)
}

func TestClosedListenerChangesAndIsHandedOver(t *testing.T) {
	path, _ := onDisk(t)
	for _, s := range []Spec{path, {Name: "web", Address: addr("127.0.0.1:0")},
		{Name: "slots", Address: addr("127.0.0.1:0"), PerSlot: true, Handover: Steer}} {
		before := newTable(t)
		w := want(t, s)
		w.Slots = 2
		apply(t, before, w)
		address := before.Address(w.Key())
		setOpen(t, before, w.Key(), false)
		w.Backlog = 5
		apply(t, before, w)
		refusesClients(t, w.at.network, address)
		table := newTable(t)
		offers := handedOver(t, before)
		table.Offer(offers)
		apply(t, table, w)
		if !table.Closed(w.Key()) || len(table.Unclaimed()) != 0 || len(table.Export()) != len(offers) {
			t.Errorf("%s: closed %v, %d sockets of %d", s.Address, table.Closed(w.Key()), len(table.Export()), len(offers))
		}
		refusesClients(t, w.at.network, address)
		setOpen(t, table, w.Key(), true)
		client := dial(t, w.at.network, address)
		_ = client.Close()
		_ = table.Close()
		_ = before.Close()
	}
}

func TestSocketThatCannotBeClosedStaysOpen(t *testing.T) {
	table := newTable(t)
	o := unitSocket(t, "tcp4", "127.0.0.1:0", "http")
	unit := want(t, Spec{Name: "http", Address: addr(o.Address)})
	table.Offer([]inherit.Socket{o})
	udp, abstract := want(t, Spec{Address: addr("udp:127.0.0.1:0")}), want(t, Spec{Address: addr("unix:@" + t.Name())})
	apply(t, table, unit, udp, abstract)
	for _, key := range []string{unit.Key(), udp.Key(), abstract.Key(), "tcp 127.0.0.1:1"} {
		if table.CanClose(key) {
			t.Errorf("%s can be closed", key)
		}
		if changed, err := table.SetOpen(key, false); changed || err != nil || table.Closed(key) {
			t.Errorf("%s: changed %v, error %v", key, changed, err)
		}
	}
	dial(t, "tcp", o.Address)
}
