package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
)

// ErrInUse says that another process has a path, or is about to listen there; it is an unix.EADDRINUSE. What stands at a path and is
// not a socket is an EADDRINUSE, too, but in nobody's use.
var ErrInUse error = fmt.Errorf("%w", unix.EADDRINUSE)

// identity tells one inode from every other, also from a later one with the same number: some file systems give a number out
// again at once. The zero identity is no inode.
type identity struct {
	dev, ino uint64
	born     int64 // ns since the epoch; 0 where the file system does not keep it
}

// identify looks at what is at path, itself and not where a symbolic link leads, statx(2).
func identify(dir int, path string, flags int) (identity, uint32, error) {
	var st unix.Statx_t
	if err := unix.Statx(dir, path, flags|unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st); err != nil {
		return identity{}, 0, err
	}
	id := identity{dev: unix.Mkdev(st.Dev_major, st.Dev_minor), ino: st.Ino}
	if st.Mask&unix.STATX_BTIME != 0 {
		id.born = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return id, uint32(st.Mode), nil
}

// isAt tells whether the inode is still what stands at path.
func (id identity) isAt(path string) bool {
	now, _, err := identify(unix.AT_FDCWD, path, 0)
	return err == nil && now == id
}

// openPath opens a socket on disk.
//
// What stands at the path is looked at, perhaps removed, and bound anew in three steps, so two supervisors that start at once
// could remove each other's socket. A lock on a file beside it makes the steps one. (Binding under another name and renaming
// would do as well, but then getsockname, ss and the worker's own log would show the other name for ever.) Nobody can connect
// before the owner and the mode are right, because the socket does not listen until then.
func openPath(r Resolved, how opening) (*sock, error) {
	if err := checkDirectory(filepath.Dir(r.at.path)); err != nil {
		return nil, err
	}
	unlock, err := lockBeside(r.at.path)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := clearStale(r.at.path); err != nil {
		return nil, err
	}
	fd, err := newSocket(r, r.at)
	if err != nil {
		return nil, err
	}
	s := &sock{fd: fd, silent: how.silent}
	if err := s.bindPath(r); err != nil {
		s.discard(r)
		return nil, err
	}
	return s, nil
}

func (s *sock) bindPath(r Resolved) error {
	if r.Mode != 0 {
		// The inode gets this mode less the umask: never more than is wanted, at any moment.
		if err := unix.Fchmod(s.fd, uint32(r.Mode)); err != nil {
			return err
		}
	}
	if err := unix.Bind(s.fd, &unix.SockaddrUnix{Name: r.at.path}); err != nil {
		return err
	}
	var err error
	if s.file, _, err = identify(unix.AT_FDCWD, r.at.path, 0); err != nil {
		return err
	}
	if r.Mode != 0 || r.uid >= 0 || r.gid >= 0 {
		if err := setAccess(s, r); err != nil {
			return err
		}
	}
	return setBacklog(s, r)
}

func checkDirectory(dir string) error {
	switch stat, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return &remedied{unix.ENOENT, "the directory " + dir + " is missing: create it"}
	case err == nil && !stat.IsDir():
		return &remedied{unix.ENOTDIR, dir + " is no directory: choose another path"}
	}
	return nil // what else may be wrong, bind says
}

// lockBeside takes the lock for binding at path. It does not wait: who has the lock is binding this very path, and will have it.
func lockBeside(path string) (unlock func(), err error) {
	name := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".lock")
	for range 100 {
		fd, err := unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
			_ = unix.Close(fd)
			return nil, &remedied{ErrInUse, "another process is about to listen there (it holds " + name + ")"}
		}
		// Who had the lock before has removed the file: a lock on what is no longer there would be worth nothing.
		if mine, _, err := identify(fd, "", unix.AT_EMPTY_PATH); err == nil && mine.isAt(name) {
			return func() {
				_ = unix.Unlink(name)
				_ = unix.Flock(fd, unix.LOCK_UN) // a child between fork and exec has the descriptor too
				_ = unix.Close(fd)
			}, nil
		}
		_ = unix.Close(fd)
	}
	return nil, &remedied{ErrInUse, "other processes are about to listen there"}
}

// clearStale removes a socket at path on which nobody answers. Everything else that stands there is an error.
func clearStale(path string) error {
	found, mode, err := identify(unix.AT_FDCWD, path, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return err
	case mode&unix.S_IFMT != unix.S_IFSOCK:
		return &remedied{unix.EADDRINUSE, "what is at this path is no socket, so it is left alone: move it away or choose another path"}
	}
	if err := answers(path); err != nil {
		return err
	}
	if !found.isAt(path) {
		return &remedied{ErrInUse, "another process is about to listen there"}
	}
	if err := unix.Unlink(path); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// answers returns an error unless it is certain that nobody listens on the socket at path, unix(7) and connect(2).
func answers(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	switch err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); {
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
		return nil
	case err == nil:
		return &remedied{ErrInUse, peer(fd) + " answers there: stop it or choose another path"}
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EPROTOTYPE):
		return &remedied{ErrInUse, "another process uses it (`ss -xlp` shows which): stop it or choose another path"}
	default:
		return fmt.Errorf("cannot tell whether another process uses it: %w", err)
	}
}

// peer names the process that made the other end listen, SO_PEERCRED in unix(7).
func peer(fd int) string {
	if cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil && cred.Pid > 0 {
		return processName(int(cred.Pid))
	}
	return "another process"
}

// setAccess gives the socket's inode its owner and mode. The socket of a systemd socket unit keeps what the unit says.
func setAccess(s *sock, r Resolved) error {
	if s.foreign {
		return nil
	}
	// Opened first and compared, so that a path that somebody swaps meanwhile cannot lead the change elsewhere.
	fd, err := unix.Open(r.at.path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if now, _, err := identify(fd, "", unix.AT_EMPTY_PATH); err != nil || now != s.file {
		return &remedied{unix.ESTALE, "somebody has replaced the socket at this path: reload to bind it again"}
	}
	uid, gid := r.uid, r.gid
	if uid < 0 {
		uid = os.Geteuid()
	}
	if gid < 0 {
		gid = os.Getegid()
	}
	if err := unix.Fchownat(fd, "", uid, gid, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("change owner: %w", err)
	}
	mode := uint32(r.Mode)
	if mode == 0 {
		mode = 0o777 &^ umask()
	}
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), mode) // fchmod(2) refuses O_PATH
}

// umask reads the umask without changing it for a moment, which every thread would notice, proc_pid_status(5).
func umask() uint32 {
	status, _ := proc.Status(os.Getpid())
	if mask, err := strconv.ParseUint(status["Umask"], 8, 12); err == nil {
		return uint32(mask)
	}
	return 0o022
}

// discard closes the socket, and removes its inode if that is ours and still stands at the path. The inode goes first: as long
// as the socket listens, no other supervisor takes the path for stale and puts its own there.
func (s *sock) discard(r Resolved) {
	if s.file != (identity{}) && !s.foreign && s.file.isAt(r.at.path) {
		_ = unix.Unlink(r.at.path) // a path that stays behind is stale, and the next start replaces it
	}
	_ = unix.Close(s.fd)
}
