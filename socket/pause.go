package socket

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Pause lets new connections of these listeners wait in the kernels of their clients, which try again after 1, 2,
// 4, … seconds, or ends that. Connections that were made continue, and probes are answered. On error nothing has
// changed.
//
// New connections are steered to a member from which nobody accepts, and whose queue is full: the kernel drops
// their SYNs. Where others may have joined the group, and where there is none, that is impossible, and an error.
func (t *Table) Pause(keys []string, paused bool) error {
	var done []*listener
	for _, key := range keys {
		l := t.listeners[key]
		if l == nil || l.paused == paused {
			continue
		}
		if err := t.pause(l, paused); err != nil {
			for _, l := range done {
				_ = t.pause(l, !paused) // it was so a moment ago
			}
			return fmt.Errorf("cannot pause %s: %w", l.r.at, err)
		}
		done = append(done, l)
	}
	return nil
}

func (t *Table) pause(l *listener, paused bool) error {
	if paused {
		if err := l.mayPark(); err != nil {
			return err
		}
	}
	l.paused = paused
	err := t.settle(l)
	if err == nil || !paused {
		return nil // a program that is not set is set by the next Steer
	}
	l.paused = false
	_ = t.settle(l)
	return err
}

// mayPark returns why the listener cannot be paused.
func (l *listener) mayPark() error {
	switch {
	case !l.r.at.isTCP():
		return errors.New("only TCP clients try again by themselves: stop the program instead")
	case l.r.ReusePort:
		return errors.New("other processes may listen there because of reuse_port: stop the program instead")
	case l.r.Interface != "":
		return errors.New("it is bound to an interface: stop the program instead")
	}
	for _, m := range l.members {
		if why := m.alone(); m.foreign && why != "" {
			return errors.New(why)
		}
	}
	return nil
}

// park steers new connections to a member whose queue it fills.
func (t *Table) park(l *listener) error {
	u := &update{table: t}
	m, err := u.spare(l)
	if err == nil {
		l.parking = &Probe{listener: l, member: m, to: l.reachedAt()}
		err = l.parking.fill()
	}
	if err == nil {
		err = l.apply()
	}
	if err != nil {
		l.unpark()
		u.rollBack()
	}
	return err
}

// spare finds a member that nobody has and that is empty, or opens one.
func (u *update) spare(l *listener) (*sock, error) {
	for _, m := range slices.Backward(l.unused()) {
		if !m.stray && !l.serves(m) && !m.waiting() {
			return m, nil
		}
	}
	how, err := u.makeRoom(l, l.r)
	if err != nil {
		return nil, err
	}
	return u.fresh(l, l.r, how)
}

// fill makes the queue of the member as short as can be, and connects once, without data: so the member must not defer.
func (p *Probe) fill() error {
	fd := p.member.fd
	err := errors.Join(unix.SetNonblock(fd, true), unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 0),
		unix.Listen(fd, 0))
	if err != nil {
		return err
	}
	p.member.full = true
	if err := p.reserve(); err != nil {
		return err
	}
	l := p.listener
	parking := l.parking
	l.parking = nil // nothing goes there before it is full
	l.probes = append(l.probes, p)
	err = l.apply()
	l.parking = parking
	if err != nil {
		return err
	}
	return p.connect()
}

// connect connects once, and waits until the connection is in the queue. Before Linux 6.14, and without SYN
// cookies, a queue of length 0 takes no connection at all, which is as good: then a connection that is not made at
// once never is, or fills the queue.
func (p *Probe) connect() error {
	soon := time.Second
	cookies := synCookies()
	if !cookies {
		soon = 50 * time.Millisecond
	}
	to, err := bindAddr{network: "tcp", ip: p.to.Addr(), port: p.to.Port()}.sockaddr()
	if err != nil {
		return err
	}
	timeout := unix.NsecToTimeval(soon.Nanoseconds())
	if err := unix.SetsockoptTimeval(p.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout); err != nil {
		return err
	}
	arrived := false
	if err = unix.Connect(p.fd, to); errors.Is(err, unix.EINPROGRESS) && !cookies {
		return nil
	}
	if err == nil || errors.Is(err, unix.EINTR) { // which continues
		arrived, err = arrives(p.member.fd, soon)
	}
	if err == nil && !arrived || errors.Is(err, unix.EINPROGRESS) {
		err = unix.ETIMEDOUT
	}
	if err != nil {
		return fmt.Errorf("its queue does not fill: %w", err)
	}
	return nil
}

// synCookies reports whether the kernel answers SYNs with cookies when a queue overflows, tcp(7).
func synCookies() bool {
	text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_syncookies")
	return err != nil || strings.TrimSpace(string(text)) != "0"
}

// unpark steers connections to the serving lanes again, and empties the queue that was full.
func (l *listener) unpark() {
	if l.parking == nil {
		return
	}
	p := l.parking
	l.parking = nil
	_ = l.apply() // it steered there before
	p.End()
	p.member.drain(l.r)
}

// drain empties a queue that is full on purpose, also if a supervisor before this one has filled it.
func (m *sock) drain(r Resolved) {
	if !m.full || m.silent(r.at) {
		return
	}
	m.full = false
	_ = unix.SetNonblock(m.fd, true) // a generation that gets it has its own wish
	for {
		conn, _, err := unix.Accept4(m.fd, unix.SOCK_CLOEXEC)
		if err != nil {
			break
		}
		_ = unix.Close(conn)
	}
	_ = errors.Join(setDeferAccept(m, r), setBacklog(m, r))
}

// isFull reports whether the queue of a listening TCP socket is as short as can be: in LISTEN, tcpi_sacked is the
// backlog.
func isFull(fd int) bool {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	return err == nil && info.State == tcpListen && info.Sacked == 0
}

const tcpListen = 10 // net/tcp_states.h
