package worker

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// directoryPrefix begins the names of the private directories. The rest is random.
const directoryPrefix = "notify."

// maxSocketPath is what fits into sun_path with its NUL (unix(7)).
const maxSocketPath = 107

// directory is where the notify sockets of one supervisor live. Everyone may pass through it to a socket whose name they know,
// and only the worker may write to that. A lock on it, which ends with the process, tells that it is in use.
type directory struct {
	parent string

	mu   sync.Mutex
	path string // "": not made yet
	lock *os.File
}

// PrepareDirectory makes the directory that notify sockets are to be in, or checks the one that is there, as CheckDirectory does.
// A new one in a directory like /tmp is closed to other users.
func PrepareDirectory(path string) error {
	above := filepath.Dir(path)
	if err := os.MkdirAll(above, 0o755); err != nil {
		return fmt.Errorf("cannot create the runtime directory: %w", err)
	}
	mode := os.FileMode(0o755)
	if info, err := os.Stat(above); err == nil && forEverybody(info) && os.Geteuid() != 0 {
		mode = 0o700
	}
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("cannot create the runtime directory: %w", err)
	}
	return CheckDirectory(path)
}

// CheckDirectory returns an error if another user than root and the caller can replace what is in the directory at path, or could
// have made it: such a user could answer in the place of supervisord. A directory that does not exist is good.
func CheckDirectory(path string) error {
	for at := path; at != filepath.Dir(at); at = filepath.Dir(at) {
		err := checkDirectory(at, at == path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// checkDirectory looks at the runtime directory itself, or at one above it, where only one that everybody could have made matters.
func checkDirectory(path string, itself bool) error {
	above, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("cannot look at the runtime directory: %w", err)
	}
	inOpen := forEverybody(above)
	if !itself && !inOpen {
		return nil
	}
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return fmt.Errorf("cannot look at the runtime directory: %w", err)
	case inOpen && above.Mode()&os.ModeSticky == 0:
		return fmt.Errorf("everybody can replace the runtime directory %s: chmod o-w %s, or choose another runtime_dir", path, filepath.Dir(path))
	case inOpen && info.Mode()&os.ModeSymlink != 0:
		return fmt.Errorf("the runtime directory %s is a symlink where everybody can make one: choose another runtime_dir", path)
	}
	if info, err = os.Stat(path); err != nil {
		return fmt.Errorf("cannot look at the runtime directory: %w", err)
	}
	return checkOwn(path, info, inOpen)
}

// checkOwn looks at the directory alone; inOpen says that everybody could have made it.
func checkOwn(path string, info os.FileInfo, inOpen bool) error {
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	switch {
	case !info.IsDir():
		return fmt.Errorf("the runtime directory %s is not a directory: remove it, or choose another runtime_dir", path)
	case owner != 0 && owner != os.Geteuid():
		return fmt.Errorf("the runtime directory %s belongs to user %d, who can replace the sockets in it: run supervisord as that user, or choose another runtime_dir", path, owner)
	case forEverybody(info) && info.Mode()&os.ModeSticky == 0:
		return fmt.Errorf("everybody can write to the runtime directory %s: remove it if you do not know who made it so, chmod o-w %[1]s, or choose another runtime_dir", path)
	case inOpen && owner != 0 && info.Mode()&0o020 != 0:
		return fmt.Errorf("others can write to the runtime directory %s: chmod 700 %[1]s, or choose another runtime_dir", path)
	}
	return nil
}

// forEverybody reports whether every user may make files in a directory.
func forEverybody(info os.FileInfo) bool { return info.Mode()&0o002 != 0 }

// socketName is a name of 60 random bits: workers of the same user must not get to each other's sockets by accident.
func socketName() string { return rand.Text()[:socketNameSize] }

const socketNameSize = 12

// newDirectory makes a private directory in parent, after removing those that nobody uses any more.
func newDirectory(parent string) (*directory, error) {
	parent, err := filepath.Abs(parent)
	if err == nil {
		err = os.MkdirAll(parent, 0o755)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot create the directory of the notify sockets: %w", err)
	}
	const longest = len("/"+directoryPrefix) + 8 + len("/") + socketNameSize + len(einhornSuffix)
	if len(parent)+longest > maxSocketPath {
		return nil, fmt.Errorf("the directory of the notify sockets, %s, has a path of %d bytes: more than %d do not fit into a socket's address, choose a shorter one",
			parent, len(parent), maxSocketPath-longest)
	}
	sweep(parent)
	for range 10 {
		d, err := makeDirectory(parent)
		if errors.Is(err, os.ErrNotExist) { // one that has ended took it away
			err = os.MkdirAll(parent, 0o755)
		}
		if d != nil || err != nil {
			return d, err
		}
	}
	return nil, fmt.Errorf("cannot lock a directory of notify sockets in %s", parent)
}

// ensure makes the directory if it could not be made before, or if somebody has removed it.
func (d *directory) ensure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.path != "" && !d.removed() {
		return nil
	}
	if err := PrepareDirectory(d.parent); err != nil {
		return err
	}
	made, err := newDirectory(d.parent)
	if err != nil {
		return err
	}
	if d.lock != nil {
		d.lock.Close()
	}
	d.path, d.lock = made.path, made.lock
	return nil
}

func (d *directory) removed() bool {
	stat, err := d.lock.Stat()
	return err == nil && stat.Sys().(*syscall.Stat_t).Nlink == 0
}

// at is where the directory is, "" if it was not made yet.
func (d *directory) at() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.path
}

// makeDirectory returns neither if another supervisor swept the new directory away before it could be locked.
func makeDirectory(parent string) (*directory, error) {
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
		return nil, nil
	}
	if err := lock.Chmod(0o711); err != nil { // whatever the umask
		lock.Close()
		return nil, fmt.Errorf("cannot open up the directory of the notify sockets: %w", err)
	}
	return &directory{parent: parent, path: path, lock: lock}, nil
}

// lockDirectory returns nil if the directory is in use, gone, not a directory or not ours.
func lockDirectory(path string) *os.File {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), path)
	var stat unix.Stat_t
	err = unix.Fstat(fd, &stat)
	if err == nil && int(stat.Uid) == os.Geteuid() {
		err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	} else {
		err = unix.EPERM
	}
	if err == nil {
		err = unix.Fstat(fd, &stat)
	}
	if err != nil || stat.Nlink == 0 {
		f.Close()
		return nil
	}
	return f
}

// sweep removes what dead supervisors left. A socket that somebody still holds is left alone, with its directory: it belongs
// to a worker that is to be adopted.
func sweep(parent string) {
	stale, err := filepath.Glob(escapeGlob(parent) + "/" + directoryPrefix + "*")
	if err != nil {
		return
	}
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

func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// abandoned tells whether path is a socket that no process has open any more.
func abandoned(path string) bool {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return errors.Is(unix.Connect(fd, &unix.SockaddrUnix{Name: path}), unix.ECONNREFUSED)
}

// socket makes a worker's notify socket. Its path is never used again.
func (d *directory) socket(c *Credential) (fd int, path string, err error) {
	if err := d.ensure(); err != nil {
		return -1, "", err
	}
	path = d.at() + "/" + socketName()
	fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, "", fmt.Errorf("cannot create a notify socket: %w", err)
	}
	for _, step := range []func() error{
		func() error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1) },
		func() error { return unix.Fchmod(fd, 0o600) }, // before the bind, so that it never has another mode
		func() error { return unix.Bind(fd, &unix.SockaddrUnix{Name: path}) },
		func() error { return giveTo(path, c) },
	} {
		if err := step(); err != nil {
			unix.Close(fd)
			d.unlink(path)
			return -1, "", fmt.Errorf("cannot create the notify socket %s: %w", path, err)
		}
	}
	return fd, path, nil
}

func giveTo(path string, c *Credential) error {
	if c == nil || int(c.UID) == os.Geteuid() || c.UID == unchanged {
		return nil
	}
	err := os.Lchown(path, int(c.UID), -1)
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("to run a worker as another user (%d) needs root, or CAP_CHOWN and CAP_SETUID: %w", c.UID, err)
	}
	return err
}

// unlink removes the sockets of a worker; also one in the directory of the supervisor before this one, which goes with its last socket.
func (d *directory) unlink(path string) {
	unix.Unlink(path)
	unix.Unlink(path + einhornSuffix)
	if dir := filepath.Dir(path); dir != d.at() {
		unix.Rmdir(dir)
	}
}

// remove removes the directory.
func (d *directory) remove() error {
	if d.at() == "" {
		return nil
	}
	err := errors.Join(os.RemoveAll(d.path), d.lock.Close())
	sweep(d.parent) // workers of another supervisor that died, and whose sockets came back from a store, have ended since
	return err
}
