package socket

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
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
		{Name: "chosen", Address: addr("127.0.0.1:0"), Backlog: 9, Sockopts: Sockopts{DeferAccept: 5 * time.Second,
			FastOpen: 9, KeepAlive: 7 * time.Second}},
		{Address: addr(freePort(t)), Backlog: 9, Sockopts: Sockopts{NonBlock: true, ReusePort: true}},
	} {
		table, w, fd := opened(t, s)
		network, address, before := w.at.network, table.Address(w.Key()), settings(t, fd, w.at)
		client, queued := dial(t, network, address), dial(t, network, address)
		speak(t, client) // otherwise defer_accept holds the connection back
		live := accepted(t, fd)
		speak(t, queued)
		setOpen(t, table, w.Key(), false)
		if _, err := queued.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s: a client in the queue is not refused", address)
		}
		refusesClients(t, network, address)
		if network == "tcp" && (canBind(t, address, false) || !s.ReusePort && canBind(t, address, true)) {
			t.Errorf("%s: another process could bind it", address)
		}
		must.Get(unix.Write(live, []byte("y")))(t)
		must.Get(client.Read(make([]byte, 1)))(t) // a connection of before
		setOpen(t, table, w.Key(), true)
		if now := table.Address(w.Key()); now != address || network == "unix" && modeOf(t, path).Perm() != 0o600 {
			t.Errorf("%s: it is now at %s", address, now)
		}
		differences(t, before, settings(t, table.FD(w.Key(), 0), w.at))
		speak(t, dial(t, network, address))
		accepted(t, table.FD(w.Key(), 0))
		_ = table.Close()
	}
}

func TestSocketThatCannotBeClosedStaysOpen(t *testing.T) {
	table := newTable(t)
	o := unitSocket(t, plain, "tcp4", "127.0.0.1:0", "http")
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

// emptied refuses what waits where nobody accepts, and returns how many connections that were.
func emptied(t testing.TB, table *Table) (refused int) {
	t.Helper()
	for _, queues := range table.Unowned() {
		for _, q := range queues {
			n, err := q.Refuse()
			if err != nil {
				t.Error(err)
			}
			refused += n
		}
	}
	return refused
}

// serves holds a lane for a generation, and sends it all new connections.
func serves(t *testing.T, table *Table, w Want) []*Lane {
	t.Helper()
	lanes := held(t, table, w)
	must.Do(t, serve(table, lanes))
	return lanes
}

func TestQueueHasNoOwnerOnceItsGenerationIsGoneAndAnotherServes(t *testing.T) {
	play(t, Spec{}, tcpAddresses, `
		hold a; serve a; wait 2; hold b; serve b; wait 3; refused 0; release a; refused 2; refused 0; take 3 b
		unowned 1; pause; unowned 0; resume; unowned 1; hold c; unowned 0`)
}

// TestNextSupervisorFindsTheLaneInWhichClientsWait has no record of the one before: only the sockets are left.
func TestNextSupervisorFindsTheLaneInWhichClientsWait(t *testing.T) {
	for _, deploys := range []string{"", "hold b; serve b; release a; ",
		"hold b; serve b; release a; hold c; serve c; release b; "} {
		last := "abc"[strings.Count(deploys, "hold"):][:1]
		play(t, Spec{}, tcpAddresses[:1], "hold a; serve a; "+deploys+"release "+last+
			"; wait 1; restart; wait 3; refused 0; hold d; same d "+last+"; take 4 d")
	}
}

func TestListenerThatIsOpenedAgainReachesTheWorkersThatHaveIt(t *testing.T) {
	play(t, Spec{}, tcpAddresses, "hold a b; serve b; come 3 b; close; reopen; come 3 b; serve a; come 3 a; lanes")
	// also if earlier connections are in TIME_WAIT
	play(t, Spec{}, tcpAddresses, "hold a; serve a; wait 3; take 3 a; close; reopen; come 3 a")
}

func TestSocketIsDeafWhileItHasNoOwner(t *testing.T) {
	s := begin(t, Spec{Address: addr("127.0.0.1:0")})
	s.play("hold a; serve a; hold b; serve b; deaf; release a; deaf 0; hold c; deaf; release c; deaf 0")
	// The record is behind: by it, a generation has the first lane, in which no client waits.
	s.play("hold a; deaf")
	behind := recorded(t, s.lanes["a"])
	s.play("release a b; deaf 0")
	next := newTable(t)
	next.Offer(handedOver(t, s.table))
	for _, err := range next.Resume(behind, nil, nil) {
		t.Error(err)
	}
	s.table, s.lanes["a"] = next, behind[0]
	s.play("deaf 1; come 5 a")
}

func TestSocketsOfASocketUnitGetWhatComesWhenAProgramStops(t *testing.T) {
	shared := plain
	shared.Control = reusePort
	for n := 1; n <= 2; n++ {
		address := freePort(t)
		w := want(t, Spec{Name: "http", Address: addr(address), Handover: Steer, Sockopts: Sockopts{NonBlock: true}})
		w.Slots = 2
		var units []int // systemd's
		var offers []inherit.Socket
		for range n {
			o := unitSocket(t, shared, "tcp4", address, "http")
			units, offers = append(units, inherited(t, o.FD, "http").FD), append(offers, o)
		}
		table := offered(t, offers...)
		apply(t, table, w)
		first, err := table.Hold([]Resolved{w.Resolved}, 2, nil)
		if err != nil || first[0].Sockets() != n || first[0].BesideUnit() {
			t.Fatalf("the first generation has %+v (%v), beside the unit: %v", first, err, first[0].BesideUnit())
		}
		second, err := table.Hold([]Resolved{w.Resolved}, 2, nil)
		if err != nil || !second[0].BesideUnit() {
			t.Fatalf("the second generation has %+v: %v", second, err)
		}
		must.Do(t, serve(table, second))
		if got := arrivals(t, address, 20, table.FDs(w.Key())...); got[second[0].FD(0)] != 20 {
			t.Errorf("the sockets of a unit get what is steered elsewhere: %v", got)
		}
		table.Release(first)
		must.Do(t, table.Steer([]Part{{Lanes: second, Weight: 1, Unit: true}}))
		table.Release(second)
		must.Do(t, table.Close())
		total, got := 0, arrivals(t, address, 40, units...)
		for _, fd := range units {
			total += got[fd]
			_ = unix.Close(fd)
		}
		if total != 40 {
			t.Errorf("%d sockets of a unit got %d of 40 connections", n, total)
		}
	}
}

// TestTrialGetsNoSocketInWhichAHandshakeIsUnderWay has a client that connects, and sends nothing until its generation
// is gone. Where the program is down, such a client waits for the next generation.
func TestTrialGetsNoSocketInWhichAHandshakeIsUnderWay(t *testing.T) {
	play(t, Spec{Sockopts: Sockopts{DeferAccept: 30 * time.Second}}, append(tcpAddresses, "[::]:0"), `
		hold a; serve a; shake; hold b; serve b; release a; hold c; open 3; release c; hold d; same d c; open 3
		say; await a; refused 1; reset 1; hold e; same e a; release e d b; shake; hold f; same f b; say; take 1 f`)
}

// TestTrialGetsNoSocketInWhichAHandshakeIsUnderWayAfterALookInAdvance is the same with Vacate: what it has seen of a
// socket holds until new connections go there again.
func TestTrialGetsNoSocketInWhichAHandshakeIsUnderWayAfterALookInAdvance(t *testing.T) {
	play(t, Spec{Sockopts: Sockopts{DeferAccept: 30 * time.Second}}, append(tcpAddresses, "[::]:0"), `
		hold a; serve a; shake; hold b; serve b; release a; vacate 0; hold c; open 3; release c; vacate 1; hold d
		same d c; serve d; shake; release b; vacate 1; hold e; same e b; serve e; release d; hold f; other f d; open 4
		say; refused 1; reset 1`)
	play(t, Spec{Sockopts: Sockopts{DeferAccept: 30 * time.Second}}, append(tcpAddresses, "[::]:0"), `
		hold a; serve a; hold b; release a; vacate 0; shake; serve b; vacate 0; hold c; open 3`)
}

// TestSocketsOfAnyAddressAreThoseOfIPv4WhereThereIsNoIPv6: /proc/net/tcp lists them, not tcp6.
func TestSocketsOfAnyAddressAreThoseOfIPv4WhereThereIsNoIPv6(t *testing.T) {
	needIPv6(t)
	for listen, ip6 := range map[string]bool{"127.0.0.1:0": false, "0.0.0.0:0": false, ":0": true} {
		s := begin(t, Spec{Address: addr(listen)})
		l := s.table.listeners[s.w.Key()]
		if l.isIPv6() != ip6 {
			t.Errorf("%s: IPv6: %v", listen, !ip6)
		}
		if l.r.at.ip.IsUnspecified() {
			if l.r.at = must.Get(Spec{Address: addr(":0")}.Resolve(t.Context()))(t).at; l.isIPv6() != ip6 {
				t.Errorf("%s, as [::]: IPv6: %v", listen, !ip6)
			}
		}
	}
}

// vacated looks in advance, and counts the sockets that are known to be free.
func vacated(t *Table) (n int) {
	if look := t.Vacate(); look != nil {
		look()()
	}
	for _, l := range t.listeners {
		n += len(only(l.unused(), func(m *sock) bool { return m.vacancy.of(m) }))
	}
	return n
}

// TestGroupThatLosesSocketsWithoutOwnersLosesNoConnection closes two of three sockets, as the kernel does when a
// supervisord is killed, and connects after the first: the program's index means no socket then, and the kernel sends
// half of the connections to the second. They arrive when their kernels send again, all in the same second.
func TestGroupThatLosesSocketsWithoutOwnersLosesNoConnection(t *testing.T) {
	var arrive []func()
	for _, c := range []struct{ listen, at string }{{"127.0.0.1:0", "127.0.0.1"}, {"[::1]:0", "::1"}, {":0", "127.0.0.1"},
		{":0", "::1"}} {
		s := begin(t, Spec{Address: addr(c.listen)})
		s.play("hold a; serve a; hold b; serve b; hold c; serve c; release a b")
		worker := inherited(t, s.fds("c")[0], "worker").FD
		defer unix.Close(worker)
		to := bindAddr{ip: netip.MustParseAddr(c.at), port: s.table.listeners[s.w.Key()].port()}
		group := handedOver(t, s.table)
		if err := s.table.Close(); err != nil || len(group) != 3 {
			t.Fatal(len(group), err)
		}
		unix.Close(group[0].FD)
		clients := connecting(t, to, 40)
		unix.Close(group[1].FD)
		unix.Close(group[2].FD)
		arrive = append(arrive, func() {
			for range clients {
				accepted(t, worker)
			}
			for _, fd := range clients {
				if code := option(t, fd, unix.SOL_SOCKET, unix.SO_ERROR); code != 0 {
					t.Errorf("%s: a client sees %v", c, unix.Errno(code))
				}
			}
		})
	}
	for _, all := range arrive {
		all()
	}
}

// connecting begins so many connections, and waits for none.
func connecting(t *testing.T, at bindAddr, n int) (fds []int) {
	t.Helper()
	to := must.Get(at.sockaddr())(t)
	family := unix.AF_INET
	if at.ip.Is6() {
		family = unix.AF_INET6
	}
	for range n {
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Skip(err) // no IPv6
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		if err := unix.Connect(fd, to); err != nil && !errors.Is(err, unix.EINPROGRESS) {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	return fds
}
