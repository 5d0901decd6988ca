package watch

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// maxLinks is how many symlinks may be in a path, as in the kernel (path_resolution(7)).
const maxLinks = 40

// inode is the identity of a directory. Two paths to one directory (a bind mount) share one watch.
type inode struct{ dev, ino uint64 }

// directory is one that has to be watched, and the names in it that matter.
type directory struct {
	id    inode
	path  string // without symlinks
	names map[string]bool
	all   bool // every name matters
}

// trail is what is on the way to some paths.
type trail struct {
	dirs     map[inode]*directory
	byPath   map[string]*directory
	problems []error
}

func newTrail() *trail { return &trail{dirs: map[inode]*directory{}, byPath: map[string]*directory{}} }

// directory returns the directory at path, which has no symlinks; nil: it is not there any more.
func (t *trail) directory(path string) *directory {
	if d := t.byPath[path]; d != nil {
		return d
	}
	stat, err := os.Lstat(path)
	if err != nil || !stat.IsDir() {
		return nil
	}
	system := stat.Sys().(*syscall.Stat_t)
	id := inode{uint64(system.Dev), system.Ino}
	d := t.dirs[id]
	if d == nil {
		d = &directory{id: id, path: path, names: map[string]bool{}}
		t.dirs[id] = d
	}
	t.byPath[path] = d
	return d
}

// follow goes along path and notes every name on the way. It returns where path leads: the real path, or, with an error, how far it goes.
func (t *trail) follow(path string) (string, error) {
	at, links := "/", 0
	rest := split(path)
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			at = filepath.Dir(at)
			continue
		}
		full := filepath.Join(at, name)
		if d := t.directory(at); d != nil {
			d.names[name] = true
		}
		stat, err := os.Lstat(full)
		if err != nil {
			return full, err
		}
		if stat.Mode()&os.ModeSymlink == 0 {
			at = full
			continue
		}
		if links++; links > maxLinks {
			return full, syscall.ELOOP
		}
		target, err := os.Readlink(full)
		if err != nil {
			return full, err
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(split(target), rest...)
	}
	return at, nil
}

// split returns the names in a path.
func split(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(name string) bool { return name == "" || name == "." })
}

// matters reports whether an event for path can mean a change. It does if it is for a directory that is not known (any more).
func (t *trail) matters(path string) bool {
	if t.byPath[path] != nil && t.byPath[path].path == path {
		return true // a watched directory itself
	}
	d := t.byPath[filepath.Dir(path)]
	return d == nil || d.all && !hidden(filepath.Base(path)) || d.names[filepath.Base(path)]
}

// same reports whether both trails need the same watches.
func (t *trail) same(other *trail) bool {
	return maps.EqualFunc(t.dirs, other.dirs, func(a, b *directory) bool { return a.path == b.path })
}

// sorted returns the directories by path, so that with too few watches it is always the same ones that have one.
func (t *trail) sorted() []*directory {
	return slices.SortedFunc(maps.Values(t.dirs), func(a, b *directory) int { return strings.Compare(a.path, b.path) })
}

// problem notes what cannot be seen.
func (t *trail) problem(path string, err error) {
	t.problems = append(t.problems, fmt.Errorf("cannot see every change of %s: %w", path, err))
}

func (t *trail) err() error { return errors.Join(t.problems...) }
