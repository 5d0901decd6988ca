package output

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Rotation works on names in an open directory, and never follows a link there: the directory may belong to the
// worker's user, who could otherwise make root write to any file.

// rotatedTime is the time in the name of a rotated file: web.log becomes web-2026-01-31T12-00-00.000.log. So the names
// sort by time.
const rotatedTime = "2006-01-02T15-04-05.000"

// rotateRetry is how long a file that could not be rotated grows before the next try.
const rotateRetry = time.Minute

// isFull reports whether the file must be rotated before so many bytes more.
func (k *fileSink) isFull(more int) bool {
	return k.spec.MaxSize > 0 && k.file.size > 0 && k.file.size+int64(more) > k.spec.MaxSize && time.Now().After(k.retry)
}

// rotate renames the file and continues with a new one. If that fails, the old one stays in use, so that no line is
// lost.
func (k *fileSink) rotate() {
	err := k.rotated()
	if err == nil {
		k.retry = time.Time{}
		return
	}
	if k.retry.IsZero() {
		k.errors.report("cannot rotate log file; it grows", err)
	}
	k.retry = time.Now().Add(rotateRetry)
}

// rotated renames the file and opens a new one with the owner and mode of the old. An error leaves the old one open,
// under one of the two names.
func (k *fileSink) rotated() error {
	p, err := owners{k.spec.Owner}.findLog(k.spec.Path)
	if err != nil {
		return err
	}
	defer p.close()
	info, err := k.file.Stat()
	if err != nil {
		return err
	}
	old := info.Sys().(*syscall.Stat_t)
	if !p.is(old) { // it was rotated externally
		return k.open()
	}
	if err := unix.Renameat(p.dir, p.name, p.dir, k.spec.rotatedName(&p, time.Now())); err != nil {
		return fmt.Errorf("cannot rename %s: %w", k.spec.Path, err)
	}
	var st unix.Stat_t
	fd, err := p.create(&st)
	if err != nil {
		return k.open()
	}
	unix.Fchown(fd, int(old.Uid), int(old.Gid)) //nolint:errcheck // only root may give files away
	unix.Fchmod(fd, old.Mode&0o666)             //nolint:errcheck // it has the usual mode
	k.use(&openLog{File: os.NewFile(uintptr(fd), k.spec.Path)})
	return nil
}

// is reports whether the name belongs to this file.
func (p *logPlace) is(file *syscall.Stat_t) bool {
	var st unix.Stat_t
	err := unix.Fstatat(p.dir, p.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Dev == file.Dev && st.Ino == file.Ino
}

// around returns how the names of rotated files begin and end.
func (s LogFileSpec) around() (prefix, extension string) {
	base := filepath.Base(s.Path)
	extension = filepath.Ext(base)
	return strings.TrimSuffix(base, extension) + "-", extension
}

// rotatedName returns an unused name.
func (s LogFileSpec) rotatedName(p *logPlace, now time.Time) string {
	prefix, extension := s.around()
	for {
		name := prefix + now.UTC().Format(rotatedTime) + extension
		var st unix.Stat_t
		if err := unix.Fstatat(p.dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return name
		}
		now = now.Add(time.Millisecond)
	}
}

// isRotated reports whether a name is that of a rotated file.
func (s LogFileSpec) isRotated(name string) bool {
	prefix, extension := s.around()
	rest, begins := strings.CutPrefix(name, prefix)
	rest, ends := strings.CutSuffix(rest, extension)
	_, err := time.Parse(rotatedTime, rest)
	return begins && ends && err == nil
}

// tidy removes the oldest rotated files beyond MaxFiles.
func (k *fileSink) tidy() {
	if k.spec.MaxSize == 0 || k.spec.MaxFiles == 0 {
		return
	}
	err := k.spec.removeOldest()
	if err != nil && !k.untidy {
		k.errors.report("cannot remove rotated log files", err)
	}
	k.untidy = err != nil
}

// removeOldest removes names only, in the directory itself: unlinkat(2) never follows a link.
func (s LogFileSpec) removeOldest() error {
	p, err := owners{s.Owner}.findLog(s.Path)
	if err != nil {
		return err
	}
	defer p.close()
	fd, err := unix.Openat(p.dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", filepath.Dir(s.Path), err)
	}
	folder := os.NewFile(uintptr(fd), filepath.Dir(s.Path))
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	names = slices.DeleteFunc(names, func(name string) bool { return !s.isRotated(name) })
	slices.Sort(names)
	for _, name := range names[:max(0, len(names)-s.MaxFiles)] {
		if gone := unix.Unlinkat(p.dir, name, 0); gone != nil && !errors.Is(gone, unix.ENOENT) {
			err = errors.Join(err, fmt.Errorf("cannot remove %s: %w", name, gone))
		}
	}
	return err
}
