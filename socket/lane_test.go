package socket

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/lab/unit"
	"example.org/supervisord/socket/diag"
)

// canBind reports whether another process can listen at the address, with or without SO_REUSEPORT.
func canBind(t testing.TB, address string, shared bool) bool {
	t.Helper()
	at := netip.MustParseAddrPort(address)
	fd := must.Get(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	defer func() { _ = unix.Close(fd) }()
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, number(shared))
	err := unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
	if err == nil {
		err = unix.Listen(fd, 1)
	}
	if err != nil && !errors.Is(err, unix.EADDRINUSE) {
		t.Fatal(err)
	}
	return err == nil
}

func arriveAt(t testing.TB, address string, fd, n int) {
	t.Helper()
	if got := arrivals(t, address, n, fd); got[fd] != n {
		t.Errorf("%d of %d connections arrive", got[fd], n)
	}
}

func TestNewClientsGoToTheLaneThatServes(t *testing.T) {
	play(t, Spec{}, ipAddresses, `
		hold a; serve a; come 20 a; hold b; come 20 a
		serve b; come 20 b; left a; serve a; come 20 a; serve b; come 20 b
		release a; hold c; same c a; come 20 b; serve c; come 20 c
		release b; hold d; same d b; serve d; come 20 d; lanes`)
	play(t, Spec{}, tcpAddresses, "hold a b; release a; hold c d; release b; hold e f; open 4; deaf")
}

func TestProbeReachesATrialThatClientsDoNotReach(t *testing.T) {
	play(t, Spec{}, append(tcpAddresses, "0.0.0.0:0", "[::]:0"), "hold a b; serve a; probe b; probe a; probe b; come 20 a")
}

func TestSwitchLeavesTheQueueOfALaneAlone(t *testing.T) {
	play(t, Spec{}, ipAddresses, "hold a b; serve a; wait 10; serve b; serve a; serve b; take 10 a; come 5 b")
}

func TestClientsOfAProgramThatIsDownWaitForTheNextGeneration(t *testing.T) {
	play(t, Spec{}, ipAddresses, "hold a b; serve b; wait 2; release b a; wait 2; refused 0; hold c; same c b; take 4 c")
}

// TestGenerationBeforeWhichAnotherEndsHasItsSocket: who waits there waits for the one that comes, or that comes back.
func TestGenerationBeforeWhichAnotherEndsHasItsSocket(t *testing.T) {
	play(t, Spec{}, tcpAddresses, `
		handover share; hold a; serve a; handover steer; after b a; same b a; serve b; wait 3; release a; take 3 b
		come 5 b; hold c; other c b; serve c; come 5 c; left b; release b
		after d c; same d c; serve d; wait 2; release d; serve c; take 2 c; upgrade; come 5 c`)
}

func TestLanesOfSeveralSocketsFollowEachOther(t *testing.T) {
	play(t, Spec{PerSlot: true}, tcpAddresses[:1], `
		slots 3; hold a; serve a; come 30 a
		slots 1; hold b; serve b; come 10 b; release a
		slots 5; hold c; serve c; come 50 c; release b
		slots 2; hold d; serve d; come 20 d; release c
		slots 4; hold e; serve e; come 40 e; open 7; lanes
		slots 1; hold f g h i; release f h; slots 4; hold j; serve j 4 i 1; come 100 j i; upgrade; come 100 j i`)
}

// TestReusePortGetsAllConnectionsWhileEarlierSocketsAreOpen changes a listener whose generations have sockets of
// their own.
func TestReusePortGetsAllConnectionsWhileEarlierSocketsAreOpen(t *testing.T) {
	s := begin(t, Spec{Address: addr("127.0.0.1:0"), PerSlot: true})
	s.play("slots 2; hold a; serve a")
	s.w.PerSlot, s.w.ReusePort, s.w.NonBlock = false, true, false
	s.play("slots 2; hold b; serve b; come 20 b; release a; come 20 b; open 1")
	stranger := listenBeside(t, "tcp", s.at()).(*net.TCPListener)
	raw := must.Get(stranger.SyscallConn())(t)
	_ = raw.Control(func(theirs uintptr) {
		if got := arrivals(t, s.at(), 60, int(theirs), s.fds("b")[0]); got[int(theirs)] == 0 {
			t.Error("another process gets no connection")
		}
	})
}

func isNonBlock(t testing.TB, fd int) bool {
	t.Helper()
	flags := must.Get(unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0))(t)
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
		"reuse_port": {Spec{Address: addr("127.0.0.1:0"), Sockopts: Sockopts{ReusePort: true}}, nonBlock, "nonblock", "stop"},
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

// TestPausedListenerLetsClientsWait: their kernels send again what the deaf socket has dropped, all in the same second.
func TestPausedListenerLetsClientsWait(t *testing.T) {
	var resumed []func()
	for _, address := range tcpAddresses {
		s := begin(t, Spec{Address: addr(address)})
		s.play("hold a; serve a; wait 1; shake")
		fd, to := s.fds("a")[0], netip.MustParseAddrPort(s.at())
		conn := accepted(t, fd)
		s.play("pause")
		late := connecting(t, bindAddr{ip: to.Addr(), port: to.Port()}, 20)
		accepted(t, fd)   // what waited is served
		s.play("probe a") // health is still told
		speak(t, s.conns[0])
		if n, err := unix.Read(conn, make([]byte, 20)); n < len("request") || err != nil {
			t.Errorf("a connection of before does not continue: %d bytes, %v", n, err)
		}
		for _, client := range late {
			info, err := unix.GetsockoptTCPInfo(client, unix.IPPROTO_TCP, unix.TCP_INFO)
			if err != nil || info.State != synSent {
				t.Fatalf("a new connection is in state %d: %v", info.State, err)
			}
		}
		s.play("upgrade")
		late = append(late, connecting(t, bindAddr{ip: to.Addr(), port: to.Port()}, 1)...)
		info, err := unix.GetsockoptTCPInfo(late[20], unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil || info.State != synSent {
			t.Fatalf("a connection after an upgrade is in state %d: %v", info.State, err)
		}
		resumed = append(resumed, func() {
			s.play("resume")
			for _, client := range late {
				if !writable(t, client) {
					t.Fatal("a client is not connected")
				}
				request(client)
			}
			s.play("take 21 a")
		})
	}
	for _, resume := range resumed {
		resume()
	}
}

// TestAddressThatOnlyFinishingGenerationsHaveGetsNothingNew: what they have in hand there counts.
func TestAddressThatOnlyFinishingGenerationsHaveGetsNothingNew(t *testing.T) {
	for _, address := range tcpAddresses {
		s := begin(t, Spec{Address: addr(address)})
		s.play("hold a; serve a; wait 2; leave a; left a; take 2 a; leave a; left a")
		to := netip.MustParseAddrPort(s.at())
		late := connecting(t, bindAddr{ip: to.Addr(), port: to.Port()}, 10)
		s.play("upgrade; leave a; left a")
		for _, client := range late {
			info, err := unix.GetsockoptTCPInfo(client, unix.IPPROTO_TCP, unix.TCP_INFO)
			if err != nil || info.State != synSent {
				t.Fatalf("a new connection is in state %d: %v", info.State, err)
			}
		}
		s.play("serve a")
		for _, client := range late {
			if !writable(t, client) {
				t.Fatal("a client is not connected")
			}
		}
		s.play("take 10 a; come 5 a; leave a; update; hold b; come 5 b; serve b; release a; come 5 b")
	}
	play(t, Spec{Handover: Share}, tcpAddresses, "hold a; serve a; hold b; serve b; leave a; come 5 b; release a")
	play(t, Spec{}, tcpAddresses, "hold a; serve a; after b a; leave a; come 5 b; serve b; leave a; come 5 b; release a")
}

const synSent = 2 // net/tcp_states.h

func writable(t *testing.T, fd int) bool {
	t.Helper()
	return polledFor(t, []int{fd}, unix.POLLOUT, patience)[0].Revents == unix.POLLOUT
}

func TestPauseOfWhatCannotBePausedChangesNothing(t *testing.T) {
	table := newTable(t)
	tcp := want(t, Spec{Name: "web", Address: addr("127.0.0.1:0"), Handover: Steer})
	udp := want(t, Spec{Name: "dns", Address: addr("udp:127.0.0.1:0")})
	apply(t, table, tcp, udp)
	err := table.Pause([]string{tcp.Key(), udp.Key()}, true)
	if err == nil || !strings.Contains(err.Error(), "udp 127.0.0.1") ||
		!strings.Contains(err.Error(), "stop the program") {
		t.Errorf("error %v", err)
	}
	arriveAt(t, table.Address(tcp.Key()), table.FD(tcp.Key(), 0), 3)
	if n := len(table.Export()); n != 3 {
		t.Errorf("%d sockets are open", n) // the one that was deaf for the pause is free now
	}
}

// TestListenerMayComeAgain after a pause, and while somebody still has its socket: systemd has a duplicate in its store
// until it has read that it is not needed any more.
func TestListenerMayComeAgain(t *testing.T) {
	s := begin(t, Spec{Address: addr(freePort(t))})
	for _, pause := range []string{"", "; pause"} {
		s.play("hold a; serve a" + pause)
		kept := must.Get(unix.Dup(s.fds("a")[0]))(t)
		defer unix.Close(kept)
		apply(t, s.table)
		s.play("release a; open 0")
		apply(t, s.table, s.w)
		s.play("hold b; come 5 b; release b")
	}
}

// TestLanesShowConnectionsThatNobodyAccepts has a generation that ends while a connection waits in its lane.
func TestLanesShowConnectionsThatNobodyAccepts(t *testing.T) {
	s := begin(t, Spec{Address: addr("127.0.0.1:0")})
	s.play("hold a b; serve a; wait 1; serve b 3 a 1")
	a, b := s.lanes["a"], s.lanes["b"]
	shows := func(want ...LaneStatus) {
		t.Helper()
		if got := s.table.Lanes(s.w.Key()); !reflect.DeepEqual(got, want) {
			t.Errorf("the lanes are %+v, want %+v", got, want)
		}
	}
	shows(LaneStatus{0, []int{0}, 0, 0.25, 1, a}, LaneStatus{1, []int{1}, 0, 0.75, 0, b})
	s.play("serve b; release a")
	shows(LaneStatus{0, []int{0}, 0, 0, 1, nil}, LaneStatus{1, []int{1}, 0, 1, 0, b})
}

func TestSharesOfConnectionsAreExact(t *testing.T) {
	const connections = 4000
	s := begin(t, Spec{Address: addr("127.0.0.1:0")})
	s.play("hold a b c")
	for _, weights := range [][]int{{95, 5, 0}, {1, 1, 0}, {6, 3, 1}} {
		s.play(fmt.Sprintf("serve a %d b %d c %d", weights[0], weights[1], weights[2]))
		got := arrivals(t, s.at(), connections, s.table.FDs(s.w.Key())...)
		for i, name := range []string{"a", "b", "c"} {
			wanted := float64(weights[i]) / float64(weights[0]+weights[1]+weights[2])
			is := float64(got[s.fds(name)[0]]) / connections
			bound := 5 * math.Sqrt(wanted*(1-wanted)/connections) // standard deviations: chance goes beyond once in 1.7 million
			if math.Abs(wanted-is) > bound {
				t.Errorf("%v: %s got %.2f%%", weights, name, 100*is)
			}
		}
	}
}

func TestWorkersOfASteeredListenerAreSpreadOverSockets(t *testing.T) {
	for _, c := range []struct {
		spec           Spec
		workers, wants int
	}{
		{Spec{Address: addr("127.0.0.1:0")}, 1, 1},
		{Spec{Address: addr("127.0.0.1:0")}, SlotsOfSocket, 1},
		{Spec{Address: addr("127.0.0.1:0")}, SlotsOfSocket + 1, 2},
		{Spec{Address: addr("127.0.0.1:0")}, 10 * SlotsOfSocket, 10},
		{Spec{Address: addr("127.0.0.1:0"), Single: true}, 10 * SlotsOfSocket, 1},
		{Spec{Address: addr("127.0.0.1:0"), PerSlot: true, Handover: Steer}, 40, 40},
		{Spec{Address: addr("unix:" + t.TempDir() + "/s")}, 10 * SlotsOfSocket, 1},
		{Spec{Address: addr("127.0.0.1:0"), Sockopts: Sockopts{ReusePort: true}}, 10 * SlotsOfSocket, 1},
	} {
		table, w := steered(t, c.spec)
		lanes := must.Get(table.Hold([]Resolved{w.Resolved}, c.workers, nil))(t)
		if got := lanes[0].Sockets(); got != c.wants {
			t.Errorf("%d workers of %+v have %d sockets, want %d", c.workers, c.spec, got, c.wants)
		}
		for slot := range c.workers + 5 {
			fd := lanes[0].FD(slot)
			if want := lanes[0].FD(slot % c.wants); fd != want && !(c.spec.PerSlot && slot >= c.workers) || fd < 0 &&
				slot < c.workers {
				t.Errorf("of %d sockets, slot %d has %d, want %d", c.wants, slot, fd, want)
			}
		}
		_ = table.Close()
	}
}

func TestFewDescriptorsMeanFewSockets(t *testing.T) {
	var before unix.Rlimit
	must.Do(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &before) }()
	r := resolved(t, Spec{Name: "web", Address: addr("127.0.0.1:0"), Handover: Steer})
	for limit, want := range map[uint64]int{32: 1, 256: 4, 640: 10} {
		must.Do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: before.Max}))
		if got := r.sockets(10 * SlotsOfSocket); got != want {
			t.Errorf("with room for %d descriptors there are %d sockets, want %d", limit, got, want)
		}
	}
}

func TestSlotsAreHandedOverOneByOne(t *testing.T) {
	s := begin(t, Spec{Address: addr("127.0.0.1:0")})
	s.play("slots " + strconv.Itoa(3*SlotsOfSocket) + "; hold a b; serve a") // three sockets
	old, next := []*Lane{s.lanes["a"]}, []*Lane{s.lanes["b"]}
	for done := range 4 {
		slots := []int{0, 3*SlotsOfSocket - 2, 5} // of the first, the second and the third socket
		parts := []Part{{Lanes: old, Slots: slots[done:], Weight: 3 - done}, {Lanes: next, Slots: slots[:done], Weight: done}}
		parts = slices.DeleteFunc(parts, func(p Part) bool { return p.Weight == 0 })
		must.Do(t, s.table.Steer(parts))
		got := arrivals(t, s.at(), 300, s.table.FDs(s.w.Key())...)
		for slot := range 3 {
			if a, b := got[old[0].FD(slot)] > 0, got[next[0].FD(slot)] > 0; a != (slot >= done) || b != (slot < done) {
				t.Errorf("after %d slots: %v", done, got)
			}
		}
		if left := Left(old, []int{0}); (len(left) == 1) != (done > 0) || done > 0 &&
			(len(left[0].Queues) != 1 || left[0].Queues[0] != inodeOf(t, old[0].FD(0))) {
			t.Errorf("after %d slots, left of slot 0: %v", done, left)
		}
		if left := Left(old, nil); done > 0 && len(left[0].Queues) != done {
			t.Errorf("after %d slots, left: %v", done, left)
		}
	}
}

// TestUnitSocketThatCannotBeSteeredIsShared: one without ReusePort=yes, and one of MPTCP.
func TestUnitSocketThatCannotBeSteeredIsShared(t *testing.T) {
	mptcp := net.ListenConfig{Control: reusePort}
	mptcp.SetMultipathTCP(true)
	for says, c := range map[string]net.ListenConfig{"ReusePort=yes": plain, "MPTCP": mptcp} {
		o := unitSocket(t, c, "tcp4", "127.0.0.1:0", "http")
		if says == "MPTCP" && option(t, o.FD, unix.SOL_SOCKET, unix.SO_PROTOCOL) == unix.IPPROTO_TCP {
			_ = unix.Close(o.FD)
			continue // the kernel has no MPTCP
		}
		w, table := want(t, Spec{Name: "http", Address: addr(o.Address), Handover: Steer}), offered(t, o)
		apply(t, table, w)
		if why, unasked := table.WhyShared(w.Resolved); !unasked || !strings.Contains(why, says) {
			t.Errorf("it is shared because %q", why)
		}
		a, b := held(t, table, w), held(t, table, w)
		if a[0].FD(0) != b[0].FD(0) || a[0].Own() || b[0].Own() {
			t.Error("two generations have two sockets")
		}
		if _, err := a[0].Probe(0); err == nil || !strings.Contains(err.Error(), "share") {
			t.Errorf("a probe: %v", err)
		}
	}
}

func TestGenerationsHaveTagsOfTheirOwn(t *testing.T) {
	for _, slots := range []int{1, 12, 17, diag.Tags + 2} {
		s := begin(t, Spec{Address: addr("127.0.0.1:0"), PerSlot: true})
		s.play("slots " + strconv.Itoa(slots) + "; hold a; hold b; upgrade; hold c; release a; hold a; release b; hold b")
		all := map[int]string{}
		for name := range s.lanes {
			for _, tag := range s.tags(name) {
				if of, known := all[tag]; known && of != name {
					t.Fatalf("with %d sockets %s and %s have the tag %d", slots, of, name, tag)
				}
				all[tag] = name
			}
		}
		if want := 3 * slots; want <= diag.Tags && len(all) != want {
			t.Errorf("%d sockets have %d tags", want, len(all))
		}
	}
}

// reusePort sets SO_REUSEPORT before a socket is bound.
func reusePort(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
}

func TestStrangersAtTheAddressAreRefused(t *testing.T) {
	needRoot(t)
	address := freePort(t)
	var stranger net.Listener
	unit.AsOrdinaryUser(t, func() { stranger = listenBeside(t, "tcp4", address) })
	w := want(t, Spec{Address: addr(address), Handover: Steer})
	refuses(t, newTable(t), w, "address already in use")
	_ = stranger.Close()
	apply(t, newTable(t), w)
	unit.AsOrdinaryUser(t, func() {
		if canBind(t, address, true) {
			t.Error("another user can join the group")
		}
	})
}

func TestUserWithoutPrivilegesCanSteer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the other tests show it")
	}
	dir := must.Get(os.MkdirTemp("", "steer"))(t)
	defer func() { _ = os.RemoveAll(dir) }()
	program := must.Get(os.ReadFile("/proc/self/exe"))(t)
	copied := filepath.Join(dir, "test")
	must.Do(t, errors.Join(os.Chmod(dir, 0o755), os.WriteFile(copied, program, 0o755)))
	const tests = "^(TestNewClients|TestSlotsAre|TestProbe|TestPaused|TestLanesOf|TestClientsOf|TestSwitch)"
	cmd := exec.CommandContext(t.Context(), copied, "-test.run="+tests, "-test.v")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), "\n--- PASS") < 7 || strings.Contains(string(out), "--- SKIP") {
		t.Errorf("%v\n%s", err, out)
	}
}
