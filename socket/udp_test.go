package socket

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/socket/diag"
)

func TestLanesOfDatagramsAreUsedAgain(t *testing.T) {
	s := begin(t, Spec{Address: addr("udp:127.0.0.1:0")})
	s.play("hold a; serve a")
	for range 3 * lanesOfUDP {
		s.play("hold b; come 3 a; wait 1; serve b; take 1 a; wait 1; release a; take 1 b; hold a; take 0 a")
		s.play("serve a; come 3 a; wait 1; serve b; release a; hold a; take 0 a; serve a; release b")
	}
	s.play("open 8")
}

// TestPortThatTheKernelChoosesIsNotThatOfAnotherGroup: it could be, of sockets with SO_REUSEPORT of the same user.
func TestPortThatTheKernelChoosesIsNotThatOfAnotherGroup(t *testing.T) {
	const ports = 8
	apart(t, "ip_local_port_range", "40000 40007", func() {
		table, seen := newTable(t), map[string]bool{}
		var wants []Want
		for i := range ports {
			wants = append(wants, want(t, Spec{Name: strconv.Itoa(i), Address: addr("udp:127.0.0.1:0"), Handover: Steer}))
		}
		apply(t, table, wants...)
		for _, w := range wants {
			seen[table.Address(w.Key())] = true
		}
		if len(seen) != ports {
			t.Errorf("%d listeners have %d ports: %v", ports, len(seen), seen)
		}
	})
}

// A server may open a socket for each client, beside its listener. These come and go behind the lanes.
func TestSocketsThatWorkersBindAndCloseMoveNoLane(t *testing.T) {
	s := begin(t, Spec{Address: addr("udp:127.0.0.1:0")})
	s.play("hold a; serve a")
	at := must.Get(unix.Getsockname(s.fds("a")[0]))(t)
	beside, _ := datagramGroup(t, unix.AF_INET, at, 2)
	s.play("hold b; serve b; come 40 b")
	must.Do(t, unix.Close(beside[0]))
	s.play("come 40 b; lanes")
}

// TestLaneThatAWorkerHasConnectedIsUsedNoMore: the kernel moves the last socket of the group to its place, so the
// numbers of the lanes do not say their order any more, which the next supervisord must know.
func TestLaneThatAWorkerHasConnectedIsUsedNoMore(t *testing.T) {
	play(t, Spec{}, udpAddresses, `
		hold a; serve a; hold b; connect a; serve b; come 20 b; upgrade; serve b; come 20 b; release a; open 7
		hold c; serve c; come 20 c; upgrade; come 20 c; hold d; connect c; serve d; come 20 d; upgrade; serve d; come 20 d
		release c; upgrade; hold e f; upgrade; serve e; come 20 e; serve f; come 20 f; lanes`)
}

// A worker keeps the descriptor that it inherited, and must not swallow what the one of IPv6 is to get.
// TestLaneThatAWorkerHasShutDownIsUsedNoMore: who receives from it is told at once that there is nothing. It is closed
// when no other lane that somebody has takes its index.
func TestLaneThatAWorkerHasShutDownIsUsedNoMore(t *testing.T) {
	for _, address := range udpAddresses {
		play(t, Spec{}, []string{address}, "hold a; serve a; come 3 a; hold b; serve b; shut a; release a; come 3 b; open 7;"+
			"hold c; other c a; serve c; come 3 c; shut b; release b; hold d; other d b; serve d; come 3 d; update; open 8")
	}
}

func TestWidenedSocketHearsInPlaceOfTheOneThatAWorkerHas(t *testing.T) {
	needIPv6(t)
	for _, address := range []string{"udp:127.0.0.1:0", "udp:0.0.0.0:0"} {
		s := begin(t, Spec{Address: addr(address)})
		s.play("handover share; hold a; serve a")
		fd, at, before := s.fds("a")[0], s.table.Address(s.w.Key()), s.table.Export()[0].Name
		inherited := must.Get(unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0))(t)
		defer unix.Close(inherited)
		s.play("widen a; widen a; come 10 a")
		now := s.table.Address(s.w.Key())
		if family := option(t, fd, unix.SOL_SOCKET, unix.SO_DOMAIN); family != unix.AF_INET6 || now != at ||
			s.fds("a")[0] != fd || diag.Waits(inherited) {
			t.Errorf("its family is %d, its address %s, was %s, or the socket of before hears", family, now, at)
		}
		if name := s.table.Export()[0].Name; name == before || !Exported(name) {
			t.Errorf("the store knows it as %s, as before", name)
		}
		for _, fd := range []int{inherited, fd} {
			if option(t, fd, unix.SOL_SOCKET, unix.SO_REUSEADDR) != 0 {
				t.Error("others may bind to it")
			}
		}
	}
}

func TestSocketThatAnotherGenerationHasIsNotWidened(t *testing.T) {
	needIPv6(t)
	s := begin(t, Spec{Address: addr("udp:127.0.0.1:0")})
	s.play("handover share; hold a b")
	if err := s.lanes["b"].Widen(0); err == nil || !strings.Contains(err.Error(), "another generation") {
		t.Errorf("it is widened: %v", err)
	}
	s.play("come 5 a; release a; widen b; come 5 b")
	tcp := begin(t, Spec{Address: addr("127.0.0.1:0")})
	if tcp.play("hold a"); tcp.lanes["a"].Widen(0) == nil {
		t.Error("TCP is widened")
	}
}

func TestAllLanesOfAWidenedListenerAreOfIPv6(t *testing.T) {
	needIPv6(t)
	s := begin(t, Spec{Address: addr("udp:127.0.0.1:0")})
	s.play("hold a; serve a; widen a; come 20 a; hold b; serve b; come 20 b; upgrade; serve b; come 20 b")
	s.play("hold c d e f g h i j; serve j; come 20 j; open 10; lanes") // more than there were
	for _, fd := range s.table.FDs(s.w.Key()) {
		if family := option(t, fd, unix.SOL_SOCKET, unix.SO_DOMAIN); family != unix.AF_INET6 {
			t.Errorf("a lane is of family %d", family)
		}
	}
}

// TestSupervisorAfterAKillTakesLanesOfOrphansAsOne: what comes reaches one of those whose workers live.
func TestSupervisorAfterAKillTakesLanesOfOrphansAsOne(t *testing.T) {
	for _, live := range survivors("a", "b", "c") {
		names := strings.Join(live, " ")
		s := begin(t, Spec{Address: addr("udp:127.0.0.1:0")})
		s.play("hold a; serve a; hold b; serve b; hold c; serve c; kill " + names + "; come 40 " + names +
			"; hold d; serve d; come 20 d")
		s.table.SetOrphans(nil)
		s.play("hold e; serve e; come 20 e; release d; hold f; serve f; come 20 f")
	}
}

// TestWorkerThatIsStartedAgainSharesNoLaneWithAnOrphan: supervisord was killed when it had started a worker of b, and
// before it had written that down. The next one, and the one after it, have c in its place.
func TestWorkerThatIsStartedAgainSharesNoLaneWithAnOrphan(t *testing.T) {
	play(t, Spec{Handover: QUIC}, udpAddresses, `hold a; serve a; hold b; resumed; orphan b; evade b c; other c b
		serve c; id - c; id c c; id b b; id a a; release a; id b b; orphan; id b c`)
	play(t, Spec{}, ipAddresses, "hold a; serve a; hold b; resumed; orphan b; evade b c; same c b; serve c; come 20 c")
	play(t, ofFlows, udpAddresses, `hold a; hold b; serve a b; peers 20; flow a b; resumed; orphan b; evade b c
		serve a; flow; serve c; flow; peers 5; flow c; release a; flow c; release b; orphan; flow c`)
}

// TestDatagramsOfQUICReachTheGenerationOfTheirConnection has up to four generations alive, each lane several times.
func TestDatagramsOfQUICReachTheGenerationOfTheirConnection(t *testing.T) {
	var story strings.Builder
	var alive []string
	for i := range 2 * lanesOfUDP {
		if len(alive) == 4 {
			fmt.Fprintf(&story, "release %s; id %s %s\n", alive[0], alive[0], alive[3])
			alive = alive[1:]
		}
		next := "abcde"[i%5 : i%5+1]
		fmt.Fprintf(&story, "hold %s; serve %s; id - %s\n", next, next, next)
		alive = append(alive, next)
		for _, name := range alive {
			fmt.Fprintf(&story, "id %s %s\n", name, name)
		}
	}
	play(t, Spec{Handover: QUIC}, udpAddresses, story.String())
}

func TestOldGenerationOfQUICIsQuietWhenNothingComesForIt(t *testing.T) {
	q := begin(t, Spec{Address: addr("udp:127.0.0.1:0"), Handover: QUIC})
	q.play("hold a; serve a; id a a; hold b; serve b")
	silence := Left([]*Lane{q.lanes["a"]}, nil)[0].Silences[0]
	q.play("id a a")
	begun := time.Now()
	if s := silence(); s > time.Since(begun) {
		t.Errorf("a datagram has just come, and it is silent for %v", s)
	}
	before := silence()
	if s := silence(); s <= before {
		t.Errorf("it was silent for %v, and is for %v", before, s)
	}
	must.Do(t, unix.SetsockoptInt(q.fds("a")[0], unix.SOL_SOCKET, unix.SO_TIMESTAMP, 1))
	if s := silence(); s != 0 {
		t.Errorf("the worker asks for timestamps, and it is silent for %v", s)
	}
}

func TestOnlyTheKernelKnowsTheLastDatagramOfALaneThatGetsNothingNew(t *testing.T) {
	for _, c := range []struct {
		Spec
		want int
	}{
		{Spec{Address: addr("udp:127.0.0.1:0")}, 1},
		{Spec{Address: addr("udp:127.0.0.1:0"), Handover: QUIC}, 0}, // its connections continue
		{Spec{Address: addr("127.0.0.1:0")}, 0},
	} {
		s := begin(t, c.Spec)
		s.play("hold a; serve a")
		old := []*Lane{s.lanes["a"]}
		if serving := Unreceived(old, nil); len(serving) > 0 {
			t.Errorf("%s: datagrams still come, and %v is waited for", c.Address, serving)
		}
		s.play("hold b; serve b")
		if n := len(Unreceived(old, nil)); n != c.want {
			t.Errorf("of a lane of %s %s %d are waited for, want %d", c.Address, c.Handover, n, c.want)
		}
	}
}

// wanted says without a program where a datagram belongs: to the member that has its lane, or else (-1) to one of
// these.
func (q quicRing) wanted(datagram []byte, ways []way) (member int, others []int) {
	if len(datagram) < 13 {
		return -1, ways[0].members
	}
	id := datagram[1:] // of a short header, which does not say how long the ID is
	if datagram[0]&0x80 != 0 {
		id = datagram[6:]
		if length := int(datagram[5]); length >= 8 || length <= q.at {
			return -1, drawn(ways, binary.BigEndian.Uint32(id)).members
		}
	}
	if m := q.members[int(id[q.at])%len(q.members)]; m >= 0 {
		return m, nil
	}
	return -1, ways[0].members
}

// drawn returns the way that a lot belongs to.
func drawn(ways []way, lot uint32) way {
	total, below := 0, 0
	for _, w := range ways {
		total += w.weight
	}
	won := ways[0]
	for _, w := range ways {
		if begin := uint64(below) << 32 / uint64(total); uint64(lot) >= begin {
			won = w
		}
		below += w.weight
	}
	return won
}

// datagramFrom is what a program on a group of UDP sockets sees: it begins behind the UDP header.
func datagramFrom(ipv6 bool, port uint16, payload []byte) packet {
	p := packetFrom(ipv6, loopback(ipv6), port, 443, 0, 0, 0)
	header := p.network[:len(p.network)-len(p.transport)+8]
	return packet{network: append(header, payload...), transport: payload}
}

// longHeader is a datagram with a long header and this ID of the destination.
func longHeader(kind byte, id []byte) []byte {
	return append(append([]byte{0xc0 | kind<<4, 0, 0, 0, 1, byte(len(id))}, id...), make([]byte, 30)...)
}

func shortHeader(id []byte) []byte { return append(append([]byte{0x40}, id...), make([]byte, 30)...) }

func FuzzQUICProgram(f *testing.F) {
	fd := groupMember(f, unix.SOCK_DGRAM)
	one, two := []byte{0, 0, 0, 0, 1, 0, 0}, []byte("\x00\x00\x00\x00\x05\x00\x01\x00\x00\x00\x00\x0a\x00\x03")
	f.Add(one, byte(0), byte(2), uint64(0xf), shortHeader([]byte{3, 1, 2, 3, 4, 5, 6}), false, uint16(4000))
	f.Add(two, byte(2), byte(3), uint64(0xf), longHeader(2, []byte{3, 1, 5, 3, 4, 5, 6}), true, uint16(4000))
	f.Add(two, byte(6), byte(4), uint64(0xffff), longHeader(0, []byte{3, 1, 5, 3, 4, 5}), false, uint16(1))
	f.Add(two, byte(6), byte(4), uint64(0xfff0), longHeader(0, []byte("\xc0\x01\x02\x03\x04\x05\x06\x07")), true,
		uint16(2))
	f.Add(one, byte(1), byte(8), uint64(1), []byte{0x40, 0, 1}, false, uint16(3))
	f.Fuzz(func(t *testing.T, groups []byte, at, size byte, had uint64, datagram []byte, ipv6 bool, port uint16) {
		ways, _ := layout(groups)
		if len(ways) == 0 {
			return
		}
		q := quicRing{at: int(at % longestServerID), members: make([]int, 1<<(size%9))}
		for lane := range q.members {
			q.members[lane] = 3 * lane
			if had>>(lane%64)&1 == 0 {
				q.members[lane] = -1
			}
		}
		program := q.program(ways)
		accepts(t, fd, unix.SO_ATTACH_REUSEPORT_CBPF, program)
		got := must.Get(interpret(program, datagramFrom(ipv6, port, datagram)))(t)
		if m, others := q.wanted(datagram, ways); int(got) != m && !slices.Contains(others, int(got)) {
			t.Fatalf("%x goes to %d instead of %d or one of %d", datagram, got, m, others)
		}
	})
}

// datagramGroup opens UDP sockets of one group at this address and a port that the kernel gives, in the order of the
// kernel's indices.
func datagramGroup(t testing.TB, family int, at unix.Sockaddr, n int) (fds []int, bound unix.Sockaddr) {
	t.Helper()
	for bound = at; len(fds) < n; {
		fd := must.Get(unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0))(t)
		t.Cleanup(func() { unix.Close(fd) })
		fds = append(fds, fd)
		must.Do(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
		must.Do(t, unix.Bind(fd, bound))
		bound = must.Get(unix.Getsockname(fd))(t)
	}
	return fds, bound
}

var (
	ofFlows     = Spec{Handover: Flow, Flows: 4096}
	someOfFlows = Spec{Handover: Flow, Flows: 4096, Address: addr("udp:127.0.0.1:0")}
)

func TestFlowsReachTheGenerationWhereTheyBegan(t *testing.T) {
	play(t, ofFlows, udpAddresses, "hold a; serve a; peers 20; flow a"+strings.Repeat(`
		hold b; flow; serve b; flow; peers 5; flow b; release a; flow b
		hold a; flow; serve a; flow; peers 5; flow a; release b; flow a`, lanesOfUDP)) // each lane is used several times
}

func TestFlowsOfAFailedCanaryStayUntilItIsGone(t *testing.T) {
	play(t, ofFlows, udpAddresses[:1], "hold a b; serve a b; peers 60; flow a b; serve a; flow; release b; flow a")
}

func TestNextSupervisorKeepsFlows(t *testing.T) {
	play(t, ofFlows, udpAddresses, `
		hold a; serve a; peers 20; flow a; hold b; serve b; peers 20; flow b; upgrade; flow; serve b; flow
		hold c; serve c; peers 20; flow c`)
}

func TestHandoverCanBecomeFlowAndBack(t *testing.T) {
	play(t, ofFlows, udpAddresses[:1], `
		hold a; serve a; peers 20; flow a; handover steer; hold b; serve b; forget; flow b; come 5 b
		handover flow; flow; hold c; serve c; flow; peers 5; flow c`)
}

func TestSizeOfTheTableOfFlowsIsFixed(t *testing.T) {
	s := begin(t, someOfFlows)
	s.play("hold a; serve a")
	s.w.Flows = 8192
	refuses(t, s.table, s.w, "cannot change flows", "remove the listener for one reload")
}

func TestOldGenerationIsQuietWhenItsFlowsAreSilent(t *testing.T) {
	f := begin(t, someOfFlows)
	f.play("hold a; serve a; peers 1; flow a; hold b; serve b; left a")
	left := Left([]*Lane{f.lanes["a"]}, nil)
	if len(left[0].Silences) != 1 {
		t.Fatalf("there is left %+v", left)
	}
	silence := left[0].Silences[0]
	f.play("release a b")
	apply(t, f.table) // it is closed, and the look continues
	var now unix.Timespec
	must.Do(t, unix.ClockGettime(unix.CLOCK_BOOTTIME, &now))
	if s := silence(); s < 0 || int64(s) > now.Nano() {
		t.Errorf("it is silent for %v", s)
	}
}

// TestTableOfFlowsIsClosedWithItsListener counts the descriptors of programs and maps.
func TestTableOfFlowsIsClosedWithItsListener(t *testing.T) {
	count := func() (n int) {
		for _, what := range openFDs(t) {
			n += number(strings.Contains(what, "bpf"))
		}
		return n
	}
	before := count()
	s := begin(t, someOfFlows)
	if n := count() - before; n != 2 {
		t.Errorf("a table has %d descriptors instead of 2", n)
	}
	apply(t, s.table)
	if n := count() - before; n != 0 {
		t.Errorf("%d descriptors are left", n)
	}
}

func TestGenerationWithoutALaneIsRefused(t *testing.T) {
	for _, spec := range []Spec{{Handover: QUIC}, {Handover: Flow, Flows: 1024}} {
		t.Run(string(spec.Handover), func(t *testing.T) {
			spec.Address = addr("udp:127.0.0.1:0")
			table, w := steered(t, spec)
			for range lanesOfQUIC {
				held(t, table, w)
			}
			lanes, err := table.Hold([]Resolved{w.Resolved}, 0, nil)
			if err == nil || !strings.Contains(err.Error(), "too many generations have been alive at once") {
				t.Errorf("there are lanes %v after %d others: %v", lanes, lanesOfQUIC, err)
			}
		})
	}
}
