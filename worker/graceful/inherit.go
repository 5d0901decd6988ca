package graceful

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/lestrrat-go/server-starter/listener"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/reserved"
	"example.org/supervisord/socket/inherit"
)

// started is what this process was started with. An environment belongs to the process and can be read only once,
// because reading it consumes it; hence the one variable of this package.
var started = sync.OnceValue(readEnvironment)

// environment is what this process inherited from its supervisor.
type environment struct {
	mu      sync.Mutex
	sockets []*inherited
	err     error          // why the description of the sockets is invalid
	shared  []net.Listener // those returned to the caller: their queues are not ours alone
	notify  *notifier
}

// inherited is one descriptor that was passed to this process.
type inherited struct {
	inherit.Socket
	starter listener.Listener // nil: not in SERVER_STARTER_PORT
	taken   bool
}

// named reports whether a person chose the name, as opposed to one made from the address as the configuration spells
// it: ":8080" and "0.0.0.0:8080" are both the port alone in SERVER_STARTER_PORT.
func (s *inherited) named() bool {
	name := s.Name
	for _, network := range []string{"udp:", "unix:"} {
		name = strings.TrimPrefix(name, inherit.FDName(network))
	}
	made := []string{"unknown"}
	for _, address := range []string{s.Starter, s.Address} {
		for _, host := range []string{"", ":", "0.0.0.0:"} {
			made = append(made, host+address, inherit.FDName(host+address))
		}
	}
	return !slices.Contains(made, name)
}

// readEnvironment also removes the variables, so that a child of this process does not mistake them for its own. The
// generation number stays: it is for the program, and does not refer to a socket.
func readEnvironment() *environment {
	e := &environment{notify: readNotifier()}
	e.sockets, e.err = readSockets()
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		forProgram := name == "SERVER_STARTER_GENERATION" || strings.HasPrefix(name, "SUPERVISORD_")
		if reserved.ForWorkers(name) && !forProgram {
			_ = os.Unsetenv(name)
		}
	}
	return e
}

// readSockets lists the sockets that LISTEN_FDS or SERVER_STARTER_PORT names. Their descriptors stay open, and unused,
// until the program asks for one.
func readSockets() ([]*inherited, error) {
	found, err := inherit.FromEnvironment(os.Environ(), os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("the inherited sockets cannot be used: %w", err)
	}
	ports := starterPorts()
	var sockets []*inherited
	for _, f := range found {
		s := &inherited{Socket: f}
		if i := slices.IndexFunc(ports, func(p listener.Listener) bool { return p.Fd() == uintptr(f.FD) }); i >= 0 &&
			f.Starter != "" {
			s.starter = ports[i]
		}
		sockets = append(sockets, s)
	}
	return sockets, nil
}

// starterPorts reads SERVER_STARTER_PORT with the package made for it. It suppresses that package's panics ("1:2=3")
// and errors: package inherit has checked the variable, and sockets that the other package does not understand are
// opened without it.
func starterPorts() (ports []listener.Listener) {
	defer func() {
		if recover() != nil {
			ports = nil
		}
	}()
	ports, _ = listener.Ports()
	return ports
}

// listen opens a listener of s. It closes the inherited descriptor at once; if the listener package opens it, the
// garbage collector closes it. The descriptor is already close-on-exec.
func (e *environment) listen(s *inherited) (ln net.Listener, err error) {
	if s.starter != nil && s.FD >= inherit.FirstFD {
		ln, err = s.starter.Listen()
	} else {
		ln, err = withFile(s, net.FileListener)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on the inherited socket %q (descriptor %d): %w", s.Name, s.FD, err)
	}
	s.taken = true
	e.shared = append(e.shared, ln)
	return ln, nil
}

// isShared reports whether other processes may accept from ln's socket.
func (e *environment) isShared(ln net.Listener) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Contains(e.shared, ln)
}

// withFile makes a net type from the descriptor, which the net package duplicates with close-on-exec set. The original
// is closed, unless it is one of the three standard streams (start_server can pass a socket as descriptor 0).
func withFile[T any](s *inherited, open func(*os.File) (T, error)) (sock T, err error) {
	fd := s.FD
	if fd < inherit.FirstFD {
		if fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, inherit.FirstFD); err != nil {
			return sock, err
		}
	}
	f := os.NewFile(uintptr(fd), s.Name)
	sock, err = open(f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return sock, err
}
