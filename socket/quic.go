package socket

import (
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// quicRing says which socket the datagrams of a QUIC connection belong to (RFC 9000, 17.2 and 17.3.1). A server writes
// its lane into one byte of the connection IDs that it issues, and these have fewer than 8 bytes: a client makes up the
// ID of its first datagrams, and that one has at least 8. So the length of the destination's ID tells who has made it,
// where the type of the packet does not: the handshake continues with long headers, and an Initial that is sent again
// after a switch has the server's ID if the client has had an answer.
type quicRing struct {
	at      int   // index in the connection ID of the byte that has the lane, from 0 to longestServerID-1
	members []int // of the group, by lane: a power of two of them, at most 256; negative: nobody has the lane
}

// LaneByte is the index of the byte with the lane in the connection IDs of a server.
const LaneByte = 0

const (
	lanesOfQUIC     = 256
	longestServerID = 7
	// firstID is where the destination's connection ID begins in a long header, behind the flags, the version and the
	// length of the ID; in a short header it begins behind the flags.
	firstID = 6
	// shortestQUIC suffices to read the lane and 4 bytes of the ID anywhere. Datagrams of QUIC have at least 21 bytes.
	shortestQUIC = firstID + longestServerID
)

// program returns the member that has the lane of a datagram. A new connection goes to one of the ways, which the ID
// that its client made up draws, so all datagrams until the server's answer go to the same one. Anything else goes to
// the first of the ways: what is not QUIC, and connections whose lane nobody has, which only a reset can end.
//
// The kernel shows to a program of a reuseport group what is behind the UDP header, and lets it return 0 where it reads
// behind the datagram.
func (q quicRing) program(ways []way) []unix.SockFilter {
	find := []unix.SockFilter{op(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, uint32(len(q.members)-1))}
	for lane, m := range q.members {
		if m >= 0 {
			find = append(find, when(unix.BPF_JEQ, uint32(lane), []unix.SockFilter{result(m)})...)
		}
	}
	find = append(find, ways[0].pick()...)
	id := func(header int) []unix.SockFilter {
		return append([]unix.SockFilter{op(unix.BPF_LD|unix.BPF_B|unix.BPF_ABS, uint32(header+q.at))}, find...)
	}
	long := []unix.SockFilter{
		op(unix.BPF_LD|unix.BPF_B|unix.BPF_ABS, firstID-1),
		op(unix.BPF_ALU|unix.BPF_SUB|unix.BPF_K, uint32(q.at+1)), // an ID without the byte wraps around
	}
	long = append(long, when(unix.BPF_JGE, uint32(longestServerID-q.at), draw(firstID, ways))...)
	long = append(long, id(firstID)...)
	header := append([]unix.SockFilter{op(unix.BPF_LD|unix.BPF_B|unix.BPF_ABS, 0)}, when(unix.BPF_JGE, 0x80, long)...)
	program := []unix.SockFilter{op(unix.BPF_LD|unix.BPF_W|unix.BPF_LEN, 0)}
	program = append(program, when(unix.BPF_JGE, shortestQUIC, append(header, id(1)...))...)
	return append(program, ways[0].pick()...)
}

func (l *listener) isQUIC() bool { return l.r.Handover == QUIC && l.shared == nil }

// quicRing has the lanes that generations have, and those that serve, by their numbers.
func (l *listener) quicRing() quicRing {
	q := quicRing{at: LaneByte, members: slices.Repeat([]int{-1}, lanesOfQUIC)}
	for _, m := range l.members {
		at := l.group.places(m.id)
		if (l.isHeld(m) || l.serves(m)) && m.number < lanesOfQUIC && len(at) == 1 {
			q.members[m.number] = at[0]
		}
	}
	return q
}

// QUIC returns the number of the lane of a QUIC listener, for the connection IDs of its workers; false: it is of another
// one.
func (ln *Lane) QUIC() (number int, is bool) {
	if ln.of == nil || !ln.of.isQUIC() || len(ln.slots) == 0 {
		return 0, false
	}
	return ln.slots[0].number, true
}

// silence returns what tells for how long its processes have received nothing from a UDP socket, since now. The kernel
// keeps when the last datagram that they received had come, unless they ask for that with each datagram: then nobody
// else knows, and it is never silent.
func (m *sock) silence() func() time.Duration {
	fd := m.fd
	last, since := received(fd), time.Now()
	return func() time.Duration {
		stamp := received(fd)
		if stamp != last {
			last, since = stamp, time.Now()
		}
		for _, option := range []int{unix.SO_TIMESTAMP, unix.SO_TIMESTAMPNS, unix.SO_TIMESTAMPING} {
			if on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, option); err == nil && on != 0 {
				return 0
			}
		}
		return time.Since(since)
	}
}

// received is when the last datagram had come that was received from a socket; 0: none has since somebody asked first.
func received(fd int) (at unix.Timespec) {
	const stamp = 0x8907 // SIOCGSTAMPNS
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), stamp, uintptr(unsafe.Pointer(&at)))
	return at
}
