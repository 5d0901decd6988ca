package socket

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"golang.org/x/sys/unix"
)

// What the kernel does not tell is which member of a group has which index. If a supervisor has died and nobody
// kept its sockets, those that only it had are gone, and others have moved to their places. A question finds out:
// it connects, from ports that no other process has, and sees who answers, because every member says in its SYN-ACK
// how long segments may be (TCP_MAXSEG), each something else. A program sends one of the ports to one index after
// the other. Until a connection has data it stays out of the queue (TCP_DEFER_ACCEPT), and the question resets it
// before, so that no worker ever sees it. Clients of other machines are not affected, because their segments are
// shorter anyway.
type question struct {
	l     *listener
	asked []*sock
	ports []*Probe
}

const (
	markBase, markStep = 10_000, 16 // of TCP_MAXSEG; options of the TCP header take less than a step
	maxMarks           = 600
	questionPorts      = 16
	answerTime         = 300 // ms, of a member whose queue is full or that nobody can reach
	loopbackMTU        = 65_536
	anyMember          = -1 // beyond every group: the kernel chooses
	localTries         = 2  // of a connection that this kernel had no room for
)

// order puts the members into the order of the kernel's group, and reports which of them get new connections as it
// is. It leaves them as they are if they cannot be asked.
func (l *listener) order() (serving []*sock, err error) {
	if !l.answers() {
		return nil, nil
	}
	q := &question{l: l, asked: l.members}
	defer q.end()
	if err := q.prepare(questionPorts); err != nil {
		return nil, fmt.Errorf("cannot find out the order of the sockets on %s: %w", l.r.at, err)
	}
	for _, p := range q.ports {
		if m := q.answer(p); m != nil && m != stranger && !slices.Contains(serving, m) {
			serving = append(serving, m)
		}
	}
	var order []*sock
	for at := 0; at < len(l.members)+len(q.ports) && !containsAll(order, l.members); at++ {
		if err := q.sendTo(at, order); err != nil {
			return nil, fmt.Errorf("cannot find out the order of the sockets on %s: %w", l.r.at, err)
		}
		m := q.answer(q.ports[0])
		if m != nil && m != stranger && slices.Contains(order, m) {
			break // the index is beyond the group, and the kernel chose by itself
		}
		order = append(order, m)
	}
	l.reorder(order)
	return serving, nil
}

// answers reports whether the members can be asked.
func (l *listener) answers() bool {
	lo, err := net.InterfaceByName("lo")
	return err == nil && lo.MTU >= loopbackMTU && len(l.members) <= maxMarks && l.r.Interface == "" && !l.isSilent()
}

// place asks those members for their index that may have any of several: too many sockets have left the group at
// once, such as all of a worker that shuts its sockets down. Clients go meanwhile where they went, or wait a second
// where the server speaks first.
func (l *listener) place() error {
	lost := l.unplaced()
	if len(lost) == 0 || l.r.ReusePort || l.r.at.isUDP() || !l.answers() {
		return nil
	}
	q := &question{l: l, asked: lost}
	defer q.end()
	if err := q.prepare(1); err != nil {
		return err
	}
	for at, id := range l.group {
		if id != unplaced {
			continue
		}
		from := q.ports[0].from
		program := append(sourceRules([]rule{{from.Port(), from.Addr().Is6(), at}}), l.compile(true)...)
		if err := attach(l.inGroup(), append(program, result(anyMember))); err != nil {
			return err
		}
		if m := q.answer(q.ports[0]); m != nil && m != stranger {
			l.group[at] = m.id
		}
	}
	return nil
}

// prepare marks the members that are asked, and reserves ports.
func (q *question) prepare(ports int) error {
	for range ports {
		p := &Probe{listener: q.l, to: q.l.reachedAt()}
		if err := p.reserve(); err != nil {
			return err
		}
		q.ports = append(q.ports, p)
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
	for _, p := range q.ports {
		_ = unix.Close(p.fd)
	}
	q.l.unsure = true
}

// sendTo sends the first port to an index; the connections of clients go to the first serving member that was
// found, or anywhere.
func (q *question) sendTo(at int, found []*sock) error {
	port := q.ports[0].from
	others := slices.IndexFunc(found, func(m *sock) bool {
		return m != nil && (q.l.serves(m) || len(q.l.serving) == 0 && m.stray)
	})
	program := append(sourceRules([]rule{{port.Port(), port.Addr().Is6(), at}}), result(others)) // -1: anyMember
	return attach(q.l.inGroup(), program)
}

func containsAll(of, members []*sock) bool {
	return !slices.ContainsFunc(members, func(m *sock) bool { return !slices.Contains(of, m) })
}

// answer connects from a port and returns the member that answered; nil: none did; stranger: one of another process.
func (q *question) answer(p *Probe) *sock {
	mss, err := p.maxSegment()
	for range localTries {
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOMEM) && !errors.Is(err, unix.ENOBUFS) {
			break // it was answered, or nobody did
		}
		mss, err = p.maxSegment()
	}
	if err != nil {
		return nil
	}
	if i := (mss - markBase + markStep - 1) / markStep; mss > markBase-markStep && i < len(q.asked) {
		return q.asked[i]
	}
	return stranger
}

// stranger stands for a socket of another process.
var stranger = &sock{fd: -1}

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

// reorder puts the members into this order. One that did not answer is where nobody answered.
func (l *listener) reorder(order []*sock) {
	missing := slices.DeleteFunc(slices.Clone(l.members), func(m *sock) bool { return slices.Contains(order, m) })
	l.group = nil
	for _, m := range order {
		if m == nil && len(missing) > 0 {
			m, missing = missing[0], missing[1:]
		}
		if m != nil { // a stranger has 0
			l.group = append(l.group, m.id)
		}
	}
	for _, m := range missing {
		l.group = append(l.group, m.id)
	}
}
