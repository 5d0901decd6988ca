package ready

import (
	"crypto/rand"
	"encoding/hex"
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
	const longest = len("/"+directoryPrefix) + 8 + len("/") + socketNameSize
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
	var random [4]byte
	rand.Read(random[:])
	path := filepath.Join(parent, directoryPrefix+hex.EncodeToString(random[:]))
	if err := os.Mkdir(path, 0o700); err != nil {
		if errors.Is(err, os.ErrExist) {
			return nil, nil
		}
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
	pattern := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(parent)
	stale, _ := filepath.Glob(pattern + "/" + directoryPrefix + "*")
	for _, path := range stale {
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

// Remove removes the directory.
func (d *Directory) Remove() error {
	if d.at() == "" {
		return nil
	}
	err := errors.Join(os.RemoveAll(d.path), d.lock.Close())
	sweep(d.parent) // adopted workers of a dead supervisord, whose sockets came back from a store, have ended since
	return err
}
