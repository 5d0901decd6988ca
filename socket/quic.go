package socket

import (
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

const (
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
