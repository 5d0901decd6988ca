package socket

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"example.org/supervisord/internal/epoll"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/lab/unit"
	"example.org/supervisord/socket/diag"
)

// TestGroupIsPlacedAsTheKernelPlacesIt lets sockets join and leave a group as reuseport_add_sock and
// reuseport_detach_sock do, several between two looks; some are ours, whose order supervisord expects. What is placed
// is placed right, and everything is after at most one change, or if ours have joined and nothing else has changed.
// Two things would not be seen between two looks: that a stranger comes and goes while ours join, and that one comes
// when a socket leaves an unknown place.
func TestGroupIsPlacedAsTheKernelPlacesIt(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var kernel, known group
		next := uint64(1)
		join := func() {
			kernel = append(kernel, next)
			next++
		}
		for range rapid.IntRange(1, 12).Draw(rt, "looks") {
			sure, seen := !slices.Contains(known, unplaced), next
			changes, joining := rapid.IntRange(0, 3).Draw(rt, "changes"), 0
			joins := rapid.IntRange(0, 3).Draw(rt, "joins")
			strangers, left := 0, 0
			for n := range changes + joins {
				switch ours := joins > joining && (n >= changes || rapid.Bool().Draw(rt, "ours")); {
				case ours:
					joining++
					known = append(slices.Clone(known), next)
					join()
				case len(kernel) > 0 && rapid.Bool().Draw(rt, "leaves"):
					i := rapid.IntRange(0, len(kernel)-1).Draw(rt, "which")
					if kernel[i] >= seen && !slices.Contains(known, kernel[i]) || !sure && strangers > 0 {
						continue
					}
					left++
					kernel[i] = kernel[len(kernel)-1]
					kernel = kernel[:len(kernel)-1]
				case sure || left == 0:
					strangers++
					join()
				}
			}
			now := slices.Clone(kernel)
			slices.SortFunc(now, func(a, b uint64) int { return int(a*7%5) - int(b*7%5) })
			known = known.after(now, joining)
			if len(known) != len(kernel) {
				rt.Fatalf("%v is taken for %v", kernel, known)
			}
			clear := changes == 0 || changes == 1 && joining == 0
			for i, id := range known {
				if id != kernel[i] && (id != unplaced || sure && clear) {
					rt.Fatalf("%v is taken for %v", kernel, known)
				}
			}
		}
	})
}

// TestSocketsThatAWorkerShutsDownListenAgain has up to four lanes, and steers to each when it is repaired.
func TestSocketsThatAWorkerShutsDownListenAgain(t *testing.T) {
	for _, address := range tcpAddresses[:2] {
		for n := 1; n <= 4; n++ {
			for down := range n {
				s := begin(t, Spec{Address: addr(address)})
				names := strings.Fields("a b c d")[:n]
				serving, of := names[n-1], names[down]
				s.play("hold " + strings.Join(names, " ") + "; serve " + serving + "; down " + of)
				if told := s.table.Notices(); len(told) != 1 || told[0].Kind != ShutDown ||
					!slices.Equal(told[0].Lanes, []*Lane{s.lanes[of]}) || s.table.ShutDowns(s.w.Key()) != 1 {
					t.Errorf("the notices are %+v", told)
				}
				s.play("come 20 " + serving + "; lanes")
			}
		}
	}
}

// TestSocketThatAWorkerLetsListenAfterItWasShutDownIsRevived: after two calls of shutdown(2), connections read as
// ended, also if a worker calls listen(2) before supervisord does.
func TestSocketThatAWorkerLetsListenAfterItWasShutDownIsRevived(t *testing.T) {
	for _, address := range tcpAddresses[:2] {
		s := begin(t, Spec{Address: addr(address)})
		s.play("hold a b; serve a; shut a")
		must.Do(t, unix.Listen(s.fds("a")[0], 10))
		s.play("revive; come 10 a; lanes")
	}
}

// TestDeploysOfAWorkerThatShutsItsSocketDownLoseNoConnection has clients that connect all the time while the old
// generation ends its socket, and the last one of the group takes its place, and while supervisord lets it listen
// again, at another index: whichever the program means, it is not that one.
func TestDeploysOfAWorkerThatShutsItsSocketDownLoseNoConnection(t *testing.T) {
	for _, free := range []string{"", "hold c; release c", "hold c d; release c d"} {
		t.Run(free, func(t *testing.T) {
			s := begin(t, Spec{Address: addr("127.0.0.1:0")})
			s.play("hold a; serve a;" + free)
			l := s.table.listeners[s.w.Key()]
			for range 10 {
				for _, deploy := range [][2]string{{"a", "b"}, {"b", "a"}} {
					from, to := deploy[0], deploy[1]
					s.play("hold " + to + "; serve " + to)
					if at := slices.Index(l.group, s.had[to][0]); at > 1 {
						t.Fatalf("the generation that serves is at %d of %d", at, len(l.group))
					}
					stop := connectAllTheTime(t, l.addressFor(l.r), s.fds(to)[0])
					s.play("down " + from)
					stop()
					if diag.Waits(s.fds(from)[0]) {
						t.Fatal("a connection waits where nobody accepts")
					}
					s.play("release " + from)
				}
			}
		})
	}
}

// connectAllTheTime connects as fast as it can, and accepts from the socket, until stop, which returns when there is no
// client any more.
func connectAllTheTime(t *testing.T, at bindAddr, fd int) (stop func()) {
	var begun, clients sync.WaitGroup
	var end atomic.Bool
	for range 2 {
		to := must.Get(at.sockaddr())(t) // its own: connect(2) writes into it
		begun.Add(1)
		clients.Go(func() {
			for n := 0; n == 0 || !end.Load(); n++ {
				if err := connectOnce(to); err != nil {
					t.Error("a client sees ", err)
				}
				if n == 0 {
					begun.Done()
				}
				if conn, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC); err == nil {
					_ = unix.Close(conn)
				}
			}
		})
	}
	begun.Wait()
	return func() { end.Store(true); clients.Wait() }
}

// connectOnce connects, and resets the connection.
func connectOnce(to unix.Sockaddr) error {
	c, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(c) }()
	_ = unix.SetsockoptLinger(c, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	if err := unix.Connect(c, to); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	if code, err := unix.GetsockoptInt(c, unix.SOL_SOCKET, unix.SO_ERROR); err != nil || code != 0 {
		return errors.Join(err, unix.Errno(code))
	}
	return nil
}

// TestLaneThatWasShutDownIsLeasedListening: nobody has looked at the socket since a generation that is gone has
// shut it down.
func TestLaneThatWasShutDownIsLeasedListening(t *testing.T) {
	for _, handover := range []Handover{Steer, Share} {
		play(t, Spec{Handover: handover}, tcpAddresses[:1], "hold a; serve a; shut a; release a; hold b; serve b; come 10 b")
	}
}

// TestServingLaneIsServedWhereverItsSocketsAre has a worker shut down all sockets of its lane at once, so that the last
// ones of the group are in their places: some of the serving lane, some of a trial, and some that nobody has, where
// nobody may get a connection. A question to the others where they are leaves nothing behind.
func TestServingLaneIsServedWhereverItsSocketsAre(t *testing.T) {
	for slots := 2; slots <= 5; slots++ {
		for i, serving := range []string{"b", "c", "d"} {
			gone, trial := []string{"c", "d", "b"}[i], []string{"d", "b", "c"}[i]
			s := begin(t, Spec{Address: addr("127.0.0.1:0"), PerSlot: true})
			s.unequalLanes(slots)
			own := s.fds(serving)[0]
			must.Do(t, unix.SetsockoptInt(own, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 40))
			defers := option(t, own, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT)
			s.play("serve " + serving + "; release " + gone + "; down a; come 30 " + serving)
			for _, fd := range s.table.FDs(s.w.Key()) {
				if n := option(t, fd, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT); n != defers*number(fd == own) ||
					option(t, fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG) >= markBase {
					t.Errorf("socket %d is marked: it defers for %d", fd, n)
				}
			}
			s.play("probe " + trial + "; lanes; serve " + trial + "; come 30 " + trial)
		}
	}
}

// TestServingLaneIsServedWhateverIsShutDownMeanwhile has a worker shut down its sockets one after the other while
// supervisord lets those listen again that it has seen: whether the last one of the group, which serves, or one that
// has just joined takes the place of each, nobody knows beforehand.
func TestServingLaneIsServedWhateverIsShutDownMeanwhile(t *testing.T) {
	for range 40 {
		s := begin(t, Spec{Address: addr("127.0.0.1:0"), PerSlot: true})
		s.play("slots 3; hold a; slots 2; hold b; serve b")
		var worker sync.WaitGroup
		var down atomic.Bool
		worker.Go(func() {
			for _, fd := range s.fds("a") {
				for range rand.IntN(100) {
					_, _ = unix.Getpeername(fd) // it takes a moment
				}
				_ = unix.Shutdown(fd, unix.SHUT_RD)
			}
			down.Store(true)
		})
		for last := false; !last; {
			last = down.Load()
			_, err := s.table.Revive(s.w.Key())
			must.Do(t, err)
		}
		worker.Wait()
		s.play("come 10 b")
	}
}

// TestSocketThatCannotListenAgainKeepsNoOtherFromIt: the kernel refuses one that has got a program after it was shut
// down.
func TestSocketThatCannotListenAgainKeepsNoOtherFromIt(t *testing.T) {
	s := begin(t, Spec{Address: addr("127.0.0.1:0"), PerSlot: true})
	s.play("slots 2; hold a; hold b; serve b; shut a")
	must.Do(t, unix.Shutdown(s.fds("b")[1], unix.SHUT_RD))
	must.Do(t, attach(s.fds("a")[0], []unix.SockFilter{result(0)}))
	if _, err := s.table.Revive(s.w.Key()); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("the socket with a program: %v", err)
	}
	for _, fd := range append(s.fds("a")[1:], s.fds("b")...) {
		if option(t, fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN) == 0 {
			t.Errorf("socket %d does not listen", fd)
		}
	}
}

// unequalLanes are one lane of so many sockets, and three of one or two.
func (s *story) unequalLanes(slots int) {
	s.Helper()
	s.play(fmt.Sprintf("slots %d; hold a; slots 2; hold b; slots 1; hold c; slots 2; hold d", slots))
}

// TestNothingIsSteeredToAnUnknownPlace has sockets that cannot be asked where they are.
func TestNothingIsSteeredToAnUnknownPlace(t *testing.T) {
	for slots := 2; slots <= 3; slots++ {
		s := begin(t, Spec{Address: addr("127.0.0.1:0"), PerSlot: true, Sockopts: Sockopts{Interface: "lo"}})
		s.unequalLanes(slots)
		s.play("serve a; down b; come 20 a; serve b; come 20 b") // d's are where b's were, in an order that nobody knows
		s.play("serve d; come 20 d")                             // both of its sockets are at unknown places, and no others
		err := s.table.Steer([]Part{{Lanes: []*Lane{s.lanes["d"]}, Slots: []int{0}, Weight: 1}})
		if err == nil || !strings.Contains(err.Error(), "in which order") {
			t.Errorf("one of two sockets whose order is unknown gets all connections: %v", err)
		}
		s.play("come 20 d")
	}
}

// TestShutdownIsToldOnceAndConnectionsAreNot watches sockets of each kind that can be shut down.
func TestShutdownIsToldOnceAndConnectionsAreNot(t *testing.T) {
	path, _ := onDisk(t)
	last := want(t, Spec{Name: "last", Address: addr("127.0.0.1:0")})
	shut := func(ln *Lane) { must.Do(t, unix.Shutdown(ln.FD(0), unix.SHUT_RDWR)) }
	for _, s := range []Spec{{Address: addr("127.0.0.1:0"), Handover: Steer}, {Address: addr("[::]:0")}, path,
		{Address: addr("unix:@" + t.Name())}} {
		poller := must.Get(epoll.New())(t)
		go poller.Run(new(sync.RWMutex))
		told := make(chan string, 100)
		tells := func(w Want) {
			t.Helper()
			if key := <-told; key != w.Key() {
				t.Errorf("%s is told of %s", w.Key(), key)
			}
		}
		table, w := newTable(t), want(t, s)
		table.Watch(poller, func(key string) { told <- key })
		apply(t, table, w)
		lanes := held(t, table, w)
		for range 5 {
			dial(t, w.at.network, table.Address(w.Key()))
		}
		for range 1 + 2*number(w.at.isTCP()) {
			shut(lanes[0])
			tells(w)
			if revived, err := table.Revive(w.Key()); err != nil || revived != w.at.isTCP() {
				t.Errorf("%s: revived %v, %v", s.Address, revived, err)
			}
		}
		apply(t, table, w, last) // what was told again would come before it
		shut(held(t, table, last)[0])
		tells(last)
		_ = table.Close()
		poller.Close()
	}
}

// listenBeside is what another process of the same user does.
func listenBeside(t *testing.T, network, address string) net.Listener {
	t.Helper()
	c := net.ListenConfig{Control: reusePort}
	c.SetMultipathTCP(false) // one such leaves a moment after it was closed
	l := must.Get(c.Listen(t.Context(), network, address))(t)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestStrangersInTheGroupAreCounted has one join and leave between and behind lanes.
func TestStrangersInTheGroupAreCounted(t *testing.T) {
	for _, hold := range [][2]string{{"a", "b c"}, {"a b", "c"}, {"a b c", ""}} {
		s := begin(t, Spec{Address: addr("127.0.0.1:0")})
		notices := func(want ...NoticeKind) {
			t.Helper()
			var kinds []NoticeKind
			for _, n := range s.table.Notices() {
				kinds = append(kinds, n.Kind)
			}
			s.equal(kinds, want)
		}
		s.play("hold " + hold[0] + "; serve a")
		stranger := listenBeside(t, "tcp", s.at())
		s.play("hold " + hold[1] + "; serve c")
		notices(StrangerInGroup)
		s.play("lanes")
		_ = stranger.Close()
		s.play("serve b; lanes")
		notices()
	}
}

func TestStrangerAtAMoreExactAddressIsNoticed(t *testing.T) {
	for _, c := range []struct{ ours, network, theirs string }{{"0.0.0.0:0", "tcp4", "127.0.0.1:%d"},
		{":0", "tcp4", "0.0.0.0:%d"}, {":0", "tcp", "[::1]:%d"}} {
		s := begin(t, Spec{Address: addr(c.ours)})
		s.play("hold a; serve a")
		address := fmt.Sprintf(c.theirs, s.table.listeners[s.w.Key()].port())
		listenBeside(t, c.network, address)
		s.play("serve a")
		if n := s.table.Notices(); len(n) != 1 || n[0].Kind != StrangerBeside {
			t.Errorf("%s beside %s: the notices are %+v", address, c.ours, n)
		}
	}
}

func TestSocketOfAMoreExactAddressYieldsConnections(t *testing.T) {
	for _, c := range []struct {
		ip     string
		dual   bool
		socket string
		want   bool
	}{
		{"0.0.0.0", false, "127.0.0.1", true}, {"127.0.0.1", false, "127.0.0.1", true},
		{"127.0.0.1", false, "10.0.0.1", false}, {"127.0.0.1", false, "0.0.0.0", false},
		{"::", true, "127.0.0.1", true}, {"::", false, "127.0.0.1", false}, {"::", false, "::1", true},
		{"::1", false, "fe80::1", false}, {"0.0.0.0", false, "::1", false}, {"::1", true, "::", false},
	} {
		a := bindAddr{ip: netip.MustParseAddr(c.ip), dual: c.dual}
		if got := a.yields(diag.Listening{At: netip.AddrPortFrom(netip.MustParseAddr(c.socket), 1)}); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// die closes the descriptors of a table as the kernel does for a process that ends.
func die(table *Table) {
	for _, l := range table.listeners {
		for _, m := range l.members {
			_ = unix.Close(m.fd)
		}
		l.closeFlows()
	}
	*table = *NewTable()
}

// survivors lists the sets of generations whose workers live.
func survivors(names ...string) (sets [][]string) {
	for bits := 1; bits < 1<<len(names); bits++ {
		var set []string
		for i, name := range names {
			if bits>>i&1 == 1 {
				set = append(set, name)
			}
		}
		sets = append(sets, set)
	}
	return sets
}

// TestDeathWithoutAStoreLeavesTrafficWhereItWas: the workers that live finish, and what is steered to them stays, until
// they are gone.
func TestDeathWithoutAStoreLeavesTrafficWhereItWas(t *testing.T) {
	needIPv6(t)
	for _, address := range []string{"127.0.0.1:0", "[::]:0"} {
		for _, serving := range strings.Fields("a b c d") {
			for _, live := range survivors("a", "b", "c", "d") {
				t.Run(fmt.Sprintf("%s/%s serves/%v live", address, serving, live), func(t *testing.T) {
					s := begin(t, Spec{Address: addr(address)})
					s.play("hold a b c d; serve " + serving + "; kill " + strings.Join(live, " "))
					s.orphansAreUsedAgainOnceTheyAreGone(live)
				})
			}
		}
	}
}

func (s *story) orphansAreUsedAgainOnceTheyAreGone(live []string) {
	s.Helper()
	inodes := s.hadBy(live...)
	for _, fd := range s.table.FDs(s.w.Key()) {
		if diag.Waits(fd) || option(s, fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG) >= markBase ||
			option(s, fd, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT) != 0 {
			s.Error("a question has left a mark, or a connection in a queue")
		}
	}
	s.play("lanes; hold e; serve e; come 20 e")
	if left := s.table.LeftOf(inodes); slices.Contains(inodes, s.had["e"][0]) || len(left) != 1 ||
		len(left[0].Queues) != len(live) {
		s.Errorf("the new generation has %d of the orphans' %d, of which are left: %v", s.had["e"], inodes, left)
	}
	if s.table.InLane(inodes) || !s.table.InLane(s.had["e"]) || len(s.table.Beside(s.had["e"])) != 1 {
		s.Error("what serves in the lane of a generation is not told from what does not")
	}
	s.table.SetOrphans(nil)
	if s.play("hold f"); !slices.Contains(inodes, s.had["f"][0]) {
		s.Error("the sockets of the orphans are not used again")
	}
}

// TestNoGenerationGetsWhatAnOrphanHas: it serves with the generation that it is of, and gets nothing after that.
func TestNoGenerationGetsWhatAnOrphanHas(t *testing.T) {
	play(t, Spec{}, ipAddresses, `hold a; serve a; hold b; serve b; orphan b; upgrade; come 5 b; orphan b; release a
		hold c; serve c; come 5 c; release b; hold d; other d b; serve d; release c; hold e; other e b; come 5 d
		orphan; release e; hold f g; same g b; come 5 d`)
	play(t, Spec{Handover: Share}, ipAddresses, "hold a; serve a; orphan a; release a; hold b; same b a; come 5 b")
}

// TestNoClientReachesAnotherSocketWhileTheGroupIsAskedWhereItsSocketsAre: a worker of whom no record knows has a socket
// that the store does not have, so every socket may be anywhere. Clients connect all the time.
func TestNoClientReachesAnotherSocketWhileTheGroupIsAskedWhereItsSocketsAre(t *testing.T) {
	for _, address := range tcpAddresses {
		t.Run(address, func(t *testing.T) {
			if strings.Contains(address, "::1") {
				needIPv6(t)
			}
			s := begin(t, Spec{Address: addr(address), PerSlot: true})
			s.play("slots 20; hold a; serve a; slots 1; hold b; serve b; release a")
			offers, next := handedOver(t, s.table), newTable(t)
			orphan := &offers[1]
			orphan.Name, orphan.Ours, orphan.InUse = "orphan", true, true
			next.Offer(offers)
			at := bindAddr{ip: netip.MustParseAddr("127.0.0.1"), port: s.table.listeners[s.w.Key()].port()}
			if strings.Contains(address, "::1") {
				at.ip = netip.IPv6Loopback()
			}
			lanes, resumed := s.recorded(), make(chan error)
			go func() { resumed <- errors.Join(next.Resume(lanes, nil, nil)...) }()
			clients := connectingUntil(t, at, resumed)
			die(s.table)
			s.table = next
			for range clients {
				accepted(t, s.fds("b")[0])
			}
		})
	}
}

// connectingUntil begins a connection after the other until something is over, 2,000 at most, and returns how many.
func connectingUntil(t *testing.T, at bindAddr, over <-chan error) (n int) {
	t.Helper()
	for ; n < 2000; n++ {
		select {
		case err := <-over:
			must.Do(t, err)
			return n
		default:
			connecting(t, at, 1)
		}
	}
	must.Do(t, <-over)
	return n
}

// TestNoClientReachesAVersionOnTrialWhileTheNextSupervisordTakesOver: nobody kept the sockets of the one that died, so
// the next one has to ask the group of the orphans. Clients connect all the time.
func TestNoClientReachesAVersionOnTrialWhileTheNextSupervisordTakesOver(t *testing.T) {
	for _, address := range tcpAddresses[:2] {
		t.Run(address, func(t *testing.T) {
			needIPv6(t)
			s := begin(t, Spec{Address: addr(address)})
			s.play("hold a; serve a; hold b")
			had := map[string]int{}
			for _, name := range []string{"a", "b"} {
				had[name] = must.Get(unix.FcntlInt(uintptr(s.fds(name)[0]), unix.F_DUPFD_CLOEXEC, 0))(t)
				t.Cleanup(func() { _ = unix.Close(had[name]) })
			}
			at := bindAddr{ip: s.w.at.ip, port: s.table.listeners[s.w.Key()].port()}
			orphans, next := s.orphans([]string{"b", "a"}), newTable(t)
			over, came := make(chan error, 1), make(chan int)
			go func() { came <- connectingUntil(t, at, over) }()
			s.follow(next, orphans)
			over <- nil
			for range <-came {
				accepted(t, had["a"])
			}
			if diag.Waits(had["b"]) {
				t.Error("a client waits in a socket from which nobody may ever accept")
			}
			s.play("hold c; serve c; come 5 c")
		})
	}
}

// migrating runs f where what waits in a socket that ends listening, or is in a handshake with it, moves to any socket
// of its group, whatever the program says.
func migrating(t *testing.T, f func()) { apart(t, "tcp_migrate_req", "1", f) }

// apart runs f in a network namespace in which net.ipv4 has this value of a sysctl.
func apart(t *testing.T, sysctl, value string, f func()) {
	needRoot(t)
	var err error
	unit.Thread(func() {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			err = errors.Join(loopbackUp(), os.WriteFile("/proc/sys/net/ipv4/"+sysctl, []byte(value), 0))
		}
		if err == nil {
			f()
		}
	})
	if err != nil {
		t.Skip("Linux 5.14 and a network namespace are needed: ", err)
	}
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

func request(fd int) { _, _ = unix.Write(fd, []byte("request")) } // it may be reset already

// TestNoClientWaitsInVainWhereTheKernelMigratesConnections ends listening in each way while clients wait: half of them
// have sent a request, and the handshake of the others is deferred.
func TestNoClientWaitsInVainWhereTheKernelMigratesConnections(t *testing.T) {
	for _, end := range []string{"down c", "pause; down c", "close", "handover share; hold d; serve d; release c"} {
		t.Run(end, func(t *testing.T) {
			migrating(t, func() {
				s := begin(t, Spec{Address: addr("127.0.0.1:0"), Sockopts: Sockopts{DeferAccept: 30 * time.Second}})
				s.play("hold a; serve a; hold b; serve b; hold c; serve c; release a")
				at := netip.MustParseAddrPort(s.at())
				clients := connecting(t, bindAddr{ip: at.Addr(), port: at.Port()}, 20)
				for _, fd := range clients {
					if !writable(t, fd) {
						t.Fatal("a client is not connected")
					}
				}
				for _, fd := range clients[:10] {
					request(fd)
				}
				s.play(end)
				for _, fd := range clients[10:] {
					request(fd)
				}
				s.play("resume")
				emptied(t, s.table)
				waiting, over := 0, 0
				for _, ln := range s.lanes {
					for _, m := range ln.slots {
						waiting += m.queued()
					}
				}
				for _, p := range polledFor(t, clients, unix.POLLRDHUP, 0) {
					over += number(p.Revents != 0) // it was reset, or closed
				}
				if waiting == 0 && strings.Contains(end, "down") {
					t.Error("the kernel has moved no client")
				}
				if over+waiting != len(clients) {
					t.Errorf("of %d clients, %d wait where somebody accepts, and %d know that they have to connect again",
						len(clients), waiting, over)
				}
			})
		})
	}
}
