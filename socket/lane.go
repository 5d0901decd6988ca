package socket

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// listener is the listener of one key: one lane, and for a while another beside it.
type listener struct {
	key    string
	lanes  []*lane // in the order in which they were opened, which is that of the kernel's group
	wanted *lane   // what the configuration asks for, so what the next generation gets; nil: the listener is not configured
	serves *lane   // new connections go there
	closed bool    // see SetOpen

	steered string // name of the program that the kernel runs; see program
}

// lane is a set of sockets of a listener: one, or one for each slot.
type lane struct {
	number int // unique while the listener lives
	r      Resolved
	slots  []*sock
	wanted int         // sockets that the configuration wants
	holds  map[int]int // how many Holds knew this many sockets
	active int         // new connections go to the first so many sockets
	left   time.Time   // when another lane began to serve; zero: this one serves, or never did
	shrunk time.Time   // when active became less
}

// lane returns the lane with this number, or nil if it is gone.
func (l *listener) lane(number int) *lane {
	for _, ln := range l.lanes {
		if ln.number == number {
			return ln
		}
	}
	return nil
}

// all lists the sockets of all lanes.
func (l *listener) all() []*sock {
	var all []*sock
	for _, ln := range l.lanes {
		all = append(all, ln.slots...)
	}
	return all
}

// newest is the lane that the next generation gets.
func (l *listener) newest() *lane {
	if l.wanted != nil {
		return l.wanted
	}
	return l.lanes[len(l.lanes)-1]
}

// nextNumber is the number of a new lane: above all others, in the order of the kernel's group; for a unix socket, which has no group,
// the lowest that is free.
func (l *listener) nextNumber() int {
	if !l.lanes[0].r.at.isUnix() {
		return l.lanes[len(l.lanes)-1].number + 1
	}
	number := 0
	for l.lane(number) != nil {
		number++
	}
	return number
}

// serve makes ln the lane for new connections.
func (l *listener) serve(ln *lane) {
	if l.serves == ln {
		return
	}
	if l.serves != nil {
		l.serves.left = time.Now()
	}
	ln.left = time.Time{}
	l.serves = ln
}

// needed is how many sockets the configuration and the generations need.
func (ln *lane) needed() int {
	n := ln.wanted
	for slots := range ln.holds {
		n = max(n, slots)
	}
	return n
}

// common is how many sockets all of them know: what every generation that may be serving accepts from.
func (ln *lane) common() int {
	n := ln.wanted
	for slots := range ln.holds {
		if n == 0 || slots < n {
			n = slots
		}
	}
	return min(n, len(ln.slots))
}

// setActive sends new connections to the first n of the lane's sockets, once the kernel is told.
func (ln *lane) setActive(n int) {
	if n < ln.active {
		ln.shrunk = time.Now()
	}
	ln.active = n
}

func (ln *lane) held() bool      { return len(ln.holds) > 0 }
func (ln *lane) reachable() bool { return ln.slots[0].reachable(ln.r) }

func (ln *lane) foreign() bool {
	return slices.ContainsFunc(ln.slots, func(s *sock) bool { return s.foreign })
}

// discard closes all sockets of the lane but the first n.
func (ln *lane) discard(n int) {
	for i := len(ln.slots) - 1; i >= n; i-- { // the last one first, so that no other of the kernel's group gets its number
		ln.slots[i].discard(ln.r)
	}
	ln.slots = ln.slots[:n]
}

// keepsServing makes a lane that is needed the serving one, and reports whether there is one.
func (l *listener) keepsServing() bool {
	if l.serves != nil && l.serves.needed() > 0 {
		return true
	}
	for _, ln := range slices.Backward(l.lanes) {
		if ln.needed() > 0 {
			l.serve(ln)
			return true
		}
	}
	return false
}

// drop closes the sockets that are not needed.
func (l *listener) drop() {
	stays := l.serves != nil && l.serves.needed() > 0
	for _, ln := range l.lanes {
		n := ln.needed()
		if n >= len(ln.slots) {
			continue
		}
		if stays && !ln.r.at.onDisk() {
			// A stray process that has the socket, too, must not keep it in the group: it would get connections.
			for _, s := range ln.slots[n:] {
				s.withdraw()
			}
		}
		ln.discard(n)
	}
	l.lanes = slices.DeleteFunc(l.lanes, func(ln *lane) bool { return ln.needed() == 0 })
}

// share sets SO_REUSEPORT where several sockets have the address, and nowhere else.
func (l *listener) share() {
	for _, ln := range l.lanes {
		if ln.r.at.isUnix() || ln.foreign() {
			continue
		}
		for _, s := range ln.slots {
			_ = s.setReusePort(ln.r.groups() || len(l.lanes) > 1 || len(ln.slots) > 1) // it was possible when the socket was opened
		}
	}
}

func (s *sock) sharesPort() bool {
	on, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEPORT)
	return err == nil && on != 0
}

func (s *sock) setReusePort(on bool) error {
	if s.sharesPort() == on {
		return nil
	}
	return unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, number(on))
}

// Stranded reports whether clients find a listener only where no generation accepts, because its path was gone and it was bound again.
// The workers of its program must be replaced. Until a generation holds the new socket, connections to it are refused.
func (t *Table) Stranded(key string) bool {
	l := t.listeners[key]
	if l == nil || l.newest().held() {
		return false
	}
	return slices.ContainsFunc(l.lanes, func(ln *lane) bool { return ln.held() && !ln.reachable() })
}

// How long the connections of a lane that no longer serves have to arrive: a handshake that began before the change ends in the old
// lane. quietWithin bounds the wait for a queue that does not empty.
const (
	handshake   = time.Second
	quietWithin = 10 * time.Second
)

// Quiet reports whether a generation with these claims may be told to stop: it has no socket of its own, or only sockets that get no
// more connections and whose queues are empty.
func (t *Table) Quiet(claims []string, now time.Time) bool {
	for _, c := range claims {
		l, ln, slots := t.find(c)
		switch {
		case ln == nil || !ln.r.at.isTCP():
		case ln != l.serves && !ln.left.IsZero():
			if !quiet(ln.slots, now.Sub(ln.left)) {
				return false
			}
		case slots > ln.active:
			if !quiet(ln.slots[ln.active:], now.Sub(ln.shrunk)) {
				return false
			}
		}
	}
	return true
}

// quiet reports whether nothing is left in sockets that have got no connections for this time.
func quiet(sockets []*sock, idle time.Duration) bool {
	return idle >= handshake && (idle >= quietWithin || !slices.ContainsFunc(sockets, (*sock).waiting))
}

// waiting reports whether a connection waits to be accepted: in LISTEN, tcpi_unacked is the length of the queue.
func (s *sock) waiting() bool {
	info, err := unix.GetsockoptTCPInfo(s.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	return err == nil && info.Unacked > 0
}
