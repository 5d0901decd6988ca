package socket

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket/inherit"
)

// Table owns every listening socket of the supervisor. It belongs to one goroutine.
//
// # Sockets for each slot
//
// A listener with PerSlot has one socket for each slot, and closing a socket resets the connections that wait in it. So the table opens
// and closes sockets only where none can be waiting. When the number grows, the new sockets get no connections at first; when it
// shrinks, the last ones get no new ones from Update on, and stay open until every generation that knew them has been released. Serve
// says which generation the connections are for. A listener that gets PerSlot, or loses it, grows or shrinks likewise: its socket
// becomes that of the first slot.
//
// # Lanes
//
// O_NONBLOCK belongs to a socket, which its processes share, and the path of a unix socket to one inode. Where one of these changes,
// the new generation gets other sockets than the old one: another lane of the listener. The lanes of an internet address are one
// SO_REUSEPORT group; a program on the group keeps new connections in the serving lane, until Serve names another one. Quiet says when
// nothing can be left in the old lane. A lane closes when neither the configuration nor a generation needs it.
type Table struct {
	listeners map[string]*listener
	offers    []*offer
}

// NewTable returns an empty table.
func NewTable() *Table { return &Table{listeners: make(map[string]*listener)} }

// claimMark separates a key, a number of sockets and the number of a lane; no key has a control character.
const claimMark = "\t"

// claim is what a generation has of a listener: KEY, SOCKETS and, where it is not 0, LANE, with claimMark between them.
type claim struct {
	key   string
	slots int // 0: a bare key, which is what the next generation gets
	lane  int
}

func parseClaim(s string) claim {
	parts := strings.Split(s, claimMark)
	c := claim{key: parts[0]}
	number := func(i int) int {
		if i >= len(parts) {
			return 0
		}
		n, err := strconv.Atoi(parts[i])
		if err != nil || n < 0 {
			return 0
		}
		return n
	}
	if c.slots = number(1); c.slots > 0 {
		c.lane = number(2)
	}
	return c
}

func (c claim) String() string {
	s := c.key + claimMark + strconv.Itoa(c.slots)
	if c.lane > 0 {
		s += claimMark + strconv.Itoa(c.lane)
	}
	return s
}

// ClaimOn returns the one of a generation's claims that is on r, or r's key if there is none.
func ClaimOn(r Resolved, claims []string) string {
	key := r.Key()
	for _, c := range claims {
		if parseClaim(c).key == key {
			return c
		}
	}
	return key
}

// find returns what a claim is on; nil: there is nothing.
func (t *Table) find(s string) (*listener, *lane, int) {
	c := parseClaim(s)
	l := t.listeners[c.key]
	if l == nil {
		return nil, nil, 0
	}
	if c.slots == 0 {
		return l, l.newest(), 0
	}
	return l, l.lane(c.lane), c.slots
}

// Hold keeps the listeners with these keys open and returns the claims for Release: plain strings, which may be written down and held
// again by a later supervisor, after Resume. A claim says how many sockets of which lane there are now. Unknown keys are left out.
func (t *Table) Hold(keys []string, n Need) (claims []string, err error) {
	for _, key := range keys {
		l, ln, slots := t.find(key)
		if ln == nil {
			continue
		}
		switch {
		case slots > 0:
		case !ln.r.PerSlot:
			slots = 1
		default:
			slots = max(1, ln.wanted)
		}
		ln.holds[slots]++
		t.settle(l)
		claims = append(claims, claim{l.key, slots, ln.number}.String())
	}
	return claims, nil
}

// Release undoes one Hold, whose claims it is given, and closes what neither the configuration nor a generation needs.
// The bare key of a listener with PerSlot means the Hold that knew the fewest sockets. It ignores claims that are not held.
func (t *Table) Release(claims []string) {
	for _, c := range claims {
		l, ln, slots := t.find(c)
		if ln == nil || len(ln.holds) == 0 {
			continue
		}
		if slots == 0 {
			slots = slices.Min(slices.Collect(maps.Keys(ln.holds)))
		}
		if ln.holds[slots]--; ln.holds[slots] <= 0 {
			delete(ln.holds, slots)
		}
		t.settle(l)
	}
}

// serve sends new connections to the sockets of these claims, and to no others of their listeners. Call it when the generation that
// holds them begins to serve, before its predecessor is told to stop; and with the claims of the generation that goes on serving when a
// trial has failed. Without it the sockets of new slots begin to get connections when the last generation that does not know them is
// released, and another lane when the serving one has closed.
func (t *Table) serve(claims []string) error {
	for _, c := range claims {
		l, ln, slots := t.find(c)
		if ln == nil || slots == 0 {
			continue
		}
		ln.setActive(min(slots, len(ln.slots)))
		l.serve(ln)
		if err := l.steer(); err != nil {
			return refused(ln.r, err)
		}
	}
	return nil
}

// FD returns the descriptor of a listener, by its key or by a generation's claim on it, for a worker in this slot. It stays the
// table's. Without PerSlot every slot has the same one. -1: there is no such listener, or no socket for the slot.
func (t *Table) FD(claim string, slot int) int {
	_, ln, slots := t.find(claim)
	switch {
	case ln == nil || slot < 0:
		return -1
	case slots == 1, slots == 0 && !ln.r.PerSlot:
		return ln.slots[0].fd
	case slot >= len(ln.slots):
		return -1
	}
	return ln.slots[slot].fd
}

// FDs returns the descriptors of all sockets of a listener, including those that only older generations have.
func (t *Table) FDs(key string) []int {
	fds := []int{}
	if l := t.listeners[key]; l != nil {
		for _, s := range l.all() {
			fds = append(fds, s.fd)
		}
	}
	return fds
}

// Address returns where a listener is bound, by its key or by a claim: "127.0.0.1:43210" (also when the kernel chose the port),
// "/run/web.sock", "@abstract"; "": there is no such listener.
func (t *Table) Address(claim string) string {
	_, ln, _ := t.find(claim)
	if ln == nil {
		return ""
	}
	_, bound, _ := inherit.Describe(ln.slots[0].fd) // our own socket has a name
	return bound
}

// Close closes everything and removes the unix sockets that are still ours.
func (t *Table) Close() error {
	for _, l := range t.listeners {
		for _, ln := range l.lanes {
			ln.discard(0)
		}
	}
	for _, o := range t.offers {
		_ = unix.Close(o.FD)
	}
	*t = *NewTable()
	return nil
}

// settle closes what is not needed and steers connections to what is left.
func (t *Table) settle(l *listener) {
	for _, ln := range l.lanes {
		ln.setActive(min(max(ln.active, ln.common()), max(1, ln.needed())))
	}
	if l.keepsServing() {
		// Stop steering connections to a socket before closing it. If the kernel rejects the program, which it accepted before,
		// connections stay spread over all sockets.
		_ = l.steer()
	}
	l.drop()
	if len(l.lanes) == 0 {
		delete(t.listeners, l.key)
		return
	}
	_ = l.listen() // SetOpen reports a socket that cannot listen again
	l.share()
	_ = l.steer()
}
