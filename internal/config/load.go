package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/pattern"
	"example.org/supervisord/worker/ready"
)

// Load reads path and everything that it includes. On any problem it returns an *Error that lists them all.
//
// Files must be regular and have at most 1 MiB. Load looks up users and groups, and, for two seconds at most, hosts of probes where
// the names alone do not show whether the probe reaches a listener. It opens nothing but the configuration, and keeps nothing of the
// files' text.
func Load(path string) (*Config, error) {
	file, err := filepath.Abs(path)
	if err != nil {
		return nil, &Error{Problems: []Problem{{File: path, What: err.Error()}}}
	}
	l := newLoader()
	l.main(l.open(file))
	return l.loaded()
}

// Parse reads a configuration that is not in a file: what Load would make of this text in a file dir/name. name is for messages.
func Parse(dir, name string, text []byte) (*Config, error) {
	l := newLoader()
	l.config.Files = []string{name}
	l.main(l.parse(name, dir, string(text)))
	return l.loaded()
}

// loader gathers a configuration from its files.
type loader struct {
	config   *Config
	defined  map[string]Program
	written  map[string]value // the table of each program
	bound    addresses        // of the listeners
	files    map[string]value // of each log and status file the first key that names it
	problems []Problem
	warnings []Problem
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

// main reads the main file, then what it includes.
func (l *loader) main(root value, ok bool) {
	if ok {
		decode(root, l.config, fields[Config]{
			"supervisor": func(*Config, value) {},
			"program":    func(_ *Config, v value) { l.programs(v) },
		})
		table := root.child("supervisor")
		table.supervisor(&l.config.Supervisor)
		l.ownAddresses(table)
		if err := ready.CheckDirectory(l.config.Supervisor.RuntimeDir); err != nil {
			table.child("runtime_dir").warn(err.Error(), "supervisord does not start with it")
		}
		for _, file := range l.include(table.child("include")) {
			l.included(file)
		}
		l.finish(root)
	}
	if len(l.defined) == 0 && len(l.problems) == 0 {
		l.noProgram(root)
	}
}

// noProgram reports that there is no program. A configuration that includes files may wait for its first one, as the installed one
// does. If the folder of those files is missing, too, a mistake is more likely, such as a file system that is not mounted, which must
// not stop programs at a reload.
func (l *loader) noProgram(root value) {
	p := Problem{File: l.config.Files[0], What: "there is no program", Remedy: "write a table [program.NAME]"}
	into := &l.problems
	if patterns := l.config.Supervisor.Include; len(patterns) > 0 {
		p.Line, p.Key = root.child("supervisor").child("include").line(), "supervisor.include"
		p.Remedy += " into a file that matches " + strings.Join(patterns, " or ")
		for _, pattern := range patterns {
			if dirs, _ := glob(filepath.Dir(pattern)); len(dirs) > 0 {
				into = &l.warnings
			}
		}
	}
	*into = append(*into, p)
}

// included reads a file that may contain only programs.
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

// finish takes over what was found in a file.
func (l *loader) finish(root value) {
	l.problems = append(l.problems, root.in.problems...)
	l.warnings = append(l.warnings, root.in.warnings...)
}

// open reads and parses a file; false: it has a problem as a whole, which has been reported.
func (l *loader) open(file string) (value, bool) {
	l.config.Files = append(l.config.Files, file)
	data, err := readFile(file)
	if pathError, is := errors.AsType[*fs.PathError](err); is {
		err = fmt.Errorf("cannot read: %w", pathError.Err)
	}
	if err != nil {
		return l.refuse(Problem{File: file, What: err.Error()})
	}
	return l.parse(file, filepath.Dir(file), string(data))
}

// refuse reports what is wrong with a file as a whole.
func (l *loader) refuse(p Problem) (value, bool) {
	l.problems = append(l.problems, p)
	return value{}, false
}

// parse parses the text of a file; paths in it are relative to dir.
func (l *loader) parse(file, dir, text string) (value, bool) {
	found, line, err := findPositions(text)
	if err != nil {
		return l.refuse(Problem{File: file, Line: line, What: err.Error(), Remedy: "this is more than any configuration needs"})
	}
	var tree map[string]any
	_, err = toml.Decode(text, &tree)
	if err != nil || tree["supervisord"] != nil {
		if whose, line := otherSupervisor(text); whose != "" {
			return l.refuse(Problem{
				File: file, Line: line, What: "this is the configuration of " + whose + ", which is another program",
				Remedy: "convert it with: supervisord convert " + file,
			})
		}
	}
	if syntax, is := errors.AsType[toml.ParseError](err); is {
		return l.refuse(Problem{
			File: file, Line: syntax.Position.Line, Key: strings.Clone(syntax.LastKey),
			What: "not valid TOML: " + strings.TrimSuffix(syntax.Message, "."), Remedy: syntaxRemedy(syntax.Message),
		})
	}
	if err != nil {
		return l.refuse(Problem{File: file, What: err.Error()})
	}
	return value{in: &tomlFile{file: file, dir: dir, positions: found, typos: map[string]bool{}}, raw: tree}, true
}

// syntaxRemedy is the remedy for the most frequent syntax errors.
func syntaxRemedy(message string) string {
	switch {
	case strings.HasPrefix(message, "expected value but found"), strings.Contains(message, "must start with a digit"):
		return `write strings in quotes: "…"`
	case strings.Contains(message, "already been defined"), strings.Contains(message, "already exists"):
		return "write it once"
	}
	return ""
}

// Sections that only the ini files of other supervisors have. None of them is a table of this configuration.
var (
	supervisorSection = pattern.Lazy(`^\[(supervisord|supervisorctl|unix_http_server|inet_http_server|(program|group|eventlistener|fcgi-program|rpcinterface):[^\]]*)\]`)
	circusSection     = pattern.Lazy(`^\[(circus|(watcher|socket|plugin|env):[^\]]*)\]`)
)

// otherSupervisor recognizes the configuration of another supervisor. It returns whose it is, and the line of the first section
// that shows it, or "".
func otherSupervisor(text string) (whose string, line int) {
	for l := range strings.Lines(text) {
		line++
		l = strings.TrimSpace(l)
		switch {
		case supervisorSection().MatchString(l):
			return "Python's Supervisor", line
		case circusSection().MatchString(l):
			return "circus", line
		}
	}
	return "", 0
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
		l.ownFile(item.child("log").child("file"), p.Log.File, ".log.file")
		l.ownFile(item.child("status_file"), p.StatusFile, ".status_file")
	}
}

// maxFileSize bounds every file that this package reads, in bytes.
const maxFileSize = 1 << 20

// readFile reads a regular file of at most maxFileSize bytes. It never waits: it refuses a FIFO or a device without opening it.
func readFile(path string) ([]byte, error) {
	stat, err := os.Stat(path)
	if err == nil {
		err = checkRegular(path, stat.Mode())
	}
	if err != nil {
		return nil, err
	}
	// The path may have been exchanged meanwhile, hence O_NONBLOCK (a FIFO opens at once) and the second check.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if stat, err = f.Stat(); err == nil {
		err = checkRegular(path, stat.Mode())
	}
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err == nil && len(data) > maxFileSize {
		err = fmt.Errorf("read %s: more than %d bytes", path, maxFileSize)
	}
	return data, err
}

func checkRegular(path string, mode fs.FileMode) error {
	switch {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return fmt.Errorf("read %s: it is a directory, not a file", path)
	default:
		return fmt.Errorf("read %s: it is a device, pipe or socket, not a file", path)
	}
}
