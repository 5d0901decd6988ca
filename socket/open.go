package socket

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/epoll"
	"example.org/supervisord/socket/inherit"
	"example.org/supervisord/socket/unixpath"
)

// sock is one open socket of a listener.
type sock struct {
	fd      int
	number  int            // among the members of its listener, unique and unchanged as long as it is open
	tag     int            // that its TCP connections have; see tag.go
	place   unixpath.Place // where clients find a unix socket that was bound to a path; zero: no path
	wide    bool           // of IPv6, at an IPv4 address: see Widen
	foreign bool           // from a systemd socket unit: its path is not ours to remove
	stray   bool           // a process that is not one of our workers accepts from it
	id      uint64         // of the socket, whichever descriptor of it one has
	watched *epoll.Source  // see Table.Watch; nil: nobody watches it
	armed   bool           // the next shutdown(2) is told
	unwatch func()
	over    bool // a process has shut it down for good, and Over has said so
	full    bool // nothing fits into its queue: see Pause
	deaf    bool // it may be: see hear
}

// opening is how a socket is opened.
type opening struct {
	shared bool // with SO_REUSEPORT, for others of ours at the address
	first  bool // there is none of ours yet
	silent bool // bound, but not listening until speak
}

// open opens a new socket for r. at is r's address, but with the port that the kernel chose where that is known
// already.
func open(r Resolved, at bindAddr, how opening) (*sock, error) {
	if at.onDisk() {
		s, err := openPath(r, how)
		return s, refused(r, err)
	}
	fd, err := openBound(r, at, how)
	if err != nil && at.dual && at.ip.IsUnspecified() &&
		(errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL)) {
		at.ip, at.dual = netip.IPv4Unspecified(), false // IPv6 is switched off here
		fd, err = openBound(r, at, how)
	}
	if err != nil {
		return nil, refused(r, err)
	}
	return &sock{fd: fd}, nil
}

func openBound(r Resolved, at bindAddr, how opening) (int, error) {
	if at.isTCP() && at.port == 0 {
		chosen, err := choosePort(r, &at)
		if err != nil {
			return -1, err
		}
		defer func() { _ = unix.Close(chosen) }()
	}
	fd, err := newSocket(r, at)
	if err != nil {
		return -1, err
	}
	if err := bind(fd, r, at, how); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// choosePort lets the kernel choose a port, and keeps it while the descriptor is open. A socket that is bound to
// the port as if somebody had asked for it has the port also after shutdown(2), when the kernel takes back what it
// has chosen itself.
func choosePort(r Resolved, at *bindAddr) (int, error) {
	fd, err := newSocket(r, *at)
	if err != nil {
		return -1, err
	}
	to, err := at.sockaddr()
	if err == nil {
		err = setFixed(fd, r, *at, true)
	}
	if err == nil {
		err = unix.Bind(fd, to)
	}
	var name unix.Sockaddr
	if err == nil {
		name, err = unix.Getsockname(fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	bound, _ := inherit.AddrPort(name)
	at.port = bound.Port()
	return fd, nil
}

func newSocket(r Resolved, at bindAddr) (int, error) {
	kind, protocol, family := unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP, unix.AF_INET6
	switch {
	case at.isUnix():
		protocol, family = 0, unix.AF_UNIX
	case at.isUDP():
		kind, protocol = unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP
	}
	if at.ip.Is4() {
		family = unix.AF_INET
	}
	if r.NonBlock {
		kind |= unix.SOCK_NONBLOCK
	}
	return unix.Socket(family, kind, protocol)
}

// bind gives the socket its options and its address, and lets it listen.
func bind(fd int, r Resolved, at bindAddr, how opening) error {
	if err := setFixed(fd, r, at, r.groups() || how.shared); err != nil {
		return err
	}
	if err := setTunables(fd, r); err != nil {
		return err
	}
	to, err := at.sockaddr()
	if err != nil {
		return err
	}
	if err := unix.Bind(fd, to); err != nil || at.isUDP() || how.silent {
		return err
	}
	return unix.Listen(fd, r.backlog())
}

// setTunables sets what a socket has before it is bound.
func setTunables(fd int, r Resolved) error {
	for _, o := range tunables {
		if !o.early || o.off(r) {
			continue
		}
		if err := o.set(&sock{fd: fd}, r); err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
	}
	return nil
}

// setFixed sets the options that are fixed once the socket is bound.
func setFixed(fd int, r Resolved, at bindAddr, shared bool) error {
	if at.isTCP() {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return err
		}
	}
	if shared {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
			return fmt.Errorf("reuse_port: %w", err)
		}
	}
	if !at.isUnix() && at.ip.Is6() {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, number(!at.dual)); err != nil {
			return fmt.Errorf("ipv6_only: %w", err)
		}
	}
	if r.Interface != "" {
		if err := unix.BindToDevice(fd, r.Interface); err != nil {
			return fmt.Errorf("interface %s: %w", r.Interface, err)
		}
	}
	return nil
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (a bindAddr) sockaddr() (unix.Sockaddr, error) {
	if a.isUnix() {
		return &unix.SockaddrUnix{Name: a.path}, nil
	}
	if a.ip.Is4() {
		return &unix.SockaddrInet4{Port: int(a.port), Addr: a.ip.As4()}, nil
	}
	to := &unix.SockaddrInet6{Port: int(a.port), Addr: a.ip.As16()}
	if zone := a.ip.Zone(); zone != "" {
		link, err := net.InterfaceByName(zone)
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w", zone, unix.ENODEV)
		}
		to.ZoneId = uint32(link.Index)
	}
	return to, nil
}

// vacant returns an error if another process has the address. A socket with SO_REUSEPORT would not get one if that
// process belongs to the same user, and half of the connections would go there.
func vacant(r Resolved) error {
	if r.at.port == 0 {
		return nil
	}
	fd, err := newSocket(r, r.at)
	if err != nil {
		return nil // opening it will report this
	}
	defer func() { _ = unix.Close(fd) }()
	to, err := r.at.sockaddr()
	if err != nil || setFixed(fd, r, r.at, false) != nil {
		return nil // likewise
	}
	if err := unix.Bind(fd, to); errors.Is(err, unix.EADDRINUSE) {
		return refused(r, err)
	}
	return nil
}

// openPath opens a unix socket with a path. Clients cannot connect before its owner and mode are right, because it
// does not listen until then.
func openPath(r Resolved, how opening) (*sock, error) {
	release, err := unixpath.Claim(r.at.path)
	if err != nil {
		return nil, err
	}
	defer release()
	fd, err := newSocket(r, r.at)
	if err != nil {
		return nil, err
	}
	s := &sock{fd: fd}
	err = s.bindPath(r)
	if err == nil && !how.silent {
		err = unix.Listen(fd, r.backlog())
	}
	if err != nil {
		s.discard()
		return nil, err
	}
	return s, nil
}

func (s *sock) bindPath(r Resolved) error {
	inode, err := unixpath.Bind(s.fd, r.at.path, r.Mode, r.uid, r.gid)
	if inode != (unixpath.Inode{}) {
		s.place = unixpath.Place{Path: r.at.path, Inode: inode}
	}
	if err == nil {
		s.place.Keep()
		err = s.place.Note()
	}
	return err
}

// hasPath reports whether the socket was bound to a path.
func (s *sock) hasPath() bool { return s.place.Path != "" }

// reachable reports whether clients find the socket, or will when its path is put back, and nobody has shut it down.
func (s *sock) reachable() bool { return !s.hasPath() || s.place.Reachable() && !s.isOver() }

// isOver reports whether somebody has called shutdown(2) on a unix socket, which is final: it accepts nothing any
// more, and the kernel still says that it listens.
func (s *sock) isOver() bool {
	fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1 && fds[0].Revents&(unix.POLLRDHUP|unix.POLLHUP) != 0 && s.accepts()
}

// accepts reports whether listen(2) was called, and for TCP whether nobody has called shutdown(2) since.
func (s *sock) accepts() bool {
	on, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	return err == nil && on != 0
}

// discard closes the socket, and removes its path if that is ours and still leads to it.
func (s *sock) discard() {
	if s.unwatch != nil {
		s.unwatch()
	}
	if s.hasPath() && !s.foreign {
		s.place.Remove() // first: as long as the socket listens, no other supervisor takes the path for stale
	}
	_ = unix.Close(s.fd)
}

// fullBacklog is the kernel's limit, or its default where a unit with ProcSubset=pid hides the limit.
func fullBacklog() int {
	text, _ := os.ReadFile("/proc/sys/net/core/somaxconn")
	if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && n > 0 {
		return n
	}
	return 4096
}

// seconds rounds up, as the kernel counts whole ones.
func seconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }
