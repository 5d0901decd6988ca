package ready

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// directoryPrefix begins the names of the private directories. The rest is random.
const directoryPrefix = "notify."

// maxSocketPath is what fits into sun_path with its NUL (unix(7)).
const maxSocketPath = 107

// socketNameSize is 60 random bits in the letters of rand.Text: workers of the same user must not get to each other's
// sockets by accident.
const socketNameSize = 12

// Directory is where the notify sockets of one supervisord live. Every user may pass through it to a socket whose name
// they know, but not list it. A lock on the directory, which ends with the process, says that it is in use. Its methods
// may be called from anywhere.
type Directory struct {
	parent string

	mu   sync.Mutex
	path string // "": not created yet
	lock *os.File
	left []string // sockets that could not be removed
}

// NewDirectory creates a private directory in parent, which it makes absolute and creates if it is missing. It removes
// the directories that is not used any more.
func NewDirectory(parent string) (*Directory, error) {
	parent, err := filepath.Abs(parent)
	if err == nil {
		err = os.MkdirAll(parent, 0o755)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot create the directory of the notify sockets: %w", err)
	}
	const longest = len("/"+directoryPrefix+"4294967295/") + socketNameSize
	if len(parent)+longest > maxSocketPath {
		return nil, fmt.Errorf("the directory of the notify sockets, %s, has a path of %d bytes: more than %d do not fit "+
			"into a socket's address, choose a shorter one",
			parent, len(parent), maxSocketPath-longest)
	}
	sweep(parent)
	for range 10 {
		d, err := makeDirectory(parent)
		if errors.Is(err, os.ErrNotExist) { // a supervisord that ended removed parent
			err = os.MkdirAll(parent, 0o755)
		}
		if d != nil || err != nil {
			return d, err
		}
	}
	return nil, fmt.Errorf("cannot lock a directory of notify sockets in %s", parent)
}

// LaterDirectory returns a Directory that is created with its first socket.
func LaterDirectory(parent string) *Directory { return &Directory{parent: parent} }

// makeDirectory returns neither if another supervisord swept the new directory away before it could be locked.
func makeDirectory(parent string) (*Directory, error) {
	path, err := os.MkdirTemp(parent, directoryPrefix+"*") // of mode 0700
	if err != nil {
		return nil, fmt.Errorf("cannot create the directory of the notify sockets: %w", err)
	}
	lock := lockDirectory(path)
	if lock == nil {
		os.Remove(path)
		return nil, nil
	}
	if err := lock.Chmod(0o711); err != nil { // whatever the umask
		os.Remove(path)
		lock.Close()
		return nil, fmt.Errorf("cannot open up the directory of the notify sockets: %w", err)
	}
	return &Directory{parent: parent, path: path, lock: lock}, nil
}

// lockDirectory returns nil if the directory is in use, gone, not a directory or not ours.
func lockDirectory(path string) *os.File {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), path)
	var stat unix.Stat_t
	if unix.Fstat(fd, &stat) != nil || int(stat.Uid) != os.Geteuid() ||
		unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil || unix.Fstat(fd, &stat) != nil || stat.Nlink == 0 {
		f.Close()
		return nil
	}
	return f
}

// sweep removes what dead supervisords left. A socket that some process still holds stays, with its directory: it
// belongs to a worker that will be adopted.
func sweep(parent string) {
	entries, _ := os.ReadDir(parent)
	for _, e := range entries {
		path := filepath.Join(parent, e.Name())
		if !strings.HasPrefix(e.Name(), directoryPrefix) {
			continue
		}
		lock := lockDirectory(path)
		if lock == nil {
			continue
		}
		names, _ := lock.Readdirnames(-1)
		for _, name := range names {
			if file := filepath.Join(path, name); abandoned(file) {
				os.Remove(file)
			}
		}
		os.Remove(path)
		lock.Close()
	}
}

// abandoned reports whether path is a socket that no process has open any more.
func abandoned(path string) bool {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return errors.Is(unix.Connect(fd, &unix.SockaddrUnix{Name: path}), unix.ECONNREFUSED)
}

// ensure creates the directory if it could not be created before, or if it was removed.
func (d *Directory) ensure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.path != "" && !d.removed() {
		return nil
	}
	if err := PrepareDirectory(d.parent); err != nil {
		return err
	}
	made, err := NewDirectory(d.parent)
	if err != nil {
		return err
	}
	if d.lock != nil {
		d.lock.Close()
	}
	d.path, d.lock = made.path, made.lock
	return nil
}

// removed reports whether somebody has removed the directory, such as systemd-tmpfiles(8). The lock keeps its inode.
// d.mu is held.
func (d *Directory) removed() bool {
	stat, err := d.lock.Stat()
	return err == nil && stat.Sys().(*syscall.Stat_t).Nlink == 0
}

// at returns the path of the directory, "" if it was not created yet.
func (d *Directory) at() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.path
}

// Socket makes a worker's notify socket. Every user may write to it, because a worker may change its user, but only the
// worker is told its path. The path is never used again.
func (d *Directory) Socket() (fd int, path string, err error) {
	if err := d.ensure(); err != nil {
		return -1, "", err
	}
	path = d.at() + "/" + rand.Text()[:socketNameSize]
	fd, err = newSocket(path)
	if err != nil {
		return -1, "", fmt.Errorf("cannot create the notify socket %s: %w", path, err)
	}
	return fd, path, nil
}

// newSocket makes a datagram socket at path that tells who sends (SO_PASSCRED, unix(7)). The descriptor is the
// caller's, close-on-exec and non-blocking.
func newSocket(path string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	for _, step := range []func() error{
		func() error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1) },
		func() error { return unix.Bind(fd, &unix.SockaddrUnix{Name: path}) },
		func() error { return os.Chmod(path, 0o666) }, // the umask cannot be in the way
	} {
		if err := step(); err != nil {
			unix.Close(fd)
			unix.Unlink(path)
			return -1, err
		}
	}
	return fd, nil
}

// IsNotifyPath reports whether path is where some supervisord could have a notify socket.
func IsNotifyPath(path string) bool {
	return strings.HasPrefix(filepath.Base(filepath.Dir(path)), directoryPrefix)
}

// Unlink removes the socket of a worker; what cannot be removed, at the next call. In the directory of a supervisord
// before this one, the directory goes with its last socket.
func (d *Directory) Unlink(notifyPath string) {
	d.mu.Lock()
	d.left = slices.DeleteFunc(append(d.left, notifyPath), func(path string) bool {
		err := unix.Unlink(path)
		return err == nil || errors.Is(err, unix.ENOENT)
	})
	d.mu.Unlock()
	if dir := filepath.Dir(notifyPath); dir != d.at() {
		unix.Rmdir(dir)
	}
}

// Discard closes the notify socket of a worker that nobody knows and removes it, and its directory with its last
// socket.
func Discard(fd int) {
	name, err := unix.Getsockname(fd)
	unix.Close(fd)
	if at, is := name.(*unix.SockaddrUnix); err == nil && is && IsNotifyPath(at.Name) {
		unix.Unlink(at.Name)
		unix.Rmdir(filepath.Dir(at.Name))
	}
}

// Remove removes the directory.
func (d *Directory) Remove() error {
	if d.at() == "" {
		return nil
	}
	err := errors.Join(os.RemoveAll(d.path), d.lock.Close())
	sweep(d.parent) // adopted workers of a dead supervisord, whose sockets came back from a store, have ended since
	return err
}

// PrepareDirectory creates the runtime directory, which will hold the notify sockets, or checks the existing one as
// CheckDirectory does. A new one below a directory like /tmp is closed to other users.
func PrepareDirectory(path string) error {
	above := filepath.Dir(path)
	if err := os.MkdirAll(above, 0o755); err != nil {
		return fmt.Errorf("cannot create the runtime directory: %w: choose another runtime_dir", err)
	}
	mode := os.FileMode(0o755)
	if info, err := os.Stat(above); err == nil && worldWritable(info) && os.Geteuid() != 0 {
		mode = 0o700
	}
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("cannot create the runtime directory: %w: choose another runtime_dir", err)
	}
	return CheckDirectory(path)
}

// CheckDirectory returns an error if a user other than root and the caller can replace what is in the runtime
// directory, or could have created it: such a user could answer in the place of supervisord. A directory that does not
// exist is fine.
func CheckDirectory(path string) error {
	for at := path; at != filepath.Dir(at); at = filepath.Dir(at) {
		err := checkDirectory(at, at == path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// checkDirectory checks the runtime directory itself, or one above it, which matters only if everybody could have
// created it.
func checkDirectory(path string, itself bool) error {
	above, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("cannot look at the runtime directory: %w", err)
	}
	public := worldWritable(above)
	if !itself && !public {
		return nil
	}
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return fmt.Errorf("cannot look at the runtime directory: %w", err)
	case public && above.Mode()&os.ModeSticky == 0:
		return fmt.Errorf("everybody can replace the runtime directory %s: chmod o-w %s, or choose another runtime_dir", path,
			filepath.Dir(path))
	case public && info.Mode()&os.ModeSymlink != 0:
		return fmt.Errorf("the runtime directory %s is a symlink where everybody can make one: choose another runtime_dir",
			path)
	}
	if info, err = os.Stat(path); err != nil {
		return fmt.Errorf("cannot look at the runtime directory: %w", err)
	}
	return checkOwner(path, info, public)
}

// checkOwner checks the directory alone; public says that everybody could have created it.
func checkOwner(path string, info os.FileInfo, public bool) error {
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	switch {
	case !info.IsDir():
		return fmt.Errorf("the runtime directory %s is not a directory: remove it, or choose another runtime_dir", path)
	case owner != 0 && owner != os.Geteuid():
		return fmt.Errorf("the runtime directory %s belongs to user %d, who can replace the sockets in it: run "+
			"supervisord as that user, or choose another runtime_dir", path, owner)
	case worldWritable(info) && info.Mode()&os.ModeSticky == 0:
		return fmt.Errorf("everybody can write to the runtime directory %s: remove it if you do not know who made it so, "+
			"chmod o-w %[1]s, or choose another runtime_dir", path)
	case public && owner != 0 && info.Mode()&0o020 != 0:
		return fmt.Errorf("others can write to the runtime directory %s: chmod 700 %[1]s, or choose another runtime_dir",
			path)
	}
	return nil
}

func worldWritable(info os.FileInfo) bool { return info.Mode()&0o002 != 0 }
