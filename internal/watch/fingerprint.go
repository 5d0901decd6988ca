package watch

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// The bounds of what is looked at, see the package's description.
const (
	maxContent = 1 << 20
	maxDepth   = 16
	maxEntries = 10_000
	maxDirs    = 1_000
)

// print is a fingerprint that is being taken.
type print struct {
	maphash.Hash
	ways *trail
}

// fingerprint returns a number that changes when what paths lead to changes, and notes in ways where to watch for that.
func fingerprint(seed maphash.Seed, ways *trail, paths []string) uint64 {
	p := &print{ways: ways}
	p.SetSeed(seed)
	for _, path := range paths {
		p.path(path)
	}
	return p.Sum64()
}

// add adds facts. Each ends with a byte that no path has, so that two of them cannot be taken for one.
func (p *print) add(facts ...any) {
	for _, fact := range facts {
		fmt.Fprint(p, fact)
		p.WriteByte(0) //nolint:errcheck // it returns none
	}
}

// path adds what path leads to.
func (p *print) path(path string) {
	real, err := p.ways.follow(path)
	p.add(path, real)
	if err != nil {
		p.missing(path, err)
		return
	}
	stat, err := os.Lstat(real)
	switch {
	case err != nil:
		p.missing(path, err)
	case stat.IsDir():
		left := &budget{entries: maxEntries, dirs: maxDirs}
		p.directory(real, maxDepth, left)
		if left.exceeded {
			p.ways.problem(path, fmt.Errorf("it has more than %d entries or %d directories, or is more than %d deep", maxEntries, maxDirs, maxDepth))
		}
	case stat.Mode().IsRegular():
		p.file(real, stat)
	default:
		p.add("special", stat.Mode())
	}
}

func (p *print) missing(path string, err error) {
	p.add("missing")
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		p.ways.problem(path, err)
	}
}

// file adds the content of a file, or its marks if it is large.
func (p *print) file(path string, stat fs.FileInfo) {
	if stat.Size() > maxContent {
		system := stat.Sys().(*syscall.Stat_t)
		p.add("large", system.Dev, system.Ino, stat.Size(), stat.ModTime().UnixNano())
		return
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil { // such as a program that may be run but not read
		p.add("unreadable", stat.Size(), stat.ModTime().UnixNano())
		return
	}
	defer f.Close()
	p.add("file", stat.Size())
	if _, err := io.Copy(&p.Hash, io.LimitReader(f, maxContent)); err != nil {
		p.add("unreadable", stat.ModTime().UnixNano())
	}
}

// budget is how much of a directory may still be looked at.
type budget struct {
	entries, dirs int
	exceeded      bool
}

// directory adds what is in a directory and below it.
func (p *print) directory(path string, depth int, left *budget) {
	if left.dirs--; left.dirs < 0 || depth == 0 {
		left.exceeded = true
		return
	}
	if d := p.ways.directory(path); d != nil {
		d.all = true
	}
	entries, err := list(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.ways.problem(path, err)
	}
	p.add("directory")
	for _, entry := range entries {
		if hidden(entry.Name()) {
			continue
		}
		if left.entries--; left.entries < 0 {
			left.exceeded = true
			return
		}
		p.entry(filepath.Join(path, entry.Name()), entry, depth, left)
	}
	p.add("end")
}

// list returns the entries of a directory by name, but not many more than count.
func list(path string) ([]fs.DirEntry, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(2 * maxEntries)
	if err == io.EOF {
		err = nil
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

func (p *print) entry(path string, entry fs.DirEntry, depth int, left *budget) {
	p.add(entry.Name(), entry.Type())
	stat, err := entry.Info()
	switch {
	case err != nil: // it has just gone
	case stat.IsDir():
		p.directory(path, depth-1, left)
	case stat.Mode()&os.ModeSymlink != 0:
		target, _ := os.Readlink(path) // gone: an event follows
		p.add(target)
	default:
		p.add(stat.Size(), stat.ModTime().UnixNano())
	}
}

// hidden reports whether a name in a watched directory does not count: an editor's, or a version control's. Two dots are no
// hidden name, because Kubernetes swaps ..data.
func hidden(name string) bool {
	return strings.HasPrefix(name, ".") && !strings.HasPrefix(name, "..")
}
