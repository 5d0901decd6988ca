package socket

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
)

// packet is what a classic BPF program can see of a packet.
type packet struct {
	network   []byte // from the IP header on
	transport []byte // from the TCP or UDP header on
	lot       uint32 // what SKF_AD_RANDOM returns
}

// packetFrom returns the beginning of a packet, with so many words of IPv4 options.
func packetFrom(ipv6 bool, source [16]byte, from, to uint16, options int, flags byte, lot uint32) packet {
	header := make([]byte, 60)
	if ipv6 {
		header = header[:40]
		header[0] = 6 << 4
		copy(header[8:], source[:])
	} else {
		header = header[:20+4*options]
		header[0] = byte(4<<4 | len(header)/4)
		copy(header[12:], source[12:])
	}
	transport := make([]byte, 20)
	binary.BigEndian.PutUint16(transport, from)
	binary.BigEndian.PutUint16(transport[2:], to)
	transport[13] = flags
	return packet{append(header, transport...), transport, lot}
}

// load reads n bytes as the kernel does for BPF_ABS and BPF_IND.
func (p packet) load(n int, k, x uint32) (uint32, error) {
	data, at := p.transport, uint64(k)
	switch {
	case k == random && n == 4:
		return p.lot, nil
	case k >= network:
		data, at = p.network, uint64(k-network)
	}
	if at += uint64(x); at+uint64(n) > uint64(len(data)) {
		return 0, errors.New("it reads behind the packet")
	}
	var word [4]byte
	copy(word[4-n:], data[at:])
	return binary.BigEndian.Uint32(word[:]), nil
}

// interpret runs a program with the instructions that this package uses, as filter.rst of the kernel's
// documentation describes them.
func interpret(program []unix.SockFilter, on packet) (uint32, error) {
	var a, x uint32
	sizes := map[uint16]int{unix.BPF_W: 4, unix.BPF_H: 2, unix.BPF_B: 1}
	for at := 0; at < len(program); at++ {
		i := program[at]
		operand := i.K
		if i.Code&unix.BPF_X != 0 {
			operand = x
		}
		var err error
		switch i.Code &^ unix.BPF_X {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_LD | unix.BPF_H | unix.BPF_ABS,
			unix.BPF_LD | unix.BPF_B | unix.BPF_ABS:
			a, err = on.load(sizes[i.Code&0x18], i.K, 0)
		case unix.BPF_LD | unix.BPF_W | unix.BPF_IND, unix.BPF_LD | unix.BPF_H | unix.BPF_IND:
			a, err = on.load(sizes[i.Code&0x18], i.K, x)
		case unix.BPF_LD | unix.BPF_W | unix.BPF_LEN:
			a = uint32(len(on.transport))
		case unix.BPF_LDX | unix.BPF_B | unix.BPF_MSH:
			x, err = on.load(1, i.K, 0)
			x = x & 0xf * 4
		case unix.BPF_ALU | unix.BPF_RSH:
			a >>= operand
		case unix.BPF_ALU | unix.BPF_AND:
			a &= operand
		case unix.BPF_ALU | unix.BPF_ADD:
			a += operand
		case unix.BPF_ALU | unix.BPF_SUB:
			a -= operand
		case unix.BPF_ALU | unix.BPF_XOR:
			a ^= operand
		case unix.BPF_ALU | unix.BPF_MUL:
			a *= operand
		case unix.BPF_ALU | unix.BPF_MOD:
			a %= operand
		case unix.BPF_MISC | unix.BPF_TAX:
			x = a
		case unix.BPF_JMP | unix.BPF_JA:
			at += int(i.K)
		case unix.BPF_JMP | unix.BPF_JEQ, unix.BPF_JMP | unix.BPF_JGE:
			if a == operand || i.Code&0xf0 == unix.BPF_JGE && a > operand {
				at += int(i.Jt)
			} else {
				at += int(i.Jf)
			}
		case unix.BPF_RET:
			return i.K, nil
		case unix.BPF_RET | unix.BPF_A:
			return a, nil
		default:
			err = errors.New("an instruction that is not used here")
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, errors.New("it ends without a result")
}

// layout reads a group of sockets from bytes: what gets new connections, and the probes.
func layout(data []byte) (ways []way, rules []rule) {
	for ; len(data) >= 7 && len(ways) < 40; data = data[7:] {
		members := binary.BigEndian.Uint32(data[1:])
		w := way{weight: int(binary.BigEndian.Uint16(data[5:])) + 1}
		for members != 0 {
			w.members = append(w.members, bits.TrailingZeros32(members)+int(data[0]&3)<<5)
			members &= members - 1
		}
		if data[0]&4 != 0 {
			rules = append(rules, rule{port: uint16(w.weight), ipv6: data[0]&8 != 0, result: len(rules)})
		} else if len(w.members) > 0 {
			ways = append(ways, w)
		}
	}
	return ways, rules
}

// loopback returns the source that rules are about.
func loopback(ipv6 bool) [16]byte {
	if ipv6 {
		return [16]byte{15: 1}
	}
	return [16]byte{12: 127, 15: 1}
}

// accepts lets the kernel check a program.
func accepts(t *testing.T, fd, option int, program []unix.SockFilter) {
	t.Helper()
	if err := setProgram(fd, option, program); err != nil && !errors.Is(err, unix.EPERM) {
		t.Fatalf("the kernel refuses a program of %d instructions: %v", len(program), err)
	}
}

// groupMember returns a socket to which a program for a group can be attached.
func groupMember(t testing.TB, kind int) int {
	t.Helper()
	fd := must.Get(unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0))(t)
	t.Cleanup(func() { unix.Close(fd) })
	must.Do(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
	return fd
}

// fuzzProgram calls check with random groups, and with a packet that comes from a probe more often than by chance.
func fuzzProgram(f *testing.F, check func(t *testing.T, fd int, ways []way, rules []rule, ipv6 bool, source [16]byte,
	port uint16, flags byte, lot uint32)) {
	fd := groupMember(f, unix.SOCK_STREAM)
	f.Add([]byte{0, 0, 0, 0, 3, 0, 9}, false, []byte("\x7f\x00\x00\x01"), uint16(4000), byte(2), uint32(7))
	f.Add([]byte("\x00\x00\x00\x00\x05\x00\x01\x00\x00\x00\x00\x0a\x00\x03\x04\x00\x00\x00\x00\x00\x50"), false,
		[]byte{}, uint16(0x51), byte(2), uint32(1<<31))
	f.Add([]byte("\x01\xff\xff\xff\xff\x00\x01\x00\x80\x00\x00\x01\x00\x62\x0c\x00\x00\x00\x00\x00\x50"), true,
		[]byte{}, uint16(0x51), byte(0x12), uint32(1<<32-1))
	f.Fuzz(func(t *testing.T, data []byte, ipv6 bool, from []byte, port uint16, flags byte, lot uint32) {
		ways, rules := layout(data)
		if len(ways) == 0 {
			return
		}
		source := loopback(ipv6)
		copy(source[len(source)-min(len(from), 4):], from) // what is missing stays as a probe has it
		check(t, fd, ways, rules, ipv6, source, port, flags, lot)
	})
}

// ruleFor returns what the first rule for a source says.
func ruleFor(rules []rule, ipv6 bool, source [16]byte, port uint16) (result int, found bool) {
	own := loopback(ipv6)
	first := 12
	if ipv6 {
		first = 0
	}
	for _, r := range rules {
		if r.ipv6 == ipv6 && r.port == port && slices.Equal(source[first:], own[first:]) {
			return r.result, true
		}
	}
	return 0, false
}

// Every connection goes to a member of the way whose lot it draws, or where the rule for a probe says; and within a
// way neighbouring ports spread over all members.
func FuzzSteeringProgram(f *testing.F) {
	fuzzProgram(f, func(t *testing.T, fd int, ways []way, rules []rule, ipv6 bool, source [16]byte, port uint16,
		flags byte, lot uint32) {
		program := slices.Concat(sourceRules(rules), choose(ways))
		accepts(t, fd, unix.SO_ATTACH_REUSEPORT_CBPF, program)
		run := func(port uint16) int {
			member := must.Get(interpret(program, packetFrom(ipv6, source, port, 443, int(flags>>5), flags, lot)))(t)
			return int(member)
		}
		if result, found := ruleFor(rules, ipv6, source, port); found {
			if got := run(port); got != result {
				t.Fatalf("the probe from port %d goes to %d instead of %d", port, got, result)
			}
			return
		}
		drawn := drawn(ways, lot)
		if got := run(port); !slices.Contains(drawn.members, got) {
			t.Fatalf("lot %d goes to %d instead of one of %d", lot, got, drawn.members)
		}
		times := map[int]int{}
		each := 64
		for i := range each * len(drawn.members) {
			if _, probe := ruleFor(rules, ipv6, source, port+uint16(i)); !probe {
				times[run(port+uint16(i))]++
			}
		}
		for _, m := range drawn.members {
			if times[m] < each/4 {
				t.Fatalf("of %d connections from neighbouring ports member %d of %d gets %d", each*len(drawn.members), m,
					drawn.members, times[m])
			}
		}
	})
}

// TestProgramGrowsByGapsAndNotByMembers has lanes of more sockets than a program may name one by one: with
// net.core.optmem_max of 20 KiB the kernel took about 650.
func TestProgramGrowsByGapsAndNotByMembers(t *testing.T) {
	lane := func(first, size, gap int) (w way) {
		for i := range size {
			if i != gap {
				w.members = append(w.members, first+i)
			}
		}
		w.weight = size
		return w
	}
	for _, ways := range [][]way{
		{lane(0, 700, 350)},
		{lane(0, 400, 17), lane(400, 400, 399)},
		{lane(0, 3000, 0), lane(3000, 3000, 1500)},
	} {
		program := choose(ways)
		if len(program) > 60 {
			t.Errorf("a program for %d members has %d instructions", len(ways[0].members), len(program))
		}
		must.Do(t, attach(groupMember(t, unix.SOCK_STREAM), program))
	}
}
