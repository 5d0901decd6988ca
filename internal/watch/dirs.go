package watch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

// maxLinks is how many symlinks may be in a path, as in the kernel (path_resolution(7)).
const maxLinks = 40

// inode identifies a directory. Two paths to one directory (a bind mount) share one watch.
type inode struct{ dev, ino uint64 }

// watchedDir is a directory that is watched, and the names in it that matter.
type watchedDir struct {
	path  string // without symlinks
	names map[string]bool
	all   bool // every name matters
}

// dirs are the directories on the way to some paths.
type dirs struct {
	notify   *fsnotify.Watcher
	most     int // entries of one that are looked at
	byID     map[inode]*watchedDir
	byPath   map[string]*watchedDir
	full     bool // the kernel has no watch left
	problems []error
}

func newDirs(notify *fsnotify.Watcher, most int) *dirs {
	return &dirs{notify: notify, most: most, byID: map[inode]*watchedDir{}, byPath: map[string]*watchedDir{}}
}

// at watches the directory at path, which has no symlinks; nil: it is gone.
func (ds *dirs) at(path string) *watchedDir {
	if d := ds.byPath[path]; d != nil {
		return d
	}
	stat, err := os.Lstat(path)
	if err != nil || !stat.IsDir() {
		return nil
	}
	system := stat.Sys().(*syscall.Stat_t)
	id := inode{uint64(system.Dev), system.Ino}
	d := ds.byID[id]
	if d == nil {
		d = &watchedDir{path: path, names: map[string]bool{}}
		ds.byID[id] = d
		ds.watch(path)
	}
	ds.byPath[path] = d
	return d
}

func (ds *dirs) watch(path string) {
	if ds.full {
		return
	}
	err := ds.notify.Add(path)
	switch {
	case err == nil, errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		// just gone: an event of the directory above tells that
	case errors.Is(err, syscall.ENOSPC):
		ds.full = true
		ds.problems = append(ds.problems, fmt.Errorf(
			"cannot watch %s and more: %w: raise the sysctl fs.inotify.max_user_watches", path, err))
	default:
		ds.problems = append(ds.problems, fmt.Errorf("cannot watch %s: %w", path, err))
	}
}

// resolve goes along path and records every name on the way. It returns the real path, or, with an error, how far it
// goes.
func (ds *dirs) resolve(path string) (string, error) {
	at, links := "/", 0
	for rest := split(path); len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			at = filepath.Dir(at)
			continue
		}
		full := filepath.Join(at, name)
		if d := ds.at(at); d != nil {
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

// matters reports whether an event for path can mean a change. An event in a directory that is not known (any more)
// can.
func (ds *dirs) matters(path string) bool {
	if d := ds.byPath[path]; d != nil && d.path == path {
		return true // a watched directory itself
	}
	d := ds.byPath[filepath.Dir(path)]
	return d == nil || d.all && !hidden(filepath.Base(path)) || d.names[filepath.Base(path)]
}

// problem records what cannot be watched.
func (ds *dirs) problem(path string, err error) {
	ds.problems = append(ds.problems, fmt.Errorf("cannot see every change of %s: %w", path, err))
}
