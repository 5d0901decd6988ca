package unixpath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Guard tells when something may have happened to places. It watches each inode on the way to a path for itself
// (inotify(7)): the link count and the mode of the socket, and whether a folder or a symbolic link on the way was moved
// or removed. So what else happens in a folder, such as temporary files of each request, wakes nobody. Only where a
// name on the way is missing does it watch for what comes into the folder. Set belongs to one goroutine.
type Guard struct {
	file    *os.File // nil: there was nothing to watch yet
	watched []uint32
	changes chan struct{}
}

// NewGuard returns a watch of nothing. It lasts as long as the process.
func NewGuard() *Guard { return &Guard{changes: make(chan struct{}, 1)} }

// Changes delivers a value when something may have happened since the last one.
func (w *Guard) Changes() <-chan struct{} { return w.changes }

// self is what happens to an inode itself.
const self = unix.IN_MOVE_SELF | unix.IN_DELETE_SELF | unix.IN_DONT_FOLLOW | unix.IN_MASK_ADD

// Set replaces what is watched. What happens to the places from now on is told; look at them afterwards for what has
// happened before. What this process may not read is not watched. An error says that the kernel has no watch left.
func (w *Guard) Set(places []Place) error {
	if w.file == nil {
		if len(places) == 0 {
			return nil
		}
		if err := w.open(); err != nil {
			return err
		}
	}
	conn, err := w.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) {
		for _, wd := range w.watched {
			_, _ = unix.InotifyRmWatch(int(fd), wd) // it may have ended by itself
		}
		w.watched = w.watched[:0]
		for _, p := range places {
			failed = errors.Join(failed, w.add(int(fd), p.Path))
		}
	})
	return errors.Join(err, failed)
}

func (w *Guard) open() error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("cannot watch the paths of unix sockets: %w: raise the sysctl fs.inotify.max_user_instances", err)
	}
	w.file = os.NewFile(uintptr(fd), "inotify")
	go w.read()
	return nil
}

// add watches what is on the way to a path, following symbolic links.
func (w *Guard) add(fd int, path string) error {
	at := "/"
	rest := strings.Split(path, "/")
	for links := 0; len(rest) > 0 && links < 40; {
		name := rest[0]
		rest = rest[1:]
		if name == "" || name == "." {
			continue
		}
		next := filepath.Join(at, name) // ".." is cleaned away: at has no links
		st, err := os.Lstat(next)
		switch {
		case err != nil:
			return w.watch(fd, at, self|unix.IN_CREATE|unix.IN_MOVED_TO)
		case st.Mode()&os.ModeSymlink != 0:
			links++
			target, err := os.Readlink(next)
			if err != nil {
				continue
			}
			if filepath.IsAbs(target) {
				at = "/"
			}
			rest = slices.Concat(strings.Split(target, "/"), rest)
		default:
			at = next
		}
		mask := uint32(self)
		if !st.IsDir() {
			mask |= unix.IN_ATTRIB // of a folder it would tell of all that is in it
		}
		if err := w.watch(fd, next, mask); err != nil {
			return err
		}
	}
	return nil
}

func (w *Guard) watch(fd int, path string, mask uint32) error {
	wd, err := unix.InotifyAddWatch(fd, path, mask)
	switch {
	case err == nil:
		w.watched = append(w.watched, uint32(wd))
	case errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("cannot watch %s: %w: raise the sysctl fs.inotify.max_user_watches", path, err)
	}
	return nil
}

// read tells of events, but not of watches that have ended.
func (w *Guard) read() {
	buf := make([]byte, 16<<10)
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			return
		}
		for at := 0; at+unix.SizeofInotifyEvent <= n; {
			event := (*unix.InotifyEvent)(unsafe.Pointer(&buf[at]))
			at += unix.SizeofInotifyEvent + int(event.Len)
			if event.Mask != unix.IN_IGNORED {
				select {
				case w.changes <- struct{}{}:
				default:
				}
			}
		}
	}
}
