package graceful

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket/inherit"
)

// ErrNotInherited says that none of the inherited sockets has the name.
var ErrNotInherited = errors.New("no inherited socket has this name")

// Listener returns the inherited socket called name. If this process inherited no sockets at all, it listens on
// address. Names are those of LISTEN_FDNAMES. A socket that was passed without a name of its own (systemd's "unknown",
// start_server) is found by address, written as it was for the supervisor or as it is bound, or because it is the only
// one.
//
// address is "host:port", ":port", "unix:/path" or "unix:@abstract". A socket is given out once.
// The listener is the caller's: Serve closes it, otherwise the caller does.
func Listener(name, address string) (net.Listener, error) {
	e := started()
	e.mu.Lock()
	defer e.mu.Unlock()
	s, err := e.find(name, address, "tcp", "unix")
	switch {
	case err != nil:
		return nil, err
	case s == nil:
		return listen(address)
	}
	return e.listen(s)
}

// PacketConn is Listener for a datagram socket: "udp:host:port", or "host:port" for short. When a newer generation
// serves, supervisord begins the stop of this one after it has received the datagrams that came to it, or at
// drain.timeout.
func PacketConn(name, address string) (net.PacketConn, error) {
	e := started()
	e.mu.Lock()
	defer e.mu.Unlock()
	s, err := e.find(name, address, "udp", "unixgram")
	switch {
	case err != nil:
		return nil, err
	case s == nil:
		return net.ListenPacket("udp", strings.TrimPrefix(address, "udp:"))
	}
	s.taken = true
	return withFile(s, net.FilePacketConn)
}

// Listeners returns every inherited stream socket that was not returned before, in the order in which they were passed.
// It returns none if this process was started by hand.
func Listeners() ([]net.Listener, error) {
	e := started()
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []net.Listener
	for _, s := range e.sockets {
		if s.taken || !s.isOne("tcp", "unix") {
			continue
		}
		ln, err := e.listen(s)
		if err != nil {
			return nil, errors.Join(err, closeAll(all))
		}
		all = append(all, ln)
	}
	return all, e.err
}

func closeAll(all []net.Listener) (err error) {
	for _, ln := range all {
		err = errors.Join(err, ln.Close())
	}
	return err
}

// find finds the socket for name. It returns nil if nothing at all was inherited.
func (e *environment) find(name, address string, networks ...string) (*inherited, error) {
	if e.err != nil || len(e.sockets) == 0 {
		return nil, e.err
	}
	s := e.match(name, address, networks)
	switch {
	case s == nil:
		return nil, fmt.Errorf("%w: %q; there are: %s", ErrNotInherited, name, e.names())
	case s.taken:
		return nil, fmt.Errorf("the inherited socket %q was already given out", s.Name)
	}
	return s, nil
}

// match looks by name, then by address among the sockets without a chosen name, then for the only socket.
func (e *environment) match(name, address string, networks []string) *inherited {
	var nameless []*inherited
	for _, s := range e.sockets {
		switch {
		case !s.isOne(networks...):
		case s.Name == name:
			return s
		case !s.named():
			nameless = append(nameless, s)
		}
	}
	for _, s := range nameless {
		if s.at(name) || s.at(address) {
			return s
		}
	}
	if len(nameless) == 1 && len(e.sockets) == 1 {
		return nameless[0]
	}
	return nil
}

func (e *environment) names() string {
	names := make([]string, len(e.sockets))
	for i, s := range e.sockets {
		names[i] = fmt.Sprintf("%q", s.Name)
	}
	return strings.Join(names, ", ")
}

// isOne reports whether s can be used as one of these networks.
func (s *inherited) isOne(networks ...string) bool {
	for _, n := range networks {
		if s.Listens && s.Network == n {
			return true
		}
	}
	return false
}

// at reports whether s is the socket of an address as a program writes it: as the supervisor names it, or as it is
// bound.
func (s *inherited) at(address string) bool {
	plain := strings.TrimPrefix(strings.TrimPrefix(address, "unix:"), "udp:")
	switch plain {
	case "":
		return false
	case s.Address, s.Starter, s.Name:
		return true
	}
	return strings.TrimPrefix(plain, ":") == s.Starter || inherit.FDName(plain) == s.Name
}

// listen opens a new socket.
func listen(address string) (net.Listener, error) {
	network := "tcp"
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", path
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // as under the supervisor: several socket options fail on MPTCP
	ln, err := lc.Listen(context.Background(), network, address)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("%w (no socket was inherited, so this program tried to open it itself)", err)
	}
	return ln, err
}
