package socket

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// SetOpen lets a listener accept connections, or not: while it is closed, connections are refused, and those that wait in its
// queue are reset. It stays bound, so that nobody else can take the address, and every worker that has the socket finds it
// as it was when it is opened again. Connections that were accepted are not affected. It does nothing for udp, which has no
// connections, for an abstract unix socket, and for one of a systemd socket unit, which others may use: see CanClose.
//
// A unix socket cannot go on after it was closed: another one takes its place, and workers that are started later get that.
// changed tells whether descriptors have come or gone.
func (t *Table) SetOpen(key string, open bool) (changed bool, err error) {
	l := t.listeners[key]
	if l == nil || l.closed != open && !l.stuck(open) || !open && !l.canClose() {
		return false, nil
	}
	l.closed, l.steered = !open, "" // a group that was left by all has no program
	return l.newest().r.at.isUnix(), errors.Join(l.listen(), l.steer())
}

// stuck reports whether the listener could not be opened when it was to be.
func (l *listener) stuck(open bool) bool {
	return open && l.newest().held() && l.newest().slots[0].silent
}

// CanClose reports whether SetOpen can close the listener.
func (t *Table) CanClose(key string) bool {
	l := t.listeners[key]
	return l != nil && l.canClose()
}

func (l *listener) canClose() bool {
	return closable(l.newest().r.at) && !slices.ContainsFunc(l.lanes, (*lane).foreign)
}

// closable tells whether the kernel can refuse connections to the address while it stays bound.
func closable(at bindAddr) bool { return at.isTCP() || at.onDisk() }

// Closed reports whether connections to the listener are refused.
func (t *Table) Closed(key string) bool {
	l := t.listeners[key]
	return l != nil && l.newest().slots[0].silent
}

// listen lets every socket listen that should, and no other: none of a listener that is closed, and of a unix listener no
// lane that no generation accepts from while there is another one.
func (l *listener) listen() error {
	var errs []error
	for _, ln := range l.lanes {
		silent := l.closed
		if ln.r.at.isUnix() && len(l.lanes) > 1 {
			silent = !ln.held() || l.closed && ln.reachable()
		}
		for _, s := range ln.slots {
			if s.silent == silent {
				continue
			}
			if err := s.setSilent(ln.r, silent); err != nil {
				errs = append(errs, refused(ln.r, err))
			} else if !silent && l.steered == "" {
				_ = l.steer() // as soon as there is a group, and before others join it
			}
		}
	}
	return errors.Join(errs...)
}

func (s *sock) setSilent(r Resolved, silent bool) error {
	switch {
	case !silent:
		return s.speak(r)
	case r.at.isTCP():
		return s.hush(r)
	case r.at.onDisk():
		return s.replaceSilent(r)
	}
	return nil
}

// hush ends listening, and keeps the address. A port is held against others only by a socket that listens or does not have
// SO_REUSEADDR.
func (s *sock) hush(r Resolved) error {
	at, err := unix.Getsockname(s.fd)
	if err != nil {
		return err
	}
	if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 0); err != nil {
		return err
	}
	if err := unix.Shutdown(s.fd, unix.SHUT_RD); err != nil {
		return err
	}
	s.silent = true
	if r.at.port == 0 {
		return s.rebind(at)
	}
	return nil
}

// rebind takes a port back that the kernel takes away at the end of listening, because it was not asked for by its number. The
// kernel does so once; then EINVAL says that the socket is bound.
func (s *sock) rebind(at unix.Sockaddr) error {
	if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return err
	}
	if err := unix.Bind(s.fd, at); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 0)
}

// speak lets a silent socket listen. Connections of before that are in TIME_WAIT stand in the way without SO_REUSEADDR.
func (s *sock) speak(r Resolved) error {
	if r.at.isTCP() {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return err
		}
	}
	if err := unix.Listen(s.fd, r.backlog()); err != nil {
		return err
	}
	s.silent = false
	return nil
}

// replaceSilent puts a socket that does not listen in the place of one on disk: shutdown(2) would do for good what is wanted for a
// while.
func (s *sock) replaceSilent(r Resolved) error {
	if !s.reachable(r) {
		return nil
	}
	unlock, err := lockBeside(r.at.path)
	if err != nil {
		return err
	}
	defer unlock()
	fd, err := newSocket(r, r.at)
	if err != nil {
		return err
	}
	if err := unix.Unlink(r.at.path); err != nil {
		_ = unix.Close(fd)
		return err
	}
	fresh := &sock{fd: fd, silent: true}
	if err := fresh.bindPath(r); err != nil {
		fresh.discard(r)
		return err
	}
	_ = unix.Close(s.fd) // a worker that has it finds that nobody comes any more
	*s = *fresh
	return nil
}
