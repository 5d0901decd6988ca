package bind

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
)

// caller is the thread that calls, as far as it was looked at. What the worker can change meanwhile gives it nothing
// but a socket of its own listeners, see docs/security.md.
type caller struct {
	arguments
	tid int
	// a duplicate of its socket; -1: this process may not have one (pidfd_getfd(2), Linux 5.6, and not under Docker)
	socket        int
	inode         uint64 // of the socket
	options       optionValues
	device        string // the interface that it is bound to; "": none
	registrations []registration
	listener      *Offer // that it means; nil: none
	family        int    // of the address that it binds
	to            Claim
	flags         int // of the open file description, and O_CLOEXEC of the descriptor
}

// errMemory says that the memory of a caller, and what else is its own in /proc, cannot be read.
var errMemory = errors.New("its memory cannot be read")

// errDelayed says that a caller made the look at it slow.
var errDelayed = errors.New("it delays the look at its memory, its sockets or its epoll sets")

// arguments are those of a call: bind(number, address, size) or listen(number, backlog).
type arguments struct {
	operation operation
	number    int
	address   uint64
	size      uint64 // or the backlog
}

// arguments of socketcall(2) are in memory, three numbers of 32 bits.
func (n *notification) arguments() (arguments, error) {
	a := arguments{operationOf(n.arch, n.number), int(int32(n.args[0])), n.args[1], uint64(uint32(n.args[2]))}
	if a.operation == listenCall {
		a.size = n.args[1]
	}
	if a.operation != socketCall {
		return a, nil
	}
	raw, err := proc.ReadMemory(int(n.tid), n.args[1]&0xffffffff, 12)
	if err != nil {
		return arguments{}, forbidden(err)
	}
	word := func(i int) uint64 { return uint64(binary.NativeEndian.Uint32(raw[4*i:])) }
	a = arguments{bindCall, int(int32(word(0))), word(1), word(2)}
	if n.args[0] == socketcallListen {
		a.operation, a.size = listenCall, word(1)
	}
	return a, nil
}

// forbidden marks what the kernel does not let this process see: all else is a pointer to nowhere, or a thread that has
// ended.
func forbidden(err error) error {
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: %w", errMemory, err)
	}
	return err
}

// look finds out what the caller asks for. The result must be closed, also after an error.
func (n *notification) look(listeners []Offer) (c *caller, err error) {
	c = &caller{tid: int(n.tid), socket: -1}
	proc.AsOwner(c.tid, func() { err = c.look(n, listeners) })
	return c, err
}

func (c *caller) look(n *notification, listeners []Offer) (err error) {
	if c.arguments, err = n.arguments(); err != nil {
		return err
	}
	if c.inode, err = inodeOf(c.tid, c.number); err != nil || c.operation != bindCall {
		return err
	}
	if c.size > maxAddress {
		return unix.EINVAL
	}
	raw, err := proc.ReadMemory(c.tid, c.address, int(c.size))
	if err != nil {
		return forbidden(err)
	}
	var ok bool
	if c.to, c.family, ok = parse(raw); !ok {
		return unix.EAFNOSUPPORT
	}
	return c.lookAtSocket(listeners)
}

// lookAtSocket finds the listener that is meant, and then completes what is known of the socket.
func (c *caller) lookAtSocket(listeners []Offer) (err error) {
	c.socket = duplicate(c.tid, c.number)
	if c.to.Network = c.networkOf(); c.to.Network == "unix" {
		directory, _ := proc.Readlink(c.tid, "cwd") //nolint:errcheck // then a relative path fits nothing
		c.to = c.to.resolve(directory)
	}
	l := find(listeners, c.to)
	if l == nil || c.to.Network != "unix" && !c.isHere() {
		return nil
	}
	c.listener = l
	if c.socket >= 0 {
		c.options, c.device = changedOf(c.socket), deviceOf(c.socket)
	}
	c.registrations = registrations(c.tid, c.number)
	c.flags, err = flagsOf(c.tid, c.number)
	return err
}

// close closes the duplicates, which may be the last of their files by now. It runs on the thread of the look.
func (c *caller) close() {
	if c.socket >= 0 {
		unix.Close(c.socket)
	}
	for _, r := range c.registrations {
		if r.set >= 0 {
			unix.Close(r.set)
		}
	}
}

// flagsOf reads the flags of a descriptor, with O_CLOEXEC.
func flagsOf(tid, number int) (int, error) {
	info, err := proc.DescriptorInfo(tid, number)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(info["flags"], 8, 64)
	return int(n), err
}

// inodeOf reads the link of a descriptor, and never looks at the file itself: it may be on a file system that hangs.
func inodeOf(tid, number int) (uint64, error) {
	link, err := proc.Readlink(tid, "fd/"+strconv.Itoa(number))
	if err != nil {
		return 0, forbidden(err)
	}
	inode, is := proc.SocketInode(link)
	if !is {
		return 0, unix.ENOTSOCK
	}
	return inode, nil
}

// duplicate takes a descriptor of a thread's process, or returns -1. Before PIDFD_THREAD (Linux 6.9) the process is
// asked.
func duplicate(tid, number int) int {
	pidfd, err := unix.PidfdOpen(tid, unix.PIDFD_THREAD)
	if err != nil {
		status, _ := proc.Status(tid) //nolint:errcheck // then there is no such process
		leader, _ := strconv.Atoi(status["Tgid"])
		if pidfd, err = unix.PidfdOpen(leader, 0); err != nil {
			return -1
		}
	}
	defer unix.Close(pidfd)
	fd, err := unix.PidfdGetfd(pidfd, number, 0)
	if err != nil {
		return -1
	}
	return fd
}

// networkOf asks the socket, or else only the name of its protocol, which needs no descriptor.
func (c *caller) networkOf() string {
	if c.socket < 0 {
		name := make([]byte, 32)
		n, err := unix.Getxattr(proc.Path(c.tid, "fd/"+strconv.Itoa(c.number)), "system.sockprotoname", name)
		if err != nil {
			return ""
		}
		return networks[strings.TrimRight(string(name[:n]), "\x00")]
	}
	domain, kind, protocol := kindOf(c.socket)
	internet := domain == unix.AF_INET || domain == unix.AF_INET6
	switch {
	case domain == unix.AF_UNIX && kind == unix.SOCK_STREAM:
		return "unix"
	case internet && (protocol == unix.IPPROTO_TCP || protocol == unix.IPPROTO_MPTCP):
		return "tcp"
	case internet && protocol == unix.IPPROTO_UDP:
		return "udp"
	}
	return ""
}

// kindOf returns the arguments of socket(2) with which a socket was made; 0 for each that the kernel does not
// tell.
func kindOf(socket int) (domain, kind, protocol int) {
	var kinds [3]int
	for i, name := range [...]int{unix.SO_DOMAIN, unix.SO_TYPE, unix.SO_PROTOCOL} {
		kinds[i], _ = unix.GetsockoptInt(socket, unix.SOL_SOCKET, name) //nolint:errcheck // 0
	}
	return kinds[0], kinds[1], kinds[2]
}

// networks are the kernel's names of protocols.
var networks = map[string]string{
	"TCP": "tcp", "TCPv6": "tcp", "MPTCP": "tcp", "MPTCPv6": "tcp", "UDP": "udp", "UDPv6": "udp", "UNIX-STREAM": "unix",
}

// ownCookie is that of this process's network namespace (SO_NETNS_COOKIE, Linux 5.14); 0: unknown.
var ownCookie = sync.OnceValue(func() uint64 {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	cookie, _ := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE) //nolint:errcheck // 0: an older kernel
	return cookie
})

// isHere reports whether the socket is one of this network namespace: a container below the worker has ports of its
// own.
func (c *caller) isHere() bool {
	if c.socket >= 0 && ownCookie() != 0 {
		cookie, err := unix.GetsockoptUint64(c.socket, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		return err == nil && cookie == ownCookie()
	}
	mine, err := os.Readlink("/proc/thread-self/ns/net")
	theirs, also := proc.Readlink(c.tid, "ns/net")
	return err == nil && also == nil && mine == theirs
}

// String names the caller for messages: "process 4711 (node)".
func (c *caller) String() string {
	status, err := proc.Status(c.tid)
	if err != nil {
		return fmt.Sprintf("process %d", c.tid)
	}
	return fmt.Sprintf("process %s (%s)", status["Tgid"], status["Name"])
}

// option is one that a program may set before it binds. It would be lost with the socket that the lane replaces;
// accepted connections inherit it.
type option struct{ level, name int }

// options are those of socket(7), ip(7), ipv6(7), tcp(7) and udp(7), by level.
var options = map[int][]int{
	unix.SOL_SOCKET: {
		unix.SO_KEEPALIVE, unix.SO_PRIORITY, unix.SO_RCVLOWAT, unix.SO_MARK, unix.SO_TIMESTAMP, unix.SO_PASSCRED,
		unix.SO_BUSY_POLL, unix.SO_BROADCAST, unix.SO_RXQ_OVFL, unix.SO_RCVBUF, unix.SO_SNDBUF, unix.SO_RCVTIMEO,
		unix.SO_SNDTIMEO, unix.SO_LINGER, unix.SO_TIMESTAMPNS, unix.SO_TIMESTAMPING,
	},
	unix.IPPROTO_IP: {
		unix.IP_TOS, unix.IP_TTL, unix.IP_PKTINFO, unix.IP_RECVERR, unix.IP_RECVTOS, unix.IP_RECVTTL,
		unix.IP_RECVORIGDSTADDR, unix.IP_MTU_DISCOVER, unix.IP_FREEBIND, unix.IP_TRANSPARENT, unix.IP_MULTICAST_TTL,
		unix.IP_MULTICAST_LOOP, unix.IP_MULTICAST_ALL,
	},
	unix.IPPROTO_IPV6: {
		unix.IPV6_TRANSPARENT, unix.IPV6_FREEBIND, unix.IPV6_RECVPKTINFO, unix.IPV6_TCLASS, unix.IPV6_RECVTCLASS,
		unix.IPV6_RECVERR, unix.IPV6_UNICAST_HOPS, unix.IPV6_MULTICAST_HOPS, unix.IPV6_MULTICAST_LOOP,
		unix.IPV6_MULTICAST_IF, unix.IPV6_MULTICAST_ALL,
	},
	unix.IPPROTO_TCP: {
		unix.TCP_NODELAY, unix.TCP_DEFER_ACCEPT, unix.TCP_KEEPIDLE, unix.TCP_KEEPINTVL, unix.TCP_KEEPCNT,
		unix.TCP_USER_TIMEOUT, unix.TCP_FASTOPEN, unix.TCP_SYNCNT, unix.TCP_NOTSENT_LOWAT, unix.TCP_LINGER2,
		unix.TCP_CONGESTION,
	},
	unix.IPPROTO_UDP: {unix.UDP_GRO, unix.UDP_SEGMENT},
}

// optionValues are the values of options, as the kernel has them in memory.
type optionValues map[option]string

// deviceOf returns the interface that a socket is bound to, SO_BINDTODEVICE in socket(7); "": none.
func deviceOf(socket int) string {
	name, _ := unix.GetsockoptString(socket, unix.SOL_SOCKET, unix.SO_BINDTODEVICE) //nolint:errcheck // ""
	return name
}

// settingsOf reads the options of a socket.
func settingsOf(socket int) optionValues {
	s := optionValues{}
	for level, names := range options {
		for _, name := range names {
			o := option{level, name}
			if value := o.has(socket); value != "" {
				s[o] = value
			}
		}
	}
	return s
}

// has returns the value of the option that a socket has; "": the kernel does not know the option there.
func (o option) has(socket int) string {
	var buf [64]byte
	size := uint32(len(buf))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(socket), uintptr(o.level), uintptr(o.name),
		uintptr(unsafe.Pointer(&buf)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return ""
	}
	return string(buf[:min(int(size), len(buf))])
}

// changedOf reads the options of a socket that are not what a new socket of its kind has: the others are the
// listener's, also where its configuration sets them.
func changedOf(socket int) optionValues {
	s := settingsOf(socket)
	domain, kind, protocol := kindOf(socket)
	fresh, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil
	}
	defer unix.Close(fresh)
	first := settingsOf(fresh)
	maps.DeleteFunc(s, func(o option, value string) bool { return first[o] == value })
	return s
}

// apply gives a socket what is set otherwise there. What the kernel refuses stays.
func (s optionValues) apply(to int) {
	for o, wanted := range s {
		if have := o.has(to); have == "" || have == wanted {
			continue
		}
		if o.level == unix.SOL_SOCKET && (o.name == unix.SO_RCVBUF || o.name == unix.SO_SNDBUF) {
			doubled := binary.NativeEndian.Uint32([]byte(wanted)) // socket(7)
			wanted = string(binary.NativeEndian.AppendUint32(nil, doubled/2))
		}
		_ = unix.SetsockoptString(to, o.level, o.name, wanted)
	}
}
