package socket

import (
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/epoll"
	"example.org/supervisord/socket/inherit"
)

// Table owns every listening socket of the supervisor. It belongs to one goroutine.
//
// # Lanes
//
// A lane is what a generation has of a listener: one socket, or several (see below). The sockets of all lanes of an
// internet address are the members of one SO_REUSEPORT group, and a classic BPF program on the group sends each new
// connection to one member. Steer replaces the program, which is atomic.
//
// A listener whose Handover is Steer gives each generation a lane of its own: Hold takes members that nobody has,
// and opens what is missing. The kernel numbers the members of a group in the order in which they began to listen,
// and moves the last one to the place of one that is closed. So the table never closes a member while the listener
// lives, and a member's number never changes. The next generation gets the free ones that new connections go to,
// which a generation that died left, and then the first of the group in which no handshake of an earlier generation
// is under way.
//
// A listener whose Handover is Share gives every generation the same lane. So do unix sockets, UDP, and where
// SO_REUSEPORT cannot be had: see Shared. Where the lane of all cannot become what the configuration wants, because
// O_NONBLOCK belongs to a socket, which its processes share, or because the path of a unix socket is gone, the next
// generation gets another lane than the one before.
//
// # Sockets for each slot
//
// A lane has one socket for each slot with PerSlot, one for all with Single, and else, if no other generation has
// it, one for every SlotsOfSocket slots: of n sockets, slot s has socket s modulo n. So a generation can be scaled
// without new sockets, and its workers are spread evenly over those that it has.
//
// Closing a socket resets the connections that wait in it. So the table opens and closes sockets of a lane that
// generations share only where none can be waiting. When the number grows, the new sockets get no connections at
// first; when it shrinks, the last ones get no new ones from Update on, and stay open until every generation that
// knew them has been released.
type Table struct {
	listeners map[string]*listener
	offers    []*offer
	changed   map[string]bool // keys of listeners: see Unowned
	poller    *epoll.Poller   // see Watch
	shutDown  func(key string)
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{listeners: make(map[string]*listener), changed: make(map[string]bool)}
}

// Address returns where a listener is bound: "127.0.0.1:43210" (also when the kernel chose the port), "/run/web.sock",
// "@abstract"; "": there is no listener with this key.
func (t *Table) Address(key string) string {
	if l := t.listeners[key]; l != nil {
		return l.address()
	}
	return ""
}

func (l *listener) address() string {
	_, bound, _ := inherit.Describe(l.members[0].fd) // our own socket has a name
	return bound
}

// FDs returns the descriptors of all sockets of a listener, including those that only older generations have, or none.
// They stay the table's.
func (t *Table) FDs(key string) []int {
	fds := []int{}
	if l := t.listeners[key]; l != nil {
		for _, m := range l.members {
			fds = append(fds, m.fd)
		}
	}
	return fds
}

// Close closes everything and removes the unix sockets that are still ours. New connections go where they went: to
// the socket of a socket unit, if Steer said so, although systemd keeps our sockets open while it restarts the
// service.
func (t *Table) Close() error {
	for _, l := range t.listeners {
		for len(l.probes) > 0 {
			l.probes[0].End()
		}
		for i := len(l.members) - 1; i >= 0; i-- {
			l.members[i].discard()
		}
		l.closeFlows()
	}
	for _, o := range t.offers {
		_ = unix.Close(o.FD)
	}
	*t = *NewTable()
	return nil
}
