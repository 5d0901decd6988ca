package socket

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket/unixpath"
)

// Own is a listening unix socket from which the supervisor itself accepts. Its descriptor is non-blocking, close-on-exec and unknown to
// Go's poller: it can be handed over to the next image while a duplicate is being accepted from.
type Own struct {
	sock *sock
	r    Resolved
}

// OpenOwn listens at path, with this mode and group (-1: the supervisor's). Clients cannot connect before both are right. It replaces a
// socket that a dead process has left. Errors: ErrInUse (wrapped) if a process answers there, or is about to listen.
func OpenOwn(path string, mode fs.FileMode, gid, backlog int) (*Own, error) {
	r := ownAt(path)
	r.Mode, r.gid, r.Backlog = mode, gid, backlog
	s, err := open(r, r.at, opening{})
	if err != nil {
		return nil, err
	}
	return &Own{s, r}, nil
}

func ownAt(path string) Resolved {
	return Spec{Address: UnixAddress(filepath.Clean(path)), NonBlock: true}.Literal()
}

// InheritOwn takes over a socket that the image before this one has opened with OpenOwn.
func InheritOwn(fd int) (*Own, error) {
	name, err := unix.Getsockname(fd)
	if err != nil {
		return nil, os.NewSyscallError("getsockname", err)
	}
	at, is := name.(*unix.SockaddrUnix)
	if !is || !filepath.IsAbs(at.Name) {
		return nil, fmt.Errorf("descriptor %d is not a unix socket with a path", fd)
	}
	if listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || listens == 0 {
		return nil, fmt.Errorf("descriptor %d does not listen", fd)
	}
	unix.CloseOnExec(fd)
	o := &Own{&sock{fd: fd, inode: unixpath.Lost}, ownAt(at.Name)}
	if unixpath.Listener(at.Name) == os.Getpid() { // an execve does not change the PID that the kernel notes at listen(2)
		if o.sock.inode, err = unixpath.At(at.Name); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// Path is where clients connect.
func (o *Own) Path() string { return o.r.at.path }

// FD is the descriptor to hand over.
func (o *Own) FD() int { return o.sock.fd }

// Reachable reports whether clients still find the socket: its path was not removed or replaced.
func (o *Own) Reachable() bool { return o.sock.reachable(o.r) }

// Listener accepts from a duplicate of the descriptor. Closing it removes nothing.
func (o *Own) Listener() (*net.UnixListener, error) {
	dup, err := unix.FcntlInt(uintptr(o.FD()), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	f := os.NewFile(uintptr(dup), o.Path())
	defer f.Close() //nolint:errcheck // FileListener has made its own duplicate
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	u := l.(*net.UnixListener)
	u.SetUnlinkOnClose(false) // Close checks first whether the path is still ours
	return u, nil
}

// Permit changes who may connect. gid -1 is the supervisor's group.
func (o *Own) Permit(mode fs.FileMode, gid int) error {
	o.r.Mode, o.r.gid = mode, gid
	return setAccess(o.sock, o.r)
}

// Close ends listening, and removes the socket if clients still find it.
func (o *Own) Close() { o.sock.discard(o.r) }
