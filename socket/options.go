package socket

import (
	"bytes"
	"fmt"
	"unsafe"

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

// Everything that a worker sets on its listening socket, and on the open file description, is also that of the next
// generation that gets the socket: SO_LINGER, a backlog of 1, O_ASYNC. So a socket is made as new before a
// generation gets it. What new means, a new socket tells.

// renew makes sockets what open would make of them, whatever the processes did that had them: only where they are
// bound, and the connections that wait in them, stay. No worker may accept from them now. Of the socket of a socket
// unit, renew changes only what a unit cannot set.
func (l *listener) renew(sockets []*sock, r Resolved) error {
	at := l.addressFor(r)
	for _, m := range sockets {
		if m.stray {
			continue // a process that is not one of our workers accepts from it
		}
		if m.deaf {
			if err := m.setDeaf(false, at); err != nil {
				return err
			}
		}
		if err := m.renew(r, at, l.sharesAddress()); err != nil {
			return err
		}
	}
	return nil
}

// renew copies from a new socket what can be read and set; the tunables are set as open sets them.
func (m *sock) renew(r Resolved, at bindAddr, shared bool) error {
	fresh, err := newSocket(r, at)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fresh) }()
	if err := m.copyFlags(fresh); err != nil || m.foreign {
		copyOptions(fresh, m.fd, unix.SOL_SOCKET, notOfUnits[:])
		return err
	}
	if err := setFixed(fresh, r, at, shared); err != nil {
		return err
	}
	if err := setTunables(fresh, r); err != nil {
		return err
	}
	for _, l := range levels(at) {
		copyOptions(fresh, m.fd, l.level, l.options())
	}
	_ = unix.SetsockoptInt(m.fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0) // ENOENT: it has none
	if at.isUDP() {
		return nil
	}
	return setBacklog(m, r)
}

// copyFlags gives the open file description the flags of a new one (O_NONBLOCK, O_ASYNC), and no owner.
func (m *sock) copyFlags(fresh int) error {
	flags, err := unix.FcntlInt(uintptr(fresh), unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(m.fd), unix.F_SETFL, flags)
	}
	for _, owner := range []int{unix.F_SETOWN, unix.F_SETSIG} {
		if err == nil {
			_, err = unix.FcntlInt(uintptr(m.fd), owner, 0)
		}
	}
	if err != nil {
		return fmt.Errorf("cannot set the flags of a socket: %w", err)
	}
	return nil
}

// notOfUnits are options that systemd.socket(5) does not know.
var notOfUnits = [...]int{unix.SO_LINGER, unix.SO_RCVTIMEO, unix.SO_SNDTIMEO}

// level is a range of options of a socket: all that Linux 6.18 knows.
type level struct{ level, last int }

// levels lists what a socket of this kind has options of. IPv4 options are also those of an IPv6 socket.
func levels(at bindAddr) []level {
	all := []level{{unix.SOL_SOCKET, 84}}
	if at.isUnix() {
		return all
	}
	all = append(all, level{unix.SOL_IP, 51})
	if at.ip.Is6() {
		all = append(all, level{unix.SOL_IPV6, 80})
	}
	if at.isTCP() {
		all = append(all, level{unix.SOL_TCP, 45})
	}
	return all
}

// options lists the options of a level whose value can be read and set as it was read.
func (l level) options() (list []int) {
	for o := 1; o <= l.last; o++ {
		switch {
		case l.level == unix.SOL_SOCKET && (o == unix.SO_ERROR || o == unix.SO_ATTACH_FILTER ||
			o == unix.SO_BINDTODEVICE || o == unix.SO_PEERPIDFD):
			// They do something, or the interface's number says the same.
		case l.level == unix.SOL_TCP && (o == unix.TCP_INFO || o == unix.TCP_CC_INFO || o == unix.TCP_ZEROCOPY_RECEIVE ||
			o == unix.TCP_TIMESTAMP):
			// They are no settings.
		default:
			list = append(list, o)
		}
	}
	return list
}

// copyOptions sets those options that have another value than those of a new socket. What cannot be read, or not be
// set, is no setting.
func copyOptions(fresh, fd, level int, options []int) {
	for _, o := range options {
		var a, b [64]byte
		want, known := rawOption(fresh, level, o, &a)
		have, is := rawOption(fd, level, o, &b)
		if !known || !is || len(want) == len(a) || bytes.Equal(want, have) {
			continue
		}
		switch {
		case level == unix.SOL_SOCKET && (o == unix.SO_RCVBUF || o == unix.SO_SNDBUF) && len(want) == 4:
			half := *(*int32)(unsafe.Pointer(&a)) / 2 // the kernel doubles what it is given
			_ = unix.SetsockoptInt(fd, level, o, int(half))
		case level == unix.SOL_TCP && o == unix.TCP_MAXSEG:
			_ = unix.SetsockoptInt(fd, level, o, 0) // what is read is not what was set
		case level == unix.SOL_TCP && o == unix.TCP_WINDOW_CLAMP:
			_ = unix.SetsockoptInt(fd, level, o, widest) // 0, none, cannot be set any more
		default:
			_, _, _ = unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(o), uintptr(unsafe.Pointer(&a)),
				uintptr(len(want)), 0)
		}
	}
}

// widest is what the kernel takes for the window if none is set: 65535 scaled by 14.
const widest = 65535 << 14

// rawOption reads an option as it is.
func rawOption(fd, level, option int, buf *[64]byte) (value []byte, known bool) {
	size := uint32(len(buf))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(buf)), uintptr(unsafe.Pointer(&size)), 0)
	return buf[:min(size, uint32(len(buf)))], errno == 0
}
