package supervisor

import (
	"context"
	"errors"
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

// widener returns what makes the socket of a UDP listener one of IPv6, for a worker that binds such a one: see socket.Lane.Widen.
func (p *runner) widener(g *resources, slot int) func(context.Context, string) error {
	return func(ctx context.Context, listener string) error {
		_, err := askNow(ctx, p.s.mailbox, func() (struct{}, error) {
			i := g.listener(listener)
			if i < 0 || p.generations[g.number] != g {
				return struct{}{}, errors.New("its generation is gone")
			}
			return struct{}{}, g.lanes[i].Widen(slot)
		})
		return err
	}
}
