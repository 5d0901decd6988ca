package unixpath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A socket that is to serve later is bound under a hidden name beside its path, and exchanged with what is at the path when its time
// has come: clients find the one socket or the other, and never nothing. The kernel, and so `ss -xl`, still calls a socket by the
// name at which it was bound.

// hiddenNames is how many hidden names a path has.
const hiddenNames = 99

// Longest is the length of the longest path that has hidden names: a socket's address has room for 107 bytes, unix(7).
const Longest = 107 - len("..99")

// hidden returns the n-th hidden name of path.
func hidden(path string, n int) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+strconv.Itoa(n))
}

// IsHidden reports whether the last part of name is that of a hidden name of path.
func IsHidden(name, path string) bool {
	number, is := strings.CutPrefix(filepath.Base(name), "."+filepath.Base(path)+".")
	n, err := strconv.Atoi(number)
	return is && err == nil && n >= 1 && n <= hiddenNames && strconv.Itoa(n) == number
}

// Names returns every name at which a socket may be that was bound at the given one: its path and the hidden names of the path.
func Names(bound string) []string {
	path := bound
	dir, base := filepath.Split(bound)
	if dot := strings.LastIndexByte(base, '.'); dot > 1 && IsHidden(base, base[1:dot]) {
		path = dir + base[1:dot]
	}
	names := []string{path}
	if path != bound {
		names = append(names, bound)
	}
	for _, name := range hiddenAt(path) {
		if name != bound {
			names = append(names, name)
		}
	}
	return names
}

// hiddenAt lists the hidden names of path that exist.
func hiddenAt(path string) (names []string) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if IsHidden(e.Name(), path) {
			names = append(names, filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	return names
}

// BindHidden is Bind at a hidden name of path, which it returns. taken reports names that the caller uses; others that a process uses are
// left alone, and stale ones are replaced.
func BindHidden(fd int, path string, access Access, taken func(name string) bool) (name string, inode Inode, err error) {
	if len(path) > Longest {
		return "", Inode{}, &Remedied{unix.ENAMETOOLONG, fmt.Sprintf("choose a path of at most %d bytes, or write handover = \"share\"", Longest)}
	}
	for n := 1; n <= hiddenNames; n++ {
		if name = hidden(path, n); taken(name) {
			continue
		}
		release, err := Claim(name)
		if errors.Is(err, unix.EADDRINUSE) {
			continue
		}
		if err != nil {
			return "", Inode{}, err
		}
		inode, err = Bind(fd, name, access.Mode, access.UID, access.GID)
		release()
		return name, inode, err
	}
	return "", Inode{}, &Remedied{ErrInUse, "other processes use all of " + hidden(path, 1) + " to " + hidden(path, hiddenNames) + ": remove what is stale"}
}

// RemoveHidden removes the hidden names of path at which nothing answers, but those that are taken: an earlier supervisor has left them.
func RemoveHidden(path string, taken func(name string) bool) {
	for _, name := range hiddenAt(path) {
		if taken(name) {
			continue
		}
		if release, err := Claim(name); err == nil { // it removes what is stale
			release()
		}
	}
}

// Publish puts the socket at name, which has the inode, to path, in one step: clients that connect at any moment find a socket. What was at
// path is at name afterwards, if swapped is true, and can come back by another Publish; else name is free.
//
// ours reports which inodes belong to the caller's sockets. Something else at path is left alone, unless it is a socket on which
// nothing answers. The error is ErrInUse (wrapped) if a process answers there, and ESTALE (wrapped) if the socket is not at name.
func Publish(path, name string, inode Inode, ours func(Inode) bool) (swapped bool, err error) {
	return publish(path, name, inode, ours, exchange)
}

func exchange(path, name string) error {
	return unix.Renameat2(unix.AT_FDCWD, name, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE)
}

func publish(path, name string, inode Inode, ours func(Inode) bool, exchange func(path, name string) error) (swapped bool, err error) {
	if hidden, err := At(name); err != nil && !errors.Is(err, unix.ENOENT) {
		return false, err
	} else if hidden != inode {
		return false, &Remedied{unix.ESTALE, "the socket at " + name + " was removed: reload to bind another one"}
	}
	switch there, err := At(path); {
	case err == nil && ours(there):
	case err == nil:
		if err := clearStale(path); err != nil {
			return false, err
		}
		return false, place(path, name)
	case errors.Is(err, unix.ENOENT):
		return false, place(path, name)
	default:
		return false, err
	}
	switch err := exchange(path, name); {
	case errors.Is(err, unix.ENOENT):
		return false, place(path, name)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP): // the file system cannot
		return replace(path, name)
	case err != nil:
		return false, err
	}
	if came, err := At(name); err == nil && !ours(came) { // somebody was faster; give back what is theirs
		return false, errors.Join(&Remedied{ErrInUse, "another process has just put its own socket there"}, exchange(path, name))
	}
	return true, nil
}

// place renames a socket to a path at which there is nothing.
func place(path, name string) error {
	err := unix.Renameat2(unix.AT_FDCWD, name, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return unix.Rename(name, path)
	}
	return err
}

// replace does by two steps what exchange does by one: the socket at path gets a second name, and loses the first one.
func replace(path, name string) (swapped bool, err error) {
	second := name + "~"
	_ = unix.Unlink(second)
	linked := unix.Link(path, second) == nil
	if err := unix.Rename(name, path); err != nil {
		_ = unix.Unlink(second)
		return false, err
	}
	return linked && unix.Rename(second, name) == nil, nil
}
