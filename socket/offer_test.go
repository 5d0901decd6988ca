package socket

import (
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket/inherit"
)

// inherit returns an Inherit with a copy of a descriptor, as the next process would have it.
func inherited(t testing.TB, fd int, name string) inherit.Socket {
	t.Helper()
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	i, err := inherit.Examine(own, name)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// orphaned is what a killed supervisor leaves behind: its sockets by name, and their paths.
func orphaned(t testing.TB, wants ...Want) []inherit.Socket {
	t.Helper()
	before := NewTable()
	apply(t, before, wants...)
	var left []inherit.Socket
	for _, n := range before.Export() {
		if len(n.Name) > 255 || strings.ContainsAny(n.Name, ":\n") || !Exported(n.Name) {
			t.Errorf("%q is not a valid export name", n.Name)
		}
		left = append(left, inherited(t, n.FD, n.Name))
		_ = unix.Close(n.FD)
	}
	return left
}

// plain makes TCP sockets and no MPTCP ones, as systemd does.
var plain = func() (c net.ListenConfig) { c.SetMultipathTCP(false); return c }()

// unitSocket returns a socket like those of a systemd socket unit.
func unitSocket(t testing.TB, network, address, name string) inherit.Socket {
	t.Helper()
	l, err := (&plain).Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	f, err := l.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = f.Close(), l.Close() }()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var i inherit.Socket
	if err := raw.Control(func(fd uintptr) { i = inherited(t, int(fd), name) }); err != nil {
		t.Fatal(err)
	}
	return i
}

func TestExportedSocketsComeBack(t *testing.T) {
	spec, path := onDisk(t)
	spec.Mode = 0o640
	wants := []Want{
		want(t, spec), want(t, Spec{Name: "a", Address: addr("127.0.0.1:0")}),
		want(t, Spec{Name: "b", Address: addr("127.0.0.1:0")}),
		want(t, Spec{Address: addr("udp:127.0.0.1:0"), NonBlock: true}), want(t, Spec{Address: addr("unix:@" + t.Name())}),
		{Resolved: resolved(t, Spec{Name: "slots", Address: addr("127.0.0.1:0"), PerSlot: true, Handover: Steer}), Slots: 3},
	}
	table := newTable(t)
	offers := orphaned(t, wants...)
	inodes := make(map[string]uint64)
	for _, o := range offers {
		inodes[o.Name] = inodeOf(t, o.FD)
	}
	table.Offer(append(offers[3:], offers[:3]...)) // in any order
	apply(t, table, wants...)
	if left := table.Unclaimed(); len(left) != 0 {
		t.Errorf("%v is left over", left)
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
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	table, w, _ := opened(t, Spec{Address: addr("unix:" + dir + "/" + strings.Repeat("x", longestPath-len(dir)-1))})
	name := table.Export()[0].Name
	apply(t, table, w)
	if again := table.Export()[0].Name; again != name || len(name) > 255 || !Exported(name) {
		t.Errorf("%q, then %q", name, again)
	}
}

func TestUnitSocketIsMatchedByNameThenByAddress(t *testing.T) {
	for _, c := range []struct{ unitName, listenerName string }{{"http", "http"}, {"web.socket", "http"}} {
		table := newTable(t)
		o := unitSocket(t, "tcp4", "127.0.0.1:0", c.unitName)
		w := want(t, Spec{Name: c.listenerName, Address: addr(o.Address), Backlog: 3})
		inode := inodeOf(t, o.FD)
		table.Offer([]inherit.Socket{o})
		apply(t, table, w)
		fd := held(t, table, w)[0].FD(0)
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if inodeOf(t, fd) != inode || backlog(t, fd) != 3 || err != nil || flags&unix.O_NONBLOCK != 0 {
			t.Errorf("%v: it is another socket, or not as configured", c)
		}
		if n := table.Export()[0]; !n.Foreign || !Exported(n.Name) {
			t.Errorf("%v is not recognized as the socket of a unit", n)
		}
		_ = table.Close()
	}
}

func TestNameOfAnotherKindOfSocketDoesNotMatch(t *testing.T) {
	table := newTable(t)
	spec, _ := onDisk(t)
	spec.Name = "http"
	table.Offer([]inherit.Socket{unitSocket(t, "tcp4", "127.0.0.1:0", "http")})
	apply(t, table, want(t, spec))
	left := table.Unclaimed()
	if len(left) != 1 {
		t.Fatalf("left over: %v", left)
	}
	_ = unix.Close(left[0].FD)
}

func TestUnitsUnixSocketIsNotRemoved(t *testing.T) {
	spec, path := onDisk(t)
	spec.Mode = 0o600
	table := newTable(t)
	o := unitSocket(t, "unix", path, "web.socket")
	before := modeOf(t, path)
	table.Offer([]inherit.Socket{o})
	apply(t, table, want(t, spec))
	_ = table.Close()
	if modeOf(t, path) != before {
		t.Errorf("mode %v", modeOf(t, path))
	}
}

func TestUnitSocketStaysTheUnitsInTheNextImage(t *testing.T) {
	spec, path := onDisk(t)
	table := newTable(t)
	table.Offer([]inherit.Socket{unitSocket(t, "unix", path, "web.socket")})
	w := want(t, spec)
	apply(t, table, w)
	n := table.Export()[0]
	again := NewTable()
	again.Offer([]inherit.Socket{inherited(t, n.FD, n.Name)})
	apply(t, again, w)
	_ = again.Close()
	dialless(t, path)
}

func TestOneSocketOfferedTwiceIsTakenOnce(t *testing.T) {
	table := newTable(t)
	w := want(t, Spec{Name: "http", Address: addr(freePort(t))})
	o := orphaned(t, w)[0]
	table.Offer([]inherit.Socket{inherited(t, o.FD, "other"), o})
	other := want(t, Spec{Name: "other", Address: addr("127.0.0.1:0")})
	apply(t, table, w, other)
	left := table.Unclaimed()
	if len(left) != 1 || len(table.Export()) != 2 || table.FD(w.Key(), 0) != o.FD {
		t.Errorf("left over: %v", left)
	}
	_ = unix.Close(left[0].FD)
	dial(t, "tcp", table.Address(w.Key()))
}

func TestSocketThatIsNotWantedIsLeftOver(t *testing.T) {
	spec, path := onDisk(t)
	table := newTable(t)
	table.Offer(orphaned(t, want(t, spec), want(t, Spec{Address: addr("127.0.0.1:0")})))
	apply(t, table)
	left := table.Unclaimed()
	if len(left) != 2 || len(table.Unclaimed()) != 0 {
		t.Errorf("left over: %v", left)
	}
	for _, l := range left {
		_ = unix.Close(l.FD)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the path of the unwanted socket is left")
	}
}

func TestSocketWithARemovedPathIsAdoptedWhileItHasAName(t *testing.T) {
	spec, path := onDisk(t)
	for what, c := range map[string]struct {
		put      func()
		alsoLink bool
	}{
		"removed":               {func() {}, false},
		"replaced":              {func() { stale(t, path) }, false},
		"removed with its link": {func() {}, true},
	} {
		table := newTable(t)
		w := want(t, spec)
		table.Offer(orphaned(t, w))
		spoil(t, path, c.alsoLink)
		c.put()
		apply(t, table, w)
		left := table.Unclaimed()
		if len(left) > 0 != c.alsoLink {
			t.Errorf("%s: left over: %v", what, left)
		}
		for _, l := range left {
			_ = unix.Close(l.FD)
		}
		apply(t, table, w) // it looks after the path
		dial(t, "unix", path)
		accepted(t, table.FD(w.Key(), 0))
		_ = table.Close()
	}
}

func TestFailedUpdateKeepsTheOffers(t *testing.T) {
	table := newTable(t)
	w := want(t, Spec{Name: "a", Address: addr("127.0.0.1:0")})
	offers := orphaned(t, w)
	table.Offer(offers)
	if err := table.Update([]Want{w, want(t, Spec{Address: addr("192.0.2.77:80")})}); err == nil {
		t.Fatal("it did not fail")
	}
	apply(t, table, w)
	if table.FD(w.Key(), 0) != offers[0].FD {
		t.Error("the offer is gone")
	}
}

func TestModeOfASocketThatWorkersHaveIsLeftAlone(t *testing.T) {
	table := newTable(t)
	w := want(t, Spec{Name: "a", Address: addr("127.0.0.1:0")})
	offers := orphaned(t, w)
	if err := unix.SetNonblock(offers[0].FD, true); err != nil { // as a Go worker does
		t.Fatal(err)
	}
	table.Offer(offers)
	apply(t, table, w)
	if flags, err := unix.FcntlInt(uintptr(table.FD(w.Key(), 0)), unix.F_GETFL, 0); err != nil ||
		flags&unix.O_NONBLOCK == 0 {
		t.Error("it was made blocking")
	}
}
