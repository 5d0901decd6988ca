// Package multicast knows the multicast groups that sockets are members of. A membership is the socket's, so it
// outlives the process that has joined, if another has the socket; and a member may not join again (EADDRINUSE, ip(7)).
// The kernel lists the groups of a network namespace, not those of a socket.
package multicast

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Leave ends all memberships of a socket.
func Leave(fd int) {
	each(func(g group) { _ = g.set(fd, unix.IP_DROP_MEMBERSHIP, unix.IPV6_LEAVE_GROUP) })
}

// Move ends all memberships of a socket, and makes another socket a member in its place.
func Move(from, to int) {
	each(func(g group) {
		if g.set(from, unix.IP_DROP_MEMBERSHIP, unix.IPV6_LEAVE_GROUP) == nil {
			_ = g.set(to, unix.IP_ADD_MEMBERSHIP, unix.IPV6_JOIN_GROUP) // EADDRINUSE: it is one
		}
	})
}

// group is a group on a network interface.
type group struct {
	netip.Addr
	device int
}

func (g group) set(fd, four, six int) error {
	if g.Is4() {
		return unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, four,
			&unix.IPMreqn{Multiaddr: g.As4(), Ifindex: int32(g.device)})
	}
	return unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, six,
		&unix.IPv6Mreq{Multiaddr: g.As16(), Interface: uint32(g.device)})
}

// each passes the groups of this thread's network namespace: proc(5), igmp and igmp6. Where these cannot be read, there
// are none.
func each(see func(group)) {
	var device int
	for _, line := range lines("igmp") {
		fields := strings.Fields(line)
		if !strings.HasPrefix(line, "\t") { // device, its name, …; its groups follow
			device, _ = strconv.Atoi(fields[0]) //nolint:errcheck // the heading
			continue
		}
		if ip, err := strconv.ParseUint(fields[0], 16, 32); err == nil { // as the processor reads the four bytes
			see(group{netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, uint32(ip)))), device})
		}
	}
	for _, line := range lines("igmp6") {
		fields := strings.Fields(line) // device, its name, group
		if len(fields) < 3 {
			continue
		}
		device, err := strconv.Atoi(fields[0])
		ip, errIP := hex.DecodeString(fields[2])
		if err == nil && errIP == nil && len(ip) == 16 {
			see(group{netip.AddrFrom16([16]byte(ip)), device})
		}
	}
}

// lines returns the lines of a file that are not empty.
func lines(name string) (all []string) {
	text, _ := os.ReadFile("/proc/thread-self/net/" + name) //nolint:errcheck // see each
	for line := range strings.Lines(string(text)) {
		if strings.TrimSpace(line) != "" {
			all = append(all, line)
		}
	}
	return all
}
