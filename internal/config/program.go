package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/config/environment"
	"example.org/supervisord/internal/config/meant"
	"example.org/supervisord/internal/proc"
	"example.org/supervisord/internal/reserved"
	"example.org/supervisord/worker/bind"
	"example.org/supervisord/worker/output"
)

const maxWorkers = 10_000

// later is for keys that need others first: readProgram reads them.
func later(*Program, document.Value) {}

// programFields are the keys of [program.NAME].
var programFields = document.Fields[Program]{
	"after":              func(p *Program, v document.Value) { v.Texts(&p.After) },
	"success_exit_codes": func(p *Program, v document.Value) { readExitCodes(v, &p.SuccessCodes) },
	"bind":               func(p *Program, v document.Value) { readBinding(v, &p.Bind) },
	"compat":             func(p *Program, v document.Value) { document.Decode(v, p, compatFields) },
	"command":            func(p *Program, v document.Value) { v.Argv((*[]string)(&p.Command)) },
	"dialect":            func(p *Program, v document.Value) { readDialects(v, &p.Dialects) },
	"directory":          func(p *Program, v document.Value) { v.Path(&p.Directory) },
	"user":               func(p *Program, v document.Value) { readUser(v, &p.User) },
	"group":              func(p *Program, v document.Value) { readGroup(v, &p.Group) },
	"workers":            func(p *Program, v document.Value) { readWorkers(v, &p.Workers) },
	"environment":        func(p *Program, v document.Value) { readEnvironment(v, &p.Environment) },
	"environment_file":   func(p *Program, v document.Value) { readEnvironmentFiles(v, &p.EnvironmentFiles) },
	"limits":             func(p *Program, v document.Value) { readLimits(v, p) },
	"stdout":             func(p *Program, v document.Value) { readOutput(v, &p.Stdout) },
	"stderr":             func(p *Program, v document.Value) { readOutput(v, &p.Stderr) },
	"watch":              func(p *Program, v document.Value) { v.Texts(&p.Watch) },
	"listen":             func(p *Program, v document.Value) { readListeners(v, p) },
	"ready":              later,
	"reload":             func(p *Program, v document.Value) { readReload(v, &p.Reload) },
	"drain":              later,
	"stop":               func(p *Program, v document.Value) { readStop(v, &p.Stop) },
	"restart":            func(p *Program, v document.Value) { document.Decode(v, &p.Restart, restartFields) },
	"hooks":              func(p *Program, v document.Value) { readHooks(v, &p.Hooks) },
	"health":             later,
	"log":                later,
}

// readProgram reads one [program.NAME].
func readProgram(v document.Value, name string) Program {
	p := Program{
		Name: strings.Clone(name), File: v.In.File, Line: v.Line(), Directory: v.In.Dir, Workers: 1, Bind: bind.Auto,
		Stdout: Output{Kind: output.Inherit}, Stderr: Output{Kind: output.Inherit},
		Ready: defaultReady(), Reload: defaultReload(), Stop: defaultStop(), Restart: defaultRestart(),
		Hooks: Hooks{Timeout: 30 * time.Second},
	}
	if !goodName(name) {
		v.Problem("is not a valid program name",
			"use at most 64 letters, digits, dots, dashes and underscores, the first a letter or digit")
	}
	if !document.Decode(v, &p, programFields) {
		return p
	}
	p.positions = v.In.Positions
	readLog(v.Child("log"), &p)
	for i, path := range p.Watch {
		p.Watch[i] = document.Absolute(p.Directory, path)
	}
	if v.Lacks("command") {
		v.Problem("has no command", `write such as command = ["./web", "-v"]`)
	}
	readStarterNames(v.Child("compat").Child("starter_names"), &p)
	handoverFits(v, &p)
	readReady(v.Child("ready"), &p)
	readHealth(v.Child("health"), &p)
	readyFDFits(v, &p)
	acceptFits(v, &p)
	bindFits(v, &p)
	checkPlaceholders(v.Child("command"), &p)
	checkPlaceholders(v.Child("reload").Child("preflight"), &p)
	for _, name := range slices.Sorted(maps.Keys(p.Environment)) {
		checkPlaceholders(v.Child("environment").Child(name), &p)
	}
	warnMissingFiles(v, &p)
	return p
}

// goodName reports whether a program's name is fit for file names, command lines and logs.
func goodName(name string) bool {
	if name == "" || len(name) > 64 || strings.ContainsAny(name[:1], ".-_") {
		return false
	}
	return document.Bare(strings.ReplaceAll(name, ".", "-"))
}

// CPUs returns how many CPUs this process may use, a cgroup's quota included, as it was at the first call. supervisord
// itself then uses fewer (runtime.GOMAXPROCS), which must not reduce its workers.
var CPUs = sync.OnceValue(func() int { return runtime.GOMAXPROCS(0) })

// readWorkers reads a number, or "auto": as many as this process may use CPUs.
func readWorkers(v document.Value, into *int) {
	s, ok := v.Raw.(string)
	switch {
	case s == "auto":
		*into = min(CPUs(), maxWorkers)
	case ok:
		example := "4"
		if n, err := strconv.Atoi(s); err == nil {
			example = strconv.Itoa(n)
		}
		v.Problem(fmt.Sprintf("%q is not a number", s), `write workers = %s, without quotes, or "auto"`, example)
	default:
		v.Integer(into, 1, maxWorkers)
	}
}

// readUser reads the name of a user that exists, or a number.
func readUser(v document.Value, into *string) { readAccount(v, into, "user", proc.UID) }

// readGroup reads the name of a group that exists, or a number.
func readGroup(v document.Value, into *string) { readAccount(v, into, "group", proc.GID) }

func readAccount(v document.Value, into *string, kind string, lookUp func(string) (uint32, error)) {
	var name string
	if !v.Text(&name) {
		return
	}
	switch _, err := lookUp(name); {
	case err == nil:
		*into = name
	case errors.Is(err, proc.ErrIDRange):
		v.Problem(fmt.Sprintf("%s is not a %s number", name, kind), "write one below 4294967295")
	case proc.Unknown(err):
		remedy := "write one that exists, or create it first"
		if near, ok := document.Nearest(name, accounts(kind)); ok {
			remedy = fmt.Sprintf("did you mean %q?", near)
		}
		v.Problem(fmt.Sprintf("there is no %s %q", kind, name), "%s", remedy)
	default:
		v.Problem(fmt.Sprintf("cannot look up the %s %q: %v", kind, name, err), "write its number")
	}
}

// accounts lists the names of the local users or groups.
func accounts(kind string) (names []string) {
	text, _ := document.ReadFile(map[string]string{"user": "/etc/passwd", "group": "/etc/group"}[kind])
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, ":")
		names = append(names, name)
	}
	return names
}

// readEnvironmentFiles reads paths of files and folders of variables. One that begins with "-" need not exist, as in
// systemd.
func readEnvironmentFiles(v document.Value, into *[]string) {
	var paths []string
	if !v.Texts(&paths) {
		return
	}
	for i, path := range paths {
		name, optional := strings.CutPrefix(path, environment.Optional)
		if paths[i] = document.Absolute(v.In.Dir, name); optional {
			paths[i] = environment.Optional + paths[i]
		}
	}
	*into = paths
}

// readEnvironment reads the table of a program's own variables.
func readEnvironment(v document.Value, into *map[string]string) {
	table, ok := v.Raw.(map[string]any)
	if !ok {
		v.Problem("is "+document.TypeOf(v.Raw)+", not a table",
			"write environment = %s", cmp.Or(meant.Environment(v.Raw), `{ LANG = "C.UTF-8" }, for example`))
		return
	}
	variables := make(map[string]string, len(table))
	for _, name := range slices.Sorted(maps.Keys(table)) {
		item := v.Child(name)
		text, isText := item.Raw.(string)
		switch {
		case !environment.ValidName(name):
			item.Problem("is not a valid variable name", "use letters, digits and _, not beginning with a digit")
		case reserved.ForWorkers(name):
			item.Problem("is set by supervisord itself", "remove it")
		case !isText:
			item.Problem("is "+document.TypeOf(item.Raw)+", not a string", `write it in quotes: "%v"`, item.Raw)
		case strings.Contains(text, "\x00"):
			item.Problem("has a NUL character", "remove it")
		default:
			variables[strings.Clone(name)] = strings.Clone(text)
		}
	}
	*into = variables
}

// checkPlaceholders checks every {fd:NAME} in a text, or in the words of a command. Other braces belong to the program.
func checkPlaceholders(v document.Value, p *Program) {
	for _, word := range v.OneOrMore() {
		text, _ := word.Raw.(string)
		for {
			_, rest, found := strings.Cut(text, "{fd:")
			if !found {
				break
			}
			name, after, closed := strings.Cut(rest, "}")
			checkPlaceholder(word, p, name, closed)
			text = after
		}
	}
}

func checkPlaceholder(v document.Value, p *Program, name string, closed bool) {
	switch {
	case !closed:
		v.Problem("{fd:"+name+" is not closed", "write }")
	case !slices.Contains(listenerNames(p), name):
		noListener(v, p, "{fd:"+name+"}")
	}
}

// noListener reports that what v has in place of a listener of p is none.
func noListener(v document.Value, p *Program, written string) {
	remedy := fmt.Sprintf("write [[program.%s.listen]]", p.Name)
	if names := listenerNames(p); len(names) > 0 {
		remedy = "the listeners are " + strings.Join(names, ", ")
	}
	v.Problem(written+" names no listener", "%s", remedy)
}

func listenerNames(p *Program) []string {
	var names []string
	for _, l := range p.Listen {
		names = append(names, l.Name)
	}
	return names
}

// programTables are the tables below a program, those that a reader meets first in front: a key of several tables is
// named in this order.
func programTables() []meant.KeyTable {
	return []meant.KeyTable{
		{Path: "", Keys: keysOf(programFields)},
		{Path: "listen", Keys: keysOf(listenFields)},
		{Path: "listen.socket", Keys: keysOf(socketFields)},
		{Path: "ready", Keys: keysOf(readyFields)},
		{Path: "reload", Keys: keysOf(reloadFields)},
		{Path: "drain", Keys: keysOf(drainFields)},
		{Path: "stop", Keys: keysOf(stopFields)},
		{Path: "restart", Keys: keysOf(restartFields)},
		{Path: "restart.backoff", Keys: keysOf(backoffFields)},
		{Path: "limits", Keys: keysOf(limitFields)},
		{Path: "limits.rlimits", Keys: keysOf(rlimitFields)},
		{Path: "health", Keys: keysOf(healthFields)},
		{Path: "log", Keys: keysOf(logFields)},
		{Path: "hooks", Keys: keysOf(hookFields)},
		{Path: "compat", Keys: keysOf(compatFields)},
	}
}

func keysOf[T any](fields document.Fields[T]) []string { return slices.Sorted(maps.Keys(fields)) }

// compatFields are the keys of [program.NAME.compat]: what other supervisors do, for programs and scripts that rely on
// it.
var compatFields = document.Fields[Program]{
	"generation": func(p *Program, v document.Value) { document.Choice(v, &p.Restart.Generation, Same, New) },
	"int_signal": func(p *Program, v document.Value) { v.Signal(&p.Stop.IntSignal) },
	"reload_signal": func(p *Program, v document.Value) {
		v.Signal(&p.Stop.ReloadSignal)
	},
	"retry":         func(p *Program, v document.Value) { v.Duration(&p.Reload.Retry, shortestRetry) },
	"starter_names": later, // needs the listeners
	"status_file":   func(p *Program, v document.Value) { v.Path(&p.StatusFile) },
}

// readStarterNames reads the names of listeners in SERVER_STARTER_PORT; the listeners of p are known.
func readStarterNames(v document.Value, p *Program) {
	table, is := v.Raw.(map[string]any)
	if v.Raw != nil && !is {
		v.Problem("is "+document.TypeOf(v.Raw)+", not a table", `write such as starter_names = { http = "8080" }`)
	}
	names := listenerNames(p)
	for _, name := range slices.Sorted(maps.Keys(table)) {
		item := v.Child(name)
		at := slices.Index(names, name)
		switch {
		case at < 0:
			noListener(item, p, strconv.Quote(name))
		case item.Text(&p.Listen[at].StarterName):
			for _, wrong := range p.Listen[at].Check() {
				if wrong.Key == "starter_name" {
					item.Problem(wrong.What, "%s", wrong.Remedy)
				}
			}
		}
	}
}

// Fingerprint identifies what p asks for, wherever it is written: twelve hexadecimal digits.
func (p Program) Fingerprint() string {
	p.File, p.Line = "", 0
	text, err := json.Marshal(p)
	if err != nil {
		return "" // impossible: supervisord's record contains it as JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}

// StandsInFor reports whether a worker of p can do what is left to one of q: it gets the same sockets, says in the same
// way that it is ready, writes to the same files and is stopped in the same way.
func (p *Program) StandsInFor(q *Program) bool {
	place := func(p *Program) []any {
		return []any{p.Listen, p.Dialects, p.Ready, p.Health.Watchdog, p.Drain, p.Stop, p.Stdout, p.Stderr, p.Log}
	}
	return reflect.DeepEqual(place(p), place(q))
}

// Equal reports whether p and q ask for the same program, wherever they are written. A reload replaces the workers of a
// program that is not Equal to its former self.
func (p Program) Equal(q Program) bool {
	p.File, p.Line, p.positions = "", 0, nil
	q.File, q.Line, q.positions = "", 0, nil
	return reflect.DeepEqual(p, q)
}
