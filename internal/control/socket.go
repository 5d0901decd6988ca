package control

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// backlog is how many connections may wait to be accepted: also those that come while one image replaces another.
const backlog = 128

// dialTimeout bounds the question whether somebody answers at a path.
const dialTimeout = time.Second

// ErrInUse says that another process answers on a socket.
var ErrInUse = errors.New("another process answers there")

// Socket is a listening unix socket. Its descriptor is inert: it can be handed over to the next image while a duplicate is
// being accepted from.
type Socket struct {
	fd   int
	path string
}

// OpenSocket listens at path. There is no moment in which the socket has wider permissions than mode: it is made for its owner alone
// (fchmod(2) before bind(2) sets what unix_bind in the kernel makes the file with), and changed before anybody can connect.
// A socket that is left over from a dead process is replaced; errors: ErrInUse (wrapped) if somebody answers.
func OpenSocket(path string, mode fs.FileMode, gid int) (_ *Socket, err error) {
	if err := clear(path); err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	s := &Socket{fd, path}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	if err := unix.Fchmod(fd, 0o600); err != nil {
		return nil, os.NewSyscallError("fchmod", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, fmt.Errorf("cannot make the socket %s: %w", path, err)
	}
	if err := s.Permit(mode, gid); err != nil {
		os.Remove(path) //nolint:errcheck // it was just made
		return nil, err
	}
	if err := unix.Listen(fd, backlog); err != nil {
		os.Remove(path) //nolint:errcheck // it was just made
		return nil, fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	return s, nil
}

// Permit sets who may connect. gid -1 leaves the group.
func (s *Socket) Permit(mode fs.FileMode, gid int) error {
	if gid >= 0 {
		if err := os.Lchown(s.path, -1, gid); err != nil {
			return fmt.Errorf("cannot give the socket to the group %d: %w", gid, err)
		}
	}
	return os.Chmod(s.path, mode)
}

// InheritSocket takes over a socket that the image before this one listened on.
func InheritSocket(fd int) (*Socket, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return nil, os.NewSyscallError("getsockname", err)
	}
	name, ok := sa.(*unix.SockaddrUnix)
	if !ok || !filepath.IsAbs(name.Name) {
		return nil, fmt.Errorf("descriptor %d is not a control socket", fd)
	}
	if listening, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || listening == 0 {
		return nil, fmt.Errorf("descriptor %d does not listen", fd)
	}
	unix.CloseOnExec(fd)
	return &Socket{fd, name.Name}, nil
}

// Abandon closes and removes an inherited socket (-1: there is none) that is not wanted any more.
func Abandon(fd int) {
	if s, err := InheritSocket(fd); fd >= 0 && err == nil {
		s.Close() //nolint:errcheck // nobody is left to tell
	}
}

// Path is where clients connect.
func (s *Socket) Path() string { return s.path }

// FD is the descriptor to hand over.
func (s *Socket) FD() int { return s.fd }

// Listener returns a net.Listener on a duplicate of the descriptor. It does not remove the socket when it is closed.
func (s *Socket) Listener() (*net.UnixListener, error) {
	dup, err := unix.FcntlInt(uintptr(s.fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	f := os.NewFile(uintptr(dup), s.path)
	defer f.Close() //nolint:errcheck // FileListener has made its own duplicate
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	u := l.(*net.UnixListener)
	u.SetUnlinkOnClose(false) // Close looks first whose it is
	return u, nil
}

// Close ends listening, and removes the socket if it is still this process's.
func (s *Socket) Close() error {
	if s.own() {
		if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return unix.Close(s.fd)
}

// own reports whether this process is who listens at the path: another supervisord may have put its own socket there. An execve does
// not change the PID that the kernel notes at listen(2).
func (s *Socket) own() bool {
	pid, err := listenerAt(s.path)
	return err == nil && pid == os.Getpid()
}

// listenerAt returns the PID of the process that listens at path.
func listenerAt(path string) (int, error) {
	c, err := net.DialTimeout("unix", path, dialTimeout)
	if err != nil {
		return 0, err
	}
	defer c.Close() //nolint:errcheck // nothing was said
	p, err := peerOf(c.(*net.UnixConn))
	return p.PID, err
}

// clear removes what a dead process left at path.
func clear(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there and is no socket: remove it, or choose another place", path)
	}
	switch pid, err := listenerAt(path); {
	case err == nil:
		return fmt.Errorf("%s: %w (PID %d): choose another place", path, ErrInUse, pid)
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
	default: // somebody listens who does not accept: a full queue, or permissions
		return fmt.Errorf("%s: %w: %w", path, ErrInUse, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
