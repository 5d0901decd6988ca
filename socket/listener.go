package socket

import (
	"slices"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket/diag"
)

// listener is the listener of one key.
type listener struct {
	key     string
	r       Resolved  // as it is configured, or was last
	size    int       // how many sockets a lane has by the configuration; 0: it is not configured
	members []*sock   // all its sockets; those of an internet address in the order of the kernel's group
	lanes   []*lane   // what generations have; of a shared listener also what the next one gets
	shared  *lane     // what every next generation gets; nil: each gets a lane of its own
	why     string    // why it is shared although its configuration says Steer
	serving []serving // where new connections go
	closed  bool      // see SetOpen
	paused  bool      // see Pause
	resumed bool      // it is not known yet what the configuration wants
	parking *Probe    // keeps the member full to which connections are steered meanwhile
	probes  []*Probe

	program []unix.SockFilter // what the kernel runs
	unsure  bool              // it may run something else
	group   group             // of a TCP listener

	table     *Table
	strangers map[uint64]bool // listening sockets of other processes that get connections, by inode
	shutDowns int             // how often a process has shut down a socket
	notices   []Notice
}

// lane is what a generation has of a listener: one socket, or one for each slot.
type lane struct {
	number int // of its first member, unique while it is in use
	r      Resolved
	slots  []*sock // several slots may have one socket, where no better could be had
	shared bool    // generations have it together
	holds  int     // how many generations have it
}

// serving is a lane that gets new connections.
type serving struct {
	lane   *lane
	chosen []int // only the sockets with these indices, ascending; nil: all of them
	weight int
}

// serveAll sends all new connections to one lane.
func serveAll(ln *lane) []serving { return []serving{{lane: ln, weight: 1}} }

func newLane(r Resolved, slots []*sock) *lane {
	return &lane{number: slots[0].number, r: r, slots: slots}
}

// sockets lists what new connections go to.
func (s serving) sockets() []*sock {
	if s.chosen == nil {
		return s.lane.slots
	}
	var chosen []*sock
	for _, i := range s.chosen {
		if i < len(s.lane.slots) {
			chosen = append(chosen, s.lane.slots[i])
		}
	}
	return chosen
}

// serves reports whether new connections go to the socket.
func (l *listener) serves(m *sock) bool {
	return slices.ContainsFunc(l.serving, func(s serving) bool { return slices.Contains(s.sockets(), m) })
}

// lane returns the lane with this number, or nil if nobody has it.
func (l *listener) lane(number int) *lane {
	for _, ln := range l.lanes {
		if ln.number == number {
			return ln
		}
	}
	return nil
}

// current is the lane of the next generation, or the one that serves: the one that is meant by the key of the listener.
func (l *listener) current() *lane {
	switch {
	case l.shared != nil:
		return l.shared
	case len(l.serving) > 0:
		return l.serving[0].lane
	case len(l.lanes) > 0:
		return l.lanes[len(l.lanes)-1]
	}
	return nil
}

// free lists the sockets that the next generation may get, in the order in which they should be used again: first
// those that new connections go to, because clients wait there while nothing serves, then the others by their places
// in the kernel's group. What leaves the group moves only the last one, so the program's index stays right for the
// first, and for the second unless that is all that is left, and then gets everything. free leaves out those in which
// a handshake of an earlier generation is under way while another lane serves: a version on trial has no clients.
func (l *listener) free() []*sock {
	taken := l.used()
	var order []*sock
	for _, s := range l.serving {
		order = append(order, s.lane.slots...)
	}
	if others := l.unused(); len(l.serving) > 0 && l.r.at.isTCP() && len(others) > 0 {
		occupied, _ := diag.Occupied() // on error, which only a strange /proc makes, all may be used
		for _, m := range others {
			taken[m] = taken[m] || occupied[m.id] && !l.serves(m)
		}
	}
	byPlace := slices.Clone(l.members)
	slices.SortStableFunc(byPlace, func(a, b *sock) int {
		return slices.Compare(l.group.places(a.id), l.group.places(b.id))
	})
	order = append(order, byPlace...)
	var free []*sock
	for _, m := range order {
		if !taken[m] && !m.stray {
			taken[m] = true
			free = append(free, m)
		}
	}
	return free
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

func (ln *lane) held() bool      { return ln.holds > 0 }
func (ln *lane) reachable() bool { return ln.slots[0].reachable() }

// owned reports whether one generation has the lane for itself.
func (ln *lane) owned() bool { return ln.holds == 1 && !ln.shared }

// needs reports whether a generation has the lane, or the next one is to get it.
func (l *listener) needs(ln *lane) bool { return ln.held() || ln == l.shared && l.size > 0 }

func (l *listener) foreign() bool {
	return slices.ContainsFunc(l.members, func(m *sock) bool { return m.foreign })
}

// settle closes what is not needed, and steers connections to what is left.
func (t *Table) settle(l *listener) {
	t.changed[l.key] = true
	l.lanes = slices.DeleteFunc(l.lanes, func(ln *lane) bool { return !l.needs(ln) })
	if l.gone() {
		l.paused = false // nobody resumes what is gone
		l.unpark()
	}
	if !slices.Contains(l.lanes, l.shared) {
		l.shared = nil
	}
	l.serveNeeded()
	// Stop steering connections to a socket before closing it. If the kernel rejects the program, which it accepted
	// before, connections stay spread over all sockets.
	_ = l.apply()
	for _, m := range l.unused() {
		m.drain(l.r)
	}
	l.drop()
	if len(l.members) == 0 {
		delete(t.listeners, l.key)
		return
	}
	_ = l.listen(false) // SetOpen reports a socket that cannot listen again
	l.shareAddress()
	_ = l.apply()
	t.hangups(l)
}

// serveNeeded lets the last shared lane serve when the lane that served is gone. A lane of a generation alone keeps
// serving when the generation is gone: connections wait there for the next one, which gets its sockets.
func (l *listener) serveNeeded() {
	shared := slices.DeleteFunc(slices.Clone(l.lanes), func(ln *lane) bool { return !ln.shared })
	if len(shared) == 0 {
		return
	}
	l.serving = slices.DeleteFunc(l.serving, func(s serving) bool { return !l.needs(s.lane) })
	if len(l.serving) == 0 {
		l.serving = serveAll(shared[len(shared)-1])
	}
}

// inherit lets a lane that is in use from now on serve in place of those that left it their sockets.
func (l *listener) inherit(ln *lane) {
	for i, s := range l.serving {
		if !s.lane.held() && slices.ContainsFunc(s.lane.slots, func(m *sock) bool { return slices.Contains(ln.slots, m) }) {
			l.serving[i] = serving{lane: ln, weight: s.weight}
		}
	}
}

// drop closes sockets that nobody needs. Closing a socket resets the connections that wait in it, and moves the
// last one of the kernel's group to its place; so those of a listener that is steered stay open as long as the
// listener, and of the others only the last ones are closed, or all but one.
func (l *listener) drop() {
	gone := l.gone()
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

// gone reports whether neither the configuration nor a generation has the listener.
func (l *listener) gone() bool { return l.size == 0 && len(l.lanes) == 0 }

// used has the sockets that are in a lane, or in use otherwise.
func (l *listener) used() map[*sock]bool {
	used := map[*sock]bool{}
	for _, ln := range l.lanes {
		for _, m := range ln.slots {
			used[m] = true
		}
	}
	if l.parking != nil {
		used[l.parking.member] = true
	}
	return used
}

// unused lists the sockets that nobody has.
func (l *listener) unused() []*sock {
	used := l.used()
	return slices.DeleteFunc(slices.Clone(l.members), func(m *sock) bool { return used[m] })
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
	return !l.r.at.isUnix() && (l.r.steered() && l.shared == nil || l.r.groups() || len(l.members) > 1 ||
		slices.ContainsFunc(l.lanes, func(ln *lane) bool { return ln.r.groups() }))
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
	if err != nil || m.full {
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
	if l == nil || l.shared == nil || l.shared.held() {
		return false
	}
	return slices.ContainsFunc(l.lanes, func(ln *lane) bool { return ln.held() && !ln.reachable() })
}
