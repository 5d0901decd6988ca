package socket

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// steer keeps new connections in the serving lane, and there in the active sockets; the others of the group get none. Without a program
// the kernel spreads them over all sockets, which is right when all are active.
//
// The kernel numbers the sockets of a group in the order in which they began to listen. Only the last ones of a lane ever leave it, and
// a lane has one socket while there is another lane, so a socket's number is its slot, or the position of its lane.
func (l *listener) steer() error {
	program, name := l.program()
	if name == l.steered || l.lanes[0].slots[0].silent {
		return nil // a socket that has a program cannot listen again
	}
	fd := l.lanes[0].slots[0].fd
	if program != nil {
		if err := attach(fd, program); err != nil {
			return err
		}
	} else if err := detach(fd); err != nil {
		return err
	}
	l.steered = name
	return nil
}

// program returns the BPF program for each new connection (nil: none), and a name for it.
func (l *listener) program() (code []unix.SockFilter, name string) {
	switch ln := l.lanes[0]; {
	case ln.r.at.isUnix():
		return nil, ""
	case len(l.lanes) > 1:
		at := slices.Index(l.lanes, l.serves)
		return always(at), fmt.Sprintf("lane %d of %d", at, len(l.lanes))
	case len(ln.slots) > 1 && ln.active < len(ln.slots):
		return firstOf(ln.active), fmt.Sprintf("first %d of %d", ln.active, len(ln.slots))
	case ln.r.PerSlot:
		return nil, fmt.Sprintf("all %d", len(ln.slots))
	}
	return nil, ""
}

// always is a program that returns one number.
func always(n int) []unix.SockFilter {
	return []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: uint32(n)}}
}

func detach(fd int) error {
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_REUSEPORT_BPF, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) { // there was no program, or no group
		return nil
	}
	return err
}

func attach(fd int, program []unix.SockFilter) error {
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF,
		&unix.SockFprog{Len: uint16(len(program)), Filter: unsafe.SliceData(program)})
}

// firstOf is a classic BPF program that returns a number below n, always the same for one flow: a hash of the source address
// and both ports. It cannot use the kernel's own hash of the packet (SKF_AD_RXHASH), which many network cards leave at 0.
// Network headers are at SKF_NET_OFF whatever the protocol, filter.rst in the kernel's documentation.
func firstOf(n int) []unix.SockFilter {
	const (
		network = 0xfff00000 // SKF_NET_OFF, -0x100000 in linux/filter.h
		golden  = 0x9e3779b1 // 2^32 divided by the golden ratio: spreads neighbouring ports
	)
	op := func(code int, k uint32) unix.SockFilter { return unix.SockFilter{Code: uint16(code), K: k} }
	return []unix.SockFilter{
		op(unix.BPF_LD|unix.BPF_B|unix.BPF_ABS, network), // version and header length
		op(unix.BPF_ALU|unix.BPF_RSH|unix.BPF_K, 4),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 6, Jt: 5}, // IPv6: to "source"
		op(unix.BPF_LDX|unix.BPF_B|unix.BPF_MSH, network),             // X = length of the IPv4 header
		op(unix.BPF_LD|unix.BPF_W|unix.BPF_IND, network),              // both ports
		op(unix.BPF_MISC|unix.BPF_TAX, 0),
		op(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, network+12), // IPv4 source
		{Code: unix.BPF_JMP | unix.BPF_JA, K: 3},            // to "mix"
		op(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, network+40), // source: both ports
		op(unix.BPF_MISC|unix.BPF_TAX, 0),
		op(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, network+20), // the end of the IPv6 source
		op(unix.BPF_ALU|unix.BPF_XOR|unix.BPF_X, 0),         // mix: the upper half, with the source port, into the lower
		op(unix.BPF_MISC|unix.BPF_TAX, 0),
		op(unix.BPF_ALU|unix.BPF_RSH|unix.BPF_K, 16),
		op(unix.BPF_ALU|unix.BPF_XOR|unix.BPF_X, 0),
		op(unix.BPF_ALU|unix.BPF_MUL|unix.BPF_K, golden), // the upper half depends on every bit now
		op(unix.BPF_ALU|unix.BPF_RSH|unix.BPF_K, 16),
		op(unix.BPF_ALU|unix.BPF_MOD|unix.BPF_K, uint32(n)),
		op(unix.BPF_RET|unix.BPF_A, 0),
	}
}

// dropAll lets the kernel drop what arrives at the socket; clients send it again a second later. So a socket can join a group that no
// program protects yet, until hear.
func dropAll(fd int) error {
	program := always(0)
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &program[0]})
}

// withdraw makes a socket leave its group. A handshake may begin at a socket that has left and has not stopped listening yet, and
// would be reset; dropped, it begins again elsewhere.
func (s *sock) withdraw() {
	_ = dropAll(s.fd) // for a race that is rarely lost
	_ = unix.Shutdown(s.fd, unix.SHUT_RD)
}

func (s *sock) hear() error {
	return unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
}
