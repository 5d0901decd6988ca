package config

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/supervisord/internal/proc"
	"example.org/supervisord/internal/reserved"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/dialect"
	"example.org/supervisord/worker/output"
)

const maxWorkers = 10_000

// later is for keys that need others first: value.program reads them.
func later(*Program, value) {}

// programFields are the keys of [program.NAME]. environment needs dialect, which comes before it because keys are read in the order of
// their names.
var programFields = fields[Program]{
	"command":          func(p *Program, v value) { v.argv(&p.Command) },
	"dialect":          func(p *Program, v value) { v.dialects(&p.Dialects) },
	"directory":        func(p *Program, v value) { v.file(&p.Directory) },
	"user":             func(p *Program, v value) { v.user(&p.User) },
	"group":            func(p *Program, v value) { v.group(&p.Group) },
	"workers":          func(p *Program, v value) { v.workers(&p.Workers) },
	"environment":      func(p *Program, v value) { v.environment(&p.Environment, p.Dialects) },
	"environment_file": func(p *Program, v value) { v.files(&p.EnvironmentFiles) },
	"environment_dir":  func(p *Program, v value) { v.file(&p.EnvironmentDir) },
	"limits":           func(p *Program, v value) { v.limits(p) },
	"stdin":            later,
	"stdout":           func(p *Program, v value) { v.output(&p.Stdout) },
	"stderr":           func(p *Program, v value) { v.output(&p.Stderr) },
	"watch":            func(p *Program, v value) { v.texts(&p.Watch) },
	"listen":           func(p *Program, v value) { v.listeners(p) },
	"ready":            later,
	"reload":           func(p *Program, v value) { v.reload(&p.Reload) },
	"stop":             func(p *Program, v value) { v.stop(&p.Stop) },
	"restart":          func(p *Program, v value) { decode(v, &p.Restart, restartFields) },
	"hooks":            func(p *Program, v value) { v.hooks(&p.Hooks) },
	"health":           func(p *Program, v value) { v.health(&p.Health) },
	"log":              later,
	"status_file":      func(p *Program, v value) { v.file(&p.StatusFile) },
}

// program reads one [program.NAME].
func (v value) program(name string) Program {
	p := Program{
		Name: strings.Clone(name), File: v.in.file, Line: v.line(), Directory: v.in.dir, Workers: 1,
		Stdout: Output{Kind: output.Inherit}, Stderr: Output{Kind: output.Inherit},
		Ready: defaultReady(), Reload: defaultReload(), Stop: defaultStop(), Restart: defaultRestart(), Hooks: Hooks{Timeout: 30 * time.Second},
	}
	if !goodName(name) {
		v.problem("is not a valid program name", "use at most 64 letters, digits, dots, dashes and underscores, the first a letter or digit")
	}
	if !decode(v, &p, programFields) {
		return p
	}
	v.child("ready").ready(&p.Ready)
	v.child("log").log(&p)
	for i, path := range p.Watch {
		p.Watch[i] = absolute(p.Directory, path)
	}
	if v.lacks("command") {
		v.problem("has no command", `write such as command = ["./web", "-v"]`)
	}
	v.child("stdin").stdin(&p)
	v.readyFDFits(&p)
	v.dialectFits(&p)
	v.acceptFits(&p)
	v.slotsFit(&p)
	v.child("command").placeholders(&p)
	v.child("reload").child("preflight").placeholders(&p)
	for _, name := range slices.Sorted(maps.Keys(p.Environment)) {
		v.child("environment").child(name).placeholders(&p)
	}
	v.missing(&p)
	return p
}

// goodName reports whether a program's name is fit for file names, command lines and logs.
func goodName(name string) bool {
	if name == "" || len(name) > 64 || strings.ContainsAny(name[:1], ".-_") {
		return false
	}
	return bare(strings.ReplaceAll(name, ".", "-"))
}

// CPUs returns how many CPUs this process may use, a cgroup's quota included, as it was at the first call. supervisord itself then
// uses fewer (runtime.GOMAXPROCS), which must not reduce its workers.
var CPUs = sync.OnceValue(func() int { return runtime.GOMAXPROCS(0) })

// workers reads a number, or "auto": as many as this process may use CPUs.
func (v value) workers(into *int) {
	s, ok := v.raw.(string)
	switch {
	case s == "auto":
		*into = min(CPUs(), maxWorkers)
	case ok:
		v.problem(fmt.Sprintf("%q is not a number", s), `write a number without quotes, or "auto"`)
	default:
		v.integer(into, 1, maxWorkers)
	}
}

// user reads the name of a user that exists, or a number.
func (v value) user(into *string) { v.account(into, "user", proc.UID) }

// group reads the name of a group that exists, or a number.
func (v value) group(into *string) { v.account(into, "group", proc.GID) }

func (v value) account(into *string, kind string, lookUp func(string) (uint32, error)) {
	var name string
	if !v.text(&name) {
		return
	}
	switch _, err := lookUp(name); {
	case err == nil:
		*into = name
	case errors.Is(err, proc.ErrIDRange):
		v.problem(fmt.Sprintf("%s is not a %s number", name, kind), "write one below 4294967295")
	case proc.Unknown(err):
		v.problem(fmt.Sprintf("there is no %s %q", kind, name), "write one that exists, or create it first")
	default:
		v.problem(fmt.Sprintf("cannot look up the %s %q: %v", kind, name, err), "write its number")
	}
}

// environment reads the table of a program's own variables.
func (v value) environment(into *map[string]string, dialects []dialect.Name) {
	table, ok := v.raw.(map[string]any)
	if !ok {
		v.problem("is "+typeOf(v.raw)+", not a table", `write such as environment = { LANG = "C.UTF-8" }`)
		return
	}
	variables := make(map[string]string, len(table))
	for _, name := range slices.Sorted(maps.Keys(table)) {
		item := v.child(name)
		text, isText := item.raw.(string)
		switch {
		case !goodVariable(name):
			item.problem("is not a valid variable name", "use letters, digits and _, not beginning with a digit")
		case reserved.ForWorkers(name, dialects):
			item.problem("is set by supervisord itself", "remove it")
		case !isText:
			item.problem("is "+typeOf(item.raw)+", not a string", `write it in quotes: "%v"`, item.raw)
		case strings.Contains(text, "\x00"):
			item.problem("has a NUL character", "remove it")
		default:
			variables[strings.Clone(name)] = strings.Clone(text)
		}
	}
	*into = variables
}

// placeholders checks every {fd:NAME} in a text, or in the words of a command. Other braces belong to the program.
func (v value) placeholders(p *Program) {
	for _, word := range v.oneOrMore() {
		text, _ := word.raw.(string)
		for {
			_, rest, found := strings.Cut(text, "{fd:")
			if !found {
				break
			}
			name, after, closed := strings.Cut(rest, "}")
			word.placeholder(p, name, closed)
			text = after
		}
	}
}

func (v value) placeholder(p *Program, name string, closed bool) {
	names := listenerNames(p)
	switch {
	case !closed:
		v.problem("{fd:"+name+" is not closed", "write }")
	case slices.Contains(names, name):
	case len(names) == 0:
		v.problem("{fd:"+name+"} names no listener", "write [[program.%s.listen]]", p.Name)
	default:
		v.problem("{fd:"+name+"} names no listener", "the listeners are %s", strings.Join(names, ", "))
	}
}

func listenerNames(p *Program) []string {
	var names []string
	for _, l := range p.Listen {
		names = append(names, l.Name)
	}
	return names
}

// stdin reads what a worker has as its standard input: nothing, or one of its listeners, which then has no other number.
func (v value) stdin(p *Program) {
	var word string
	if v.raw == nil || !v.text(&word) || word == "null" {
		return
	}
	name, named := strings.CutPrefix(word, "socket:")
	at := 0
	switch {
	case word != "socket" && !named:
		v.problem(fmt.Sprintf("%q is not known", word), `write "null", "socket", or "socket:NAME" with the name of a listener`)
		return
	case len(p.Listen) == 0:
		v.problem("there is no listener to be stdin", "write [[program.%s.listen]]", p.Name)
		return
	case named:
		at = slices.Index(listenerNames(p), name)
	case len(p.Listen) > 1:
		at = -1
	}
	if at < 0 {
		v.problem("it is not clear which listener is meant", `the listeners are %s: write one as in "socket:%s"`, strings.Join(listenerNames(p), ", "), p.Listen[0].Name)
		return
	}
	l := &p.Listen[at]
	first := slices.IndexFunc(p.Listen, func(s socket.Spec) bool { return s.FD == socket.FixedFD(0) })
	switch {
	case l.FD.Fixed && first != at:
		v.problem(fmt.Sprintf("the listener %s has its own fd, %d", l.Name, l.FD.Number), "remove one of the two keys")
	case first >= 0 && first != at:
		v.problem(fmt.Sprintf("the listener %s is stdin already, by fd = 0", p.Listen[first].Name), "remove one of the two keys")
	default:
		l.FD = socket.FixedFD(0)
	}
}
