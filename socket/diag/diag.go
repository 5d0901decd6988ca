// Package diag asks the kernel about sockets by NETLINK_SOCK_DIAG (sock_diag(7)): which connections a generation still
// has, whether it has anything in hand on them, and how many wait to be accepted. It needs no privileges and no help
// from the processes that have the sockets.
package diag

import "time"

// Target is what one generation has of one listener: of TCP, or of UDP, which has only Receives.
type Target struct {
	Port   uint16
	Tags   uint32   // the tags of the generation's listening sockets (SetTag), as a bit set: 1<<tag
	Queues []uint64 // the inodes of the generation's listening sockets, as fstat(2) gives them; they must be open
	// Crowded says that other sockets of the listener have one of the tags: connections of their workers have it, too.
	// Watch.Of can tell them apart.
	Crowded bool

	Defers time.Duration // how long the kernel keeps a handshake open for the client's first data (TCP_DEFER_ACCEPT)

	Receives []int // descriptors of UDP sockets; they must be open as long as what is found matters

	// Silences tell for how long nothing has come to these sockets, which still get datagrams of their flows; nil: they
	// get nothing new. They are called by Look, whatever goroutine calls that.
	Silences []func() time.Duration
}

// InHand is what a generation has in hand at one moment, in connections; of UDP, in sockets.
type InHand struct {
	Queued     int `json:"queued"`     // wait to be accepted
	Handshakes int `json:"handshakes"` // are being opened
	Unread     int `json:"unread"`     // have data that nobody has read
	// have a request without an answer, or an answer that the client has not acknowledged
	Answering int `json:"answering"`
	Active    int `json:"active"` // have not been silent for long enough
	Idle      int `json:"idle"`   // have been silent in both directions for long enough

	Silent time.Duration `json:"-"` // until all that are Active have been silent for long enough, if they stay so
	Took   time.Duration `json:"-"`
}

// Quiet reports whether nothing is in hand.
func (l InHand) Quiet() bool { return l.Queued+l.Handshakes+l.Unread+l.Answering+l.Active == 0 }

// The pauses between looks.
const (
	// First is how long after the switch the first look is worth its cost: a look takes a millisecond or more of a CPU
	// that clients and the new workers need then.
	First = 10 * time.Millisecond

	rare = 5 * time.Second
	tick = 10 * time.Millisecond // of the kernel's clock, at most
)

// Next returns how long to wait for the next look when the looks began so long ago: they double their distance, so that
// clients which close their connections delay nothing. It comes sooner if only silence is waited for, in the moment in
// which that may be over.
func (l InHand) Next(age time.Duration) time.Duration {
	pause := min(max(age, First), max(rare, age/8))
	if l.Silent > 0 && l.Queued+l.Handshakes+l.Unread+l.Answering == 0 {
		pause = min(pause, l.Silent+tick)
	}
	return pause
}

func (l *InHand) count(p phase) {
	switch p {
	case queued:
		l.Queued++
	case unread:
		l.Unread++
	case answering:
		l.Answering++
	case active:
		l.Active++
	case idle:
		l.Idle++
	}
}

// phase is what an established connection is about. The usual way of a connection with keep-alive:
//
//	          accept(2)        read(2)           write(2)          the client has it all     silence is over
//	queued ─────────────► unread ────► answering ────────► answering ─────────────────► active ──────────► idle
//	                        ▲                                                                                │
//	                        └──────────────────────────── the next request ──────────────────────────────────┘
//
// All but idle count as in hand. One that is unsure becomes answering or idle: see view.ask.
type phase int

const (
	queued phase = iota
	unread
	answering
	active
	unsure
	idle
)

// phase tells what a connection is about. The states are those of established connections: a server that has closed its
// side has nothing in hand. The kernel shows bytes and times, not requests: an answer in parts, or a TLS session
// ticket, looks like an answer that has ended. Silence in both directions tells them apart. With a silence of 0 a
// connection is idle as soon as nothing is unread or unacknowledged.
func (s *inetSocket) phase(silence time.Duration) phase {
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
	case silence > 0 && i.bytes > fin && (i.dataOut == 0 || i.received < i.sent): // the last data are the client's
		return answering
	case i.silent() < silence:
		return active
	case silence == 0 || !i.oneTick():
		return idle
	case i.silent() < latestAck:
		return active
	}
	return unsure
}

// oneTick reports whether the last request may have come after the last answer, in the same tick of the kernel's clock,
// as from a proxy under load. An answer without a next request is acknowledged by itself, mostly in a later tick; an
// acknowledgement that is later by far is one of SO_KEEPALIVE.
func (i *tcpInfo) oneTick() bool {
	later := i.received - i.acked
	return i.received == i.sent && i.dataIn > 1 && (later <= 0 || later > latestAck)
}

// latestAck is when a kernel has acknowledged what has not been answered: after 200 ms at the latest, and the way to a
// client that is far away.
const latestAck = time.Second

// silent is how long nothing has been sent or received; if nothing ever was, since the handshake.
func (i *tcpInfo) silent() time.Duration { return min(i.sent, i.received) }
