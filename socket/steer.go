package socket

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// steer sends new connections to the first active of the sockets only; the others of the group get none. Without a program the
// kernel spreads them over all, which is what happens when every socket is active.
//
// The sockets of a group are numbered in the order in which they began to listen, and only the last ones ever leave it, so a
// socket's number is its slot.
func (l *listener) steer() error {
	if !l.r.PerSlot || len(l.slots) == 0 || l.steered == l.active && l.among == len(l.slots) {
		return nil
	}
	fd := l.slots[0].fd
	if l.active >= len(l.slots) {
		err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_REUSEPORT_BPF, 0)
		if err != nil && !errors.Is(err, unix.ENOENT) { // ENOENT: there was no program
			return err
		}
	} else if err := attach(fd, firstOf(l.active)); err != nil {
		return err
	}
	l.steered, l.among = l.active, len(l.slots)
	return nil
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
