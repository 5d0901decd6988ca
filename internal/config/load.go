package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/config/meant"
	"example.org/supervisord/worker/ready"
)

// Load reads path and everything that it includes. On any problem it returns an *document.Error that lists them all.
//
// Files must be regular and have at most 1 MiB. Load looks up users and groups. It opens nothing but the configuration,
// and keeps nothing of the files' text.
func Load(path string) (*Config, error) {
	file, err := filepath.Abs(path)
	if err != nil {
		return nil, &document.Error{Problems: []document.Problem{{File: path, What: err.Error()}}}
	}
	l := newLoader()
	l.main(l.open(file))
	return l.loaded()
}

// Parse reads a configuration that is not in a file: it returns what Load would return for this text in the file
// dir/name. Messages use name.
func Parse(dir, name string, text []byte) (*Config, error) {
	l := newLoader()
	l.config.Files = []string{name}
	l.main(l.parse(name, dir, string(text)))
	return l.loaded()
}

// loader gathers a configuration from its files.
type loader struct {
	config  *Config
	defined map[string]Program
	written map[string]document.Value // the table of each program
	files   map[string]document.Value // of each log and status file the first key that names it
	keys    *meant.Keys
	found   []document.Problem
}

func newLoader() *loader {
	return &loader{config: &Config{Supervisor: defaultSupervisor()}, defined: map[string]Program{},
		written: map[string]document.Value{}, files: map[string]document.Value{},
		keys: &meant.Keys{Program: programTables(), Supervisor: keysOf(supervisorFields)}}
}

func (l *loader) loaded() (*Config, error) {
	files := l.config.Files
	l.config.Programs = slices.SortedFunc(maps.Values(l.defined),
		func(a, b Program) int { return strings.Compare(a.Name, b.Name) })
	l.order()
	l.probes()
	l.addresses()
	if l.refused() {
		errors := slices.DeleteFunc(l.found, func(p document.Problem) bool { return !p.IsError() })
		return nil, &document.Error{Problems: document.SortProblems(errors, files)}
	}
	l.config.Warnings = document.SortProblems(l.found, files)
	return l.config, nil
}

func (l *loader) report(p document.Problem) { l.found = append(l.found, p) }

// refused reports whether something is wrong so far.
func (l *loader) refused() bool { return slices.ContainsFunc(l.found, document.Problem.IsError) }

// main reads the main file, then what it includes.
func (l *loader) main(root document.Value, ok bool) {
	if ok {
		document.Decode(root, l.config, document.Fields[Config]{
			"supervisor": func(*Config, document.Value) {},
			"program":    func(_ *Config, v document.Value) { l.programs(v) },
		})
		table := root.Child("supervisor")
		readSupervisor(table, &l.config.Supervisor)
		l.config.positions = root.In.Positions
		if err := ready.CheckDirectory(l.config.Supervisor.RuntimeDir); err != nil {
			table.Child("runtime_dir").Warn(err.Error(), "supervisord does not start with it")
		}
		for _, file := range l.include(table.Child("include")) {
			l.included(file)
		}
	}
	if len(l.defined) == 0 && !l.refused() {
		l.noProgram(root)
	}
}

// noProgram reports a configuration without a program. A configuration that includes files may wait for its first file,
// as the installed one does. If the folder of those files is missing, too, a mistake is more likely, such as a file
// system that is not mounted: such a mistake must not stop programs at a reload.
func (l *loader) noProgram(root document.Value) {
	p := document.Problem{File: l.config.Files[0], What: "there is no program", Remedy: "write a table [program.NAME]"}
	if patterns := l.config.Supervisor.Include; len(patterns) > 0 {
		p.Position, p.Key = root.Child("supervisor").Child("include").Position(), "supervisor.include"
		p.Remedy += " into a file that matches " + strings.Join(patterns, " or ")
		for _, pattern := range patterns {
			if dirs, _ := glob(filepath.Dir(pattern)); len(dirs) > 0 {
				p.Severity = document.Warning
			}
		}
	}
	l.report(p)
}

// included reads a file that may contain only programs.
func (l *loader) included(file string) {
	root, ok := l.open(file)
	if !ok {
		return
	}
	table, _ := root.Raw.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if name == "program" {
			l.programs(root.Child(name))
			continue
		}
		root.Child(name).Problem("does not belong in an included file",
			"write only [program.NAME] tables here, and the rest in %s", l.config.Files[0])
	}
}

// open reads and parses a file; false: it has a problem as a whole, which has been reported.
func (l *loader) open(file string) (document.Value, bool) {
	l.config.Files = append(l.config.Files, file)
	data, err := document.ReadFile(file)
	if pathError, is := errors.AsType[*fs.PathError](err); is {
		err = fmt.Errorf("cannot read: %w", pathError.Err)
	}
	if err != nil {
		return l.refuse(document.Problem{File: file, What: err.Error()})
	}
	return l.parse(file, filepath.Dir(file), string(data))
}

// refuse reports what is wrong with a file as a whole.
func (l *loader) refuse(p document.Problem) (document.Value, bool) {
	l.report(p)
	return document.Value{}, false
}

// parse parses the text of a file; paths in it are relative to dir.
func (l *loader) parse(file, dir, text string) (document.Value, bool) {
	root, wrong := document.Parse(file, dir, text)
	if wrong != nil || !root.Has("program") && (root.Has("supervisord") || root.Has("Service") || root.Has("Unit")) {
		if whose, line := meant.ForeignFormat(text); whose.Is != "" {
			return l.refuse(document.Problem{
				File: file, Position: document.Position{Line: line, Column: 1}, What: "this is " + whose.Is,
				Remedy: strings.ReplaceAll(whose.Remedy, "%s", file),
			})
		}
	}
	if wrong != nil {
		return l.refuse(*wrong)
	}
	root.In.Report, root.In.Unknown, root.In.Scalar = l.report, l.keys.Unknown, l.keys.Scalar
	return root, true
}

// programs reads the [program.NAME] tables of a file.
func (l *loader) programs(v document.Value) {
	table, ok := v.Raw.(map[string]any)
	if !ok {
		v.Problem("is "+document.TypeOf(v.Raw)+", not a table", "write each program as [program.NAME]")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		item := v.Child(name)
		if first, ok := l.defined[name]; ok {
			item.Problem(fmt.Sprintf("the program is already defined at %s:%d", first.File, first.Line),
				"rename or remove one of them")
			continue
		}
		p := readProgram(item, name)
		l.defined[p.Name], l.written[p.Name] = p, item
		l.ownFile(item.Child("log").Child("file"), p.Log.File, ".log.file")
		l.ownFile(item.Child("compat").Child("status_file"), p.StatusFile, ".compat.status_file")
	}
}

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

// order reports names in `after` that are not programs, and programs that would wait for themselves.
func (l *loader) order() {
	for i := range l.config.Programs {
		p := &l.config.Programs[i]
		items := l.written[p.Name].Child("after").OneOrMore()
		for j, name := range p.After {
			what, remedy := "", ""
			switch {
			case name == p.Name:
				what, remedy = "is the program itself", "remove it"
			case l.defined[name].Name == "":
				what, remedy = fmt.Sprintf("there is no program %q", name), nameOne(name, l.others(p.Name))
			case slices.Contains(p.After[:j], name):
				what, remedy = fmt.Sprintf("%q is named twice", name), "remove one of them"
			default:
				if ring := l.ring(p.Name, name, map[string]bool{}); ring != nil && p.Name < slices.Min(ring) {
					what = fmt.Sprintf("none of the programs could ever start: %s is after %[2]s is after %[1]s", p.Name,
						strings.Join(ring, " is after "))
					remedy = "remove one of these names from its after"
				}
			}
			if what != "" {
				items[j].Problem(what, "%s", remedy)
			}
		}
	}
}

// InOrder returns the programs so that each comes after the programs in its `after`, and otherwise by name.
func (c *Config) InOrder() (order []*Program) {
	done := map[string]bool{}
	var add func(p *Program)
	add = func(p *Program) {
		if done[p.Name] {
			return
		}
		done[p.Name] = true
		for i := range c.Programs {
			if slices.Contains(p.After, c.Programs[i].Name) {
				add(&c.Programs[i])
			}
		}
		order = append(order, p)
	}
	for i := range c.Programs {
		add(&c.Programs[i])
	}
	return order
}

// others are the names of the other programs.
func (l *loader) others(than string) (names []string) {
	for _, p := range l.config.Programs {
		if p.Name != than {
			names = append(names, p.Name)
		}
	}
	return names
}

// nameOne says which program to write instead.
func nameOne(name string, others []string) string {
	if near, ok := document.Nearest(name, others); ok {
		return fmt.Sprintf("did you mean %q?", near)
	}
	if len(others) == 0 {
		return "remove it: there is no other program"
	}
	return "remove it, or write one of " + strings.Join(others, ", ")
}

// ring returns the programs that would wait for each other if first came after next: from next to the program that
// comes after first; nil: there is no such ring. seen are the programs that were looked at.
func (l *loader) ring(first, next string, seen map[string]bool) []string {
	if seen[next] = true; slices.Contains(l.defined[next].After, first) {
		return []string{next}
	}
	for _, name := range l.defined[next].After {
		if seen[name] {
			continue
		}
		if rest := l.ring(first, name, seen); rest != nil {
			return append([]string{next}, rest...)
		}
	}
	return nil
}
