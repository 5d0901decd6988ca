package socket

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket/diag"
)

// Part is a part of the new connections. On its way to the kernel it becomes sockets, then indices of the group, then a
// program: with generation 7 in two sockets, and a canary, 8, that gets a tenth,
//
//	Part{lanes of 7, weight 9}, Part{lanes of 8, weight 1}
//	serving{sockets 0 and 2, 9}, serving{socket 1, 1}
//	way{places 0 and 2, 9}, way{place 1, 1}
//	A = random; if A ≥ 0.9·2³²: return 1; A = hash of the source; return 0 or 2 by A modulo 2
//
// Sockets and places differ once a socket has left the group, because the last one then moves to its place.
type Part struct {
	Lanes  []*Lane // of the generation that gets it
	Slots  []int   // only the sockets of these slots; nil: all
	Weight int     // relative to the other parts
	Unit   bool    // the socket of a socket unit gets it, where there is one
}

// Steer sends new connections to these parts, and to no other sockets of their listeners. Where one lane has
// several sockets, a connection's source decides; between lanes the kernel draws lots for each connection.
//
// Call it when a generation begins to serve, before its predecessor is told to stop; and with the lanes of the
// generation that continues serving when a trial has failed. Without it another shared lane begins to get
// connections when the serving one has closed.
func (t *Table) Steer(parts []Part) error {
	var errs []error
	for l, s := range parted(parts) {
		t.changed[l.key] = true
		if err := t.steer(l, s); err != nil {
			errs = append(errs, fmt.Errorf("cannot steer %s: %w", l.r.at, err))
		}
	}
	return errors.Join(errs...)
}

// Leave says that the generation of these lanes only finishes what it has. At a listener that no other generation has,
// because its address has changed, say, new connections wait, as in a pause, until Steer sends them to another
// generation or the listener closes. Where a pause is impossible, as for UDP and unix sockets, the generation still
// gets them. What it has in hand there is Left in any case.
func (t *Table) Leave(lanes []*Lane) error {
	var errs []error
	for _, ln := range lanes {
		if l := ln.of; l != nil && !l.left && l.servesOnly(ln) {
			l.left = true
			if err := t.settle(l); err != nil {
				errs = append(errs, fmt.Errorf("cannot keep new connections from %s: %w", l.r.at, err))
			}
		}
	}
	return errors.Join(errs...)
}

// servesOnly reports whether new connections go to this lane alone, and no other generation has its sockets, or is to
// have them.
func (l *listener) servesOnly(ln *Lane) bool {
	return (l.shared == nil || l.size == 0) && !slices.ContainsFunc(l.serving, func(s serving) bool {
		return slices.ContainsFunc(s.sockets, func(m *sock) bool { return !slices.Contains(ln.slots, m) || l.holders(m) > 1 })
	})
}

// parted says what these parts are at each of their listeners.
func parted(parts []Part) map[*listener][]serving {
	serve := map[*listener][]serving{}
	for _, p := range parts {
		for _, ln := range p.Lanes {
			l := ln.of
			switch {
			case l == nil:
			case p.Unit && ln.BesideUnit():
				serve[l] = serveAll(l.unit())
			case p.Weight > 0:
				serve[l] = with(serve[l], serving{ln.chosen(p.Slots), p.Weight})
			}
		}
	}
	return serve
}

// with adds a part. What generations share is one part.
func with(all []serving, s serving) []serving {
	if at := slices.IndexFunc(all, func(o serving) bool { return slices.Equal(o.sockets, s.sockets) }); at >= 0 {
		all[at].weight += s.weight
		return all
	}
	return append(all, s)
}

// steer makes the lanes in s serve, and no others. On error, connections go where they went.
func (t *Table) steer(l *listener, s []serving) error {
	before := l.serving
	l.serving, l.unsure = s, true
	if err := l.apply(); err != nil {
		if l.serving, l.unsure = before, true; len(before) > 0 {
			_ = l.apply()
		}
		return err
	}
	if l.left { // it is back
		l.left = false
		return t.settle(l)
	}
	return nil
}

// apply tells the kernel which member gets a new connection, and which are deaf.
func (l *listener) apply() error {
	switch {
	case len(l.members) == 0:
		return nil
	case l.r.at.isUnix():
		return nil
	}
	var lost error
	if l.unsure && !l.followsFlows() {
		l.recount()
		lost = l.place()
	}
	serves := l.served()
	if err := l.hear(func(m *sock) bool { return serves[m] }); err != nil {
		return err
	}
	err := l.applyProgram(lost)
	if err := errors.Join(err, l.hear(func(*sock) bool { return true })); err != nil {
		return err
	}
	l.deafen()
	disordered := l.disordered()
	for _, ln := range l.lanes {
		ln.Disordered = disordered
	}
	return nil
}

// applyProgram keeps new connections in the serving lanes. A silent socket is in no group, and one that has a
// program cannot listen again. lost is why the group is not known.
func (l *listener) applyProgram(lost error) error {
	if l.followsFlows() {
		return l.applyFlows()
	}
	l.closeFlows()
	program := l.compile(l.shared == nil)
	if l.r.ReusePort && len(program) == 0 && len(l.program) == 0 {
		return nil // another process may have set one
	}
	fd := l.inGroup()
	if fd < 0 || !l.unsure && slices.Equal(program, l.program) {
		return nil
	}
	var err error
	if len(program) > 0 {
		err = attach(fd, program)
	} else {
		err = detach(fd)
	}
	if err == nil {
		err = errors.Join(lost, l.ambiguity())
	}
	l.unsure = err != nil
	l.mark()
	if l.program = program; noGroup(err) && len(l.members) == 1 {
		return nil // it gets all connections; the second member makes a group of them
	}
	return err
}

// inGroup is a member that listens: what has been shut down, or connected, is in no group, and would get a program for
// itself, with which it cannot listen again (EADDRINUSE). A worker may do that at any moment, so inGroup prefers what
// no worker has, and then what serves to what is about to end. -1: none listens.
func (l *listener) inGroup() int {
	used, serves := l.used(), l.served()
	for _, prefers := range []func(*sock) bool{
		func(m *sock) bool { return !used[m] && !m.stray && !m.foreign },
		func(m *sock) bool { return serves[m] },
		func(*sock) bool { return true },
	} {
		for _, m := range l.members {
			if prefers(m) && !m.silent(l.r.at) && !m.hasLeft(l.r.at) {
				return m.fd
			}
		}
	}
	return -1
}

// goal is where the kernel is to send new connections: to what serves, unless the listener is paused.
func (l *listener) goal() []serving {
	if l.parking != nil {
		return serveAll([]*sock{l.parking})
	}
	return l.serving
}

// ambiguity returns why new connections may go to other sockets than those that serve.
func (l *listener) ambiguity() error {
	for _, s := range l.goal() {
		if err := l.ambiguous(s.sockets); err != nil {
			return err
		}
	}
	return nil
}

// mark lets the next supervisord see which members get new connections, also when no generation has them and no
// record says so: clients may wait there. The mark is the number that F_SETSIG sets: the open file description has
// it wherever a descriptor of the socket goes, and SIGIO means to a process that asks for signals what 0 does, the
// default. Of UDP, mark also notes which index each has in the group: see recall.
func (l *listener) mark() {
	serves := l.served()
	for _, m := range l.members {
		_, _ = unix.FcntlInt(uintptr(m.fd), unix.F_SETSIG, int(unix.SIGIO)*number(serves[m])) // only a bad descriptor fails
		if l.r.at.isUDP() {
			m.noteIndex(l.group)
		}
	}
}

// marked reports whether a socket got new connections under the supervisord before this one.
func (m *sock) marked() bool {
	mark, err := unix.FcntlInt(uintptr(m.fd), unix.F_GETSIG, 0)
	return err == nil && mark == int(unix.SIGIO)
}

// fence keeps connections in the sockets that get them now, whatever joins the group.
func (l *listener) fence() error {
	l.program, l.unsure = l.compile(true), true
	fd := l.inGroup()
	if fd < 0 || l.flows != nil {
		return nil
	}
	if err := attach(fd, l.program); err != nil && !noGroup(err) {
		return err
	}
	return nil
}

// noGroup reports whether a socket has no group because it had no SO_REUSEPORT when it began to listen.
func noGroup(err error) bool { return errors.Is(err, unix.EINVAL) }

// compile returns the program for each new connection; nil: none is needed, because the kernel spreads connections
// over all members, or none is possible, because other processes have joined the group. With reuse_port they may
// join, so it is only there until the sockets of earlier configurations are gone. always says that a program is
// needed.
func (l *listener) compile(always bool) []unix.SockFilter {
	var ways []way
	for _, s := range l.goal() {
		w := way{weight: s.weight}
		for _, m := range s.sockets {
			w.members = append(w.members, l.group.places(m.id)...)
		}
		slices.Sort(w.members)
		w.members = slices.Compact(w.members)
		if len(w.members) > 0 {
			ways = append(ways, w)
		}
	}
	all := len(ways) == 1 && (len(ways[0].members) == len(l.group) || l.r.ReusePort &&
		len(ways[0].members) == len(l.members))
	if len(ways) == 0 || all && (l.r.ReusePort || !always && len(l.probes) == 0) {
		return nil
	}
	if l.isQUIC() {
		return l.quicRing().program(ways)
	}
	return slices.Concat(l.probeRules(), choose(ways))
}

// Left returns what these lanes have that gets no new connections now, for diag.NewWatch: only the sockets of these
// slots (nil: all). Empty: there is nothing to wait for.
func Left(lanes []*Lane, slots []int) (left []diag.Target) {
	for _, ln := range lanes {
		if ln.of == nil || ln.of.r.at.isUnix() {
			continue
		}
		sockets := only(ln.chosen(slots), func(m *sock) bool { return !ln.of.serves(m) })
		if len(sockets) > 0 {
			left = append(left, ln.of.target(sockets))
		}
	}
	return left
}

// Unreceived is Left of UDP lanes to which nothing new comes at all. A worker sees which connections are about to reach
// it, but not when the last datagram has come: only the kernel knows, and tells nobody but a Watch.
func Unreceived(lanes []*Lane, slots []int) []diag.Target {
	return Left(only(lanes, func(ln *Lane) bool {
		return ln.of != nil && ln.of.r.at.isUDP() && !ln.of.isQUIC() && !ln.of.followsFlows()
	}), slots)
}

// Unaccepted counts the sockets of these slots (nil: all) that no other generation has, and in which connections or
// datagrams wait.
func Unaccepted(lanes []*Lane, slots []int) (n int) {
	for _, ln := range lanes {
		if ln.of != nil && ln.Own() {
			n += len(only(ln.chosen(slots), func(m *sock) bool { return diag.Waits(m.fd) }))
		}
	}
	return n
}

// Accepted returns all that these lanes have, for diag.NewWatch.
func Accepted(lanes []*Lane) (all []diag.Target) {
	for _, ln := range lanes {
		if ln.of != nil && !ln.of.r.at.isUnix() {
			all = append(all, ln.of.target(ln.slots))
		}
	}
	return all
}

// Names lists the names under which the unix sockets of these lanes were bound, for diag.InHand.AddUnix.
func Names(lanes []*Lane) (names []string) {
	for _, ln := range lanes {
		names = appendNames(names, ln.slots)
	}
	return names
}

// NamesOf is Names for what processes of a supervisor that is gone have, by the inodes of their sockets.
func (t *Table) NamesOf(inodes []uint64) (names []string) {
	for _, l := range t.listeners {
		names = appendNames(names, only(l.members, func(m *sock) bool { return slices.Contains(inodes, m.id) }))
	}
	return names
}

// appendNames asks the kernel: a socket of a socket unit may be at another path than the configuration says.
func appendNames(names []string, sockets []*sock) []string {
	for _, m := range sockets {
		name, _ := unix.Getsockname(m.fd)
		if at, is := name.(*unix.SockaddrUnix); is && !slices.Contains(names, at.Name) {
			names = append(names, at.Name)
		}
	}
	return names
}

func (l *listener) target(sockets []*sock) diag.Target {
	target := diag.Target{Port: l.port()}
	free := l.freeTags(sockets)
	for _, m := range sockets {
		if l.r.at.isUDP() {
			target.Receives = append(target.Receives, m.fd)
			switch {
			case l.isQUIC():
				target.Silences = append(target.Silences, m.silence())
			case l.flows != nil:
				target.Silences = append(target.Silences, l.flows.Silence(laneOf(m)))
			}
			continue
		}
		target.Tags |= 1 << m.tag
		target.Queues = append(target.Queues, m.id)
		target.Crowded = target.Crowded || !slices.Contains(free, m.tag)
		target.Defers = max(target.Defers, m.defers())
	}
	return target
}

// defers is how long the kernel defers a connection without data. A worker may have set that.
func (m *sock) defers() time.Duration {
	seconds, _ := unix.GetsockoptInt(m.fd, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT)
	return time.Duration(seconds) * time.Second
}

// LeftOf returns what processes of a supervisor that is gone still have of listeners, by the inodes of their
// sockets, and that gets no new connections now: for diag.NewWatch, before they are told to stop.
func (t *Table) LeftOf(inodes []uint64) []diag.Target {
	return t.targets(inodes, func(l *listener, m *sock) bool { return !l.serves(m) })
}

// Beside is LeftOf for what gets new connections, which others accept as well.
func (t *Table) Beside(inodes []uint64) []diag.Target { return t.targets(inodes, (*listener).serves) }

// targets leaves out UDP sockets of generations, which may be closed while they are watched.
func (t *Table) targets(inodes []uint64, those func(l *listener, m *sock) bool) (all []diag.Target) {
	for _, l := range t.listeners {
		if l.r.at.isUnix() {
			continue
		}
		theirs := only(l.members, func(m *sock) bool {
			return slices.Contains(inodes, m.id) && those(l, m) && (m.stray || !l.r.at.isUDP())
		})
		if len(theirs) > 0 {
			all = append(all, l.target(theirs))
		}
	}
	return all
}

// InLane reports whether one of these sockets is in the lane of a generation that gets new connections, and in no
// other: once that one is replaced, they get none.
func (t *Table) InLane(inodes []uint64) bool {
	for _, l := range t.listeners {
		in := func(m *sock) bool { return l.holders(m) == 1 && l.serves(m) && slices.Contains(inodes, m.id) }
		if l.shared == nil && slices.ContainsFunc(l.members, in) {
			return true
		}
	}
	return false
}

// SetOrphans says which sockets processes of a supervisor that is gone accept from, by their inodes. No generation that
// is prepared from now on gets these, unless all generations share the socket, or a socket unit has it: an orphan that
// keeps getting connections never finishes, and serves an old version.
func (t *Table) SetOrphans(inodes []uint64) {
	for _, l := range t.listeners {
		changed := false
		for _, m := range l.members {
			stray := slices.Contains(inodes, m.id) && (m.stray || m != l.shared && !m.foreign)
			changed = changed || stray != m.stray
			m.stray = stray
		}
		if changed {
			_ = t.settle(l)
		}
	}
}

// LaneStatus describes one lane of a listener.
type LaneStatus struct {
	Number     int     `json:"number"`
	Members    []int   `json:"members"`    // the numbers of its sockets
	Generation int     `json:"generation"` // for the caller to fill in; 0: none has it
	Share      float64 `json:"share"`      // of the new connections, 0 to 1
	Queued     int     `json:"queued"`     // connections that wait to be accepted; of UDP 0
	Lane       *Lane   `json:"-"`          // of the generation that has it alone; nil: several have it, or none
}

// Lanes describes the lanes of a listener at an internet address: those that generations have, and free ones that serve
// or in which connections wait.
func (t *Table) Lanes(key string) (status []LaneStatus) {
	l := t.listeners[key]
	if l == nil || l.r.at.isUnix() {
		return nil
	}
	add := func(sockets []*sock, ln *Lane) {
		if !slices.ContainsFunc(status, func(s LaneStatus) bool { return s.Number == sockets[0].number }) {
			status = append(status, l.status(sockets, ln))
		}
	}
	for _, ln := range l.lanes {
		if ln.Own() {
			add(ln.slots, ln)
		} else {
			add(ln.slots, nil)
		}
	}
	for _, s := range l.serving {
		if !slices.ContainsFunc(s.sockets, l.isHeld) {
			add(s.sockets, nil)
		}
	}
	for _, m := range l.unused() {
		if m.waiting() && !l.serves(m) {
			add([]*sock{m}, nil)
		}
	}
	slices.SortFunc(status, func(a, b LaneStatus) int { return cmp.Compare(a.Number, b.Number) })
	return status
}

func (l *listener) status(sockets []*sock, ln *Lane) LaneStatus {
	s := LaneStatus{Number: sockets[0].number, Lane: ln}
	for _, m := range sockets {
		s.Members = append(s.Members, m.number)
		s.Queued += m.queued()
	}
	total := 0
	for _, w := range l.serving {
		total += w.weight
		if !l.left && slices.Contains(sockets, w.sockets[0]) {
			s.Share += float64(w.weight)
		}
	}
	s.Share /= float64(max(1, total))
	return s
}

// A connection has the tag of the socket that it was accepted from, as the socket had it then (package diag): so
// Left can say whose a connection is. A socket therefore keeps its tag as long as a process has it, over all
// supervisors, and gets another one only when the next generation takes it.

// readTag finds out which tag a member has: 0 if it can have none, as an MPTCP socket.
func (m *sock) readTag(r Resolved) {
	if r.at.isTCP() {
		m.tag, _ = diag.GetTag(m.fd)
	}
}

// setTag gives a member a tag. Where that fails, in kernels before 5.9, the kernel shows no tags either, and all
// connections of a port count.
func (m *sock) setTag(tag int) {
	if diag.SetTag(m.fd, tag) == nil {
		m.tag = tag
	}
}

// spareTags is how many tags are left for the lanes to come when each socket of a lane gets its own.
const spareTags = 4

// tagSockets gives sockets that no generation has yet tags that no lane in use has: each socket its own or, where
// there are not enough, all of them one. If every tag is in use, connections of other lanes count as well, and an
// old worker is told to stop later than it could be.
func (l *listener) tagSockets(sockets []*sock) {
	if !l.r.at.isTCP() {
		return
	}
	free := l.freeTags(sockets)
	for i, m := range sockets {
		tag := m.number % diag.Tags
		switch {
		case len(sockets) == 1 && len(free) > 0, len(free) >= len(sockets)+spareTags:
			tag = free[i]
		case len(free) > 0:
			tag = free[0]
		}
		m.setTag(tag)
	}
}

// freeTags lists the tags that no other socket has that a process may accept from.
func (l *listener) freeTags(sockets []*sock) (free []int) {
	var used [diag.Tags]bool
	mark := func(others []*sock) {
		for _, m := range others {
			used[m.tag] = used[m.tag] || !slices.Contains(sockets, m)
		}
	}
	for m := range l.used() {
		mark([]*sock{m})
	}
	for _, m := range l.members {
		if m.stray || m.foreign {
			mark([]*sock{m})
		}
	}
	for tag, taken := range used {
		if !taken {
			free = append(free, tag)
		}
	}
	return free
}
