package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Probe is a way to reach one socket of a listener, whichever generation serves: the kernel sends a connection
// there that comes from the probe's port of the loopback address, which no other process can have.
//
// Probe and End are for the goroutine of the table, Dial is for any other. Between them the probe has a descriptor,
// which keeps its port, and an instruction or two in the program of the group: so End must be called, however Dial has
// ended.
type Probe struct {
	listener *listener
	member   *sock
	from, to netip.AddrPort
	fd       int // keeps the port
}

// Probe prepares a connection to the socket that a worker in this slot has, whichever generation serves. It is an
// error if the generations share the listener, or if it is bound to an interface, which a connection from this
// machine does not pass.
func (ln *Lane) Probe(slot int) (*Probe, error) {
	l, m := ln.of, ln.socket(slot)
	switch {
	case m == nil:
		return nil, fmt.Errorf("cannot probe slot %d of %q: there is no such socket", slot, ln.Listener.Key())
	case !l.r.at.isTCP():
		return nil, fmt.Errorf("cannot probe %s: udp has no connections", l.r.at)
	case l.shared != nil:
		return nil, fmt.Errorf("cannot probe %s: its generations share the socket, and any of them may answer", l.r.at)
	case l.r.Interface != "":
		return nil, fmt.Errorf(
			"cannot probe %s: it is bound to the interface %s: probe an address instead, or leave out interface",
			l.r.at, l.r.Interface)
	}
	p := &Probe{listener: l, member: m}
	p.to = l.reachedAt()
	if err := p.reserve(); err != nil {
		return nil, fmt.Errorf("cannot probe %s: %w", l.r.at, err)
	}
	l.probes = append(l.probes, p)
	if err := errors.Join(l.apply(), l.ambiguous([]*sock{m})); err != nil {
		p.End()
		return nil, fmt.Errorf("cannot probe %s: %w", l.r.at, err)
	}
	return p, nil
}

// reachedAt is where this machine reaches the listener.
func (l *listener) reachedAt() netip.AddrPort {
	at := l.addressFor(l.r)
	switch {
	case !at.ip.IsUnspecified():
	case at.ip.Is4() || at.dual:
		at.ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	default:
		at.ip = netip.IPv6Loopback()
	}
	return netip.AddrPortFrom(at.ip, at.port)
}

// reserve takes a port that nobody has. SO_REUSEADDR lets Dial bind it, too.
func (p *Probe) reserve() error {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if p.to.Addr().Is6() {
		loopback = netip.IPv6Loopback()
	}
	fd, err := p.socket()
	if err != nil {
		return err
	}
	if p.from, err = bindTo(fd, netip.AddrPortFrom(loopback, 0)); err != nil {
		_ = unix.Close(fd)
		return err
	}
	p.fd = fd
	return nil
}

// socket opens a socket that can be bound to the port of the probe.
func (p *Probe) socket() (int, error) {
	family := unix.AF_INET
	if p.to.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) // only a bad descriptor fails
	}
	return fd, err
}

// Dial connects, once for each Probe. It is not for the loop.
func (p *Probe) Dial(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(p.from), Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR,
				1)
		}); e != nil {
			return e
		}
		return err
	}}
	return d.DialContext(ctx, "tcp", p.to.String())
}

// End ends the probe: call it when the connection is closed, on the loop. It may be called again.
func (p *Probe) End() {
	l := p.listener
	if !slices.Contains(l.probes, p) {
		return
	}
	l.probes = slices.DeleteFunc(l.probes, func(o *Probe) bool { return o == p })
	_ = unix.Close(p.fd)
	_ = l.apply() // a rule too many does no harm: nobody has the port
}

// probeRules send each probe to its member.
func (l *listener) probeRules() []unix.SockFilter {
	var rules []rule
	for _, p := range l.probes {
		if at := l.group.places(p.member.id); len(at) == 1 {
			rules = append(rules, rule{p.from.Port(), p.from.Addr().Is6(), at[0]})
		}
	}
	return sourceRules(rules)
}
