package graceful

import (
	"errors"
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

// environment is what a supervisor gave to this process.
type environment struct {
	mu      sync.Mutex
	sockets []*inherited
	err     error          // why the sockets could not be understood
	shared  []net.Listener // those given out: what is queued on them is not ours alone
	notify  *notifier
}

// inherited is one descriptor that was passed to this process.
type inherited struct {
	inherit.Socket
	starter listener.Listener // nil: SERVER_STARTER_PORT does not have it
	taken   bool
}

// named tells whether its name is a person's choice, and not made from the address.
func (s *inherited) named() bool {
	return s.Name != "unknown" && s.Name != s.Starter && s.Name != inherit.FDName(s.Starter)
}

// readEnvironment also takes the variables away, so that a child of this process does not take them for its own. The number of
// the generation stays: it is for the program to read, and leads to no socket.
func readEnvironment() *environment {
	e := &environment{notify: readNotifier()}
	e.sockets, e.err = readSockets()
	if e.err == nil {
		e.err = e.readEinhorn()
	}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		forProgram := name == "SERVER_STARTER_GENERATION" || strings.HasPrefix(name, "SUPERVISORD_")
		if reserved.ForWorkers(name, []string(nil)) && !forProgram {
			_ = os.Unsetenv(name)
		}
	}
	return e
}

func readSockets() ([]*inherited, error) {
	found, err := inherit.FromEnvironment(os.Environ(), os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("the inherited sockets cannot be used: %w", err)
	}
	ports := starterPorts()
	var sockets []*inherited
	for _, f := range found {
		s := &inherited{Socket: f}
		if i := slices.IndexFunc(ports, func(p listener.Listener) bool { return p.Fd() == uintptr(f.FD) }); i >= 0 && f.Starter != "" {
			s.starter = ports[i]
		}
		sockets = append(sockets, s)
	}
	return sockets, nil
}

// readEinhorn adds what only einhorn tells of: supervisord tells of the same sockets twice.
func (e *environment) readEinhorn() error {
	told, err := inherit.FromEinhorn(os.Environ(), os.Getppid())
	switch {
	case errors.Is(err, inherit.ErrNoEinhorn):
		return nil
	case err != nil:
		return fmt.Errorf("the sockets inherited from einhorn cannot be used: %w", err)
	}
	e.notify.einhorn = &told
	for _, f := range told.Sockets {
		if !slices.ContainsFunc(e.sockets, func(s *inherited) bool { return s.FD == f.FD }) {
			e.sockets = append(e.sockets, &inherited{Socket: f})
		}
	}
	return nil
}

// stopSignals are those by which this process is told to stop. einhorn says it by USR2.
func (e *environment) stopSignals() []os.Signal {
	signals := []os.Signal{unix.SIGTERM, unix.SIGINT}
	if e.notify.einhorn != nil {
		signals = append(signals, unix.SIGUSR2)
	}
	return signals
}

// starterPorts has SERVER_STARTER_PORT read by the package made for it. Its panics ("1:2=3") and its errors are kept
// back: package socket has checked the variable, and what this one does not understand is opened without it.
func starterPorts() (ports []listener.Listener) {
	defer func() {
		if recover() != nil {
			ports = nil
		}
	}()
	ports, _ = listener.Ports()
	return ports
}

// listen opens a listener of s. The descriptor that was passed is closed, at once or, where the listener package opens it,
// by the garbage collector; it is close-on-exec already.
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

// isShared tells whether other processes may accept from ln's socket.
func (e *environment) isShared(ln net.Listener) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Contains(e.shared, ln)
}

// withFile makes a net type of the descriptor, which the net package duplicates with close-on-exec set. The original
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
