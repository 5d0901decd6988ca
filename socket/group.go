package socket

import (
	"errors"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket/diag"
	"example.org/supervisord/socket/holder"
)

// group is the SO_REUSEPORT group of an internet address as the kernel has it: its sockets, by their identity, in the
// order of the indices that a steering program returns. A socket that begins to listen (of UDP: is bound) is appended;
// where one leaves, because it was closed or shut down, the last one takes its place. Both are seen by comparing with
// the sockets that listen now, in which those of other processes of the same user are, too. unplaced stands for one of
// several sockets: too much has changed at once to tell which. Others may shut down sockets at any moment, even while
// one of ours joins.
type group []uint64

const unplaced = 0

// after is the group when these sockets listen: all that are in it, and others that have joined. The last of g, so
// many, are expected to have joined since the last look, in this order. If anything else has changed, too, it is not
// known what came first.
func (g group) after(now []uint64, joining int) group {
	gone := func(id uint64) bool { return id != unplaced && !slices.Contains(now, id) }
	if len(g) == len(now) && !slices.ContainsFunc(g, gone) {
		joining = 0 // as was expected
	}
	g = g[:len(g)-joining]
	left := only(g, gone)
	others := only(now, func(id uint64) bool { return !slices.Contains(g, id) })
	vague := g.vague()
	if len(left) == 0 && vague == 0 && len(others) <= 1 {
		return append(slices.Clone(g), others...)
	}
	if len(left) == 0 && joining == 0 && vague == len(others) {
		return g
	}
	next := make(group, len(now))      // unplaced
	stay := len(g) - len(left) - vague // what is below has not moved, because only a last one does
	if vague == 0 && len(others) == 0 {
		stay = len(now)
	}
	for i := range min(stay, len(g), len(next)) {
		if slices.Contains(now, g[i]) {
			next[i] = g[i]
		}
	}
	next.complete(only(now, func(id uint64) bool { return !slices.Contains(next, id) })...)
	return next
}

// complete places the only socket that is missing.
func (g group) complete(missing ...uint64) {
	if len(missing) == 1 && g.vague() == 1 {
		g[slices.Index(g, unplaced)] = missing[0]
	}
}

// vague is how many sockets are unplaced.
func (g group) vague() (n int) {
	for _, id := range g {
		n += number(id == unplaced)
	}
	return n
}

// places lists the indices that a socket can have: one, unless it is unplaced.
func (g group) places(id uint64) (at []int) {
	if i := slices.Index(g, id); i >= 0 {
		return []int{i}
	}
	for i, other := range g {
		if other == unplaced {
			at = append(at, i)
		}
	}
	return at
}

// How a group of four changes, and what is known of it by comparing:
//
//	A B C D   B is closed             A D C      the last one has moved
//	A D C     B listens again         A D C B    who joins is the last
//	A D C B   A and D are closed      ? ?        B C if A was the first to be closed, else C B
//	? ?       a question is answered  B C        see question

// unplaced lists the members that listen at an index that is not known.
func (l *listener) unplaced() (lost []*sock) {
	if !slices.Contains(l.group, unplaced) {
		return nil
	}
	return only(l.members, func(m *sock) bool { return !slices.Contains(l.group, m.id) && !m.silent(l.r.at) })
}

// ambiguous returns an error if what is meant for these sockets would also go to others, at whose index nobody may
// accept.
func (l *listener) ambiguous(sockets []*sock) error {
	lost := only(l.unplaced(), func(m *sock) bool { return slices.Contains(sockets, m) })
	if len(lost) == 0 || len(lost) == l.group.vague() || l.r.ReusePort {
		return nil
	}
	return errors.New("several sockets have left the address at once, " +
		"and the others do not say in which order the kernel has them now")
}

// disordered reports whether the order of the group is not that of the members' numbers, which a later table takes it
// for.
func (l *listener) disordered() bool {
	if !l.r.at.isTCP() {
		return false
	}
	var byNumber group
	for _, m := range l.members {
		if !m.silent(l.r.at) {
			byNumber = append(byNumber, m.id)
		}
	}
	return !slices.Equal(l.group, byNumber)
}

// recount compares the group with the sockets that listen now.
func (l *listener) recount() {
	if l.r.at.isUnix() {
		return
	}
	now, strangers := l.listening()
	l.group, l.joining = l.group.after(now, l.joining), 0
	for _, s := range strangers {
		if !l.r.ReusePort && !l.strangers[s.Inode] {
			l.notices = append(l.notices, Notice{Kind: s.kind(), Socket: s.Inode, Address: s.At.Addr(),
				Holder: holder.Of(s.Inode)})
		}
	}
	l.strangers = map[uint64]bool{}
	for _, s := range strangers {
		l.strangers[s.Inode] = true
	}
}

// outsider is a listening socket that is none of ours.
type outsider struct {
	diag.Listening
	inGroup bool
}

func (o outsider) kind() NoticeKind {
	if o.inGroup {
		return StrangerInGroup
	}
	return StrangerBeside
}

// listening lists the sockets of the group that listen: ours, which the kernel is asked for one by one, and
// strangers, of which also those are listed that get connections in place of the group because their address is
// more exact. Where the kernel does not show these, there are none. Ours are asked until two rounds agree: whichever
// leaves after that leaves after all that have left by now.
func (l *listener) listening() (now []uint64, strangers []outsider) {
	for before := []uint64{0}; !slices.Equal(now, before); {
		before, now = now, nil
		for _, m := range l.members {
			if !m.silent(l.r.at) && !m.hasLeft(l.r.at) {
				now = append(now, m.id)
			}
		}
	}
	if len(now) == 0 || l.r.at.isUDP() { // what others bind comes behind ours: see lanesOfUDP
		return now, nil
	}
	at := l.addressFor(l.r)
	shown, _ := diag.Listeners(at.port)
	own := slices.IndexFunc(shown, func(s diag.Listening) bool { return s.Inode == now[0] })
	if own < 0 {
		return now, nil // another network namespace
	}
	for _, s := range shown {
		same := s.At == shown[own].At && s.Device == shown[own].Device
		if l.isOurs(s.Inode) || !same && !at.yields(s) {
			continue
		}
		strangers = append(strangers, outsider{s, same})
		if same {
			now = append(now, s.Inode)
		}
	}
	return now, strangers
}

func (l *listener) isOurs(id uint64) bool {
	return l.table != nil && l.table.has(id) || slices.ContainsFunc(l.members, func(m *sock) bool { return m.id == id })
}

// yields reports whether a socket gets connections that are for the address, because its own is more exact.
func (a bindAddr) yields(s diag.Listening) bool {
	return s.At.Addr() == a.ip || a.covers(bindAddr{ip: s.At.Addr()})
}

// Notice is something that other processes have done to a listener.
type Notice struct {
	Kind     NoticeKind
	Program  string
	Listener string
	Lanes    []*Lane    // that have the socket
	Socket   uint64     // its inode
	Address  netip.Addr // of a stranger
	Holder   string     // the stranger, as a person reads it, see holder.Of
	Err      error      // why a socket that was shut down could not listen again
}

// NoticeKind says what.
type NoticeKind string

// The kinds of notices.
const (
	// a process has ended listening of a socket of ours with shutdown(2): it listens again
	ShutDown        NoticeKind = "shut down"
	StrangerInGroup NoticeKind = "stranger in group" // a process has joined the address with SO_REUSEPORT
	// a process listens at a more exact address, and gets what comes there
	StrangerBeside NoticeKind = "stranger beside"
)

// Notices returns what was noticed since the last call.
func (t *Table) Notices() (all []Notice) {
	for _, l := range t.listeners {
		for _, n := range l.notices {
			n.Program, n.Listener = l.r.Program, l.r.Name
			for _, ln := range l.lanes {
				if n.Kind == ShutDown && slices.ContainsFunc(ln.slots, func(m *sock) bool { return m.id == n.Socket }) {
					n.Lanes = append(n.Lanes, ln)
				}
			}
			all = append(all, n)
		}
		l.notices = nil
	}
	return all
}

// silent reports whether a socket does not listen although it could: it was not told to, or somebody has called
// shutdown(2).
func (m *sock) silent(at bindAddr) bool {
	return !at.isUDP() && !m.accepts()
}

// hasLeft reports whether a worker has connected a UDP socket, which takes it out of the group for good.
func (m *sock) hasLeft(at bindAddr) bool {
	if !at.isUDP() {
		return false
	}
	_, err := unix.Getpeername(m.fd)
	return err == nil
}

// rejoin lets the members listen that do not, behind the others. expected says that supervisord itself has closed them.
// The caller applies what then is right.
func (l *listener) rejoin(expected bool) (err error) {
	if l.unsure {
		l.expel()
	}
	for tries := 0; tries < rejoins && err == nil; tries++ {
		silent := only(l.members, func(m *sock) bool { return m.silent(l.r.at) })
		if len(silent) == 0 {
			break
		}
		err = l.join(silent, expected)
		l.expel()
	}
	return refused(l.r, err)
}

// rejoins is how often a process may shut down a socket while it begins to listen again.
const rejoins = 3

// join lets silent members listen.
func (l *listener) join(silent []*sock, expected bool) (failed error) {
	l.recount()
	for _, m := range silent {
		l.group = append(l.group, m.id) // once it listens; recount drops it if it does not
	}
	l.joining += len(silent)
	joined := 0
	for _, m := range silent {
		if joined < 2 { // the first may find no group, and make one
			_ = l.fence() // before it joins, at an index that the program may mean for one that has moved since
		}
		err := m.speak(l.r, l.sharesAddress())
		if !expected {
			l.shutDowns++
			l.notices = append(l.notices, Notice{Kind: ShutDown, Socket: m.id, Err: err})
		}
		joined += number(err == nil)
		if failed == nil {
			failed = err
		}
	}
	return failed
}

// expel stops members from listening whose connections would read as ended from the start: see forget.
func (l *listener) expel() {
	shown, _ := diag.Listeners(l.port())
	for _, m := range l.members {
		if slices.ContainsFunc(shown, func(s diag.Listening) bool { return s.Inode == m.id && s.Over }) {
			m.withdraw()
			l.unsure = true
		}
	}
}

// Revive lets the sockets of a listener listen again that a process has shut down, and returns whether there were
// any. Nothing waits in them any more.
func (t *Table) Revive(key string) (revived bool, err error) {
	l := t.listeners[key]
	if l == nil || l.closed || !l.r.at.isTCP() {
		return false, nil
	}
	before := l.shutDowns
	l.unsure = true
	err = l.rejoin(false)
	t.changed[key] = true
	if e := l.apply(); err == nil {
		err = e
	}
	t.hangups(l)
	return l.shutDowns > before, err
}

// What the kernel does not tell is which member of a group has which index, where too much has changed at once: a
// worker has shut down all its sockets, or a supervisor has died, nobody kept its sockets, and others have moved to
// the places of those that only it had. A question finds out: it connects, from a port that no other process has, and
// sees who answers, because every member says in its SYN-ACK how long segments may be (TCP_MAXSEG), each something
// else. A program sends the port to one index after the other. Until a connection has data it stays out of the queue
// (TCP_DEFER_ACCEPT), and the question resets it before, so that no worker ever sees it. Clients of other machines are
// not affected, because their segments are shorter anyway.
type question struct {
	l      *listener
	asked  []*sock
	defers []int // TCP_DEFER_ACCEPT of each of these, which a worker may have set
	port   *Probe
}

const (
	markBase, markStep = 10_000, 16 // of TCP_MAXSEG; options of the TCP header take less than a step
	maxMarks           = 600
	answerTime         = 300 // ms, of a member whose queue is full or that nobody can reach
	loopbackMTU        = 65_536
	anyMember          = -1 // beyond every group: the kernel chooses
	localTries         = 2  // of a connection that this kernel had no room for
)

// answers reports whether the members can be asked.
func (l *listener) answers() bool {
	lo, err := net.InterfaceByName("lo")
	return err == nil && lo.MTU >= loopbackMTU && len(l.members) <= maxMarks && l.r.Interface == "" && !l.isSilent()
}

// place asks members for their index if they may have any of several. Until all have answered, no program can steer by
// their indices, and new connections may reach any of them. Those that no generation has are deaf for that time, and
// the client's kernel tries again after a second; other generations may get some. A server that speaks first keeps its
// client waiting for a second, too. If one member does not answer and one place is left, that is its place.
func (l *listener) place() error {
	lost := l.unplaced()
	if len(lost) == 0 || l.r.ReusePort || l.r.at.isUDP() || !l.answers() {
		return nil
	}
	l.deafenOrphans()
	q := &question{l: l, asked: lost, port: &Probe{listener: l, to: l.reachedAt()}}
	defer q.end()
	if err := q.prepare(); err != nil {
		return err
	}
	from := q.port.from
	for at, id := range l.group {
		if id != unplaced {
			continue
		}
		program := append(sourceRules([]rule{{from.Port(), from.Addr().Is6(), at}}), l.compile(true)...)
		if err := attach(l.inGroup(), append(program, result(anyMember))); err != nil {
			return err
		}
		if m := q.answer(); m != nil {
			l.group[at] = m.id
		}
	}
	for _, m := range l.unplaced() {
		l.group.complete(m.id)
	}
	return nil
}

// prepare marks the members that are asked, and reserves the port. Those that are deaf hear the question, too.
func (q *question) prepare() error {
	if err := q.port.reserve(); err != nil {
		return err
	}
	for i, m := range q.asked {
		q.defers = append(q.defers, seconds(m.defers()))
		if err := unix.SetsockoptInt(m.fd, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 1); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(m.fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG, markBase+markStep*i); err != nil {
			return err
		}
	}
	return nil
}

// end removes the marks. apply sets the program.
func (q *question) end() {
	for i, was := range q.defers {
		_ = unix.SetsockoptInt(q.asked[i].fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG, 0)
		_ = unix.SetsockoptInt(q.asked[i].fd, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, was)
	}
	if q.port.from.IsValid() {
		_ = unix.Close(q.port.fd)
	}
	q.l.unsure = true
}

// answer connects, and returns the member that answered; nil: none did, or a socket of another process.
func (q *question) answer() *sock {
	mss, err := q.port.maxSegment()
	for range localTries {
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOMEM) && !errors.Is(err, unix.ENOBUFS) {
			break // it was answered, or nobody did
		}
		mss, err = q.port.maxSegment()
	}
	if i := (mss - markBase + markStep - 1) / markStep; err == nil && mss > markBase-markStep && i < len(q.asked) {
		return q.asked[i]
	}
	return nil
}

// maxSegment connects, and says how long segments the other side wants.
func (p *Probe) maxSegment() (int, error) {
	fd, err := p.socket()
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(fd) }() // resets the connection
	timeout := unix.NsecToTimeval(answerTime * 1e6)
	to, err := sockaddr(p.to)
	if err == nil {
		_, err = bindTo(fd, p.from)
	}
	if err == nil {
		err = errors.Join(unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout), audible(fd, p.to.Addr()))
	}
	if err == nil {
		err = unix.Connect(fd, to)
	}
	if err != nil {
		return 0, err
	}
	return unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG)
}
