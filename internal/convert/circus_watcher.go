package convert

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"example.org/supervisord/internal/pattern"
)

// watcher is a [watcher:x] while it is converted.
type watcher struct {
	*program
	file           *circusFile
	section        *section
	run            invocation
	cmd, args      item
	shell          bool
	shellArgs      item
	useSockets     bool
	stdin          string
	stdout, stderr circusStream
	copyEnv        bool
	said           map[string]bool
	sockets        map[string]bool // that are listeners of the program
}

// circusStream is what a watcher says about one of the outputs.
type circusStream struct {
	stream
	class   string
	options []item
}

// watcher converts a [watcher:x].
func (f *circusFile) watcher(s *section, name string) {
	w := &watcher{program: f.program(s.item, name), file: f, section: s, said: map[string]bool{}, sockets: map[string]bool{}}
	for _, e := range s.entries {
		w.entry(e)
	}
	if w.cmd.key == "" {
		f.wrong(s.item, "has no cmd", "write cmd = …")
		return
	}
	w.variables()
	w.listeners()
	w.command()
	w.streams()
	w.finish()
}

func (w *watcher) entry(e entry) {
	w.comments = append(w.comments, e.comments...)
	key, _, _ := strings.Cut(e.key, ".")
	convert, known := watcherKeys[e.key]
	switch {
	case e.over != nil:
		w.note("", e.item, fmt.Sprintf("does not count: %s has it before", e.over))
	case known:
		w.said[e.key] = true
		convert(w, e.item)
	case key == "stdout_stream":
		w.stdout.option(e.item)
	case key == "stderr_stream":
		w.stderr.option(e.item)
	case key == "hooks":
		w.hook(e.item)
	case strings.HasPrefix(e.key, "rlimit_"):
		w.rlimit(e.item)
	default:
		w.lacks(e.item, "circus only hands it to plugins")
	}
}

// watcherKeys says what becomes of each key of [watcher:x], but for those that are families of keys.
var watcherKeys = map[string]func(w *watcher, it item){
	"cmd":  func(w *watcher, it item) { w.cmd = it; w.carry(w.table("")); w.set("", "command", []string{}) },
	"args": func(w *watcher, it item) { w.args = it; w.carry(w.table("")) },
	"shell": func(w *watcher, it item) {
		w.shell, _ = w.doc.truth(it)
	},
	"shell_args":  func(w *watcher, it item) { w.shellArgs = it },
	"working_dir": (*watcher).directory,
	"uid":         func(w *watcher, it item) { w.owner(w.filled(it), "user") },
	"gid":         func(w *watcher, it item) { w.owner(w.filled(it), "group") },
	"copy_env":    func(w *watcher, it item) { w.copyEnv, _ = w.doc.truth(it); w.copied(it) },
	"copy_path":   func(w *watcher, it item) { w.switchedOff(it, "write PYTHONPATH into [program.NAME.environment]") },
	"warmup_delay": func(w *watcher, it item) {
		w.lacks(it, "reload.strategy = \"rolling\" replaces a few workers at a time")
	},
	"autostart": func(w *watcher, it item) {
		switch on, ok := w.doc.truth(it); {
		case ok && on:
			w.holds(it, "every program starts with supervisord")
		case ok:
			w.off = true
			w.lacks(it, "every program starts with supervisord; remove the # of these lines if this one may")
		}
	},
	"numprocesses": (*watcher).processes,
	"stop_signal":  func(w *watcher, it item) { w.stopSignal(w.offset(it)) },
	"stop_children": func(w *watcher, it item) {
		if on, ok := w.doc.truth(it); ok {
			w.set("stop", "group", on)
		}
	},
	"graceful_timeout": func(w *watcher, it item) {
		if n, ok := w.doc.number(w.filled(it)); ok {
			w.seconds("stop", "timeout", it, n, 1)
		}
	},
	"max_retry": func(w *watcher, it item) {
		if strings.TrimSpace(it.value) == "-1" {
			w.holds(it, "supervisord does not give up")
			return
		}
		w.lacks(it, "supervisord does not give up: it waits longer each time, up to restart.backoff.max (30s)")
	},
	"priority": func(w *watcher, it item) {
		w.lacks(it, "programs start together: one that needs another has to wait for it, or to end and be started again")
	},
	"singleton": func(w *watcher, it item) {
		if on, ok := w.doc.truth(it); ok && on {
			w.note("reload", it, "the old one has gone before the new one starts")
			w.set("reload", "strategy", "stop-first")
		} else if ok {
			w.holds(it, "a program may have any number of workers")
		}
	},
	"use_sockets":  func(w *watcher, it item) { w.useSockets, _ = w.doc.truth(it) },
	"stdin_socket": func(w *watcher, it item) { w.stdin = it.value },
	"max_age": func(w *watcher, it item) {
		if n, ok := w.doc.integer(w.filled(it)); ok && n > 0 {
			w.seconds("limits", "max_age", it, float64(n), 1000)
		} else if ok {
			w.holds(it, "a worker may be as old as it gets")
		}
	},
	"max_age_variance": func(w *watcher, it item) { w.lacks(it, "limits.max_age varies by a tenth") },
	"on_demand": func(w *watcher, it item) {
		w.switchedOff(it, "workers run before the first connection comes; systemd's socket activation can start supervisord itself by it")
	},
	"virtualenv":        func(w *watcher, it item) { w.lacks(it, "write the path of its python into command") },
	"virtualenv_py_ver": func(w *watcher, it item) { w.lacks(it, "write the path of its python into command") },
	"respawn": func(w *watcher, it item) {
		if on, ok := w.doc.truth(it); ok && !on {
			w.set("restart", "when", "never")
		} else if ok {
			w.set("restart", "when", "always")
		}
	},
	"send_hup": func(w *watcher, it item) {
		w.switchedOff(it, "a reload replaces the workers; `supervisord signal NAME HUP` sends it to them")
	},
	"check_flapping": func(w *watcher, it item) {
		w.switchedOff(it, "a worker that ends too often waits longer each time: restart.backoff")
	},
	"executable": func(w *watcher, it item) {
		w.lacks(it, "what is executed is the first word of command; bash -c 'exec -a NAME …' shows another")
	},
	"close_child_stdin":  (*watcher).closeStdin,
	"close_child_stdout": func(w *watcher, it item) { w.closed(it, &w.stdout) },
	"close_child_stderr": func(w *watcher, it item) { w.closed(it, &w.stderr) },
}

// switchedOff is for what may be turned on in circus and is not there: there is nothing to say if it is off.
func (w *watcher) switchedOff(it item, instead string) {
	switch on, ok := w.doc.truth(it); {
	case ok && on:
		w.lacks(it, instead)
	case ok:
		w.holds(it, "that is off anyway")
	}
}

// filled is a setting with its variables put in as they are now, where no shell can do it.
func (w *watcher) filled(it item) item {
	t := w.file.value(it, w.option)
	if it.text = it.String(); t.dynamic() {
		w.note("", it, "the variable as it was at the conversion")
	}
	var b strings.Builder
	for _, a := range t {
		if a.shell != "" {
			v, _ := w.doc.Getenv(strings.Trim(a.shell, "${}"))
			b.WriteString(strings.ReplaceAll(v, "\x00", ""))
		} else {
			b.WriteRune(a.r)
		}
	}
	it.value = b.String()
	return it
}

// option is $(circus.KEY) for a key of the watcher.
func (w *watcher) option(name string) (text, bool) {
	for _, e := range w.section.entries {
		if e.over == nil && strings.EqualFold(e.key, name) && !circusVariable().MatchString(e.value) {
			return plain(e.value), true
		}
	}
	return nil, false
}

func (w *watcher) directory(it item) {
	t := w.file.value(it, w.option)
	switch {
	case t.dynamic():
		w.run.dir = t
	case t.String() != "":
		w.set("", "directory", w.doc.path(t.String()))
	default:
		w.lacks(it, "it is empty")
	}
}

func (w *watcher) copied(it item) {
	if w.copyEnv {
		w.holds(it, "programs have the variables that supervisord has")
	} else {
		w.lacks(it, "programs have the variables that supervisord has; start the command with env -i NAME=value to be without")
	}
}

func (w *watcher) processes(it item) {
	n, ok := w.doc.integer(w.filled(it))
	if ok && n < 1 {
		w.off = true
		w.lacks(it, "nothing runs; remove the # of these lines for one")
	} else if ok {
		w.workers(it, n)
	}
}

// offset is a signal without the offset that real-time signals have.
func (w *watcher) offset(it item) item {
	it = w.filled(it)
	if name, _, ok := strings.Cut(it.value, "+"); ok && strings.Contains(strings.ToUpper(name), "RTM") {
		it.value = name
	}
	return it
}

func (w *watcher) closeStdin(it item) {
	if on, ok := w.doc.truth(it); ok && on {
		w.holds(it, "stdin is /dev/null")
	} else if ok {
		w.lacks(it, "stdin is /dev/null: start the program as sh -c 'exec PROGRAM <FILE'")
	}
}

func (w *watcher) closed(it item, s *circusStream) {
	if on, ok := w.doc.truth(it); ok && on {
		s.item, s.kind = it, toNull
	} else if ok {
		w.holds(it, "the output is not closed")
	}
}

// circusHooks says what there is instead of a hook.
var circusHooks = map[string]string{
	"before_start": "reload.preflight is a command that must succeed first", "before_spawn": "reload.preflight is a command that must succeed first",
	"after_start": "hooks.after_reload is a command that is told", "after_spawn": "hooks.after_reload is a command that is told",
	"before_stop": "the worker itself is told, by stop.signal", "after_stop": "hooks.after_reload and hooks.worker_crashed are commands that are told",
	"before_signal": "the worker itself is told", "after_signal": "the worker itself is told", "before_reap": "hooks.worker_crashed is a command that is told",
	"after_reap": "hooks.worker_crashed is a command that is told", "extended_stats": "http in [supervisor] serves metrics",
}

func (w *watcher) hook(it item) {
	instead, ok := circusHooks[strings.TrimPrefix(it.key, "hooks.")]
	if !ok {
		instead = "circus does not know it either"
	}
	w.lacks(it, instead)
}

// rlimits are the limits of getrlimit(2) as they are called in [program.NAME.limits].
var rlimits = []string{"as", "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nofile", "nproc", "nice", "rss", "rtprio", "rttime",
	"sigpending", "stack"}

func (w *watcher) rlimit(it item) {
	name := strings.ToLower(strings.TrimPrefix(it.key, "rlimit_"))
	if name == "ofile" {
		name = "nofile"
	}
	if !slices.Contains(rlimits, name) {
		w.lacks(it, "Linux has no such limit")
		return
	}
	if name == "nice" {
		name = "rlimit_nice"
	}
	value := strings.TrimSpace(w.filled(it).value)
	if value == "" || value == "-1" {
		w.set("limits", name, "unlimited")
		return
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		w.wrong(it, fmt.Sprintf("%q is no number", it.value), "write a whole number, or nothing for no limit")
		return
	}
	w.set("limits", name, n)
}

// shellVariable is what [env] may have of the environment that circus was started in.
var shellVariable = pattern.Lazy(`\$(?:([A-Z_][A-Z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})`)

// variables writes the watcher's variables. One that is made of another goes to a shell.
func (w *watcher) variables() {
	for _, it := range w.file.variables(strings.TrimPrefix(w.section.name, "watcher:")) {
		t := w.variable(it)
		it.text = "[env] " + it.key + " = " + it.value
		if value := t.String(); !t.dynamic() {
			w.program.variable(it, it.key, value)
			continue
		}
		if !exportable(it.key) {
			w.program.variable(it, it.key, "") // says why it cannot be
			continue
		}
		w.run.exports = slices.DeleteFunc(w.run.exports, func(e export) bool { return e.name == it.key })
		w.run.exports = append(w.run.exports, export{it.key, t})
	}
	if !w.said["copy_env"] && !w.copyEnv {
		w.doc.say("Without copy_env a watcher has the variables of [env] alone; here programs have those of supervisord too.")
	}
}

// variable is a value of [env] with its variables, those of circus and those of a shell.
func (w *watcher) variable(it item) text {
	var t text
	var run strings.Builder
	flush := func() {
		t = append(t, shellVariables(run.String())...)
		run.Reset()
	}
	for _, a := range w.file.value(it, w.option) {
		if a.r != 0 {
			run.WriteRune(a.r)
			continue
		}
		flush()
		t = append(t, a)
	}
	flush()
	return t
}

// shellVariables finds the variables in a value that a shell replaces.
func shellVariables(value string) text {
	var t text
	for {
		at := shellVariable().FindStringIndex(value)
		if at == nil {
			return append(t, plain(value)...)
		}
		name := strings.Trim(value[at[0]:at[1]], "${}")
		t = append(append(t, plain(value[:at[0]])...), atom{shell: "${" + name + "}"})
		value = value[at[1]:]
	}
}

// finish writes what circus does without any key.
func (w *watcher) finish() {
	if w.file.umask != nil {
		it := *w.file.umask
		it.comments = nil
		if mask, ok := w.doc.permissions(it); ok {
			w.set("limits", "umask", mask)
		}
	}
	w.set("ready", "method", "delay")
	w.set("ready", "delay", "1s")
	if !w.table("").has("directory") && w.run.dir == nil {
		w.doc.say("A program without directory runs in the folder of this file; under circus it ran where circusd was started.")
	}
}
