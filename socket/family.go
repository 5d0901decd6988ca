package socket

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

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
	l.group, l.unsure = nil, true
	for _, m := range l.members {
		l.group = append(l.group, m.id)
	}
	return l.apply()
}

// widen makes m the other socket, unless it is. For a moment others may bind to its address; nobody gets datagrams that way who did
// not before.
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
	if err := unix.Dup3(fd, m.fd, unix.O_CLOEXEC); err != nil {
		return err
	}
	m.id, m.wide = socketID(m.fd), true
	return nil
}
