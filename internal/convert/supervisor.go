package convert

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// supervisorFile is a configuration of supervisor (Python) with what it includes.
type supervisorFile struct {
	*document
	ini         ini
	environment map[string]text // of [supervisord], which all programs have
	names       []string        // of these variables, in their order
	groups      map[string]string
	own         []string // comments about [supervisord], for its place
	inherited   []item   // keys of [supervisord] that hold for every program that does not have them
}

// supervisorINI converts a configuration of supervisor.
func (d *document) supervisorINI(s Source) {
	f := &supervisorFile{document: d, environment: map[string]text{}, groups: map[string]string{}}
	f.ini.readINI(s.Name, s.Text, supervisorDialect)
	f.here(f.ini.sections, d.Dir)
	f.include()
	f.ini.settle(supervisorDialect)
	if d.problems = append(d.problems, f.ini.problems...); len(d.problems) > 0 {
		return
	}
	before := f.head
	f.head = nil
	f.supervisord(f.ini.find("supervisord"))
	f.own, f.head = f.head, before
	f.findGroups()
	for _, s := range f.ini.sections {
		if !f.enough() {
			f.section(s)
		}
	}
}

// here puts the folder of a file in place of %(here)s, as supervisor does as it reads.
func (f *supervisorFile) here(sections []*section, dir string) {
	for _, s := range sections {
		for i := range s.entries {
			s.entries[i].value = strings.ReplaceAll(s.entries[i].value, "%(here)s", strings.ReplaceAll(dir, "%", "%%"))
		}
	}
}

// include reads the files that [include] names.
func (f *supervisorFile) include() {
	s := f.ini.find("include")
	if s == nil {
		return
	}
	it, ok := s.get("files")
	if !ok {
		f.wrong(s.item, "has no files", "write files = conf.d/*.conf, or remove the section")
		return
	}
	patterns, ok := f.now(it)
	if !ok {
		return
	}
	for _, pattern := range strings.Fields(patterns) {
		paths, err := f.Glob(f.path(pattern))
		if err != nil || len(paths) == 0 {
			f.note(it, "no file matches "+pattern)
			continue
		}
		for _, path := range paths {
			f.includeFile(it, path)
		}
	}
}

func (f *supervisorFile) includeFile(it item, path string) {
	data, err := f.Read(path)
	if err == nil {
		err = checkText(place{file: path}, data)
	}
	if err != nil {
		f.wrong(it, "cannot read "+path+": "+err.Error(), "make it readable, or take it out of the pattern")
		return
	}
	var more ini
	more.readINI(path, data, supervisorDialect)
	f.here(more.sections, filepath.Dir(path))
	f.ini.problems = append(f.ini.problems, more.problems...)
	if f.ini.keys += more.keys; f.ini.keys >= mostKeys {
		f.wrong(it, fmt.Sprintf("with %s there are more than %d keys and sections", path, mostKeys), "convert it in parts")
		return
	}
	for _, s := range more.sections {
		if own := f.ini.find(s.name); own != nil {
			own.entries = append(own.entries, s.entries...)
		} else {
			f.ini.add(s)
		}
	}
}

// findGroups notes of every program the group that it is in.
func (f *supervisorFile) findGroups() {
	for _, s := range f.ini.sections {
		name, ok := strings.CutPrefix(s.name, "group:")
		if !ok {
			continue
		}
		programs, _ := s.get("programs")
		for _, program := range strings.Split(programs.value, ",") {
			f.groups[strings.TrimSpace(program)] = strings.TrimSpace(name)
		}
	}
}

// supervisorSections says of each section that is no program what there is instead, by its name up to the colon.
var supervisorSections = map[string]string{
	"unix_http_server": "supervisord has a control socket of its own: control, control_mode and control_group in [supervisor]",
	"inet_http_server": "http in [supervisor] serves metrics and a page; there is no XML-RPC",
	"supervisorctl":    "supervisord status, reload, stop, logs, … find the control socket in the configuration",
	"rpcinterface":     "the control socket speaks HTTP and JSON: docs/control.md",
	"ctlplugin":        "supervisord's own commands are all there are",
	"eventlistener":    "hooks in the program, or `supervisord events --json`, tell what happens",
	"group":            "programs are in no groups: name each, or give them one configuration and one supervisord",
}

// section converts one section.
func (f *supervisorFile) section(s *section) {
	kind, name, named := strings.Cut(s.name, ":")
	switch instead, known := supervisorSections[kind]; {
	case (kind == "program" || kind == "fcgi-program") && named:
		f.programs(s, strings.TrimSpace(name), kind == "fcgi-program")
	case kind == "supervisord":
		f.head = append(f.head, f.own...)
	case kind == "DEFAULT":
	case kind == "include":
		for _, e := range s.entries {
			if e.key == "files" {
				f.note(e.item, "what it names is converted along, into this file")
			} else {
				f.lacks(e.item, "supervisor ignores it too")
			}
		}
	case known:
		f.whole(s, instead)
	default:
		f.whole(s, "supervisor ignores it too")
	}
}

// whole says of all a section's keys that there is nothing like it.
func (f *supervisorFile) whole(s *section, instead string) {
	f.lacks(s.item, instead)
	for _, e := range s.entries {
		e.comments = nil
		f.note(e.item, "belongs to ["+s.name+"]")
	}
}

// supervisordKeys says what becomes of the keys of [supervisord].
var supervisordKeys = map[string]func(f *supervisorFile, it item){
	"logfile": func(f *supervisorFile, it item) {
		f.lacks(it, "supervisord logs to its stderr: the journal under systemd, or `supervisord run 2>>FILE`")
	},
	"logfile_maxbytes": func(f *supervisorFile, it item) { f.lacks(it, "the journal or logrotate does that") },
	"logfile_backups":  func(f *supervisorFile, it item) { f.lacks(it, "the journal or logrotate does that") },
	"loglevel":         (*supervisorFile).logLevel,
	"pidfile": func(f *supervisorFile, it item) {
		if path, ok := f.now(it); ok && path != "" {
			f.global.set("pid_file", f.path(path))
		}
	},
	"umask":     func(f *supervisorFile, it item) { f.inherited = append(f.inherited, it) },
	"user":      func(f *supervisorFile, it item) { f.inherited = append(f.inherited, it) },
	"directory": func(f *supervisorFile, it item) { f.inherited = append(f.inherited, it) },
	"nodaemon": func(f *supervisorFile, it item) {
		if on, ok := f.truth(it); ok && !on {
			f.lacks(it, "supervisord stays in the foreground: systemd keeps it running, docs/systemd.md")
		} else if ok {
			f.note(it, "needs nothing: supervisord stays in the foreground")
		}
	},
	"silent": func(f *supervisorFile, it item) { f.lacks(it, "log_level = \"error\" in [supervisor] says little") },
	"minfds": func(f *supervisorFile, it item) {
		f.lacks(it, "programs have the limit that supervisord was started with; nofile in [program.NAME.limits] sets one")
	},
	"minprocs": func(f *supervisorFile, it item) {
		f.lacks(it, "programs have the limit that supervisord was started with; nproc in [program.NAME.limits] sets one")
	},
	"nocleanup": func(f *supervisorFile, it item) {
		f.lacks(it, "there are no AUTO files: what is captured is kept in memory")
	},
	"childlogdir": func(f *supervisorFile, it item) {
		f.lacks(it, "there are no AUTO files: what is captured is kept in memory")
	},
	"strip_ansi":  func(f *supervisorFile, it item) { f.lacks(it, "what a program writes is kept as it is") },
	"identifier":  func(f *supervisorFile, it item) { f.lacks(it, "a supervisord is known by its control socket") },
	"environment": (*supervisorFile).globalEnvironment,
}

// supervisord converts [supervisord].
func (f *supervisorFile) supervisord(s *section) {
	if s == nil {
		return
	}
	f.head = append(f.head, s.comments...)
	for _, e := range s.entries {
		convert, known := supervisordKeys[e.key]
		switch {
		case e.over != nil:
			f.note(e.item, fmt.Sprintf("does not count: %s has it again", e.over))
		case known:
			convert(f, e.item)
		default:
			f.lacks(e.item, "supervisor ignores it too")
		}
	}
}

func (f *supervisorFile) logLevel(it item) {
	levels := map[string]string{"critical": "error", "error": "error", "warn": "warn", "info": "info", "debug": "debug", "trace": "debug", "blather": "debug"}
	level, ok := levels[strings.ToLower(it.value)]
	if !ok {
		f.wrong(it, fmt.Sprintf("%q is no level", it.value), "write one of critical, error, warn, info, debug, trace, blather")
		return
	}
	f.global.set("log_level", level)
}

// globalEnvironment reads the variables that all programs have.
func (f *supervisorFile) globalEnvironment(it item) {
	t, bad := expand(it.value, it.at.line, f.known(nil))
	if bad != nil {
		f.wrong(it, bad.what, bad.remedy)
		return
	}
	pairs, err := pairsOf(t)
	if err != nil {
		f.wrong(it, err.Error(), `write KEY="value",KEY2="value2"`)
		return
	}
	for _, p := range pairs {
		if _, again := f.environment[p.name]; !again {
			f.names = append(f.names, p.name)
		}
		f.environment[p.name] = p.value
	}
}

// known are the values for %(…)s: own ones, the variables of [supervisord], and what only the machine knows.
func (f *supervisorFile) known(own map[string]text) func(string) (text, bool) {
	return func(name string) (text, bool) {
		if t, ok := own[name]; ok {
			return t, true
		}
		if name == "here" {
			return plain(f.Dir), true
		}
		if name == "host_node_name" {
			return text{{shell: "$(uname -n)"}}, true
		}
		variable, ok := strings.CutPrefix(name, "ENV_")
		if !ok {
			return nil, false
		}
		if t, ok := f.environment[variable]; ok {
			return t, true
		}
		if !exportable(variable) {
			return nil, false
		}
		return text{{shell: "${" + variable + "}"}}, true
	}
}

// now is a value for a key that no shell can fill in: what only the machine knows is taken as it is at this moment.
func (f *supervisorFile) now(it item) (string, bool) {
	t, bad := expand(it.value, it.at.line, f.known(nil))
	if bad != nil {
		f.wrong(it, bad.what, bad.remedy)
		return "", false
	}
	value, taken, missing := f.resolve(t)
	switch {
	case missing != "":
		f.lacks(it, missing+" is not set here: write its value")
		return "", false
	case taken != "":
		f.note(it, taken+" as it was at the conversion")
	}
	return value, true
}

// resolve puts in what the machine knows. It tells what was taken from there, and what is missing.
func (f *supervisorFile) resolve(t text) (value, taken, missing string) {
	var b strings.Builder
	for _, a := range t {
		if a.shell == "" {
			b.WriteRune(a.r)
			continue
		}
		taken = a.shell
		name := strings.Trim(a.shell, "${}")
		v, ok := f.Getenv(name)
		if strings.HasPrefix(a.shell, "$(") {
			v, ok = f.Host, true
		}
		if !ok || strings.ContainsRune(v, 0) {
			return "", "", a.shell
		}
		b.WriteString(v)
	}
	value = b.String()
	if rest, ok := strings.CutPrefix(value, "~/"); ok {
		home, set := f.Getenv("HOME")
		if !set {
			return "", "", "$HOME"
		}
		return filepath.Join(home, rest), "$HOME", ""
	}
	return value, taken, ""
}

// pair is a variable as it is written in environment.
type pair struct {
	name  string
	value text
}

// pairsOf reads KEY="value",KEY2=value2 as supervisor does: tokens of Python's shlex, of which each fourth is not looked at.
func pairsOf(t text) ([]pair, error) {
	tokens, err := tokensOf(t)
	if err != nil {
		return nil, err
	}
	const most = 10_000
	if len(tokens) > 4*most {
		return nil, fmt.Errorf("more than %d variables", most)
	}
	var pairs []pair
	for i := 0; i < len(tokens); i += 4 {
		if i+2 >= len(tokens) || tokens[i+1].String() != "=" {
			return nil, fmt.Errorf("a KEY=value is not whole at %q", shorten(tokens[i].String()))
		}
		pairs = append(pairs, pair{tokens[i].String(), trimQuotes(tokens[i+2])})
	}
	return pairs, nil
}

// trimQuotes takes all quotes off both ends.
func trimQuotes(t text) text {
	isQuote := func(a atom) bool { return a.r == '"' || a.r == '\'' }
	for len(t) > 0 && isQuote(t[0]) {
		t = t[1:]
	}
	for len(t) > 0 && isQuote(t[len(t)-1]) {
		t = t[:len(t)-1]
	}
	return slices.Clone(t)
}

// wordChars are what a token without quotes is made of.
const wordChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_/.+-():"

// tokensOf takes a text apart as Python's shlex does in its own mode: quotes stay, and nothing escapes them.
func tokensOf(t text) ([]text, error) {
	var tokens []text
	for i := 0; i < len(t); {
		a := t[i]
		isWord := func(a atom) bool { return a.shell != "" || strings.ContainsRune(wordChars, a.r) }
		start := i
		switch {
		case a.r == ' ' || a.r == '\t' || a.r == '\r' || a.r == '\n':
			i++
			continue
		case a.r == '#':
			for i < len(t) && t[i].r != '\n' {
				i++
			}
			continue
		case a.r == '"' || a.r == '\'':
			for i++; i < len(t) && t[i].r != a.r; i++ {
			}
			if i == len(t) {
				return nil, errQuote
			}
			i++
		case isWord(a):
			for i < len(t) && (isWord(t[i]) || t[i].r == '"' || t[i].r == '\'') {
				i++
			}
		default:
			i++
		}
		tokens = append(tokens, t[start:i])
	}
	return tokens, nil
}
