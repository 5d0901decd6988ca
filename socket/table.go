package socket

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Table owns every listening socket of the supervisor. It belongs to one goroutine.
//
// # Sockets for each slot
//
// A listener with PerSlot has one socket for each slot, and a socket that closes resets the connections that wait in it. So the
// table opens and closes them only where none can be waiting. When the number grows, the new sockets get no connections at
// first; when it shrinks, the last ones get no new ones from Update on, and stay open until every generation that knew them has
// been released. Serve says which generation the connections are for.
type Table struct {
	listeners map[string]*listener
	offers    []*offer
}

// listener is what stands behind one key.
type listener struct {
	r      Resolved
	slots  []*sock
	wanted int         // sockets that the configuration wants; 0: it does not know the listener
	holds  map[int]int // how many Holds knew so many sockets

	active         int // new connections go to the first so many sockets
	steered, among int // what the kernel was told last: so many of so many
}

// NewTable returns an empty table.
func NewTable() *Table { return &Table{listeners: make(map[string]*listener)} }

// claimMark stands between a key and a number of sockets; no key has a control character.
const claimMark = "\t"

// Hold keeps the listeners with these keys open and returns the claims to give to Release later: plain strings, which may be
// written down and held again by a later supervisor. The claim on a listener with PerSlot says how many sockets it has now.
// A key may be such a claim; the sockets of it must be open already (Update with what that generation wanted, then Hold). Keys that the table does not know are left out.
func (t *Table) Hold(keys []string) (claims []string) {
	for _, key := range keys {
		key, slots := t.parse(key)
		l := t.listeners[key]
		if l == nil {
			continue
		}
		switch {
		case !l.r.PerSlot:
			slots = 1
		case slots == 0:
			slots = max(1, l.wanted)
		}
		l.holds[slots]++
		t.settle(key, l)
		if l.r.PerSlot {
			key += claimMark + strconv.Itoa(slots)
		}
		claims = append(claims, key)
	}
	return claims
}

// Release undoes one Hold, whose claims it is given, and closes what neither the configuration nor a generation needs.
// The bare key of a listener with PerSlot stands for the Hold that knew the fewest sockets. What is not held is left alone.
func (t *Table) Release(claims []string) {
	for _, claim := range claims {
		key, slots := t.parse(claim)
		l := t.listeners[key]
		if l == nil || len(l.holds) == 0 {
			continue
		}
		if slots == 0 {
			slots = slices.Min(slices.Collect(maps.Keys(l.holds)))
		}
		if l.holds[slots]--; l.holds[slots] <= 0 {
			delete(l.holds, slots)
		}
		t.settle(key, l)
	}
}

// Serve sends new connections to the sockets of these claims, where a listener has one for each slot. Call it when the
// generation that holds them begins to serve, before the one before it is told to stop; and with the claims of the generation
// that goes on serving when a trial for fewer slots has failed. It is for the spread of the load: without it the sockets that
// are new begin to get connections when the last generation that does not know them is released, and nothing is lost.
func (t *Table) Serve(claims []string) error {
	for _, claim := range claims {
		key, slots := t.parse(claim)
		l := t.listeners[key]
		if l == nil || slots == 0 {
			continue
		}
		l.active = min(slots, len(l.slots))
		if err := l.steer(); err != nil {
			return refused(l.r, err)
		}
	}
	return nil
}

// parse takes a claim apart; slots is 0 for a bare key.
func (t *Table) parse(claim string) (key string, slots int) {
	key, count, found := strings.Cut(claim, claimMark)
	if n, err := strconv.Atoi(count); found && err == nil && n > 0 {
		return key, n
	}
	return key, 0
}

// FD returns the descriptor of the listener with this key for a worker in this slot. It stays the table's.
// Without PerSlot every slot has the same one. It is -1 if there is no such listener, or no socket for the slot.
func (t *Table) FD(key string, slot int) int {
	l := t.listeners[key]
	switch {
	case l == nil || slot < 0:
		return -1
	case !l.r.PerSlot:
		return l.slots[0].fd
	case slot >= len(l.slots):
		return -1
	}
	return l.slots[slot].fd
}

// Address returns where the listener with this key is bound, as the kernel says: "127.0.0.1:43210" when the port was left to
// it, "/run/web.sock", "@abstract". It is "" if there is no such listener.
func (t *Table) Address(key string) string {
	l := t.listeners[key]
	if l == nil {
		return ""
	}
	_, bound, _ := describe(l.slots[0].fd) // our own socket has a name
	return bound
}

// Close closes everything and removes the unix sockets that are still ours.
func (t *Table) Close() error {
	for _, l := range t.listeners {
		for _, s := range l.slots {
			s.discard(l.r)
		}
	}
	for _, o := range t.offers {
		_ = unix.Close(o.FD)
	}
	*t = *NewTable()
	return nil
}

// needed is how many sockets the configuration and the generations need.
func (l *listener) needed() int {
	n := l.wanted
	for slots := range l.holds {
		n = max(n, slots)
	}
	return n
}

// common is how many sockets all of them know: what every generation that may be serving accepts on.
func (l *listener) common() int {
	n := l.wanted
	for slots := range l.holds {
		if n == 0 || slots < n {
			n = slots
		}
	}
	return min(n, len(l.slots))
}

// settle closes what nobody needs and steers connections to what is left.
func (t *Table) settle(key string, l *listener) {
	needed := l.needed()
	l.active = min(max(l.active, l.common()), needed)
	if needed > 0 {
		// Before one closes, it gets no more. That the kernel refuses what it did before would be its own fault; then the
		// connections go on to be spread over all.
		_ = l.steer()
	}
	for len(l.slots) > needed {
		last := l.slots[len(l.slots)-1]
		if l.r.PerSlot && needed > 0 {
			// A stray process that has the socket as well must not keep it in the group: it would get connections.
			_ = unix.Shutdown(last.fd, unix.SHUT_RD)
		}
		last.discard(l.r)
		l.slots = l.slots[:len(l.slots)-1]
	}
	if needed == 0 {
		delete(t.listeners, key)
		return
	}
	_ = l.steer()
}
