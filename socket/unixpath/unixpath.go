// Package unixpath makes the paths of unix sockets safe to bind: it never removes a socket that a process uses.
//
// Beside /run/web.sock stand, hidden:
//
//	.web.sock.lock                while somebody claims the path: Claim, Lock
//	.web.sock.0123456789abcdef    a hard link to the inode as long as it is in use: Place.Keep
//
// An inode is known by its device, number and time of birth, because file systems use numbers again at once. A path is
// looked at without following a link, and changed by way of a descriptor (O_PATH), so that another user who may write
// in the folder cannot lead a change elsewhere. None of it needs privileges but giving a socket to another user.
package unixpath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
	"example.org/supervisord/socket/holder"
)

// ErrInUse says that another process has a path, or is about to listen there; it is a unix.EADDRINUSE. A path at which
// there is something other than a socket is an EADDRINUSE, too, but not an ErrInUse.
var ErrInUse error = fmt.Errorf("%w", unix.EADDRINUSE)

// Answered is an ErrInUse of which it is known which process listens there.
type Answered struct{ PID int }

func (*Answered) Error() string { return ErrInUse.Error() }
func (*Answered) Unwrap() error { return ErrInUse }

// Remedied is an error of the kernel, or one that means the same, with what to do about it.
type Remedied struct {
	Err    error
	Remedy string
}

func (e *Remedied) Error() string { return e.Err.Error() + ": " + e.Remedy }
func (e *Remedied) Unwrap() error { return e.Err }

// Inode identifies one inode forever, even if its number is used again, which some file systems do at once. The zero
// Inode is none.
type Inode struct {
	dev, ino uint64
	born     int64 // ns since the epoch; 0 where the file system does not keep it
}

// Lost is an inode that is at no path.
var Lost = Inode{born: -1}

// String has everything that identifies the inode.
func (i Inode) String() string { return fmt.Sprint(i.dev, i.ino, i.born) }

// Number is the number of the inode in its file system.
func (i Inode) Number() uint64 { return i.ino }

// At returns the inode at path.
func At(path string) (Inode, error) {
	i, _, err := stat(unix.AT_FDCWD, path, 0)
	return i, err
}

// IsAt reports whether the inode is at path now.
func (i Inode) IsAt(path string) bool {
	now, err := At(path)
	return err == nil && now == i
}

// Gone reports whether clients who connect to path certainly do not find the inode. While the file system cannot be
// asked, they may.
func (i Inode) Gone(path string) bool {
	now, err := At(path)
	return i == Lost || err == nil && now != i || errors.Is(err, fs.ErrNotExist)
}

// stat looks at what is at path, without following a symbolic link, statx(2).
func stat(dir int, path string, flags int) (i Inode, mode uint32, err error) {
	var st unix.Statx_t
	if err := unix.Statx(dir, path, flags|unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS|unix.STATX_BTIME,
		&st); err != nil {
		return Inode{}, 0, err
	}
	i = Inode{dev: unix.Mkdev(st.Dev_major, st.Dev_minor), ino: st.Ino}
	if st.Mask&unix.STATX_BTIME != 0 {
		i.born = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return i, uint32(st.Mode), nil
}

// Claim makes a path free to bind until release is called. It removes a socket on which nothing answers; anything else
// at the path is an error.
//
// To look, to remove and to bind are three steps, so two supervisors that start at once could remove each other's
// socket. A lock on a file beside the path makes them one. (Binding under another name and renaming would do, too, but
// then getsockname, ss and the worker's own log would show the other name forever.)
func Claim(path string) (release func(), err error) {
	dir := filepath.Dir(path)
	switch info, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &Remedied{unix.ENOENT, "the directory " + dir + " is missing: create it"}
	case err == nil && !info.IsDir():
		return nil, &Remedied{unix.ENOTDIR, dir + " is not a directory: choose another path"}
	}
	release, err = Lock(path)
	if err != nil {
		return nil, err
	}
	if err := clearStale(path); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// Lock takes the lock of Claim alone. It does not wait: the holder of the lock is binding this very path, and will have
// it.
func Lock(path string) (release func(), err error) {
	name := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".lock")
	for range 100 {
		fd, err := unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
			_ = unix.Close(fd)
			if !errors.Is(err, unix.EWOULDBLOCK) {
				return nil, fmt.Errorf("lock %s: %w", name, err)
			}
			return nil, &Remedied{ErrInUse, "another process is about to listen there (it holds " + name + ")"}
		}
		// The holder before may have removed the file: a lock on a removed file protects nothing.
		if mine, _, err := stat(fd, "", unix.AT_EMPTY_PATH); err == nil && mine.IsAt(name) {
			return func() {
				_ = unix.Unlink(name)
				_ = unix.Flock(fd, unix.LOCK_UN) // a child between fork and exec has the descriptor, too
				_ = unix.Close(fd)
			}, nil
		}
		_ = unix.Close(fd)
	}
	return nil, &Remedied{ErrInUse, "other processes are about to listen there"}
}

// unused returns an error unless nothing is at path, or a socket on which nothing answers.
func unused(path string) error {
	switch _, mode, err := stat(unix.AT_FDCWD, path, 0); {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return err
	case mode&unix.S_IFMT != unix.S_IFSOCK:
		return &Remedied{unix.EADDRINUSE,
			"there is something at this path that is not a socket: move it away or choose another path"}
	}
	return answers(path)
}

// clearStale removes a socket at path on which nothing answers.
func clearStale(path string) error {
	found, err := At(path)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return err
	}
	if err := unused(path); err != nil {
		return err
	}
	switch now, err := At(path); {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return err
	case now != found:
		return &Remedied{ErrInUse, "another process is about to listen there"}
	}
	if err := unix.Unlink(path); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// answers returns an error unless it is certain that nothing listens on the socket at path, unix(7) and connect(2).
func answers(path string) error {
	pid, err := connect(path)
	switch {
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
		return nil
	case err == nil && pid > 0:
		return &Remedied{&Answered{pid}, holder.Name(pid) + " answers there: stop it or choose another path"}
	case err == nil:
		return &Remedied{ErrInUse, "another process answers there: stop it or choose another path"}
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EPROTOTYPE):
		return &Remedied{ErrInUse, "another process uses it (`ss -xlp` shows which): stop it or choose another path"}
	}
	return fmt.Errorf("cannot tell whether another process uses it: %w", err)
}

// connect returns the PID of the process that began to listen at path, SO_PEERCRED in unix(7); 0: unknown.
func connect(path string) (pid int, err error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return 0, err
	}
	if peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
		pid = int(peer.Pid)
	}
	return pid, nil
}

// Bind binds a new socket to a claimed path and gives its inode the owner and mode of SetAccess, before it listens, so
// that clients cannot connect until they are right. The inode is valid also with an error, unless it is zero.
func Bind(fd int, path string, mode fs.FileMode, uid, gid int) (Inode, error) {
	if mode != 0 {
		// The inode gets this mode less the umask: never more than is wanted, at any moment.
		if err := unix.Fchmod(fd, uint32(mode)); err != nil {
			return Inode{}, err
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return Inode{}, err
	}
	inode, err := At(path)
	if err != nil {
		_ = unix.Unlink(path) // the caller could not tell any more that it is ours
	}
	removeStaleLinks(path)
	if err == nil && (mode != 0 || uid >= 0 || gid >= 0) {
		err = Place{Path: path, Inode: inode}.SetAccess(mode, uid, gid)
	}
	return inode, err
}

// umask reads the umask without changing it for a moment, which would affect every thread, proc_pid_status(5).
func umask() uint32 {
	status, _ := proc.Status(os.Getpid())
	if mask, err := strconv.ParseUint(status["Umask"], 8, 12); err == nil {
		return uint32(mask)
	}
	return 0o022
}
