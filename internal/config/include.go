package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"example.org/supervisord/internal/config/document"
)

const (
	maxFiles = 1000    // that a configuration can have
	maxGlob  = 100_000 // folders and files that one pattern looks at: "/*/*/*/*" must not walk over the whole disk
)

// include finds the files that match the patterns of [supervisor] include: sorted, each once, without hidden ones (an
// editor's lock and backup files) unless the pattern asks for them.
func (l *loader) include(v document.Value) []string {
	var files []string
	at := v.OneOrMore()
	for i, pattern := range l.config.Supervisor.Include {
		found, err := glob(pattern)
		switch {
		case errors.Is(err, errGlob):
			at[i].Problem(fmt.Sprintf("%q looks into more than %d folders and files", pattern, maxGlob),
				"write a pattern with fewer * in the folders")
		case err != nil:
			at[i].Problem(fmt.Sprintf("%q is not a pattern", pattern), "close the bracket, or write \\[ for a bracket")
		case len(found) == 0 && !isPattern(pattern):
			at[i].Problem("there is no "+pattern, "create the file, or write a pattern with * if it may be missing")
		}
		for _, file := range found {
			if (!isHidden(file) || isHidden(pattern)) && file != l.config.Files[0] {
				files = append(files, file)
			}
		}
	}
	slices.Sort(files)
	files = slices.Compact(files)
	if len(files) >= maxFiles {
		v.Problem(fmt.Sprintf("matches %d files", len(files)), "include fewer than %d", maxFiles)
		return nil
	}
	return files
}

func isHidden(path string) bool     { return strings.HasPrefix(filepath.Base(path), ".") }
func isPattern(pattern string) bool { return strings.ContainsAny(pattern, `*?[\`) }

var errGlob = errors.New("too many files to look at")

// glob is filepath.Glob for an absolute pattern, with a bound.
func glob(pattern string) ([]string, error) {
	bounded := &boundedFS{root: os.DirFS("/"), left: maxGlob}
	found, err := fs.Glob(bounded, strings.TrimPrefix(pattern, "/"))
	if err == nil && bounded.left <= 0 {
		err = errGlob
	}
	for i := range found {
		found[i] = "/" + found[i]
	}
	return found, err
}

// boundedFS is a file system that shows only so many entries.
type boundedFS struct {
	root fs.FS
	left int
}

func (b *boundedFS) Open(name string) (fs.File, error)     { return b.root.Open(name) }
func (b *boundedFS) Stat(name string) (fs.FileInfo, error) { return fs.Stat(b.root, name) }

func (b *boundedFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if b.left <= 0 {
		return nil, errGlob
	}
	entries, err := fs.ReadDir(b.root, name)
	b.left -= 1 + len(entries)
	return entries, err
}

// WatchPaths returns what to watch to learn that the configuration has changed: its files, and the folders in which a
// pattern of include could match a new one.
func (c *Config) WatchPaths() []string {
	paths := slices.Clone(c.Files)
	for _, pattern := range c.Supervisor.Include {
		if !isPattern(pattern) {
			continue
		}
		dir := filepath.Dir(pattern)
		for isPattern(dir) {
			dir = filepath.Dir(dir)
		}
		paths = append(paths, dir)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}
