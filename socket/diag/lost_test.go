package diag

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tick is more than one tick of the kernel's clock.
const tick = 20 * time.Millisecond

// kept is a Watch that remembers what it sees.
func (n *lane) kept(t testing.TB) *Watch {
	t.Helper()
	w := n.watch()
	w.Keep()
	t.Cleanup(w.Close)
	return w
}

func loses(t testing.TB, w *Watch, died bool, want Lost) {
	t.Helper()
	if l, err := w.Lost(died); err != nil || l != want {
		t.Errorf("lost %+v, %v; want %+v", l, err, want)
	}
}

func TestConnectionsAreLostByClass(t *testing.T) {
	for _, network := range []string{"tcp4 127.0.0.1:0", "tcp6 [::1]:0", "tcp :0"} {
		var kind, address string
		fmt.Sscan(network, &kind, &address)
		n := open(t, kind, address, 9)
		w := n.kept(t)
		var clients, servers []net.Conn
		for range 8 {
			c, s := n.pair(t)
			exchange(t, c, s)
			clients, servers = append(clients, c), append(servers, s)
		}
		if n.dial(t); look(t, w) == (Look{}) {
			t.Error("nothing is seen")
		}
		time.Sleep(tick)
		for i := range 6 {
			write(t, clients[i], "request")
		}
		for look(t, w).Unread < 6 {
			time.Sleep(time.Millisecond)
		}
		loses(t, w, true, Lost{})
		servers[0].Close() // unread
		servers[1].Close()
		read(t, servers[2], "request")
		servers[2].Close() // unanswered
		read(t, servers[3], "request")
		write(t, servers[3], "answer")
		servers[3].Close()
		clients[4].Close() // its client gives up, and was not answered
		read(t, servers[4], "request")
		io.Copy(io.Discard, servers[4])
		servers[4].Close()
		servers[6].Close() // idle
		look(t, w)         // a later look changes nothing
		loses(t, w, false, Lost{Unread: 2, Unanswered: 1})
		loses(t, w, true, Lost{}) // each counts once
		servers[5].Close()
		servers[7].Close()
		loses(t, w, false, Lost{Unread: 1})
	}
}

func TestFirstRequestWithoutAnAnswerIsUnanswered(t *testing.T) {
	n := openTCP(t, 9)
	w := n.kept(t)
	for range 20 { // within a tick of the handshake
		c, s := n.pair(t)
		look(t, w)
		write(t, c, "request")
		read(t, s, "request")
		s.Close()
	}
	loses(t, w, false, Lost{Unanswered: 20})
}

// TestRequestRightAfterAnAnswerIsUnansweredIfALookSawIt has a request in the same tick as the answer before it.
func TestRequestRightAfterAnAnswerIsUnansweredIfALookSawIt(t *testing.T) {
	n := openTCP(t, 9)
	w := n.kept(t)
	var servers []net.Conn
	for range 10 {
		c, s := n.pair(t)
		for range 10 {
			exchange(t, c, s)
		}
		write(t, c, "request")
		read(t, s, "request")
		servers = append(servers, s)
	}
	look(t, w)
	for _, s := range servers {
		s.Close()
	}
	loses(t, w, false, Lost{Unanswered: 10})
}

// TestAnswerUnderWayAtAKillIsUnsent fills every buffer, so that the answer cannot be whole.
func TestAnswerUnderWayAtAKillIsUnsent(t *testing.T) {
	n := openTCP(t, 9)
	w := n.kept(t)
	fill := func() (c, s net.Conn) {
		c, s = n.pair(t)
		write(t, c, "request")
		read(t, s, "request")
		s.SetWriteDeadline(time.Now().Add(2 * pause))
		for err := error(nil); err == nil; {
			_, err = s.Write(make([]byte, 1<<20))
		}
		return c, s
	}
	_, cut := fill()
	reader, other := fill()
	if err := w.Mark(true); err != nil {
		t.Fatal(err)
	}
	cut.Close()
	loses(t, w, true, Lost{Unsent: 1}) // the other is another worker's
	go io.Copy(io.Discard, reader)
	for look(t, w).Answering > 0 {
		time.Sleep(time.Millisecond)
	}
	other.Close()
	loses(t, w, true, Lost{})
	_, last := fill()
	look(t, w)
	last.Close()
	loses(t, w, false, Lost{}) // the kernel finishes it
	_, last = fill()
	last.Close() // not seen by any look
	loses(t, w, true, Lost{Unsent: 1})
}

// TestTLSConnectionThatItsClientClosesIsNotLost has a client whose last word is close_notify.
func TestTLSConnectionThatItsClientClosesIsNotLost(t *testing.T) {
	n := openTCP(t, 9)
	w := n.kept(t)
	c, s := n.pair(t)
	exchange(t, c, s)
	look(t, w)
	time.Sleep(tick)
	write(t, c, "close_notify")
	c.Close()
	io.Copy(io.Discard, s)
	s.Close()
	loses(t, w, true, Lost{})
}

// TestConnectionsOfAnotherLaneAreNotLost closes those with another tag on the same port.
func TestConnectionsOfAnotherLaneAreNotLost(t *testing.T) {
	n := openTCP(t, 9)
	w := n.kept(t)
	if err := SetTag(n.fd, 10); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c, s := n.pair(t)
		look(t, w)
		time.Sleep(tick)
		write(t, c, "request")
		s.Close()
	}
	loses(t, w, true, Lost{})
}

func TestManyLostConnectionsAreToldAtOnce(t *testing.T) {
	n := openTCP(t, 9)
	w := n.kept(t)
	var servers []net.Conn
	for range 300 {
		c, s := n.pair(t)
		write(t, c, "request")
		servers = append(servers, s)
	}
	look(t, w)
	for _, s := range servers {
		s.Close()
	}
	loses(t, w, true, Lost{Unread: 300})
}

// TestLostWithoutTheKernelsMessages does with what looks have seen.
func TestLostWithoutTheKernelsMessages(t *testing.T) {
	n := openTCP(t, 9)
	w := n.kept(t)
	w.ended.close()
	w.ended = nil
	c, unread := n.pair(t)
	write(t, c, "request")
	c, unanswered := n.pair(t)
	write(t, c, "request")
	read(t, unanswered, "request")
	look(t, w)
	unread.Close()
	unanswered.Close()
	loses(t, w, true, Lost{Unread: 1, Unanswered: 1})
}

// TestHeldConnections looks at those with an inode, as for a worker that shares its sockets with others.
func TestHeldConnections(t *testing.T) {
	n, u := openTCP(t, 0), openUnix(t)
	inodes := map[uint64]bool{}
	var servers []net.Conn
	for _, l := range []*lane{n, u} {
		c, s := l.pair(t)
		exchange(t, c, s)
		time.Sleep(tick)
		write(t, c, "request")
		inodes[inodeOf(t, fdOf(t, s))] = true
		servers = append(servers, s)
		c, s = l.pair(t) // another worker's
		write(t, c, "request")
		servers = append(servers, s)
	}
	w := NewWatchOf([]uint16{n.port}, func() map[uint64]bool { return inodes })
	defer w.Close()
	if err := w.Mark(true); err != nil {
		t.Fatal(err)
	}
	loses(t, w, true, Lost{})
	for _, s := range servers {
		s.Close()
	}
	loses(t, w, true, Lost{Unread: 2})
}

func TestUnixConnectionsAtAKill(t *testing.T) {
	n := openUnix(t)
	w := n.kept(t)
	c, unread := n.pair(t)
	write(t, c, "request")
	c, unsent := n.pair(t)
	write(t, c, "request")
	read(t, unsent, "request")
	write(t, unsent, "answer")
	_, idle := n.pair(t)
	c, open := n.pair(t)
	write(t, c, "request")
	if err := w.Mark(true); err != nil {
		t.Fatal(err)
	}
	for _, s := range []net.Conn{unread, unsent, idle} {
		s.Close()
	}
	loses(t, w, true, Lost{Unread: 1, Unsent: 1})
	open.Close()
	loses(t, w, true, Lost{Unread: 1})
}

// TestFilterKnowsWhatIsSuspicious runs the filter in the kernel, on a message that it sends through a socket pair.
func TestFilterKnowsWhatIsSuspicious(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	filter := suspicious([]uint16{80, 8080, 443})
	if err := unix.SetsockoptSockFprog(fds[1], unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		port                                      uint16
		readable, dataIn, dataOut, sent, received uint32
		passes                                    bool
	}{
		{8080, 7, 1, 0, 0, 0, true},
		{443, 7, 1, 0, 0, 0, true},
		{80, 300, 5, 5, 0, 100, true},
		{81, 7, 1, 0, 0, 0, false},
		{80, 1, 1, 1, 0, 0, false},
		{80, 0, 0, 0, 0, 0, false},
		{80, 0, 1, 0, 0, 0, true},
		{80, 0, 1, 9, 0, 0, false},
		{80, 0, 2, 9, 300, 300, true},
		{80, 0, 2, 9, 300, 296, true},
		{80, 0, 2, 9, 300, 304, false},
		{80, 0, 1 << 24, 9, 1 << 24, 1 << 16, true},
	} {
		m := make([]byte, 380)
		m[endedSport], m[endedSport+1] = byte(c.port>>8), byte(c.port)
		for at, v := range map[int]uint32{endedReadable: c.readable, endedDataIn: c.dataIn, endedDataOut: c.dataOut, endedSent: c.sent, endedReceived: c.received} {
			native.PutUint32(m[at:], v)
		}
		_, err := unix.Write(fds[0], m)
		n, _ := unix.Read(fds[1], m)
		if err != nil && c.passes || c.passes != (n == len(m)) {
			t.Errorf("%+v: %v, %d bytes passed", c, err, n)
		}
	}
}
