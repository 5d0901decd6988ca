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
)

// sock is one open socket of a listener.
type sock struct {
	fd      int
	file    identity // unix, on disk: the inode that was bound; zero otherwise
	foreign bool     // from a systemd socket unit: its path is not ours to remove
	silent  bool     // it is bound and does not listen, or not any more
}

// opening is how a socket is opened.
type opening struct {
	shared bool // with SO_REUSEPORT, beside others of ours at the address
	deaf   bool // it gets nothing until hears
	silent bool // it is bound and does not listen: speak does that
}

// open opens a new socket for r. at is r's address, but with the port that the kernel chose where that is known already.
func open(r Resolved, at bindAddr, how opening) (*sock, error) {
	if r.at.onDisk() {
		s, err := openPath(r, how)
		return s, refused(r, err)
	}
	fd, err := openBound(r, at, how)
	if err != nil && at.dual && at.ip.IsUnspecified() && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL)) {
		at.ip, at.dual = netip.IPv4Unspecified(), false // IPv6 is switched off here
		fd, err = openBound(r, at, how)
	}
	if err != nil {
		return nil, refused(r, err)
	}
	return &sock{fd: fd, silent: how.silent && !at.isUDP()}, nil
}

func openBound(r Resolved, at bindAddr, how opening) (int, error) {
	fd, err := newSocket(r, at)
	if err != nil {
		return -1, err
	}
	if err := bind(fd, r, at, how); err != nil {
		_ = unix.Close(fd) // never used; the first error is the one to report
		return -1, err
	}
	return fd, nil
}

func newSocket(r Resolved, at bindAddr) (int, error) {
	kind, protocol, family := unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP, unix.AF_INET6
	switch at.network {
	case "unix":
		protocol, family = 0, unix.AF_UNIX
	case "udp":
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
	if err := setIdentity(fd, r, at, r.groups() || how.shared); err != nil {
		return err
	}
	if how.deaf {
		if err := dropAll(fd); err != nil {
			return err
		}
	}
	for _, o := range tunables {
		if !o.early || o.off(r) {
			continue
		}
		if err := o.set(&sock{fd: fd}, r); err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
	}
	to, err := at.sockaddr()
	if err != nil {
		return err
	}
	if err := unix.Bind(fd, to); err != nil || at.isUDP() || how.silent {
		return err
	}
	return setBacklog(&sock{fd: fd}, r)
}

// setIdentity sets what cannot be changed later.
func setIdentity(fd int, r Resolved, at bindAddr, shared bool) error {
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

// vacant finds out whether anybody has the address, which a socket with SO_REUSEPORT would not be told when it is another
// process of the same user: half of the connections would go there.
func vacant(r Resolved) error {
	if r.at.port == 0 {
		return nil
	}
	fd, err := newSocket(r, r.at)
	if err != nil {
		return nil // opening it will say so better
	}
	defer func() { _ = unix.Close(fd) }()
	if err := setIdentity(fd, r, r.at, false); err != nil {
		return nil
	}
	to, err := r.at.sockaddr()
	if err != nil {
		return nil
	}
	if err := unix.Bind(fd, to); errors.Is(err, unix.EADDRINUSE) {
		return refused(r, err)
	}
	return nil
}

// fullBacklog is the kernel's limit, which /proc hides from a unit with ProcSubset=pid; then it is the kernel's default.
func fullBacklog() int {
	text, err := os.ReadFile("/proc/sys/net/core/somaxconn")
	if err != nil {
		return 4096
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || n <= 0 {
		return 4096
	}
	return n
}

// seconds rounds up, as the kernel counts whole ones.
func seconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }
