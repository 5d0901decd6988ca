package socket

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// tunable is an option that can be changed on a live socket.
type tunable struct {
	name   string
	early  bool // set before bind
	fits   func(bindAddr) bool
	off    func(Resolved) bool
	differ func(a, b Resolved) bool
	set    func(*sock, Resolved) error
}

var tunables = []tunable{
	{
		name: "defer_accept", early: true, fits: isTCP,
		off:    func(r Resolved) bool { return r.DeferAccept == 0 },
		differ: func(a, b Resolved) bool { return seconds(a.DeferAccept) != seconds(b.DeferAccept) },
		set:    setDeferAccept,
	},
	{
		name: "fast_open", early: true, fits: isTCP,
		off:    func(r Resolved) bool { return r.FastOpen == 0 },
		differ: func(a, b Resolved) bool { return a.FastOpen != b.FastOpen },
		set:    setFastOpen,
	},
	{
		name: "keep_alive", early: true, fits: isTCP,
		off:    func(r Resolved) bool { return r.KeepAlive == 0 },
		differ: func(a, b Resolved) bool { return seconds(a.KeepAlive) != seconds(b.KeepAlive) },
		set:    setKeepAlive,
	},
	{
		name:   "backlog",
		fits:   func(at bindAddr) bool { return !at.isUDP() },
		off:    func(r Resolved) bool { return r.Backlog == 0 },
		differ: func(a, b Resolved) bool { return a.Backlog != b.Backlog },
		set:    setBacklog,
	},
	{
		name:   "mode, user and group",
		fits:   bindAddr.onDisk,
		off:    func(r Resolved) bool { return r.Mode == 0 && r.uid < 0 && r.gid < 0 },
		differ: func(a, b Resolved) bool { return a.Mode != b.Mode || a.uid != b.uid || a.gid != b.gid },
		set:    setAccess,
	},
}

func isTCP(at bindAddr) bool { return at.isTCP() }

func setDeferAccept(s *sock, r Resolved) error {
	return unix.SetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, seconds(r.DeferAccept))
}

func setFastOpen(s *sock, r Resolved) error {
	return unix.SetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_FASTOPEN, r.FastOpen)
}

// setKeepAlive sets what accepted connections inherit, tcp(7).
func setKeepAlive(s *sock, r Resolved) error {
	if r.KeepAlive == 0 {
		return unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 0)
	}
	for _, option := range []int{unix.TCP_KEEPIDLE, unix.TCP_KEEPINTVL} {
		if err := unix.SetsockoptInt(s.fd, unix.IPPROTO_TCP, option, seconds(r.KeepAlive)); err != nil {
			return err
		}
	}
	return unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
}

// setBacklog lets the socket listen, or changes the length of its queue: listen(2) may be called again. A silent
// socket stays silent, and one that is full on purpose stays full.
func setBacklog(s *sock, r Resolved) error {
	if s.silent(r.at) || s.full {
		return nil
	}
	return unix.Listen(s.fd, r.backlog())
}

// setAccess gives the inode of a unix socket its owner and mode. The socket of a systemd socket unit keeps those of
// the unit.
func setAccess(s *sock, r Resolved) error {
	if s.foreign {
		return nil
	}
	if err := s.place.SetAccess(r.Mode, r.uid, r.gid); err != nil {
		return err
	}
	return s.place.Note()
}

// backlog is the length of the queue.
func (r Resolved) backlog() int {
	if r.Backlog == 0 {
		return fullBacklog()
	}
	return r.Backlog
}

// retune changes the socket from one set of options to another. On error some may have changed: retune back then.
func (s *sock) retune(from, to Resolved) error {
	for _, o := range tunables {
		if !o.differ(from, to) {
			continue
		}
		if err := o.set(s, to); err != nil {
			return fmt.Errorf("cannot change %s of %s: %w", o.name, to.at, advise(to, err))
		}
	}
	return nil
}
