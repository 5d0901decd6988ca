package socket

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// What the kernel does not tell is which member of a group has which index, where too much has changed at once: a
// worker has shut down all its sockets, or a supervisor has died, nobody kept its sockets, and others have moved to
// the places of those that only it had. A question finds out: it connects, from a port that no other process has, and
// sees who answers, because every member says in its SYN-ACK how long segments may be (TCP_MAXSEG), each something
// else. A program sends the port to one index after the other. Until a connection has data it stays out of the queue
// (TCP_DEFER_ACCEPT), and the question resets it before, so that no worker ever sees it. Clients of other machines are
// not affected, because their segments are shorter anyway.
type question struct {
	l     *listener
	asked []*sock
	port  *Probe
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

// place asks those members for their index that may have any of several. Clients go meanwhile where they went, or wait
// a second where the server speaks first. A member that does not answer is where nobody answers, if that is one place.
func (l *listener) place() error {
	lost := l.unplaced()
	if len(lost) == 0 || l.r.ReusePort || l.r.at.isUDP() || !l.answers() {
		return nil
	}
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

// prepare marks the members that are asked, and reserves the port.
func (q *question) prepare() error {
	if err := q.port.reserve(); err != nil {
		return err
	}
	for i, m := range q.asked {
		if m.deaf {
			if err := m.setDeaf(false, q.l.addressFor(q.l.r)); err != nil {
				return err
			}
		}
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
	for _, m := range q.asked {
		_ = unix.SetsockoptInt(m.fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG, 0)
		_ = setDeferAccept(m, q.l.r)
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
	family := unix.AF_INET
	if p.to.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(fd) }() // resets the connection
	timeout := unix.NsecToTimeval(answerTime * 1e6)
	from, err := bindAddr{network: "tcp", ip: p.from.Addr(), port: p.from.Port()}.sockaddr()
	if err != nil {
		return 0, err
	}
	to, err := bindAddr{network: "tcp", ip: p.to.Addr(), port: p.to.Port()}.sockaddr()
	if err != nil {
		return 0, err
	}
	for _, err := range []error{
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout),
		unix.Bind(fd, from),
		unix.Connect(fd, to),
	} {
		if err != nil {
			return 0, err
		}
	}
	return unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG)
}
