package socket

import (
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/socket/inherit"
)

// steered opens a listener whose generations have lanes of their own.
func steered(t testing.TB, s Spec) (*Table, Want) {
	t.Helper()
	if s.NonBlock = true; s.Handover == "" {
		s.Handover = Steer
	}
	if wrong := s.Unpermitted(); wrong != nil {
		t.Skip(wrong)
	}
	if s.Name == "" {
		s.Name = "web"
	}
	table := newTable(t)
	w := want(t, s)
	w.Slots = 1
	apply(t, table, w)
	return table, w
}

// arrivals makes connections and says how many reached each of the sockets; -1: none of them.
func arrivals(t testing.TB, address string, connections int, fds ...int) map[int]int {
	t.Helper()
	got := map[int]int{}
	for range connections {
		client := must.Get(net.Dial("tcp", address))(t)
		got[acceptor(t, fds)]++
		if tcp, ok := client.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // no TIME_WAIT, so that there are enough ports
		}
		_ = client.Close()
	}
	return got
}

// acceptor accepts the connection that waits in one of the sockets; -1: there is none.
func acceptor(t testing.TB, fds []int) int {
	t.Helper()
	for _, p := range polledFor(t, fds, unix.POLLIN, patience) {
		if p.Revents == 0 {
			continue
		}
		conn, _, err := unix.Accept4(int(p.Fd), unix.SOCK_CLOEXEC)
		if err != nil {
			t.Error(err)
			return -1
		}
		if bornShut(conn) {
			t.Errorf("a connection that comes to the socket %d is at its end", p.Fd)
		}
		_ = unix.Close(conn)
		return int(p.Fd)
	}
	t.Error("no connection arrived")
	return -1
}

// bornShut reports whether a TCP connection says that its client has ended it, and the client has not.
func bornShut(conn int) bool {
	info, err := unix.GetsockoptTCPInfo(conn, unix.IPPROTO_TCP, unix.TCP_INFO)
	fds := []unix.PollFd{{Fd: int32(conn), Events: unix.POLLRDHUP}}
	n, _ := unix.Poll(fds, 0)
	return err == nil && info.State == unix.BPF_TCP_ESTABLISHED && n == 1 && fds[0].Revents&unix.POLLRDHUP != 0
}

// resumed hands the sockets of a table over to another table with a generation that has this lane.
func resumed(t *testing.T, offers []inherit.Socket, ln *Lane) (*Table, *Lane, []error) {
	t.Helper()
	table, lanes := offered(t, offers...), recorded(t, ln)
	return table, lanes[0], table.Resume(lanes, nil, nil)
}

// offered returns a table that is offered sockets.
func offered(t testing.TB, sockets ...inherit.Socket) *Table {
	t.Helper()
	table := newTable(t)
	table.Offer(sockets)
	return table
}

func TestSocketWithARemovedPathIsKeptWhateverReplacedThePath(t *testing.T) {
	atPath(t, "hold a; rm; resumed; end")
	atPath(t, "hold a; rm; put a file; resumed; end left")
	atPath(t, "hold a; rm; put a directory; resumed; end left")
	atPath(t, "hold a; rm all; resumed; update; stranded; end")
}

func TestOptionThatCannotBeSetDoesNotKeepAGenerationFromItsSocket(t *testing.T) {
	before, w, fd := opened(t, Spec{Address: addr(freePort(t))})
	ln := held(t, before, w)[0]
	ln.Listener.KeepAlive = 40_000 * time.Second // the kernel takes 32,767 s at most
	_, again, problems := resumed(t, handedOver(t, before), ln)
	if len(problems) != 1 || inodeOf(t, again.FD(0)) != inodeOf(t, fd) {
		t.Errorf("problems: %v", problems)
	}
}

func TestSlotWithoutASocketSharesTheSocketOfAnother(t *testing.T) {
	table, _, fd := opened(t, Spec{Address: addr("127.0.0.1:0")})
	nowhere := want(t, Spec{Address: addr("192.0.2.77:80"), PerSlot: true, Handover: Steer})
	u := &update{table: table, resuming: true}
	slots := u.refill(&listener{r: nowhere.Resolved, members: []*sock{{fd: fd}}}, nowhere.Resolved, []int{0, 1, 2})
	if len(u.problems) != 2 || len(slots) != 3 {
		t.Fatalf("%d sockets, problems %v", len(slots), u.problems)
	}
	for _, s := range slots {
		if inodeOf(t, s.fd) != inodeOf(t, fd) {
			t.Error("a slot has another socket")
		}
	}
}

func TestRehearseFindsASocketThatIsMissingAndTouchesNone(t *testing.T) {
	before, w, _ := opened(t, Spec{Name: "web", Address: addr(freePort(t))})
	lanes := held(t, before, w)
	generations := []*Lane{lanes[0], lanes[0]}
	table := NewTable()
	offers := handedOver(t, before)
	table.Offer(offers)
	if err := table.Rehearse(generations); err != nil {
		t.Error(err)
	}
	for _, o := range offers {
		unix.Close(o.FD)
	}
	if err := NewTable().Rehearse(generations); err == nil || !strings.Contains(err.Error(), `"web"`) {
		t.Errorf("without the socket: %v", err)
	}
}

func TestLanesSurviveUpgrades(t *testing.T) {
	play(t, Spec{}, ipAddresses, `
		hold a b; serve a; serve b; wait 1; left a; upgrade; wait 1; take 2 b; serve b; come 10 b; left a
		hold c; serve c; come 10 c; lanes; release a; upgrade; hold d; same d a; come 10 c; lanes`)
	play(t, Spec{PerSlot: true}, tcpAddresses[:1], `
		slots 2; hold a b c d; serve c; release a; upgrade; lanes; open 8; left b; release b; upgrade; upgrade
		come 10 c; lanes; hold e f; same e a; same f b`)
}

// A slot may have no worker.
func TestResumeSendsConnectionsToTheSocketsOfItsParts(t *testing.T) {
	table, w := steered(t, Spec{Address: addr("127.0.0.1:0"), PerSlot: true})
	lanes := must.Get(table.Hold([]Resolved{w.Resolved}, 3, nil))(t)
	for _, slots := range [][]int{{0}, {1, 2}, nil} {
		next, after := offered(t, handedOver(t, table)...), recorded(t, lanes...)
		must.Do(t, errors.Join(next.Resume(after, []Part{{Lanes: after, Slots: slots, Weight: 1}}, nil)...))
		var fds []int
		for slot := range 3 {
			fds = append(fds, after[0].FD(slot))
		}
		got := arrivals(t, after[0].Address(), 50, fds...)
		for slot, fd := range fds {
			if gets := slots == nil || slices.Contains(slots, slot); gets != (got[fd] > 0) {
				t.Errorf("slots %v: %d connections reached the socket of slot %d", slots, got[fd], slot)
			}
		}
		_ = next.Close()
	}
}

// TestUpgradeKeepsAModeThatWasChangedByWayOfSteering: the old generation accepts from the socket that all shared,
// the next ones share another.
func TestUpgradeKeepsAModeThatWasChangedByWayOfSteering(t *testing.T) {
	for _, mode := range []bool{false, true} {
		before, w, _ := opened(t, Spec{Name: "web", Address: addr("127.0.0.1:0"), Handover: Share,
			Sockopts: Sockopts{NonBlock: mode}})
		old := serves(t, before, w)
		steered, next := w, w
		steered.Handover, next.NonBlock = Steer, !mode
		apply(t, before, steered)
		apply(t, before, next)
		had := inodeOf(t, before.FD(next.Key(), 0))
		table, again, problems := resumed(t, handedOver(t, before), old[0])
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		apply(t, table, next)
		lanes := serves(t, table, next)
		if fd := lanes[0].FD(0); inodeOf(t, fd) != had || isNonBlock(t, fd) == mode ||
			isNonBlock(t, again.FD(0)) != mode {
			t.Errorf("nonblock %v: the next generation has a socket with %v", !mode, isNonBlock(t, fd))
		}
	}
}

// inherited is a copy of a descriptor, as the next process would have it.
func inherited(t testing.TB, fd int, name string) inherit.Socket {
	t.Helper()
	own := must.Get(unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0))(t)
	return must.Get(inherit.Examine(own, name))(t)
}

// handedOver returns the sockets of a table as the next supervisor receives them.
func handedOver(t testing.TB, table *Table) (all []inherit.Socket) {
	t.Helper()
	for _, n := range table.Export() {
		all = append(all, inherited(t, n.FD, n.Name))
	}
	return all
}

// orphaned is what a killed supervisor leaves behind: its sockets by name, and their paths.
func orphaned(t testing.TB, wants ...Want) []inherit.Socket {
	t.Helper()
	before := NewTable()
	apply(t, before, wants...)
	defer die(before)
	return handedOver(t, before)
}

// plain makes TCP sockets and no MPTCP ones, as systemd does.
var plain = func() (c net.ListenConfig) { c.SetMultipathTCP(false); return c }()

// unitSocket returns a socket like those of a systemd socket unit.
func unitSocket(t testing.TB, c net.ListenConfig, network, address, name string) (o inherit.Socket) {
	t.Helper()
	l := must.Get(c.Listen(t.Context(), network, address))(t)
	defer l.Close()
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	raw := must.Get(l.(syscall.Conn).SyscallConn())(t)
	must.Do(t, raw.Control(func(fd uintptr) { o = inherited(t, int(fd), name) }))
	return o
}

func TestExportedSocketsComeBack(t *testing.T) {
	spec, path := onDisk(t)
	spec.Mode = 0o640
	wants := []Want{
		want(t, spec), want(t, Spec{Name: "a", Address: addr("127.0.0.1:0")}),
		want(t, Spec{Name: "b", Address: addr("127.0.0.1:0")}),
		want(t, Spec{Address: addr("udp:127.0.0.1:0"), Sockopts: Sockopts{NonBlock: true}}),
		want(t, Spec{Address: addr("unix:@" + t.Name())}),
		{Resolved: resolved(t, Spec{Name: "slots", Address: addr("127.0.0.1:0"), PerSlot: true, Handover: Steer}), Slots: 3},
	}
	offers, inodes := orphaned(t, wants...), make(map[string]uint64)
	for _, o := range offers {
		inodes[o.Name] = inodeOf(t, o.FD)
		if len(o.Name) > 255 || strings.ContainsAny(o.Name, ":\n") || !Exported(o.Name) {
			t.Errorf("%q is not a valid export name", o.Name)
		}
	}
	table := offered(t, append(offers[3:], offers[:3]...)...) // in any order
	apply(t, table, wants...)
	if left := unclaimed(table); left != 0 {
		t.Errorf("%d sockets are left over", left)
	}
	exports := table.Export()
	for _, n := range exports {
		if inodes[n.Name] != inodeOf(t, n.FD) {
			t.Errorf("%s is another socket", n.Name)
		}
	}
	if len(exports) != len(inodes) || modeOf(t, path).Perm() != 0o640 {
		t.Errorf("%d sockets of %d, mode %v", len(exports), len(inodes), modeOf(t, path))
	}
	_ = table.Close()
	if _, err := os.Lstat(path); err == nil {
		t.Error("the path belongs to another socket")
	}
}

func TestExportNameIsStableAndFitsForTheLongestPath(t *testing.T) {
	dir := must.Get(os.MkdirTemp("", "s"))(t)
	defer func() { _ = os.RemoveAll(dir) }()
	table, w, _ := opened(t, Spec{Address: addr("unix:" + dir + "/" + strings.Repeat("x", longestPath-len(dir)-1))})
	name := table.Export()[0].Name
	apply(t, table, w)
	if again := table.Export()[0].Name; again != name || len(name) > 255 || !Exported(name) {
		t.Errorf("%q, then %q", name, again)
	}
}

func TestUnitSocketIsMatchedByNameThenByAddress(t *testing.T) {
	for _, unitName := range []string{"http", "web.socket"} {
		o := unitSocket(t, plain, "tcp4", "127.0.0.1:0", unitName)
		w := want(t, Spec{Name: "http", Address: addr(o.Address), Backlog: 3})
		inode, table := inodeOf(t, o.FD), offered(t, o)
		apply(t, table, w)
		if fd := held(t, table, w)[0].FD(0); inodeOf(t, fd) != inode || backlog(t, fd) != 3 || isNonBlock(t, fd) {
			t.Errorf("%s: it is another socket, or not as configured", unitName)
		}
		if n := table.Export()[0]; !n.Foreign || !Exported(n.Name) {
			t.Errorf("%v is not recognized as the socket of a unit", n)
		}
		_ = table.Close()
	}
}

func TestNameOfAnotherKindOfSocketDoesNotMatch(t *testing.T) {
	spec, _ := onDisk(t)
	spec.Name = "http"
	table := offered(t, unitSocket(t, plain, "tcp4", "127.0.0.1:0", "http"))
	apply(t, table, want(t, spec))
	if left := unclaimed(table); left != 1 {
		t.Fatalf("%d sockets are left over", left)
	}
}

func TestUnixSocketOfAUnitIsLeftAsItIs(t *testing.T) {
	spec, path := onDisk(t)
	spec.Mode = 0o600
	table, w := offered(t, unitSocket(t, plain, "unix", path, "web.socket")), want(t, spec)
	before := modeOf(t, path)
	apply(t, table, w)
	again := offered(t, handedOver(t, table)...)
	apply(t, again, w)
	for _, table := range []*Table{again, table} {
		if _ = table.Close(); modeOf(t, path) != before {
			t.Errorf("mode %v", modeOf(t, path))
		}
	}
}

func TestOneSocketOfferedTwiceIsTakenOnce(t *testing.T) {
	w := want(t, Spec{Name: "http", Address: addr(freePort(t))})
	o := orphaned(t, w)[0]
	table := offered(t, inherited(t, o.FD, "other"), o)
	apply(t, table, w, want(t, Spec{Name: "other", Address: addr("127.0.0.1:0")}))
	if left := unclaimed(table); left != 1 || len(table.Export()) != 2 || table.FD(w.Key(), 0) != o.FD {
		t.Errorf("%d sockets are left over", left)
	}
	dial(t, "tcp", table.Address(w.Key()))
}

func TestSocketThatIsNotWantedIsLeftOver(t *testing.T) {
	spec, path := onDisk(t)
	table := offered(t, orphaned(t, want(t, spec), want(t, Spec{Address: addr("127.0.0.1:0")}))...)
	apply(t, table)
	if left, again := unclaimed(table), unclaimed(table); left != 2 || again != 0 {
		t.Errorf("%d sockets are left over, and then %d", left, again)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the path of the unwanted socket is left")
	}
}

func TestFailedUpdateKeepsTheOffers(t *testing.T) {
	w := want(t, Spec{Name: "a", Address: addr("127.0.0.1:0")})
	o := orphaned(t, w)[0]
	must.Do(t, unix.SetNonblock(o.FD, true)) // as a Go worker does
	table := offered(t, o)
	if err := table.Update([]Want{w, want(t, Spec{Address: addr("192.0.2.77:80")})}); err == nil {
		t.Fatal("it did not fail")
	}
	apply(t, table, w)
	if table.FD(w.Key(), 0) != o.FD {
		t.Error("the offer is gone")
	}
	if !isNonBlock(t, o.FD) {
		t.Error("the mode of a socket that workers have was changed")
	}
}
