package socket

import (
	"strconv"
	"strings"

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

// maxSlots is more than a lane ever has.
const maxSlots = 10_000

// claimMark separates a key, a number of sockets and the numbers of a lane's members; no key has a control character.
const claimMark = "\t"

// claim is what a generation has of a listener: KEY, the number of its sockets and, unless they are the first ones,
// their numbers.
type claim struct {
	key     string
	members []int // empty: a bare key, which is what the next generation gets
}

func parseClaim(s string) claim {
	parts := strings.Split(s, claimMark)
	c := claim{key: parts[0]}
	if len(parts) < 2 {
		return c
	}
	slots, err := strconv.Atoi(parts[1])
	if err != nil || slots <= 0 || slots > maxSlots {
		return c
	}
	if len(parts) > 2 {
		list, _ := strings.CutPrefix(parts[2], "m")
		c.members = parseNumbers(list)
		return c
	}
	for i := range slots {
		c.members = append(c.members, i)
	}
	return c
}

func parseNumbers(list string) (numbers []int) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return nil
		}
		numbers = append(numbers, n)
	}
	return numbers
}

func (c claim) String() string {
	text := make([]string, len(c.members))
	first := true
	for i, n := range c.members {
		text[i] = strconv.Itoa(n)
		first = first && n == i
	}
	s := c.key + claimMark + strconv.Itoa(len(c.members))
	if !first {
		s += claimMark + "m" + strings.Join(text, ",")
	}
	return s
}

// claim is what a generation has that has a lane.
func (l *listener) claim(ln *lane) string {
	c := claim{key: l.key}
	for i, m := range ln.slots {
		n := m.number
		if i == 0 {
			n = ln.number
		}
		c.members = append(c.members, n)
	}
	return c.String()
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
	if len(c.members) == 0 {
		return l, l.current(), 0
	}
	return l, l.lane(c.members[0]), len(c.members)
}

// Hold gives a generation of so many workers (0: as many as are configured) what it has of the listeners with these
// keys, keeps that open, and returns the claims for Release: plain strings, which may be written down and held
// again by a later supervisor, after Resume. Unknown keys are left out. On error, which says which socket could not
// be opened and why, the generation holds nothing.
func (t *Table) Hold(keys []string, workers int) (claims []string, err error) {
	for _, key := range keys {
		l, ln, slots := t.find(key)
		if l == nil || slots > 0 && ln == nil {
			continue
		}
		if slots == 0 {
			if ln, err = t.lease(l, workers); err != nil {
				t.Release(claims)
				return nil, err
			}
		}
		ln.holds++
		claims = append(claims, l.claim(ln))
		t.settle(l)
	}
	return claims, nil
}

// lease finds, or makes, the lane of the next generation.
func (t *Table) lease(l *listener, workers int) (*lane, error) {
	if ln := l.shared; ln != nil {
		if !ln.held() {
			return ln, refused(l.r, l.renew(ln.slots, l.r))
		}
		return ln, nil
	}
	size := max(1, l.size)
	if workers > 0 {
		size = l.r.sockets(workers)
	}
	u := &update{table: t}
	ln, err := u.compose(l, l.r, l.withUnit(size, workers))
	if err != nil {
		u.rollBack()
		return nil, err
	}
	l.inherit(ln)
	l.lanes = append(l.lanes, ln)
	return ln, nil
}

// Release undoes one Hold, whose claims it is given, and closes what neither the configuration nor a generation needs.
// It ignores claims that are not held.
func (t *Table) Release(claims []string) {
	for _, c := range claims {
		l, ln, _ := t.find(c)
		if ln == nil || !ln.held() {
			continue
		}
		ln.holds--
		t.settle(l)
	}
}

// Sockets returns the greatest number of sockets that a generation has of a listener.
func (t *Table) Sockets(claims []string) (most int) {
	for _, c := range claims {
		if _, ln, n := t.find(c); ln != nil {
			most = max(most, min(n, len(ln.slots)))
		}
	}
	return most
}

// Own reports whether at least one lane of these claims belongs to their generation alone, so that its predecessor
// gets nothing new once connections are steered to it.
func (t *Table) Own(claims []string) bool {
	for _, c := range claims {
		if _, ln, slots := t.find(c); ln != nil && slots > 0 && ln.owned() {
			return true
		}
	}
	return false
}

// Shared says why the generations share a listener although its configuration says Steer; "": it is as configured.
func (t *Table) Shared(key string) string {
	if l := t.listeners[key]; l != nil {
		return l.why
	}
	return ""
}

// FD returns the descriptor of a listener, by its key or by a generation's claim on it, for a worker in this slot.
// It stays the table's. Several slots may have the same one. -1: there is no such listener, or with PerSlot no
// socket for the slot.
func (t *Table) FD(claim string, slot int) int {
	if _, m := t.socketOf(claim, slot); m != nil {
		return m.fd
	}
	return -1
}

// socketOf finds the socket of a slot; nil: there is none.
func (t *Table) socketOf(claim string, slot int) (*listener, *sock) {
	l, ln, n := t.find(claim)
	switch {
	case ln == nil || slot < 0:
		return nil, nil
	case ln.r.PerSlot && n != 1 && slot >= len(ln.slots):
		return nil, nil
	case n == 0:
		n = len(ln.slots)
	}
	return l, ln.slots[slot%min(n, len(ln.slots))]
}

// FDs returns the descriptors of all sockets of a listener, including those that only older generations have, or none.
func (t *Table) FDs(key string) []int {
	fds := []int{}
	if l := t.listeners[key]; l != nil {
		for _, m := range l.members {
			fds = append(fds, m.fd)
		}
	}
	return fds
}

// Address returns where a listener is bound, by its key or by a claim: "127.0.0.1:43210" (also when the kernel
// chose the port), "/run/web.sock", "@abstract"; "": there is no such listener.
func (t *Table) Address(claim string) string {
	l, ln, slots := t.find(claim)
	switch {
	case l == nil || slots > 0 && ln == nil:
		return ""
	}
	_, bound, _ := inherit.Describe(l.members[0].fd) // our own socket has a name
	return bound
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
	}
	for _, o := range t.offers {
		_ = unix.Close(o.FD)
	}
	*t = *NewTable()
	return nil
}
