package config

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"example.org/supervisord/internal/reserved"
	"example.org/supervisord/socket/dialect"
	"example.org/supervisord/worker/output"
)

const maxWorkers = 10_000

// programFields are the keys of [program.NAME]. ready, log, stdin and watch need others first, see value.program; environment
// needs dialect, which comes before it because keys are read in the order of their names.
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
	"stdin":            func(p *Program, v value) {},
	"stdout":           func(p *Program, v value) { v.output(&p.Stdout) },
	"stderr":           func(p *Program, v value) { v.output(&p.Stderr) },
	"watch":            func(p *Program, v value) { v.texts(&p.Watch) },
	"listen":           func(p *Program, v value) { v.listeners(p) },
	"ready":            func(p *Program, v value) {},
	"reload":           func(p *Program, v value) { v.reload(&p.Reload) },
	"stop":             func(p *Program, v value) { v.stop(&p.Stop) },
	"restart":          func(p *Program, v value) { v.restart(&p.Restart) },
	"hooks":            func(p *Program, v value) { v.hooks(&p.Hooks) },
	"health":           func(p *Program, v value) { v.health(&p.Health) },
	"log":              func(p *Program, v value) {},
	"status_file":      func(p *Program, v value) { v.file(&p.StatusFile) },
}

// defaultProgram is a program that says nothing but its name.
func (v value) defaultProgram(name string) Program {
	return Program{
		Name: strings.Clone(name), File: v.in.file, Line: v.line(), Directory: v.in.dir, Workers: 1,
		Stdout: Output{Kind: output.Inherit}, Stderr: Output{Kind: output.Inherit},
		Ready: defaultReady(), Reload: defaultReload(), Stop: defaultStop(), Restart: defaultRestart(),
		Hooks: defaultHooks(),
	}
}

// program reads one [program.NAME].
func (v value) program(name string) Program {
	p := v.defaultProgram(name)
	if !goodName(name) {
		v.problem("is no name for a program", "use at most 64 letters, digits, dots, dashes and underscores, the first a letter or digit")
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
		v.child("environment").child(name).placeholdersIn(&p)
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
// runs on fewer (runtime.GOMAXPROCS), which must not make its workers fewer.
var CPUs = sync.OnceValue(func() int { return runtime.GOMAXPROCS(0) })

// workers reads a number, or "auto": as many as this process may use CPUs.
func (v value) workers(into *int) {
	s, ok := v.raw.(string)
	switch {
	case s == "auto":
		*into = min(CPUs(), maxWorkers)
	case ok:
		v.problem(fmt.Sprintf("%q is no number", s), `write a number without quotes, or "auto"`)
	default:
		v.integer(into, 1, maxWorkers)
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
			item.problem("is no name of a variable", "use letters, digits and _, not beginning with a digit")
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

// placeholders checks every {fd:NAME} in the words of a command. Other braces are the program's own.
func (v value) placeholders(p *Program) {
	words, _ := v.elements()
	for _, word := range words {
		word.placeholdersIn(p)
	}
}

// placeholdersIn checks them in one text.
func (v value) placeholdersIn(p *Program) {
	text, _ := v.raw.(string)
	for {
		_, rest, found := strings.Cut(text, "{fd:")
		if !found {
			return
		}
		name, after, closed := strings.Cut(rest, "}")
		v.placeholder(p, name, closed)
		text = after
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
