package multicast

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/leftover"
	"example.org/supervisord/internal/lab/must"
)

func TestMain(m *testing.M) { leftover.Main(m) }

// TestMembershipsEndAndMove has a group of each family, on the loopback interface.
func TestMembershipsEndAndMove(t *testing.T) {
	lo := must.Get(net.InterfaceByName("lo"))(t)
	four := func(fd int) error {
		return unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP,
			&unix.IPMreqn{Multiaddr: [4]byte{239, 1, 2, 3}, Ifindex: int32(lo.Index)})
	}
	six := func(fd int) error {
		return unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP,
			&unix.IPv6Mreq{Multiaddr: [16]byte{0xff, 0x12, 15: 7}, Interface: uint32(lo.Index)})
	}
	for family, joins := range map[int][]func(int) error{unix.AF_INET: {four}, unix.AF_INET6: {four, six}} {
		a, b := open(t, family), open(t, family)
		for _, join := range joins {
			must.Do(t, join(a))
			must.Do(t, join(b))
			if err := join(a); err != unix.EADDRINUSE {
				t.Errorf("a member joins: %v", err)
			}
		}
		Leave(a)
		for _, join := range joins {
			must.Do(t, join(a)) // it is no member any more
			if err := join(b); err != unix.EADDRINUSE {
				t.Errorf("a socket has left that was not to: %v", err)
			}
		}
		c := open(t, family)
		Move(a, c)
		for _, join := range joins {
			must.Do(t, join(a))
			if err := join(c); err != unix.EADDRINUSE {
				t.Errorf("the membership has not moved: %v", err)
			}
		}
	}
}

func open(t *testing.T, family int) int {
	t.Helper()
	fd := must.Get(unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))(t)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}
