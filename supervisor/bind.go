package supervisor

import (
	"net/netip"
	"strings"

	"example.org/supervisord/socket"
	"example.org/supervisord/worker/bind"
)

// boundByProgram is where a program that opens its own port binds to get a listener, which is bound at the given address. It is
// zero, and fits nothing, for a unix socket without a path of the program's own: the program would remove the one of the listener.
func boundByProgram(l socket.Resolved, bound string) bind.Address {
	a := bind.Address{Network: "tcp"}
	at := l.Binds
	switch {
	case at.IsUnix():
		return bind.Address{Network: "unix", Path: at.Path}
	case l.Address.IsUnix():
		return bind.Address{}
	case l.Address.IsUDP():
		a.Network = "udp"
	}
	if at == (socket.Address{}) {
		a.At, _ = netip.ParseAddrPort(bound) //nolint:errcheck // an address that is not open fits nothing
		return a
	}
	ip := netip.IPv6Unspecified()
	if strings.EqualFold(at.Host, "localhost") {
		ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	} else if at.Host != "" {
		ip, _ = netip.ParseAddr(at.Host) //nolint:errcheck // the configuration was checked
	}
	a.At = netip.AddrPortFrom(ip.Unmap(), at.Port)
	return a
}
