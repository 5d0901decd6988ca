package socket

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/multicast"
	"example.org/supervisord/socket/flow"
)

// A UDP listener has a group of sockets, too, and its program is asked for each datagram, because no handshake says
// whose it is. Who gets a datagram of a client that an old generation knows depends on the handover:
//
//	steer   the generation that serves
//	quic    the generation whose lane its connection ID names; if a client made that up, the one that serves
//	flow    the generation that got the first datagram of the pair of addresses, as long as it lives
//
// What is here is for UDP alone: sockets that become IPv6, the program of QUIC, and the table of flows.

// lanesOfUDP is how many sockets a steered UDP listener has from the beginning: more than old generations drain, unless
// max_draining is larger. Their indices in the kernel's group stay what they are, whatever workers of the same user
// bind and close behind them: a server may have a connected socket with SO_REUSEPORT for each of its clients.
const lanesOfUDP = 8

// fill opens the sockets of a UDP listener that it does not have yet. A new listener sends all datagrams to first.
func (u *update) fill(l *listener, r Resolved, first []*sock) error {
	if len(l.members) >= lanesOfUDP {
		return nil
	}
	if len(l.serving) == 0 {
		l.serving = serveAll(first)
	}
	how, err := u.makeRoom(l, r)
	for err == nil && len(l.members) < lanesOfUDP {
		_, err = u.fresh(l, r, how)
	}
	return refused(r, err)
}

// recall puts the group of a UDP listener in the order in which the supervisord before this one knew it. The numbers do
// not say it once a worker has connected its socket, which takes that out of the group, and nobody can ask, as with
// TCP. So every socket has its index, plus one, as IP_MINTTL, which means nothing to UDP and goes wherever a descriptor
// does. 0: it is in no group, or behind all that the option can say.
func (l *listener) recall() {
	var known group
	for _, m := range l.members {
		at, _ := unix.GetsockoptInt(m.fd, unix.IPPROTO_IP, unix.IP_MINTTL)
		if at == 0 && !m.hasLeft(l.r.at) {
			return // the numbers are all that there is
		}
		known = append(known, make(group, max(0, at-len(known)))...)
		if at > 0 {
			known[at-1] = m.id
		}
	}
	l.group, l.joining = known, 0
}

func (m *sock) noteIndex(g group) {
	at := slices.Index(g, m.id) + 1
	if at > deafness { // the greatest that the option takes
		at = 0
	}
	_ = unix.SetsockoptInt(m.fd, unix.IPPROTO_IP, unix.IP_MINTTL, at) // without it, the numbers count
}

// Widen replaces the socket of a UDP listener at an IPv4 address by one of IPv6 at the same address, under the same
// descriptor: a server that has opened an IPv6 socket for both families sends with IPv6 addresses, which one of IPv4
// does not take. So do all other sockets of the listener, because the kernel prefers one of IPv4. Workers that have the
// socket of before hear nothing there any more, so no other generation may have one. It fails for those of a socket
// unit.
func (ln *Lane) Widen(slot int) error {
	l, m := ln.of, ln.socket(slot)
	if m == nil {
		return errors.New("there is no such listener")
	}
	switch {
	case !l.r.at.isUDP() || !l.r.at.ip.Is4():
		return errors.New("it is not UDP at an IPv4 address")
	case m.wide:
		return nil
	case l.foreign():
		return errors.New("it is from a socket unit")
	case l.holders(m) > 1 || slices.ContainsFunc(l.lanes, func(o *Lane) bool { return !slices.Contains(o.slots, m) }):
		return errors.New("another generation still has it as an IPv4 socket: stop the program first")
	}
	at := l.addressFor(l.r)
	for _, m := range l.members {
		if err := m.widen(l.r, at, l.sharesAddress()); err != nil {
			return refused(l.r, err)
		}
	}
	l.group, l.joining, l.unsure = nil, 0, true
	for _, m := range l.members {
		l.group = append(l.group, m.id)
	}
	l.table.hangups(l)
	return l.apply()
}

// widen makes m the other socket, unless it is. For a moment others may bind to its address; nobody gets datagrams that
// way who did not before.
func (m *sock) widen(r Resolved, at bindAddr, shared bool) error {
	if m.wide {
		return nil
	}
	four, err := unix.Getsockname(m.fd)
	if err != nil {
		return err
	}
	at.ip, at.dual = netip.AddrFrom16(at.ip.As16()), true
	fd, err := newSocket(r, at)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	fresh := &sock{fd: fd}
	if err := errors.Join(m.setReuseAddr(true), fresh.setReuseAddr(true)); err != nil {
		return err
	}
	err = bind(fd, r, at, opening{shared: shared})
	if err := errors.Join(err, m.setReuseAddr(false), fresh.setReuseAddr(false)); err != nil {
		return err
	}
	// Of two sockets at an address the one of IPv4 gets what comes for IPv4, and workers keep it open. A connected one
	// hears its peer alone.
	if err := unix.Connect(m.fd, four); err != nil {
		return fmt.Errorf("cannot connect a socket to itself: %w", err)
	}
	if m.unwatch != nil {
		m.unwatch()
	}
	m.watched, m.unwatch, m.armed = nil, nil, false
	if err := unix.Dup3(fd, m.fd, unix.O_CLOEXEC); err != nil {
		return err
	}
	m.id, m.wide = socketID(m.fd), true
	return nil
}

// LeaveGroups ends the memberships of multicast groups that workers have left in the UDP sockets of the lane. They are
// gone; one that takes their place joins again, which the kernel refuses to a member.
func (ln *Lane) LeaveGroups() {
	if ln.of == nil || !ln.of.r.at.isUDP() {
		return
	}
	for _, m := range ln.slots {
		multicast.Leave(m.fd)
	}
}

// quicRing says which socket the datagrams of a QUIC connection belong to (RFC 9000, 17.2 and 17.3.1). A server writes
// its lane into one byte of the connection IDs that it issues, and these have fewer than 8 bytes: a client makes up the
// ID of its first datagrams, and that one has at least 8. So the length of the destination's ID tells who has made it,
// where the type of the packet does not: the handshake continues with long headers, and an Initial that is sent again
// after a switch has the server's ID if the client has had an answer.
type quicRing struct {
	at      int   // index in the connection ID of the byte that has the lane, from 0 to longestServerID-1
	members []int // of the group, by lane: a power of two of them, at most 256; negative: nobody has the lane
}

// LaneByte is the index of the byte with the lane in the connection IDs of a server.
const LaneByte = 0

const (
	lanesOfQUIC     = 256
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

func (l *listener) isQUIC() bool { return l.r.Handover == QUIC && l.shared == nil }

// quicRing has the lanes that generations and orphans have, and those that serve, by their numbers.
func (l *listener) quicRing() quicRing {
	q := quicRing{at: LaneByte, members: slices.Repeat([]int{-1}, lanesOfQUIC)}
	for _, m := range l.members {
		at := l.group.places(m.id)
		if (l.isHeld(m) || l.serves(m) || m.stray) && m.number < lanesOfQUIC && len(at) == 1 {
			q.members[m.number] = at[0]
		}
	}
	return q
}

// QUIC returns the number of the lane of a QUIC listener, for the connection IDs of its workers; false: it is of
// another one.
func (ln *Lane) QUIC() (number int, is bool) {
	if ln.of == nil || !ln.of.isQUIC() || len(ln.slots) == 0 {
		return 0, false
	}
	return ln.slots[0].number, true
}

// silence returns what tells for how long its processes have received nothing from a UDP socket, since now. The kernel
// keeps when the last datagram that they received had come, unless they ask for that with each datagram: then nobody
// else knows, and it is never silent.
func (m *sock) silence() func() time.Duration {
	fd := m.fd
	last, since := received(fd), time.Now()
	return func() time.Duration {
		stamp := received(fd)
		if stamp != last {
			last, since = stamp, time.Now()
		}
		for _, option := range []int{unix.SO_TIMESTAMP, unix.SO_TIMESTAMPNS, unix.SO_TIMESTAMPING} {
			if on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, option); err == nil && on != 0 {
				return 0
			}
		}
		return time.Since(since)
	}
}

// received is when the last datagram had come that was received from a socket; 0: none has since somebody asked first.
func received(fd int) (at unix.Timespec) {
	const stamp = 0x8907 // SIOCGSTAMPNS
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), stamp, uintptr(unsafe.Pointer(&at)))
	return at
}

// A UDP listener with handover = "flow" has a table in the kernel in place of a classic program: package flow. A lane
// of it is a socket, by its number. It lives while a generation or an orphan has it, or it serves.

// The origins of the descriptors of a table in an export name.
const (
	flowProgram = "p"
	flowMemory  = "m"
)

// defaultFlows is how many entries a table has unless the configuration says otherwise. They take about 30 MB.
const defaultFlows = 1 << 18

// Unpermitted returns an error if supervisord has not the privileges that the handover of s needs, or the kernel cannot
// do it; nil: it can. It asks the kernel.
func (s Spec) Unpermitted() *SpecError {
	if s.Handover != Flow {
		return nil
	}
	table, err := flow.New(1)
	switch {
	case err == nil:
		_ = table.Close()
		return nil
	case errors.Is(err, flow.ErrPrivilege):
		return &SpecError{"handover", `"flow" is not permitted: ` + err.Error(),
			`give supervisord CAP_BPF, as the drop-in flow.conf does, or write handover = "steer"`}
	}
	return &SpecError{"handover", `"flow" is impossible: ` + err.Error(),
		`use Linux 5.11 or newer, or write handover = "steer"`}
}

// followsFlows reports whether the listener has, or should have, a table of flows.
func (l *listener) followsFlows() bool {
	return l.r.Handover == Flow && l.shared == nil && l.r.at.isUDP()
}

// laneOf is the lane of a socket in the table of flows, which has as many as QUIC: no generation gets one beyond these.
func laneOf(m *sock) int { return m.number % flow.Lanes }

// applyFlows lets the table of flows send new flows to what serves, and forget those whose generation is gone.
func (l *listener) applyFlows() error {
	fd := l.inGroup()
	if fd < 0 {
		return nil
	}
	var err error
	if l.flows == nil {
		if l.flows, err = l.openFlows(); err != nil {
			return err
		}
		l.unsure = true
	}
	if l.unsure {
		l.recount()
	}
	if err := l.ambiguity(); err != nil {
		return err
	}
	serves := l.served()
	for _, m := range l.members {
		if at := l.group.places(m.id); len(at) == 1 {
			l.flows.Place(laneOf(m), at[0])
		}
		if lane := laneOf(m); (serves[m] || l.isHeld(m)) && !l.flows.Lives(lane) {
			l.flows.Begin(lane)
		}
	}
	l.flows.Steer(l.flowShares())
	for _, m := range l.members {
		if !serves[m] && !l.isHeld(m) && !m.stray {
			l.flows.End(laneOf(m))
		}
	}
	l.mark()
	if l.unsure {
		err = l.flows.Attach(fd)
		l.unsure, l.program = err != nil, nil
	}
	return err
}

// flowShares divides new flows as the ways of a program do, and within a way evenly.
func (l *listener) flowShares() (shares []flow.Lot) {
	const whole = 5040 // has all divisors up to 10
	for _, s := range l.serving {
		for _, m := range s.sockets {
			shares = append(shares, flow.Lot{Lane: laneOf(m), Weight: max(1, s.weight*whole/len(s.sockets))})
		}
	}
	return shares
}

// openFlows takes the table that the supervisord before this one had, or makes one.
func (l *listener) openFlows() (*flow.Flows, error) {
	fds := map[string]int{}
	for _, o := range l.table.offers {
		if (o.origin == flowProgram || o.origin == flowMemory) && o.isOf(l.r) && !o.taken {
			fds[o.origin], o.taken = o.FD, true
		}
	}
	program, has := fds[flowProgram]
	memory, complete := fds[flowMemory]
	if has && complete {
		if table, err := flow.Adopt(program, memory); err == nil {
			return table, nil
		}
	} else {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}
	return flow.New(l.r.Flows)
}

// closeFlows closes a table of flows that is not needed any more.
func (l *listener) closeFlows() {
	if l.flows != nil {
		_ = l.flows.Close()
		l.flows, l.unsure, l.program = nil, true, nil
	}
}

// exportFlows lists the descriptors of a table of flows.
func (l *listener) exportFlows() []Named {
	if l.flows == nil {
		return nil
	}
	program, memory := l.flows.FDs()
	return []Named{
		{Name: exportName(l.key, 0, flowProgram), FD: program},
		{Name: exportName(l.key, 0, flowMemory), FD: memory},
	}
}
