package socket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// wanted says without a program where a datagram belongs: to the member that has its lane, or else (-1) to one of
// these.
func (q quicRing) wanted(datagram []byte, ways []way) (member int, others []int) {
	if len(datagram) < 13 {
		return -1, ways[0].members
	}
	id := datagram[1:] // of a short header, which does not say how long the ID is
	if datagram[0]&0x80 != 0 {
		id = datagram[6:]
		if length := int(datagram[5]); length >= 8 || length <= q.at {
			return -1, drawn(ways, binary.BigEndian.Uint32(id)).members
		}
	}
	if m := q.members[int(id[q.at])%len(q.members)]; m >= 0 {
		return m, nil
	}
	return -1, ways[0].members
}

// drawn returns the way that a lot belongs to.
func drawn(ways []way, lot uint32) way {
	total, below := 0, 0
	for _, w := range ways {
		total += w.weight
	}
	won := ways[0]
	for _, w := range ways {
		if begin := uint64(below) << 32 / uint64(total); uint64(lot) >= begin {
			won = w
		}
		below += w.weight
	}
	return won
}

// datagramFrom is what a program on a group of UDP sockets sees: it begins behind the UDP header.
func datagramFrom(ipv6 bool, port uint16, payload []byte) packet {
	p := packetFrom(ipv6, loopback(ipv6), port, 443, 0, 0, 0)
	header := p.network[:len(p.network)-len(p.transport)+8]
	return packet{network: append(header, payload...), transport: payload}
}

// longHeader is a datagram with a long header and this ID of the destination.
func longHeader(kind byte, id []byte) []byte {
	return append(append([]byte{0xc0 | kind<<4, 0, 0, 0, 1, byte(len(id))}, id...), make([]byte, 30)...)
}

func shortHeader(id []byte) []byte { return append(append([]byte{0x40}, id...), make([]byte, 30)...) }

func FuzzQUICProgram(f *testing.F) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		f.Fatal(err)
	}
	one, two := []byte{0, 0, 0, 0, 1, 0, 0}, []byte("\x00\x00\x00\x00\x05\x00\x01\x00\x00\x00\x00\x0a\x00\x03")
	f.Add(one, byte(0), byte(2), uint64(0xf), shortHeader([]byte{3, 1, 2, 3, 4, 5, 6}), false, uint16(4000))
	f.Add(two, byte(2), byte(3), uint64(0xf), longHeader(2, []byte{3, 1, 5, 3, 4, 5, 6}), true, uint16(4000))
	f.Add(two, byte(6), byte(4), uint64(0xffff), longHeader(0, []byte{3, 1, 5, 3, 4, 5}), false, uint16(1))
	f.Add(two, byte(6), byte(4), uint64(0xfff0), longHeader(0, []byte("\xc0\x01\x02\x03\x04\x05\x06\x07")), true, uint16(2))
	f.Add(one, byte(1), byte(8), uint64(1), []byte{0x40, 0, 1}, false, uint16(3))
	f.Fuzz(func(t *testing.T, groups []byte, at, size byte, had uint64, datagram []byte, ipv6 bool, port uint16) {
		ways, _ := layout(groups)
		if len(ways) == 0 {
			return
		}
		q := quicRing{at: int(at % longestServerID), members: make([]int, 1<<(size%9))}
		for lane := range q.members {
			q.members[lane] = 3 * lane
			if had>>(lane%64)&1 == 0 {
				q.members[lane] = -1
			}
		}
		program := q.program(ways)
		accepts(t, fd, unix.SO_ATTACH_REUSEPORT_CBPF, program)
		got, err := interpret(program, datagramFrom(ipv6, port, datagram))
		if err != nil {
			t.Fatal(err)
		}
		if m, others := q.wanted(datagram, ways); int(got) != m && !slices.Contains(others, int(got)) {
			t.Fatalf("%x goes to %d instead of %d or one of %d", datagram, got, m, others)
		}
	})
}

// datagramGroup opens UDP sockets of one group at this address and a port that the kernel gives, in the order of the
// kernel's indices.
func datagramGroup(t testing.TB, family int, at unix.Sockaddr, n int) (fds []int, bound unix.Sockaddr) {
	t.Helper()
	for bound = at; len(fds) < n; {
		fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		fds = append(fds, fd)
		if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err == nil {
			err = unix.Bind(fd, bound)
		}
		if err == nil {
			bound, err = unix.Getsockname(fd)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return fds, bound
}

// receivers returns which sockets have got the datagram.
func receivers(t *testing.T, fds []int, client int, to unix.Sockaddr, datagram []byte) (got []int) {
	t.Helper()
	if err := unix.Sendto(client, datagram, 0, to); err != nil {
		t.Fatal(err)
	}
	polled := make([]unix.PollFd, len(fds))
	for i, fd := range fds {
		polled[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	for n, err := 0, error(nil); n <= 0; n, err = unix.Poll(polled, -1) {
		if err != nil && !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
	}
	for i, fd := range fds {
		var buffer [64]byte
		if n, err := unix.Read(fd, buffer[:]); err == nil && slices.Equal(buffer[:n], datagram) {
			got = append(got, i)
		}
	}
	return got
}

// TestKernelSteersQUIC sends every lane byte in every kind of header to sockets of four lanes, of which one is not used.
func TestKernelSteersQUIC(t *testing.T) {
	for family, at := range map[int]unix.Sockaddr{
		unix.AF_INET:  &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}},
		unix.AF_INET6: &unix.SockaddrInet6{Addr: [16]byte{15: 1}},
	} {
		t.Run(fmt.Sprintf("%T", at), func(t *testing.T) {
			fds, to := datagramGroup(t, family, at, 4)
			client, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(client)
			for serving := range 3 {
				q := quicRing{at: 1, members: []int{2, 0, 1, -1}} // not in the order of the group
				ways := []way{{members: []int{serving}, weight: 1}}
				if err := attach(fds[0], q.program(ways)); err != nil {
					t.Fatal(err)
				}
				for lane := range 256 {
					for kind, datagram := range [][]byte{
						shortHeader([]byte{0xff, byte(lane), 1, 2, 3, 4, 5}),
						longHeader(0, []byte{0xff, byte(lane), 1, 2, 3, 4, 5}),
						longHeader(2, []byte{0xff, byte(lane)}),
						longHeader(0, []byte{0xff}),
						longHeader(0, []byte{0xff, byte(lane), 1, 2, 3, 4, 5, 6}),
						{0x40, 0xff, byte(lane)},
						{},
					} {
						want, _ := q.wanted(datagram, ways)
						if want < 0 {
							want = serving
						}
						if got := receivers(t, fds, client, to, datagram); !slices.Equal(got, []int{want}) {
							t.Fatalf("kind %d for lane %d goes to %d instead of %d", kind, lane, got, want)
						}
					}
				}
			}
		})
	}
}

// TestCanaryOfQUICGetsWholeHandshakes has a canary for a quarter of the new connections: whatever address a client sends
// from, all datagrams with the ID that it made up reach the same generation, whether they are sent from another port or
// not.
func TestCanaryOfQUICGetsWholeHandshakes(t *testing.T) {
	q := quicRing{at: 0, members: []int{0, 1, -1, -1}}
	program := q.program([]way{{members: []int{0}, weight: 75}, {members: []int{1}, weight: 25}})
	canary := 0
	for i := range 4000 {
		id := binary.LittleEndian.AppendUint64(nil, uint64(i)*0x9e3779b97f4a7c15)
		slices.Reverse(id)
		first, err := interpret(program, datagramFrom(false, 4000, longHeader(0, id)))
		if err != nil {
			t.Fatal(err)
		}
		canary += int(first)
		if again, err := interpret(program, datagramFrom(false, 4001, longHeader(0, id))); err != nil || again != first {
			t.Fatalf("a connection begins at %d and continues at %d: %v", first, again, err)
		}
	}
	if canary < 900 || canary > 1100 {
		t.Errorf("the canary gets %d of 4000 connections instead of a quarter", canary)
	}
}
