package socket

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// way is a part of the new connections: they go to these members of the group, by their sources.
type way struct {
	members []int // at least one, ascending
	weight  int
}

// Offsets of linux/filter.h that do not depend on where a protocol's header ends.
const (
	network = 0xfff00000           // SKF_NET_OFF, -0x100000: the network header
	random  = 0xfffff000 + skfRand // SKF_AD_OFF + SKF_AD_RANDOM, -0x1000 + 56
	skfRand = 56

	golden = 0x9e3779b1 // 2^32 divided by the golden ratio: spreads neighbouring ports
)

func op(code int, k uint32) unix.SockFilter { return unix.SockFilter{Code: uint16(code), K: k} }

// when runs a block if A is equal to k (JEQ) or at least k (JGE), and else continues behind it. The block may be
// longer than a conditional jump reaches.
func when(test int, k uint32, block []unix.SockFilter) []unix.SockFilter {
	return append([]unix.SockFilter{
		{Code: uint16(unix.BPF_JMP | test | unix.BPF_K), K: k, Jt: 1},
		op(unix.BPF_JMP|unix.BPF_JA, uint32(len(block))),
	}, block...)
}

func result(k int) unix.SockFilter { return op(unix.BPF_RET|unix.BPF_K, uint32(k)) }

// choose is a program that returns a member of one of the ways, which it draws by their weights: for each
// connection anew, and within a way always the same for one flow.
func choose(ways []way) []unix.SockFilter { return draw(random, ways) }

// draw is a program like choose, which takes the lot from these four bytes of the packet.
func draw(lot uint32, ways []way) []unix.SockFilter {
	if len(ways) == 1 {
		return ways[0].pick()
	}
	total, reached := 0, 0
	for _, w := range ways {
		total += w.weight
	}
	program := []unix.SockFilter{op(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, lot)}
	for _, w := range slices.Backward(ways[1:]) { // from the highest threshold down
		reached += w.weight
		program = append(program, when(unix.BPF_JGE, uint32(uint64(total-reached)<<32/uint64(total)), w.pick())...)
	}
	return append(program, ways[0].pick()...)
}

// pick is a program that returns one of the members: a hash of the source address and both ports, modulo their
// number, and then two instructions for each gap between them, because kernels before 6.9 allow 20 KiB
// (net.core.optmem_max) and all of them 4096 instructions. It cannot use the kernel's own hash of the packet
// (SKF_AD_RXHASH), which many network cards leave at 0.
func (w way) pick() []unix.SockFilter {
	n := len(w.members)
	if n == 1 {
		return []unix.SockFilter{result(w.members[0])}
	}
	program := append(hashFlow(), op(unix.BPF_ALU|unix.BPF_MOD|unix.BPF_K, uint32(n)))
	next := 0 // the member after those that A can name by now
	for _, m := range w.members {
		if m > next {
			program = append(program,
				unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: uint32(next), Jf: 1},
				op(unix.BPF_ALU|unix.BPF_ADD|unix.BPF_K, uint32(m-next)))
		}
		next = m + 1
	}
	return append(program, op(unix.BPF_RET|unix.BPF_A, 0))
}

// hashFlow leaves a hash of the source address and both ports in A. Network headers are at SKF_NET_OFF whatever the
// protocol, filter.rst in the kernel's documentation.
func hashFlow() []unix.SockFilter {
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
	}
}

// rule is a source that a program treats in a special way: this port of 127.0.0.1 or ::1.
type rule struct {
	port   uint16
	ipv6   bool
	result int // what the program returns for it
}

// sourceRules is the beginning of a program: it returns the result of the rule that fits, or continues behind.
func sourceRules(rules []rule) (program []unix.SockFilter) {
	var four, six []unix.SockFilter
	for _, r := range rules {
		block := when(unix.BPF_JEQ, uint32(r.port), []unix.SockFilter{result(r.result)})
		if r.ipv6 {
			six = append(six, block...)
		} else {
			four = append(four, block...)
		}
	}
	version := []unix.SockFilter{op(unix.BPF_LD|unix.BPF_B|unix.BPF_ABS, network),
		op(unix.BPF_ALU|unix.BPF_RSH|unix.BPF_K, 4)}
	if len(four) > 0 {
		ports := append([]unix.SockFilter{op(unix.BPF_LDX|unix.BPF_B|unix.BPF_MSH, network),
			op(unix.BPF_LD|unix.BPF_H|unix.BPF_IND, network)}, four...)
		source := append([]unix.SockFilter{op(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, network+12)},
			when(unix.BPF_JEQ, 127<<24|1, ports)...)
		program = slices.Concat(program, version, when(unix.BPF_JEQ, 4, source))
	}
	if len(six) > 0 {
		block := append([]unix.SockFilter{op(unix.BPF_LD|unix.BPF_H|unix.BPF_ABS, network+40)}, six...)
		for i, word := range []uint32{1, 0, 0, 0} { // ::1, from its end
			at := uint32(network + 20 - 4*i)
			block = append([]unix.SockFilter{op(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, at)}, when(unix.BPF_JEQ, word, block)...)
		}
		program = slices.Concat(program, version, when(unix.BPF_JEQ, 6, block))
	}
	return program
}

func detach(fd int) error {
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_REUSEPORT_BPF, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) { // there was no program, or no group
		return nil
	}
	return err
}

func attach(fd int, program []unix.SockFilter) error {
	return setProgram(fd, unix.SO_ATTACH_REUSEPORT_CBPF, program)
}

// Unsteerable says why the kernel does not take a program that divides new connections, as in some sandboxes; "":
// it does.
func Unsteerable() string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "" // opening the listener will say what is wrong
	}
	defer unix.Close(fd)
	if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err == nil {
		err = attach(fd, []unix.SockFilter{result(0)})
	}
	if err != nil {
		return fmt.Sprintf("the sandbox of supervisord forbids it to steer connections (SO_ATTACH_REUSEPORT_CBPF: %v)", err)
	}
	return ""
}

func setProgram(fd, option int, program []unix.SockFilter) error {
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, option,
		&unix.SockFprog{Len: uint16(len(program)), Filter: unsafe.SliceData(program)})
}

// withdraw makes a socket leave its group.
func (m *sock) withdraw() { _ = unix.Shutdown(m.fd, unix.SHUT_RD) }
