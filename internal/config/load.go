package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"example.org/supervisord/worker/ready"
)

// maxFiles bounds how many files a configuration can have.
const maxFiles = 1000

// Load reads path and everything that it includes. On any problem it returns an *Error that lists them all.
//
// Files must be regular and have at most 1 MiB. Load looks up users and groups. It looks up a host, for two seconds at most, only
// where a probe has the port of a listener and the names alone do not tell whether the probe reaches that. It opens nothing but the
// configuration, and keeps nothing of the files' text.
func Load(path string) (*Config, error) {
	file, err := filepath.Abs(path)
	if err != nil {
		return nil, &Error{Problems: []Problem{{File: path, What: err.Error()}}}
	}
	l := newLoader()
	l.main(l.open(file))
	return l.loaded()
}

// Parse reads a configuration that stands in no file: what Load would make of this text in a file dir/name. name is for messages.
func Parse(dir, name string, text []byte) (*Config, error) {
	l := newLoader()
	l.config.Files = []string{name}
	l.main(l.parse(name, dir, text))
	return l.loaded()
}

func newLoader() *loader {
	return &loader{config: &Config{Supervisor: defaultSupervisor()}, defined: map[string]Program{}, written: map[string]value{},
		bound: addresses{}, files: map[string]value{}}
}

func (l *loader) loaded() (*Config, error) {
	files := l.config.Files
	l.config.Programs = slices.SortedFunc(maps.Values(l.defined), func(a, b Program) int { return strings.Compare(a.Name, b.Name) })
	l.probes()
	if len(l.problems) > 0 {
		return nil, &Error{Problems: sortProblems(l.problems, files)}
	}
	l.config.Warnings = sortProblems(l.warnings, files)
	return l.config, nil
}

// loader gathers a configuration from its files.
type loader struct {
	config   *Config
	defined  map[string]Program
	written  map[string]value // the table of each program
	bound    addresses        // of the listeners
	files    map[string]value // of each file the first place that has it: logs, status files
	problems []Problem
	warnings []Problem
}

// main reads the main file, then what it includes.
func (l *loader) main(root value, ok bool) {
	if ok {
		decode(root, l.config, fields[Config]{
			"supervisor": func(c *Config, v value) {
				if decode(v, &c.Supervisor, supervisorFields) {
					v.httpKeys(&c.Supervisor)
				}
			},
			"program": func(_ *Config, v value) { l.programs(v) },
		})
		l.config.Supervisor.complete()
		l.ownAddresses(root.child("supervisor"))
		if err := ready.CheckDirectory(l.config.Supervisor.RuntimeDir); err != nil {
			root.child("supervisor").child("runtime_dir").warn(err.Error(), "supervisord does not start with it")
		}
		for _, included := range l.include(root.child("supervisor").child("include")) {
			l.included(included)
		}
		l.finish(root)
	}
	if len(l.defined) == 0 && len(l.problems) == 0 {
		l.noProgram(root)
	}
}

// noProgram notes that there is no program. A configuration that includes files may wait for its first one, as the installed one
// does. If the directory of those files is missing, too, this is more likely a mistake, such as a file system that is not
// mounted, and must not stop programs at a reload.
func (l *loader) noProgram(root value) {
	p := Problem{File: l.config.Files[0], What: "there is no program", Remedy: "write a table [program.NAME]"}
	patterns := l.config.Supervisor.Include
	if len(patterns) == 0 {
		l.problems = append(l.problems, p)
		return
	}
	p.Line, p.Key = root.child("supervisor").child("include").line(), "supervisor.include"
	p.Remedy = "write a table [program.NAME] into a file that matches " + strings.Join(patterns, " or ")
	if slices.ContainsFunc(patterns, func(pattern string) bool {
		dirs, _ := glob(filepath.Dir(pattern))
		return len(dirs) > 0
	}) {
		l.warnings = append(l.warnings, p)
		return
	}
	l.problems = append(l.problems, p)
}

// included reads a file that may only have programs.
func (l *loader) included(file string) {
	root, ok := l.open(file)
	if !ok {
		return
	}
	table, _ := root.raw.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if name == "program" {
			l.programs(root.child(name))
			continue
		}
		root.child(name).problem("does not belong in an included file", "write only [program.NAME] tables here, and the rest in %s", l.config.Files[0])
	}
	l.finish(root)
}

// finish takes over what was found out about a file.
func (l *loader) finish(root value) {
	l.problems = append(l.problems, root.in.problems...)
	l.warnings = append(l.warnings, root.in.warnings...)
}

// open reads and parses a file; false: it has a problem as a whole, which has been noted.
func (l *loader) open(file string) (value, bool) {
	l.config.Files = append(l.config.Files, file)
	data, err := readFile(file)
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return l.refuse(Problem{File: file, What: "cannot read: " + pathError.Err.Error()})
	}
	if err != nil {
		return l.refuse(Problem{File: file, What: err.Error()})
	}
	return l.parse(file, filepath.Dir(file), data)
}

// refuse notes what is wrong with a file as a whole.
func (l *loader) refuse(p Problem) (value, bool) {
	l.problems = append(l.problems, p)
	return value{}, false
}

// parse parses the text of a file; paths in it are relative to dir.
func (l *loader) parse(file, dir string, data []byte) (value, bool) {
	problem := func(line int, key, what, remedy string) (value, bool) {
		return l.refuse(Problem{File: file, Line: line, Key: key, What: what, Remedy: remedy})
	}
	text := string(data)
	at, line, err := findPlaces(text)
	if err != nil {
		return problem(line, "", err.Error(), "this is more than any configuration needs")
	}
	var tree map[string]any
	_, err = toml.Decode(text, &tree)
	if (err != nil || tree["supervisord"] != nil) && l.refuseOther(file, text) {
		return value{}, false
	}
	var syntax toml.ParseError
	if errors.As(err, &syntax) {
		return problem(syntax.Position.Line, strings.Clone(syntax.LastKey), "not valid TOML: "+strings.TrimSuffix(syntax.Message, "."), syntaxRemedy(syntax.Message))
	}
	if err != nil {
		return problem(0, "", err.Error(), "")
	}
	return value{in: &document{file: file, dir: dir, places: at, typos: map[string]bool{}}, raw: tree}, true
}

// syntaxRemedy is the remedy for the syntax errors that are made most often.
func syntaxRemedy(message string) string {
	switch {
	case strings.HasPrefix(message, "expected value but found"), strings.Contains(message, "must start with a digit"):
		return `write strings in quotes: "…"`
	case strings.Contains(message, "already been defined"), strings.Contains(message, "already exists"):
		return "write it once"
	}
	return ""
}

// programs reads the [program.NAME] tables of a file.
func (l *loader) programs(v value) {
	table, ok := v.raw.(map[string]any)
	if !ok {
		v.problem("is "+typeOf(v.raw)+", not a table", "write each program as [program.NAME]")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		item := v.child(name)
		if first, ok := l.defined[name]; ok {
			item.problem(fmt.Sprintf("the program is already defined at %s:%d", first.File, first.Line), "rename or remove one of them")
			continue
		}
		p := item.program(name)
		l.defined[p.Name], l.written[p.Name] = p, item
		l.addresses(&p)
		l.ownFiles(item, p)
	}
}
