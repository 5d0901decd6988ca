package socket

import (
	"errors"
	"math"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket/diag"
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

// TestLanesShowConnectionsThatNobodyAccepts has a generation that ends while a connection waits in its lane.
func TestLanesShowConnectionsThatNobodyAccepts(t *testing.T) {
	spec := Spec{Name: "web", Address: addr("127.0.0.1:0"), Handover: Steer}
	table, w, _ := opened(t, spec)
	hold := func() []*Lane {
		t.Helper()
		lanes, err := table.Hold([]Resolved{w.Resolved}, 1)
		if err != nil {
			t.Fatal(err)
		}
		return lanes
	}
	steer := func(lanes []*Lane) {
		t.Helper()
		if err := table.Steer([]Part{{Lanes: lanes, Weight: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	old, next := hold(), hold()
	steer(old)
	c, err := net.Dial("tcp", table.Address(w.Key()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // only this side has it
	steer(next)
	if lanes := table.Lanes(w.Key()); len(lanes) != 2 || lanes[0].Queued != 1 || lanes[0].Lane != old[0] ||
		lanes[1].Share != 1 {
		t.Errorf("%+v", lanes)
	}
	table.Release(old)
	if lanes := table.Lanes(w.Key()); len(lanes) != 2 || lanes[0].Queued != 1 || lanes[0].Lane != nil ||
		lanes[0].Share != 0 || lanes[1].Lane != next[0] {
		t.Errorf("the old generation is gone: %+v", lanes)
	}
	table.Release(next)
}

func TestFlipSendsEveryNewConnectionToTheNewLane(t *testing.T) {
	table, w := steered(t, Spec{Address: addr("127.0.0.1:0")})
	a, b := held(t, table, w), held(t, table, w)
	const flips, connections = 100, 100
	for i := range flips {
		to := [][]*Lane{a, b}[i%2]
		mustServe(t, table, to)
		fd := to[0].FD(0)
		if got := arrivals(t, table.Address(w.Key()), connections, a[0].FD(0),
			b[0].FD(0)); got[fd] != connections {
			t.Fatalf("flip %d: connections reached %v, want all at %d", i, got, fd)
		}
	}
}

func TestFlipLeavesTheQueueOfTheOldLaneAlone(t *testing.T) {
	table, w := steered(t, Spec{Address: addr("127.0.0.1:0")})
	old, next := held(t, table, w), held(t, table, w)
	mustServe(t, table, old)
	var waiting []net.Conn
	for range 10 {
		waiting = append(waiting, dial(t, "tcp", table.Address(w.Key())))
	}
	for i := range 20 {
		mustServe(t, table, [][]*Lane{next, old}[i%2])
	}
	mustServe(t, table, next)
	if queued := table.Lanes(w.Key())[0].Queued; queued != len(waiting) {
		t.Errorf("%d connections wait in the old lane, not %d", queued, len(waiting))
	}
	for range waiting {
		conn := accepted(t, old[0].FD(0))
		if _, err := unix.Write(conn, []byte("x")); err != nil {
			t.Error(err)
		}
	}
	for _, c := range waiting {
		if n, err := c.Read(make([]byte, 1)); n != 1 {
			t.Errorf("a connection that waited was lost: %v", err)
		}
	}
}

func TestSharesOfConnectionsAreExact(t *testing.T) {
	const connections = 10_000
	for _, weights := range [][]int{{9500, 500}, {1, 1}, {6, 3, 1}} {
		table, w := steered(t, Spec{Address: addr("127.0.0.1:0")})
		var parts []Part
		var fds []int
		total := 0
		for _, weight := range weights {
			lanes := held(t, table, w)
			parts = append(parts, Part{Lanes: lanes, Weight: weight})
			fds = append(fds, lanes[0].FD(0))
			total += weight
		}
		if err := table.Steer(parts); err != nil {
			t.Fatal(err)
		}
		got := arrivals(t, table.Address(w.Key()), connections, fds...)
		lanes := table.Lanes(w.Key())
		for i, weight := range weights {
			wanted, is := float64(weight)/float64(total), float64(got[fds[i]])/connections
			t.Logf("%v: lane %d got %.2f%% of the connections", weights, i, 100*is)
			bound := 5 * math.Sqrt(wanted*(1-wanted)/connections) // standard deviations: chance goes beyond once in 1.7 million
			if math.Abs(wanted-is) > bound || math.Abs(lanes[i].Share-wanted) > 1e-9 || lanes[i].Lane != parts[i].Lanes[0] {
				t.Errorf("%v: lane %d got %.2f%%, and its status is %+v", weights, i, 100*is, lanes[i])
			}
		}
		_ = table.Close()
	}
}

// byMember makes connections and says how many reached each socket of the lanes, by claim and slot.
func byMember(t testing.TB, table *Table, connections int, lanes [][]*Lane, slots int) [][]int {
	t.Helper()
	var fds []int
	for _, c := range lanes {
		for slot := range slots {
			fds = append(fds, c[0].FD(slot))
		}
	}
	got := arrivals(t, lanes[0][0].Address(), connections, fds...)
	counts := make([][]int, len(lanes))
	for i := range lanes {
		for slot := range slots {
			counts[i] = append(counts[i], got[fds[i*slots+slot]])
		}
	}
	return counts
}

func TestSlotsAreHandedOverOneByOne(t *testing.T) {
	table, w := steered(t, Spec{Address: addr("127.0.0.1:0"), PerSlot: true})
	w.Slots = 3
	apply(t, table, w)
	old, next := held(t, table, w), held(t, table, w)
	mustServe(t, table, old)
	for done := range 4 {
		var mine, theirs []int
		for slot := range 3 {
			if slot < done {
				mine = append(mine, slot)
			} else {
				theirs = append(theirs, slot)
			}
		}
		var parts []Part
		if len(theirs) > 0 {
			parts = append(parts, Part{Lanes: old, Slots: theirs, Weight: len(theirs)})
		}
		if len(mine) > 0 {
			parts = append(parts, Part{Lanes: next, Slots: mine, Weight: len(mine)})
		}
		if err := table.Steer(parts); err != nil {
			t.Fatal(err)
		}
		counts := byMember(t, table, 600, [][]*Lane{old, next}, 3)
		for slot := range 3 {
			if got, none := counts[0][slot], counts[1][slot]; slot < done && (got != 0 || none < 100) || slot >= done &&
				(got < 100 || none != 0) {
				t.Errorf("after %d slots: %v", done, counts)
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

func TestLaneOfScatteredMembersGetsItsShare(t *testing.T) {
	table, w := steered(t, Spec{Address: addr("127.0.0.1:0"), PerSlot: true})
	var single [][]*Lane
	for range 5 {
		single = append(single, held(t, table, w))
	}
	table.Release(single[1])
	table.Release(single[3])
	w.Slots = 4
	apply(t, table, w)
	scattered := held(t, table, w)
	if ln := scattered[0]; !slices.Equal(ln.Members, []int{1, 3, 5, 6}) {
		t.Fatalf("the lane has the members %v", ln.Members)
	}
	if err := table.Steer([]Part{{Lanes: scattered, Weight: 4}, {Lanes: single[2], Weight: 1}}); err != nil {
		t.Fatal(err)
	}
	var fds []int
	for slot := range 4 {
		fds = append(fds, scattered[0].FD(slot))
	}
	fds = append(fds, single[2][0].FD(0))
	got := arrivals(t, table.Address(w.Key()), 1000, fds...)
	for _, fd := range fds {
		if got[fd] < 130 {
			t.Errorf("members got %v of 1000", got)
		}
	}
}

// TestPausedListenerLetsClientsWait: their kernels send again what the deaf socket has dropped.
func TestPausedListenerLetsClientsWait(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", ":0"} {
		table, w := steered(t, Spec{Address: addr(address)})
		lanes := serves(t, table, w)
		l, fd := table.listeners[w.Key()], lanes[0].FD(0)
		to := l.reachedAt()
		before := requests(t, to.String(), 2)
		conn := accepted(t, fd)
		if err := table.Pause([]string{w.Key()}, true); err != nil {
			t.Fatal(err)
		}
		late := connecting(t, bindAddr{ip: to.Addr(), port: to.Port()}, 20)
		accepted(t, fd)                // what waited is served
		reaches(t, table, lanes[0], 0) // health is still told
		before[0].Write([]byte("more"))
		if n, err := unix.Read(conn, make([]byte, 20)); n < len("request") || err != nil {
			t.Errorf("a connection of before does not continue: %d bytes, %v", n, err)
		}
		for _, client := range late {
			if info, err := unix.GetsockoptTCPInfo(client, unix.IPPROTO_TCP, unix.TCP_INFO); err != nil || info.State != synSent {
				t.Fatalf("a new connection is in state %d: %v", info.State, err)
			}
		}
		if err := table.Pause([]string{w.Key()}, false); err != nil {
			t.Fatal(err)
		}
		for _, client := range late {
			if !writable(t, client) {
				t.Fatal("a client is not connected")
			}
			request(client)
		}
		for range late {
			accepted(t, fd)
		}
	}
}

const synSent = 2 // net/tcp_states.h

func writable(t *testing.T, fd int) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	for {
		if n, err := unix.Poll(fds, 30_000); !errors.Is(err, unix.EINTR) {
			return n == 1 && fds[0].Revents == unix.POLLOUT
		}
	}
}

func TestListenerThatIsRemovedWhilePausedIsNewWhenItComesAgain(t *testing.T) {
	table, w := steered(t, Spec{Address: addr(freePort(t))})
	lanes := held(t, table, w)
	if err := table.Pause([]string{w.Key()}, true); err != nil {
		t.Fatal(err)
	}
	apply(t, table)
	table.Release(lanes)
	if left := table.Export(); len(left) > 0 {
		t.Fatalf("%d sockets of the removed listener are open", len(left))
	}
	apply(t, table, w)
	lanes = held(t, table, w)
	conn := dial(t, "tcp", table.Address(w.Key()))
	accepted(t, lanes[0].FD(0))
	_ = conn
}

// systemd has a duplicate in its store until it has read that it is not needed any more.
func TestListenerMayComeAgainWhileSomebodyStillHasItsSocket(t *testing.T) {
	table, w := steered(t, Spec{Address: addr(freePort(t))})
	lanes := held(t, table, w)
	kept, err := unix.Dup(lanes[0].FD(0))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(kept)
	apply(t, table)
	table.Release(lanes)
	apply(t, table, w)
	lanes = held(t, table, w)
	dial(t, "tcp", table.Address(w.Key()))
	accepted(t, lanes[0].FD(0))
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

// tags reads the tags of a lane's sockets, as the kernel has them.
func tags(t *testing.T, table *Table, claim *Lane, slots int) (tags []int) {
	t.Helper()
	for slot := range slots {
		tag, err := diag.GetTag(claim.FD(slot))
		if err != nil {
			t.Fatal(err)
		}
		tags = append(tags, tag)
	}
	return tags
}

func TestGenerationsHaveTagsOfTheirOwn(t *testing.T) {
	for _, slots := range []int{1, 12, 17, diag.Tags + 2} {
		t.Run(strconv.Itoa(slots), func(t *testing.T) {
			table, w := steered(t, Spec{Address: addr("127.0.0.1:0"), PerSlot: true})
			w.Slots = slots
			apply(t, table, w)
			var all [][]*Lane
			for range 5 {
				if len(all) == 3 { // the oldest is gone, and its sockets are used again
					table.Release(all[0])
					all = all[1:]
				}
				all = append(all, held(t, table, w))
				seen := map[int]int{}
				for i, lanes := range all {
					for _, tag := range tags(t, table, lanes[0], slots) {
						if of, known := seen[tag]; known && of != i {
							t.Fatalf("generations %d and %d of %v have the tag %d", of, i, all, tag)
						}
						seen[tag] = i
					}
				}
				if want := slots * len(all); want <= diag.Tags && len(seen) != want {
					t.Errorf("%d sockets have %d tags", want, len(seen))
				}
			}
		})
	}
}

func TestTagStaysOverSupervisors(t *testing.T) {
	table, w := steered(t, Spec{Address: addr("127.0.0.1:0"), PerSlot: true})
	w.Slots = 17
	apply(t, table, w)
	first, second := held(t, table, w), held(t, table, w)
	mustServe(t, table, second)
	before := slices.Concat(tags(t, table, first[0], 17), tags(t, table, second[0], 17))
	left := Left(first, nil)
	next := newTable(t)
	next.Offer(handedOver(t, table))
	again := recorded(t, second[0], first[0])
	if errs := next.Resume(again); errs != nil {
		t.Fatal(errs)
	}
	second, first = again[:1], again[1:]
	if after := slices.Concat(tags(t, next, first[0], 17), tags(t, next, second[0], 17)); !slices.Equal(before, after) {
		t.Errorf("the tags were %v and are %v", before, after)
	}
	if l := Left(first, nil); len(l) != 1 || l[0].Tags != left[0].Tags {
		t.Errorf("left are %+v, were %+v", l, left)
	}
}

func TestGenerationThatDiedLeavesItsQueueToTheNext(t *testing.T) {
	table, w := steered(t, Spec{Address: addr("127.0.0.1:0")})
	first, second := held(t, table, w), held(t, table, w)
	mustServe(t, table, second)
	fd := second[0].FD(0)
	dial(t, "tcp", table.Address(w.Key()))
	table.Release(second)
	table.Release(first)
	dial(t, "tcp", table.Address(w.Key()))
	next := held(t, table, w)
	if next[0].FD(0) != fd {
		t.Fatal("the next generation got another lane than the one in which clients wait")
	}
	for range 2 {
		accepted(t, fd)
	}
}

func TestLanesOfDifferentSizeFollowEachOther(t *testing.T) {
	table, w := steered(t, Spec{Address: addr("127.0.0.1:0"), PerSlot: true})
	var lanes []*Lane
	for _, slots := range []int{3, 1, 5, 2, 4} {
		w.Slots = slots
		apply(t, table, w)
		next := held(t, table, w)
		mustServe(t, table, next)
		for slot, got := range byMember(t, table, 100*slots, [][]*Lane{next}, slots)[0] {
			if got < 50 {
				t.Errorf("slot %d of %d got %d connections of %d", slot, slots, got, 100*slots)
			}
		}
		table.Release(lanes)
		lanes = next
	}
	if n := len(table.FDs(w.Key())); n != 7 {
		t.Errorf("%d sockets are open, want 7: as many as two generations had at most", n)
	}
}

func TestUnitSocketWithoutReusePortIsShared(t *testing.T) {
	table := newTable(t)
	o := unitSocket(t, "tcp4", "127.0.0.1:0", "http")
	w := want(t, Spec{Name: "http", Address: addr(o.Address), Handover: Steer})
	table.Offer([]inherit.Socket{o})
	apply(t, table, w)
	if why, unasked := table.WhyShared(w.Resolved); !unasked || !strings.Contains(why, "ReusePort=yes") {
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

// reusePort sets SO_REUSEPORT before a socket is bound.
func reusePort(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
}

func TestUnitSocketWithReusePortIsSteered(t *testing.T) {
	for _, mptcp := range []bool{false, true} {
		table := newTable(t)
		c := net.ListenConfig{Control: reusePort}
		c.SetMultipathTCP(mptcp)
		l, err := c.Listen(t.Context(), "tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		f, err := l.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		unit := int(f.Fd())
		o := inherited(t, unit, "http")
		w := want(t, Spec{Name: "http", Address: addr(o.Address), Handover: Steer})
		table.Offer([]inherit.Socket{o})
		apply(t, table, w)
		// the kernel may have no MPTCP
		if protocol := option(t, unit, unix.SOL_SOCKET, unix.SO_PROTOCOL); protocol != unix.IPPROTO_TCP {
			if why, unasked := table.WhyShared(w.Resolved); !unasked || !strings.Contains(why, "MPTCP") {
				t.Errorf("an MPTCP socket is shared because %q", why)
			}
		} else {
			a, b := held(t, table, w), held(t, table, w)
			mustServe(t, table, b)
			fds := []int{a[0].FD(0), b[0].FD(0)}
			why, _ := table.WhyShared(w.Resolved)
			if got := arrivals(t, o.Address, 100, fds...); why != "" || got[fds[1]] != 100 ||
				inodeOf(t, fds[0]) != inodeOf(t, unit) {
				t.Errorf("connections reached %v", got)
			}
		}
		_ = table.Close()
		arrive1(t, o.Address, unit)
		_, _ = f.Close(), l.Close()
	}
}

// arrive1 checks that a connection arrives at the socket.
func arrive1(t testing.TB, address string, fd int) {
	t.Helper()
	if got := arrivals(t, address, 1, fd); got[fd] != 1 {
		t.Error("the unit's socket gets no connections")
	}
}

func TestStrangersAtTheAddressAreRefused(t *testing.T) {
	needRoot(t)
	var stranger int
	address := freePort(t)
	at := addrPort(t, address)
	asOrdinaryUser(t, func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			stranger = fd
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
			err = errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}),
				unix.Listen(fd, 1))
		}
		if err != nil {
			t.Error(err)
		}
	})
	refuses(t, newTable(t), want(t, Spec{Address: addr(address), Handover: Steer}), "address already in use")
	_ = unix.Close(stranger)

	table := newTable(t)
	apply(t, table, want(t, Spec{Address: addr(address), Handover: Steer}))
	asOrdinaryUser(t, func() {
		if canBind(t, address, true) {
			t.Error("another user can join the group")
		}
	})
}

func TestUserWithoutPrivilegesCanSteer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the other tests show it")
	}
	dir, err := os.MkdirTemp("", "steer")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "test")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(copied, program, 0o755)); err != nil {
		t.Fatal(err)
	}
	const tests = "^(TestFlip|TestSlotsAre|TestProbe|TestPaused|TestLanesOf|TestEveryMember|TestGenerationThat)"
	cmd := exec.CommandContext(t.Context(), copied, "-test.run="+tests, "-test.v")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), "\n--- PASS") < 7 || strings.Contains(string(out), "--- SKIP") {
		t.Errorf("%v\n%s", err, out)
	}
}

func BenchmarkSteer(b *testing.B) {
	table, w := steered(b, Spec{Address: addr("127.0.0.1:0")})
	old, next := held(b, table, w), held(b, table, w)
	mustServe(b, table, old)
	mustServe(b, table, next)
	to := [][]Part{{{Lanes: old, Weight: 1}}, {{Lanes: next, Weight: 1}}}
	for i := 0; b.Loop(); i++ {
		if err := table.Steer(to[i%2]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSteerShares(b *testing.B) {
	table, w := steered(b, Spec{Address: addr("127.0.0.1:0"), PerSlot: true})
	w.Slots = 16
	apply(b, table, w)
	old, next := held(b, table, w), held(b, table, w)
	for i := 0; b.Loop(); i++ {
		if err := table.Steer([]Part{{Lanes: old, Weight: 9500 - i%2}, {Lanes: next, Weight: 500}}); err != nil {
			b.Fatal(err)
		}
	}
}
