package socket

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket/unixpath"
)

// SetOpen opens or closes a listener: while it is closed, connections are refused, and those in its queue are
// reset. It stays bound, so that no other process can take the address, and workers that have the socket can use it
// again when it is reopened. Accepted connections are not affected. SetOpen does nothing for UDP, which has no
// connections, for an abstract unix socket, and for the socket of a systemd socket unit, which others may use: see
// CanClose.
//
// A unix socket is useless after it was closed: another one takes its place, and workers that are started later get
// that. changed reports whether descriptors have come or gone.
func (t *Table) SetOpen(key string, open bool) (changed bool, err error) {
	l := t.listeners[key]
	if l == nil || l.closed != open && !l.stuck(open) || !open && !l.canClose() {
		return false, nil
	}
	l.closed, l.unsure = !open, true // a group that all sockets have left has no program
	return l.r.at.isUnix(), t.settle(l)
}

// stuck reports whether the listener should be open, but could not be opened.
func (l *listener) stuck(open bool) bool {
	return open && len(l.lanes) > 0 &&
		slices.ContainsFunc(l.members, func(m *sock) bool { return m.silent(l.r.at) })
}

// CanClose reports whether SetOpen can close the listener.
func (t *Table) CanClose(key string) bool {
	l := t.listeners[key]
	return l != nil && l.canClose()
}

// canClose reports whether the kernel can refuse connections to the address while the address stays bound.
func (l *listener) canClose() bool {
	at := l.r.at
	return (at.isTCP() || at.onDisk()) && !l.foreign()
}

// Closed reports whether connections to the listener are refused.
func (t *Table) Closed(key string) bool {
	l := t.listeners[key]
	return l != nil && l.current()[0].silent(l.r.at)
}

// listen lets every socket listen that should, and no other: none of a closed listener, and of a unix listener with
// several sockets none from which no generation accepts. The sockets of a group join it again in their order: behind
// one that cannot listen, the others wait for the next try.
func (l *listener) listen() error {
	if l.r.at.isTCP() && !l.closed {
		err := l.rejoin(l.hushed)
		l.hushed = l.hushed && err != nil
		return err
	}
	l.hushed = l.closed
	for _, m := range l.members {
		silent := l.closed
		if l.r.at.isUnix() && len(l.members) > 1 {
			silent = !l.isHeld(m) || l.closed && m.reachable()
		}
		if m.silent(l.r.at) == silent {
			continue
		}
		if err := m.setSilent(l.r, silent); err != nil {
			return refused(l.r, err)
		}
	}
	l.recount()
	return nil
}

func (s *sock) setSilent(r Resolved, silent bool) error {
	switch {
	case !silent:
		return s.speak(r, false)
	case r.at.isTCP():
		return s.hush()
	case r.at.onDisk():
		return s.replaceSilent(r)
	}
	return nil
}

// hush ends listening, and keeps the address. A port is protected only by a socket that listens or does not have
// SO_REUSEADDR.
func (s *sock) hush() error {
	if err := s.setReuseAddr(false); err != nil {
		return err
	}
	return unix.Shutdown(s.fd, unix.SHUT_RD)
}

func (s *sock) setReuseAddr(on bool) error {
	return unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, number(on))
}

// speak lets a silent socket listen. Without SO_REUSEADDR, earlier connections in TIME_WAIT would prevent it.
// A worker may have taken the options from it that open has set.
func (s *sock) speak(r Resolved, shared bool) error {
	if r.at.isTCP() {
		if err := errors.Join(s.setReuseAddr(true), s.setReusePort(shared)); err != nil {
			return err
		}
	}
	s.armed = false // what was told of it is over
	return unix.Listen(s.fd, r.backlog())
}

// replaceSilent puts a socket that does not listen in the place of one with a path: shutdown(2) on a unix socket is
// final.
func (s *sock) replaceSilent(r Resolved) error {
	if !s.reachable() {
		return nil
	}
	release, err := unixpath.Lock(r.at.path)
	if err != nil {
		return err
	}
	defer release()
	fd, err := newSocket(r, r.at)
	if err != nil {
		return err
	}
	s.place.Remove()
	fresh := &sock{fd: fd, number: s.number}
	if err := fresh.bindPath(r); err != nil {
		fresh.discard()
		return err
	}
	_ = unix.Close(s.fd) // a worker that has it gets no more connections
	*s = *fresh
	return nil
}
