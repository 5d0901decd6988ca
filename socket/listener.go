package socket

import (
	"errors"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket/diag"
	"example.org/supervisord/socket/flow"
)

// listener is the listener of one key. Its descriptors are the table's.
type listener struct {
	key     string
	table   *Table
	r       Resolved  // as it is configured, or was last
	size    int       // how many sockets a lane has by the configuration; 0: it is not configured
	members []*sock   // all its sockets; those of an internet address in the order of the kernel's group
	lanes   []*Lane   // what generations have
	shared  *sock     // what every next generation gets; nil: each gets sockets of its own
	why     string    // why it is shared although its configuration says Steer
	serving []serving // where new connections go
	resumed bool      // it is not known yet what the configuration wants
	probes  []*Probe
	doors
	steering
	interference
}

// doors is what keeps clients outside. Both doors are shut by the kernel, so that no process has to say no:
//
//	        ┌──SetOpen(false)──► closed: no socket listens, clients are refused; the address stays bound
//	open ───┤
//	        └──Pause(true)─────► paused: SYNs reach a deaf socket, which drops them; the clients' kernels try again
//
// A listener that is both refuses. One that is left is as one that is paused, for good, while its generations finish.
type doors struct {
	closed  bool  // see SetOpen
	hushed  bool  // no socket listens, because it was closed
	paused  bool  // see Pause
	left    bool  // only generations that finish what they have are there, see Leave
	parking *sock // the member to which connections are steered meanwhile
}

// steering is what the kernel has, as far as is known, to choose a socket for each new connection.
type steering struct {
	group   group             // of an internet address
	joining int               // how many of its last sockets have joined it, as far as is known, since the last look
	program []unix.SockFilter // what the kernel runs
	unsure  bool              // it may run something else
	flows   *flow.Flows       // see followsFlows
}

// interference is what other processes have done to the listener.
type interference struct {
	strangers map[uint64]bool // listening sockets of other processes that get connections, by inode
	shutDowns int             // how often a process has shut down a socket
	notices   []Notice
	damage    string // what Update has put right at the path, until Repair tells
}

// only lists those of all of which it holds.
func only[T any](all []T, holds func(T) bool) (those []T) {
	for _, m := range all {
		if holds(m) {
			those = append(those, m)
		}
	}
	return those
}

// serving is a part of the new connections.
type serving struct {
	sockets []*sock // which get it
	weight  int
}

// serveAll sends all new connections to these sockets.
func serveAll(sockets []*sock) []serving { return []serving{{sockets, 1}} }

// serves reports whether new connections are meant for the socket.
func (l *listener) serves(m *sock) bool {
	return !l.left && slices.ContainsFunc(l.serving, func(s serving) bool { return slices.Contains(s.sockets, m) })
}

// holders counts the generations that have a socket.
func (l *listener) holders(m *sock) (n int) {
	for _, ln := range l.lanes {
		n += number(slices.Contains(ln.slots, m))
	}
	return n
}

func (l *listener) isHeld(m *sock) bool { return l.holders(m) > 0 }

// current lists the sockets that are meant by the key of the listener: of the next generation, or that serve.
func (l *listener) current() []*sock {
	switch {
	case l.shared != nil:
		return []*sock{l.shared}
	case len(l.serving) > 0:
		return l.serving[0].sockets
	case len(l.lanes) > 0:
		return l.lanes[len(l.lanes)-1].slots
	}
	return nil
}

// free lists the sockets that the next generation may get, in the order in which they should be used again: first
// those that new connections go to, because clients wait there while nothing serves, then the others by their places
// in the kernel's group. What leaves the group moves only the last one, so the program's index stays right for the
// first, and for the second unless that is all that is left, and then gets everything. free leaves out those in which
// a handshake of an earlier generation is under way while another lane serves: a version on trial has no clients; and
// those of UDP of which the index is not known.
func (l *listener) free() []*sock {
	taken := l.used()
	var order []*sock
	for _, s := range l.serving {
		order = append(order, s.sockets...)
	}
	if len(l.serving) > 0 && l.r.at.isTCP() {
		others := only(l.unused(), func(m *sock) bool { return !m.vacancy.of(m) && !l.serves(m) })
		// On error, which only a strange /proc makes, all may be used.
		occupied, _ := diag.Occupied(idsOf(others), l.isIPv6())
		for _, m := range others {
			taken[m] = taken[m] || occupied[m.id]
		}
	}
	byPlace := slices.Clone(l.members)
	slices.SortStableFunc(byPlace, func(a, b *sock) int {
		return slices.Compare(l.group.places(a.id), l.group.places(b.id))
	})
	order = append(order, byPlace...)
	var free []*sock
	for _, m := range order {
		if !taken[m] && !m.stray && !m.hasLeft(l.r.at) && (!l.r.at.isUDP() || len(l.group.places(m.id)) == 1) {
			taken[m] = true
			free = append(free, m)
		}
	}
	return free
}

// isIPv6 reports whether the sockets are of IPv6.
func (l *listener) isIPv6() bool { return l.addressFor(l.r).ip.Is6() }

func idsOf(sockets []*sock) (ids []uint64) {
	for _, m := range sockets {
		ids = append(ids, m.id)
	}
	return ids
}

// vacancy is one look at free sockets that are deaf. A socket in which nothing was under way stays empty as long as it
// is deaf.
type vacancy struct {
	known    bool
	occupied map[uint64]bool
}

func (v *vacancy) of(m *sock) bool { return v != nil && v.known && !v.occupied[m.id] }

// Vacate returns a function that finds out which sockets the next generation may get, so that Hold does not have to: it
// may take milliseconds. The function may be called on any goroutine, and what it returns on that of the Table. nil:
// nothing is to be found out.
func (t *Table) Vacate() func() func() {
	v, ip4, ip6 := &vacancy{}, []uint64(nil), []uint64(nil)
	for _, l := range t.listeners {
		if !l.r.at.isTCP() {
			continue
		}
		ids := &ip4
		if l.isIPv6() {
			ids = &ip6
		}
		for _, m := range l.unused() {
			if m.deaf && m.vacancy == nil {
				m.vacancy = v
				*ids = append(*ids, m.id)
			}
		}
	}
	if len(ip4)+len(ip6) == 0 {
		return nil
	}
	return func() func() {
		four, err4 := diag.Occupied(ip4, false)
		six, err6 := diag.Occupied(ip6, true)
		maps.Copy(four, six)
		return func() { v.known, v.occupied = errors.Join(err4, err6) == nil, four }
	}
}

// nextNumber is the number of a new member: above all others, because the kernel's group appends it; for a unix
// socket, which has no group, the lowest that is free.
func (l *listener) nextNumber() int {
	next := 0
	has := func(m *sock) bool { return m.number == next }
	for _, m := range l.members {
		if !l.r.at.isUnix() {
			next = max(next, m.number+1)
		}
	}
	for slices.ContainsFunc(l.members, has) {
		next++
	}
	return next
}

func (l *listener) foreign() bool {
	return slices.ContainsFunc(l.members, func(m *sock) bool { return m.foreign })
}

// settle makes the kernel do with a listener what the table says: it is the one place where what generations have, what
// serves, closed and paused become sockets that are open, that listen and that get connections. Of two that would keep
// clients away closed prevails, so a closed listener drops nothing: it refuses. On error, the next settle tries again.
//
// Every change of a listener ends in settle, whatever it is: Update, Hold, Release, SetOpen, Pause, the end of orphans.
// The order matters, because clients come at any time:
//
//  1. what serves is put right, if what served is gone;
//  2. the program stops sending connections to what is about to be closed;
//  3. what nobody needs is closed;
//  4. what should listen listens, behind the others of its group;
//  5. the program sends connections where they belong, and sockets that nobody has are made deaf.
func (t *Table) settle(l *listener) error {
	t.changed[l.key] = true
	if l.gone() {
		l.paused = false // nobody resumes what is gone
	}
	if !l.parks() {
		l.unpark()
	}
	if l.size == 0 && l.shared != nil && !l.isHeld(l.shared) {
		l.shared = nil
	}
	l.serveNeeded()
	// Stop steering connections to a socket before closing it. If the kernel rejects the program, which it accepted
	// before, connections stay spread over all sockets.
	_ = l.apply()
	l.drop()
	if len(l.members) == 0 {
		l.closeFlows()
		delete(t.listeners, l.key)
		return nil
	}
	err := l.listen()
	l.shareAddress()
	err = errors.Join(err, l.apply())
	t.hangups(l)
	if l.parks() && l.parking == nil {
		err = errors.Join(err, t.park(l))
	}
	return err
}

// serveNeeded lets the socket that generations share serve when what served is gone. The sockets of a generation alone
// keep serving when it is gone: connections wait there for the next one, which gets them.
func (l *listener) serveNeeded() {
	if l.shared == nil {
		return
	}
	used := l.used()
	l.serving = slices.DeleteFunc(l.serving, func(s serving) bool {
		return slices.ContainsFunc(s.sockets, func(m *sock) bool { return !used[m] })
	})
	if len(l.serving) == 0 {
		l.serving = serveAll([]*sock{l.shared})
	}
}

// inherit lets the sockets of a new generation serve in place of those that left it some.
func (l *listener) inherit(slots []*sock) {
	for i, s := range l.serving {
		if !slices.ContainsFunc(s.sockets, l.isHeld) &&
			slices.ContainsFunc(s.sockets, func(m *sock) bool { return slices.Contains(slots, m) }) {
			l.serving[i].sockets = slots
		}
	}
}

// drop closes sockets that nobody needs. Closing a socket resets the connections that wait in it, and moves the
// last one of the kernel's group to its place; so those of a listener that is steered stay open as long as the
// listener, and of the others only the last ones are closed, or all but one.
func (l *listener) drop() {
	gone := l.gone()
	for _, m := range l.unused() {
		if (m.hasLeft(l.r.at) || l.r.at.isUDP() && m.isOver() && l.maySpare(m)) && !m.stray {
			m.discard()
			l.members = slices.DeleteFunc(l.members, func(o *sock) bool { return o == m })
			l.unsure = true
			l.recount()
		}
	}
	if (l.shared == nil || l.resumed) && !gone && !l.r.at.isUnix() {
		return
	}
	unused := l.unused()
	rest := len(l.members) - len(unused)
	for i := len(l.members) - 1; i >= 0; i-- { // the last one first, so that no other gets its number
		m := l.members[i]
		if !slices.Contains(unused, m) {
			if rest > 1 && !l.r.at.isUnix() {
				return
			}
			continue
		}
		if !l.r.at.onDisk() && (!gone || !m.foreign && !m.stray) {
			// Who has it, too, must not keep it in the group, as a stray process, nor keep the address, as systemd's store
			// for a moment.
			m.withdraw()
		}
		m.discard()
		l.members = slices.Delete(l.members, i, i+1)
		l.unsure = true
		l.recount()
	}
}

// maySpare reports whether closing this UDP socket loses no datagram. The last socket of the group moves to its index,
// which the program of the group does not know yet, so the last one must be unused.
func (l *listener) maySpare(m *sock) bool {
	return len(l.group) > 0 && slices.ContainsFunc(l.unused(), func(o *sock) bool {
		return o.id == l.group[len(l.group)-1] && !l.serves(o) && !l.serves(m)
	})
}

// gone reports whether neither the configuration nor a generation has the listener.
func (l *listener) gone() bool { return l.size == 0 && len(l.lanes) == 0 }

// used has the sockets that a generation has, or the next one is to get, and the one that is deaf for a pause.
func (l *listener) used() map[*sock]bool {
	used := map[*sock]bool{}
	if l.shared != nil {
		used[l.shared] = true
	}
	for _, ln := range l.lanes {
		for _, m := range ln.slots {
			used[m] = true
		}
	}
	if l.parking != nil {
		used[l.parking] = true
	}
	return used
}

// unused lists the sockets that nobody has.
func (l *listener) unused() []*sock {
	used := l.used()
	return only(l.members, func(m *sock) bool { return !used[m] })
}

// shareAddress sets SO_REUSEPORT where several sockets have, or will have, the address, and nowhere else.
func (l *listener) shareAddress() {
	if l.r.at.isUnix() || l.foreign() {
		return
	}
	for _, m := range l.members {
		_ = m.setReusePort(l.sharesAddress()) // it was possible when the socket was opened
	}
}

func (l *listener) sharesAddress() bool {
	return !l.r.at.isUnix() && (l.r.steered() && l.shared == nil || l.r.groups() || len(l.members) > 1)
}

func (m *sock) sharesPort() bool {
	on, err := unix.GetsockoptInt(m.fd, unix.SOL_SOCKET, unix.SO_REUSEPORT)
	return err == nil && on != 0
}

func (m *sock) setReusePort(on bool) error {
	if m.sharesPort() == on {
		return nil
	}
	return unix.SetsockoptInt(m.fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, number(on))
}

// queued is how many connections wait to be accepted: in LISTEN, tcpi_unacked is the length of the queue.
func (m *sock) queued() int {
	info, err := unix.GetsockoptTCPInfo(m.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0
	}
	return int(info.Unacked)
}

func (m *sock) waiting() bool { return m.queued() > 0 }

// Stranded reports whether clients find a listener only where no generation accepts, because its path was gone and
// it was bound again. The workers of its program must be replaced. Until a generation holds the new socket,
// connections to it are refused.
func (t *Table) Stranded(key string) bool {
	l := t.listeners[key]
	if l == nil || l.shared == nil || l.isHeld(l.shared) {
		return false
	}
	return slices.ContainsFunc(l.lanes, func(ln *Lane) bool { return !ln.slots[0].reachable() })
}
