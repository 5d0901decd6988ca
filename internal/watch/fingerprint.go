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

	"example.org/supervisord/internal/foreign"
)

// The bounds of a look: see the package comment.
const (
	maxContent = 1 << 20
	maxEntries = 10_000
)

// fingerprint is a fingerprint that is being taken.
type fingerprint struct {
	maphash.Hash
	dirs *dirs
	left int // entries of the directory that is looked at; negative: it has more
}

// takeFingerprint returns a number that changes when what path leads to changes, and records in dirs what to watch for
// that.
func takeFingerprint(seed maphash.Seed, dirs *dirs, path string) uint64 {
	p := &fingerprint{dirs: dirs}
	p.SetSeed(seed)
	p.path(path)
	return p.Sum64()
}

// add adds facts. Each ends with a byte that no path contains, so that two facts cannot be mistaken for one.
func (p *fingerprint) add(facts ...any) {
	for _, fact := range facts {
		fmt.Fprint(p, fact)
		p.WriteByte(0) //nolint:errcheck // it returns nil
	}
}

// path adds what path leads to.
func (p *fingerprint) path(path string) {
	real, err := p.dirs.resolve(path)
	p.add(path, real)
	var stat fs.FileInfo
	if err == nil {
		stat, err = os.Lstat(real)
	}
	switch {
	case err != nil:
		p.add("missing")
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			p.dirs.problem(path, err)
		}
	case stat.IsDir():
		p.left = p.dirs.most
		if p.directory(real); p.left < 0 {
			p.dirs.problem(path, fmt.Errorf("it has more than %d entries", p.dirs.most))
		}
	case stat.Mode().IsRegular():
		p.file(real, stat)
	default:
		p.add("special", stat.Mode())
	}
}

// file adds the content of a file, or what identifies it if it is large.
func (p *fingerprint) file(path string, stat fs.FileInfo) {
	if stat.Size() > maxContent {
		system := stat.Sys().(*syscall.Stat_t)
		p.add("large", system.Dev, system.Ino, stat.Size(), stat.ModTime().UnixNano())
		return
	}
	f, err := foreign.OpenRegular(path)
	if err != nil { // such as a program that may be executed but not read
		p.add("unreadable", stat.Size(), stat.ModTime().UnixNano())
		return
	}
	defer f.Close()
	p.add("file", stat.Size())
	if _, err := io.Copy(&p.Hash, io.LimitReader(f, maxContent)); err != nil {
		p.add("unreadable", stat.ModTime().UnixNano())
	}
}

// directory adds what is in a directory and below it.
func (p *fingerprint) directory(path string) {
	if d := p.dirs.at(path); d != nil {
		d.all = true
	}
	entries, err := list(path, 2*p.dirs.most)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.dirs.problem(path, err)
	}
	p.add("directory")
	for _, entry := range entries {
		if hidden(entry.Name()) {
			continue
		}
		if p.left--; p.left < 0 {
			return
		}
		p.entry(filepath.Join(path, entry.Name()), entry)
	}
	p.add("end")
}

// list returns at most so many entries of a directory, by name.
func list(path string, most int) ([]fs.DirEntry, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(most)
	if err == io.EOF {
		err = nil
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

func (p *fingerprint) entry(path string, entry fs.DirEntry) {
	p.add(entry.Name(), entry.Type())
	stat, err := entry.Info()
	switch {
	case err != nil: // just gone
	case stat.IsDir():
		p.directory(path)
	case stat.Mode()&os.ModeSymlink != 0:
		target, _ := os.Readlink(path) // if it is gone, an event follows
		p.add(target)
	default:
		p.add(stat.Size(), stat.ModTime().UnixNano())
	}
}

// hidden reports whether a name in a watched directory does not count, such as an editor's or a version control's. A
// name with two leading dots counts, because Kubernetes swaps ..data.
func hidden(name string) bool {
	return strings.HasPrefix(name, ".") && !strings.HasPrefix(name, "..")
}
