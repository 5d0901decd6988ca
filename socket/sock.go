package socket

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/epoll"
	"example.org/supervisord/internal/multicast"
	"example.org/supervisord/socket/holder"
	"example.org/supervisord/socket/inherit"
	"example.org/supervisord/socket/unixpath"
)

// sock is one open socket of a listener. The table owns its descriptor; workers, systemd's store and the next
// supervisord have duplicates, and share its options and flags with it.
//
//	offered ──adopt──┐                   ┌─► held by a generation ◄──┐ renew makes it as new first
//	                 ├─► member, free ───┤                           │
//	open ────fresh───┘        ▲          └─► shared by all of them   │
//	                          └──────────────── Release ─────────────┘
//
// A member of a steered listener is closed only with the listener: closing one moves another to its place in the
// kernel's group, and resets what waits in it.
type sock struct {
	fd      int
	number  int            // among the members of its listener, unique and unchanged as long as it is open
	tag     int            // that its TCP connections have: see tagSockets
	place   unixpath.Place // where clients find a unix socket that was bound to a path; zero: no path
	wide    bool           // of IPv6, at an IPv4 address: see Widen
	foreign bool           // from a systemd socket unit: its path is not ours to remove
	stray   bool           // a process that is not one of our workers accepts from it
	id      uint64         // of the socket, whichever descriptor of it one has
	watched *epoll.Source  // see Table.Watch; nil: nobody watches it
	armed   bool           // the next shutdown(2) is told
	unwatch func()
	over    bool // a process has shut it down for good, and Over has said so
	deaf    bool // it may be: see hear
	vacancy *vacancy
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
	if at.port == 0 && (at.isTCP() || at.isUDP() && how.shared) {
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
// has chosen itself. To a UDP socket with SO_REUSEPORT the kernel may give the port of any group of the same user.
func choosePort(r Resolved, at *bindAddr) (int, error) {
	fd, err := newSocket(r, *at)
	if err != nil {
		return -1, err
	}
	bound := netip.AddrPort{}
	if err = setFixed(fd, r, *at, at.isTCP()); err == nil {
		bound, err = bindTo(fd, netip.AddrPortFrom(at.ip, 0))
	}
	if err == nil && at.isUDP() {
		err = (&sock{fd: fd}).setReusePort(true) // so that the one that asks for the port gets it
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	at.port = bound.Port()
	return fd, nil
}

// bindTo binds a socket, and returns where it is bound: with the port that the kernel has chosen.
func bindTo(fd int, at netip.AddrPort) (bound netip.AddrPort, err error) {
	to, err := sockaddr(at)
	if err == nil {
		err = unix.Bind(fd, to)
	}
	var name unix.Sockaddr
	if err == nil {
		name, err = unix.Getsockname(fd)
	}
	bound, _ = inherit.AddrPort(name)
	return bound, err
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
		if !o.early || o.value(r) == o.unset {
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
	return sockaddr(netip.AddrPortFrom(a.ip, a.port))
}

// sockaddr is an address as system calls take it. The name of its zone is looked up.
func sockaddr(at netip.AddrPort) (unix.Sockaddr, error) {
	if at.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}, nil
	}
	to := &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	if zone := at.Addr().Zone(); zone != "" {
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

// reachable reports whether clients reach the socket, or will when its path is put back. A unix or UDP socket that was
// shut down is not reachable, except an abstract one, because no other can have its name.
func (s *sock) reachable() bool {
	if s.hasPath() {
		return s.place.Reachable() && !s.isOver()
	}
	return !s.isDatagram() || !s.isOver()
}

// isOver reports whether a process has called shutdown(2) on a unix or UDP socket, which is final. A unix socket
// accepts nothing any more, although the kernel still says that it listens. A UDP socket returns from recv(2) at once.
func (s *sock) isOver() bool {
	fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1 && fds[0].Revents&(unix.POLLRDHUP|unix.POLLHUP) != 0 && (s.accepts() || s.isDatagram())
}

func (s *sock) isDatagram() bool {
	kind, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_TYPE)
	return err == nil && kind == unix.SOCK_DGRAM
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

// tunable is an option that can be changed on a live socket: connections that wait in it, and its processes, notice
// nothing. What is fixed when a socket is bound is in setFixed: a change of it is a ChangeError. SO_REUSEPORT is
// neither: shareAddress.
type tunable struct {
	name  string
	early bool // set before bind
	fits  func(bindAddr) bool
	value func(Resolved) any // comparable
	unset any                // the value of a listener that does not ask for the option
	set   func(*sock, Resolved) error
}

var tunables = []tunable{
	{"defer_accept", true, bindAddr.isTCP, func(r Resolved) any { return seconds(r.DeferAccept) }, 0, setDeferAccept},
	{"fast_open", true, bindAddr.isTCP, func(r Resolved) any { return r.FastOpen }, 0, setFastOpen},
	{"keep_alive", true, bindAddr.isTCP, func(r Resolved) any { return seconds(r.KeepAlive) }, 0, setKeepAlive},
	{"backlog", false, func(at bindAddr) bool { return !at.isUDP() }, func(r Resolved) any { return r.Backlog }, 0,
		setBacklog},
	{"mode, user and group", false, bindAddr.onDisk, func(r Resolved) any { return [3]int{int(r.Mode), r.uid, r.gid} },
		[3]int{0, -1, -1}, setAccess},
}

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
// socket stays silent.
func setBacklog(s *sock, r Resolved) error {
	if s.silent(r.at) {
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
		if o.value(from) == o.value(to) {
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
		if at.isUDP() && !l.serves(m) {
			m.empty()
		}
		if err := m.renew(r, at, l.sharesAddress()); err != nil {
			return err
		}
	}
	l.mark()
	return nil
}

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
		multicast.Leave(m.fd)
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

// empty drops the datagrams that wait: nobody steers others there, and these were for a generation that is gone.
func (m *sock) empty() {
	var none [1]byte
	for {
		if _, _, err := unix.Recvfrom(m.fd, none[:], unix.MSG_DONTWAIT); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// notOfUnits are options that systemd.socket(5) does not know.
var notOfUnits = [...]int{unix.SO_LINGER, unix.SO_RCVTIMEO, unix.SO_SNDTIMEO}

// level is a range of options of a socket: all that Linux 6.18 knows.
type level struct{ level, last int }

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
		return append(all, level{unix.SOL_TCP, 45})
	}
	return append(all, level{unix.SOL_UDP, unix.UDP_GRO})
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
		if !known || len(want) == len(a) {
			continue
		}
		have, is := rawOption(fd, level, o, &b)
		if !is || bytes.Equal(want, have) {
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

// refused says that r could not be opened, why, and what to do. It wraps the kernel's error (unix.EADDRINUSE, …).
func refused(r Resolved, err error) error {
	if err == nil {
		return nil
	}
	at := r.at.String()
	if r.Interface != "" {
		at += " on " + r.Interface
	}
	return fmt.Errorf("cannot listen on %s: %w", at, advise(r, err))
}

// advise adds the remedy to an error that has none.
func advise(r Resolved, err error) error {
	if r.at.onDisk() {
		err = unixpath.Advise(err, r.at.path, r.uid >= 0 || r.gid >= 0)
	}
	if _, ok := errors.AsType[*unixpath.Remedied](err); ok {
		return err
	}
	remedy := ""
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		remedy = inUse(r.at)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		remedy = forbidden(r)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		remedy = "this machine does not have the address: `ip address` lists what it has"
	case errors.Is(err, unix.ENODEV):
		remedy = "there is no such interface: `ip link` lists them"
	case errors.Is(err, unix.EAFNOSUPPORT):
		remedy = "this kernel has IPv6 switched off: use an IPv4 address"
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		remedy = "raise LimitNOFILE= of the unit, or `ulimit -n`"
	}
	if remedy == "" {
		return err
	}
	return &unixpath.Remedied{Err: err, Remedy: remedy}
}

func forbidden(r Resolved) string {
	switch {
	case r.Interface != "" && (r.at.port == 0 || r.at.port >= 1024):
		return "binding to an interface needs CAP_NET_RAW"
	case !r.at.isUnix():
		return "a port this low needs root or CAP_NET_BIND_SERVICE " +
			"(or a lower net.ipv4.ip_unprivileged_port_start, or a systemd socket unit)"
	}
	return "the supervisor's user may not do this"
}

// inUse says which process has the address, as far as this user may know.
func inUse(at bindAddr) string {
	if at.isUnix() {
		return "another process has it: `ss -xlp` shows which"
	}
	return holder.InUse(at.network, netip.AddrPortFrom(at.ip, at.port))
}
