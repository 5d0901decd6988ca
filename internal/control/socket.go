package control

import (
	"io/fs"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket"
)

// backlog is how many connections may wait to be accepted: also those that come while one image replaces another.
const backlog = 128

// ErrInUse says that another process has a socket, or is about to.
var ErrInUse = socket.ErrInUse

// Socket is a listening unix socket of supervisord's own. See socket.Own.
type Socket struct{ *socket.Own }

// OpenSocket listens at path. gid -1 is supervisord's own group. Errors: ErrInUse (wrapped).
func OpenSocket(path string, mode fs.FileMode, gid int) (*Socket, error) {
	own, err := socket.OpenOwn(path, mode, gid, backlog)
	if err != nil {
		return nil, err
	}
	return &Socket{own}, nil
}

// InheritSocket takes over a socket that the image before this one listened on.
func InheritSocket(fd int) (*Socket, error) {
	own, err := socket.InheritOwn(fd)
	if err != nil {
		return nil, err
	}
	return &Socket{own}, nil
}

// Abandon closes and removes an inherited socket (-1: there is none) that is not wanted any more.
func Abandon(fd int) {
	if s, err := InheritSocket(fd); fd >= 0 && err == nil {
		s.Close()
	}
}

// Listener returns a net.Listener on a duplicate of the descriptor. It does not remove the socket when it is closed.
func (s *Socket) Listener() (*net.UnixListener, error) {
	dup, err := unix.FcntlInt(uintptr(s.FD()), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	f := os.NewFile(uintptr(dup), s.Path())
	defer f.Close() //nolint:errcheck // FileListener has made its own duplicate
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	u := l.(*net.UnixListener)
	u.SetUnlinkOnClose(false) // Close looks first whose it is
	return u, nil
}
