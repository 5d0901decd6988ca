// Package diag asks the kernel about sockets by NETLINK_SOCK_DIAG (sock_diag(7)): which connections a generation still has, whether it has
// anything in hand on them, and how many wait to be accepted. It needs no privileges and no help from the processes that have the sockets.
package diag

import "time"

// Target is what one generation has of one listener. Port is 0 for a unix socket.
type Target struct {
	Port   uint16
	Tags   uint32   // the tags of the generation's listening sockets (SetTag), as a bit set: 1<<tag
	Queues []uint64 // the inodes of the generation's listening sockets, as fstat(2) gives them; they must be open
}

// Look is what a generation has in hand at one moment, in connections.
type Look struct {
	Queued     int           `json:"queued"`     // wait to be accepted
	Handshakes int           `json:"handshakes"` // are being opened
	Unread     int           `json:"unread"`     // have data that nobody has read, or their first data are on the way
	Answering  int           `json:"answering"`  // have a request without an answer, or an answer under way
	Idle       int           `json:"idle"`       // have nothing in hand
	Took       time.Duration `json:"-"`
}

// Quiet reports whether nothing is in hand.
func (l Look) Quiet() bool { return l.Queued+l.Handshakes+l.Unread+l.Answering == 0 }

func (l *Look) count(p phase) {
	switch p {
	case queued:
		l.Queued++
	case unread:
		l.Unread++
	case answering:
		l.Answering++
	case idle:
		l.Idle++
	}
}

// phase is what an established connection is about.
type phase int

const (
	queued phase = iota
	unread
	answering
	idle
)

// The limits that tell what is under way from what has ended.
const (
	// firstData is how long the first data of an accepted connection are taken to be on the way, besides some round trips: a client that is starved of
	// CPU time, or whose packets are lost, needs seconds. An old generation gets no new connections, so it waits at most so long for silent ones.
	firstData = 5 * time.Second
	// firstAnswer is how long a young connection is taken to be at work after what was sent last.
	firstAnswer = time.Second
	// pause is the shortest time after which an answer is taken to have ended, and trips the least number of round trips: the pauses between the
	// parts of an answer are shorter.
	pause = 50 * time.Millisecond
	trips = 4
	// young is how many segments with data a connection receives until its first answer has begun for certain. Before that, what was sent last may be part of
	// a TLS or HTTP/2 handshake that ended with the request itself, so the connection is at work for firstAnswer.
	young = 5
	// doubtful is how long a connection of which the kernel's clock cannot tell whether its last request was answered is taken to be at work.
	doubtful = 5 * time.Second
)

// phase tells what a connection is about. The states are those of established connections: a server that has closed its side has nothing in hand.
func (s *inetSocket) phase() phase {
	if s.inode == 0 {
		return queued
	}
	fin := uint64(0) // counts as a byte, received and to be read
	if s.state == closeWait {
		fin = 1
	}
	i := &s.info
	switch {
	case uint64(s.readable) > fin:
		return unread
	case s.unacked > 0 || !i.known:
		return answering
	case i.bytes <= fin && i.dataOut == 0: // nothing went either way
		if fin == 0 && i.received < firstData+trips*i.rtt {
			return unread
		}
		return idle
	case i.bytes > fin && (i.dataOut == 0 || i.received < i.sent):
		return answering
	case i.sent < max(pause, trips*i.rtt):
		return answering
	case i.bytes > fin && i.dataIn <= young && i.sent < firstAnswer:
		return answering
	case i.bytes > fin && s.unclear() && i.sent < doubtful:
		return answering
	}
	return idle
}

// unclear reports whether the last request may have come right after the answer to the one before: both within one tick of the kernel's clock (1 to
// 10 ms), so that it looks answered. Then the request was the last that came. In an idle connection it was the acknowledgement of the answer: later,
// or in the same tick by a client that acknowledges each answer alone, because it pauses between its requests.
func (s *inetSocket) unclear() bool {
	i := &s.info
	return i.received == i.sent && i.acked >= i.received && i.dataIn > 1 && i.segments-i.dataIn < i.dataIn
}

// phase tells what an accepted unix connection is about. The kernel keeps no times of it, so it is taken to be at work as long as somebody could want
// an answer.
func (s *unixSocket) phase() phase {
	switch {
	case s.inode == 0:
		return queued
	case s.queue > 0:
		return unread
	case s.peerGone:
		return idle
	}
	return answering
}
