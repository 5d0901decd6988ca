package unixpath

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Own is a listening unix socket from which the supervisor itself accepts. Its descriptor is non-blocking,
// close-on-exec and unknown to Go's poller: it can be handed over to the next image while a duplicate is being accepted
// from.
type Own struct {
	place Place
	fd    int
}

// OpenOwn listens at path, with this mode and group (-1: the supervisor's). Clients cannot connect before both are
// right. It replaces a socket that a dead process has left. Errors: ErrInUse (wrapped) if a process answers there, or
// is about to listen.
func OpenOwn(path string, mode fs.FileMode, gid int) (*Own, error) {
	o := &Own{place: Place{Path: filepath.Clean(path)}, fd: -1}
	if err := o.open(mode, gid); err != nil {
		o.Close()
		return nil, fmt.Errorf("cannot listen on unix %s: %w", o.place.Path, Advise(err, o.place.Path, gid >= 0))
	}
	return o, nil
}

func (o *Own) open(mode fs.FileMode, gid int) error {
	release, err := Claim(o.place.Path)
	if err != nil {
		return err
	}
	defer release()
	o.fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err == nil {
		o.place.Inode, err = Bind(o.fd, o.place.Path, mode, -1, gid)
	}
	if err == nil {
		err = unix.Listen(o.fd, unix.SOMAXCONN)
	}
	return err
}

// InheritOwn takes over a socket that the image before this one has opened with OpenOwn. After an error it is closed: a
// client must not wait for an answer there.
func InheritOwn(fd int) (_ *Own, err error) {
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
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
	o := &Own{place: Place{Path: filepath.Clean(at.Name), Inode: Lost}, fd: fd}
	// An execve does not change the PID that the kernel notes at listen(2). A queue without room (EAGAIN) is one from
	// which nobody accepts, as from this one since the execve.
	if pid, err := connect(o.place.Path); err == nil && pid == os.Getpid() || errors.Is(err, unix.EAGAIN) {
		if o.place.Inode, err = At(o.place.Path); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// Path is where clients connect.
func (o *Own) Path() string { return o.place.Path }

// FD is the descriptor to hand over.
func (o *Own) FD() int { return o.fd }

// Reachable reports whether clients still find the socket: its path was not removed or replaced.
func (o *Own) Reachable() bool { return !o.place.Inode.Gone(o.place.Path) }

// Listener accepts from a duplicate of the descriptor. Closing it removes nothing.
func (o *Own) Listener() (*net.UnixListener, error) {
	dup, err := unix.FcntlInt(uintptr(o.fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	f := os.NewFile(uintptr(dup), o.place.Path)
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
	return o.place.SetAccess(mode, -1, gid)
}

// Close ends listening, and removes the socket if clients still find it. The path goes first: as long as the socket
// listens, no other supervisor takes the path for stale and puts its own socket there.
func (o *Own) Close() {
	o.place.Remove()
	_ = unix.Close(o.fd)
}

// Advise adds the remedy to an error about the socket at path, if it has none. given: another user or group is to own
// the socket.
func Advise(err error, path string, given bool) error {
	if _, ok := errors.AsType[*Remedied](err); ok {
		return err
	}
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return &Remedied{err, "another process has it: `ss -xlp` shows which"}
	case (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)) && given:
		return &Remedied{err, "the supervisor must be able to write in " + filepath.Dir(path) +
			", and giving a socket to another user needs root"}
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return &Remedied{err, "the supervisor must be able to write in " + filepath.Dir(path)}
	case errors.Is(err, unix.EROFS):
		return &Remedied{err, "choose a path on a writable file system, such as /run"}
	}
	return err
}
