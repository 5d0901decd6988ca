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
	file    *circusFile
	section *section
	sockets map[string]bool // listeners of the program
}

// watcher converts a [watcher:x].
func (f *circusFile) watcher(s *section, name string) {
	w := &watcher{program: f.newProgram(s.setting, name), file: f, section: s, sockets: map[string]bool{}}
	w.fill = f.fill(w.program, w.option)
	w.each(s, watcherRules(), w.otherKey)
	if _, ok := w.given["cmd"]; !ok {
		f.wrong(s.setting, "has no cmd", "write cmd = …")
		return
	}
	w.variables()
	w.listeners()
	w.command()
	w.outputs(w.stream("stdout"), w.stream("stderr"))
	w.finish()
}

// slot is a worker's number as circus counts them, for a shell.
const slot = "$((SUPERVISORD_SLOT + 1))"

// watcherRules are the keys of [watcher:x], except those with a common prefix.
func watcherRules() rules {
	const inherits = "programs inherit the environment of supervisord"
	off := unneeded("supervisord does not do this")
	known := keys(rules{
		"cmd": func(p *program, _ setting) { p.argv() }, // keeps its position; command sets it
		"args shell shell_args use_sockets stdin_socket working_dir": kept,
		"uid":                                   to("user", asAccount),
		"gid":                                   to("group", asAccount),
		"copy_env":                              whether(unneeded(inherits), none(inherits+"; start the command with env -i NAME=value to prevent it")),
		"copy_path":                             whether(none("set PYTHONPATH in [program.NAME.environment]"), off),
		"warmup_delay":                          none("reload.strategy = \"rolling\" replaces a few workers at a time"),
		"autostart":                             whether(unneeded(startsAnyway), commented(startsAll)),
		"numprocesses":                          when(atMost(0), commented(runsNone), to("workers", asWorkers)),
		"stop_signal":                           to("stop.signal", asSignal),
		"stop_children":                         to("stop.group", asTruth),
		"graceful_timeout":                      to("stop.timeout", asSeconds(0.001)),
		"max_retry":                             when(is("-1"), unneeded("supervisord never gives up"), none(neverGivesUp)),
		"priority":                              none(startTogether),
		"singleton":                             whether(always("reload.strategy", "stop-first"), unneeded("a program may have any number of workers")),
		"max_age":                               when(atMost(0), unneeded("the age of a worker is not limited"), to("limits.max_age", asWholeSeconds(1))),
		"max_age_variance":                      none("limits.max_age varies by a tenth"),
		"on_demand":                             whether(none("workers run before the first connection; systemd's socket activation can start supervisord on demand"), off),
		"virtualenv virtualenv_py_ver":          none("write the path of its python in command"),
		"respawn":                               whether(always("restart.when", "always"), always("restart.when", "never")),
		"send_hup":                              whether(none("a reload replaces the workers; `supervisord signal NAME HUP` sends them the signal"), off),
		"check_flapping":                        whether(none(byBackoff), off),
		"executable":                            none("the first word of command is executed; bash -c 'exec -a NAME …' shows another name"),
		"close_child_stdin":                     whether(unneeded("stdin is /dev/null"), none("stdin is /dev/null: start the program as sh -c 'exec PROGRAM <FILE'")),
		"close_child_stdout close_child_stderr": whether(kept, unneeded("the output is not closed")),

		"hooks.before_start hooks.before_spawn":  none(preflight),
		"hooks.after_start hooks.after_spawn":    none(afterHook),
		"hooks.before_stop":                      none("the worker is notified by stop.signal"),
		"hooks.after_stop":                       none(afterHook + "; " + crashHook),
		"hooks.before_signal hooks.after_signal": none("the worker itself gets the signal"),
		"hooks.before_reap hooks.after_reap":     none(crashHook),
		"hooks.extended_stats":                   none(metrics),

		"rlimit_ofile": to("limits.nofile", asLimit),
		"rlimit_nice":  to("limits.rlimit_nice", asLimit),
	})
	for limit := range strings.FieldsSeq("as core cpu data fsize locks memlock msgqueue nofile nproc rss rtprio rttime sigpending stack") {
		known["rlimit_"+limit] = to("limits."+limit, asLimit)
	}
	return known
}

// asLimit reads a limit of setrlimit(2).
func asLimit(p *program, _ string, s setting) (any, bool) {
	value := strings.TrimSpace(s.value)
	if value == "" || value == "-1" {
		return "unlimited", true
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		p.wrong(s, fmt.Sprintf("%q is not a number", s.value), "write a whole number, or nothing for no limit")
		return nil, false
	}
	return n, true
}

// otherKey converts the keys that a prefix names.
func (w *watcher) otherKey(_ *program, s setting) {
	name, limit := strings.CutPrefix(s.key, "rlimit_")
	known, isKnown := watcherRules()["rlimit_"+strings.ToLower(name)]
	switch {
	case limit && isKnown:
		w.apply(known, s)
	case limit:
		w.lacks(s, "Linux has no such limit")
	case strings.HasPrefix(s.key, "stdout_stream."), strings.HasPrefix(s.key, "stderr_stream."): // see stream
	case strings.HasPrefix(s.key, "hooks."):
		w.lacks(s, unknownToo)
	default:
		w.lacks(s, "circus only passes it to plugins")
	}
}

// option returns the value for $(circus.KEY), where KEY is a key of the watcher.
func (w *watcher) option(name string) (string, bool) {
	for _, s := range w.section.counting() {
		if strings.EqualFold(s.key, name) && !circusVariable().MatchString(s.value) {
			return s.value, true
		}
	}
	return "", false
}

// inCommand returns the value for $(circus.NAME) in a command.
func (w *watcher) inCommand(name string) (string, bool) {
	socket, ok := strings.CutPrefix(name, "sockets.")
	switch {
	case name == "wid":
		return part(shellPart, slot), true
	case ok && w.sockets[socket]:
		return part(fdPart, validName(socket)), true
	}
	return w.option(name)
}

// command sets what is run: cmd and args, in a shell if shell is true.
func (w *watcher) command() {
	expand := func(s setting) string {
		return strings.ReplaceAll(w.file.expand(s.value, w.inCommand), "$WID", part(shellPart, slot)) // $WID is the older form
	}
	cmd, args := w.given["cmd"], w.given["args"]
	words, ok := w.commandWords(cmd, expand(cmd))
	if !ok {
		return
	}
	more, err := splitWords(expand(args))
	if err != nil {
		w.wrong(args, err.Error(), "close it")
		return
	}
	w.run.words = append(words, more...)
	if shellArgs, given := w.given["shell_args"]; w.isOn("shell") {
		w.throughShell(cmd, args, strings.TrimSpace(show(expand(cmd))+" "+show(expand(args))))
	} else if given {
		w.lacks(shellArgs, "circus uses it only with shell = true")
	}
	w.argv()
}

// throughShell lets a shell read the command as it is written.
func (w *watcher) throughShell(cmd, args setting, script string) {
	w.run.script = script
	if strings.Contains(cmd.value+"\n"+args.value, placeholder) {
		w.wrong(cmd, "contains "+placeholder+", which refers to a listener in supervisord", "write it differently, for example {''fd:")
		return
	}
	s, ok := w.given["shell_args"]
	if !ok {
		return
	}
	words, err := splitWords(w.file.expand(s.value, w.inCommand))
	if err != nil {
		w.wrong(s, err.Error(), "close it")
	}
	if slices.ContainsFunc(words, func(word string) bool { _, ok := literal(word); return !ok }) {
		w.lacks(s, "the arguments of a shell are not expanded: write such words in the command itself")
		return
	}
	w.run.args = words
}

// shellVariable is a variable of circus' own environment in a value of [env].
var shellVariable = pattern.Lazy(`\$(?:[A-Z_][A-Z0-9_]*|\{[A-Za-z_][A-Za-z0-9_]*\})`)

// variables sets the environment. A value that refers to another variable goes to a shell.
func (w *watcher) variables() {
	for _, s := range w.file.variablesOf(strings.TrimPrefix(w.section.name, "watcher:")) {
		s.text = "[env] " + s.key + " = " + s.value
		list := parts(w.file.expand(s.value, w.option))
		for i := 0; i < len(list); i += 2 {
			list[i] = shellVariable().ReplaceAllStringFunc(list[i], func(v string) string {
				return part(shellPart, "${"+strings.Trim(v, "${}")+"}")
			})
		}
		for i := 1; i < len(list); i += 2 {
			list[i] = "\x00" + list[i] + "\x00"
		}
		w.environment(s, s.key, strings.Join(list, ""))
	}
	if _, given := w.given["copy_env"]; !given {
		w.say("Without copy_env a watcher has only the variables of [env]; here programs inherit those of supervisord too.")
	}
}

// stream reads where an output goes.
func (w *watcher) stream(name string) outputStream {
	prefix := name + "_stream."
	class := w.given[prefix+"class"]
	st := outputStream{setting: class}
	kind := class.value[strings.LastIndexByte(class.value, '.')+1:]
	options := slices.DeleteFunc(w.section.counting(), func(s setting) bool { return !strings.HasPrefix(s.key, prefix) || s.key == class.key })
	if kind == "" && len(options) > 0 {
		kind = "FileStream" // as circus does
	}
	switch kind {
	case "", "StdoutStream":
	case "FileStream", "WatchedFileStream", "TimedRotatingFileStream":
		st.kind = toFile
	case "FancyStdoutStream":
		w.lacks(class, "output goes where supervisord's own goes, unchanged")
	case "QueueStream":
		st.kind = captured
	default:
		st.kind = captured
		w.lacks(class, "output goes to supervisord's own, to a file, or is captured for `supervisord logs`, as here")
	}
	if w.isOn("close_child_" + name) {
		st.kind = discarded
	}
	if st.kind != toFile {
		for _, s := range options {
			w.lacks(s, "supervisord passes the output on unchanged")
		}
		return st
	}
	for _, s := range options {
		if filled, ok := w.filled(s); ok {
			w.fileOption(&st, kind, strings.TrimPrefix(s.key, prefix), filled)
		}
	}
	if kind == "TimedRotatingFileStream" {
		w.timed(&st, prefix)
	}
	if st.kind == toFile && st.path == "" {
		w.lacks(st.setting, "there is no filename: the output is captured for `supervisord logs`")
		st.kind = captured
	}
	return st
}

// fileOption reads an option of an output that goes to a file.
func (w *watcher) fileOption(st *outputStream, class, key string, s setting) {
	switch {
	case key == "filename":
		st.setting = s
		st.to(s.value)
	case key == "max_bytes" && class == "FileStream":
		n, err := strconv.ParseInt(strings.TrimSpace(s.value), 10, 64)
		if err != nil || n < 0 {
			w.wrong(s, fmt.Sprintf("%q is not a number of bytes", s.value), "write a whole number")
		}
		st.size = n
	case key == "backup_count":
		st.backups, _ = w.integer(s)
	case key == "rotate_when", key == "rotate_interval": // see timed
	case key == "utc":
		w.lacks(s, "a file is rotated by its age, not by the clock")
	case key == "time_format":
		w.lacks(s, "supervisord does not change lines; `supervisord logs --json` has their times")
	default:
		w.lacks(s, unknownToo)
	}
}

// timed reads when a file is rotated by the clock.
func (w *watcher) timed(st *outputStream, prefix string) {
	every, ok := 1, true
	if s, given := w.get(prefix + "rotate_interval"); given {
		every, ok = w.integer(s)
	}
	s, given := w.get(prefix + "rotate_when")
	if !given {
		s = st.setting
		s.value = ""
	}
	when := strings.ToUpper(s.value)
	seconds := map[string]float64{"S": 1, "M": 60, "H": 3600, "D": 86400, "MIDNIGHT": 86400}[when]
	if len(when) == 2 && when[0] == 'W' {
		w.lacks(s, "a file is rotated when it is a week old, on any day")
		seconds = 7 * 86400
	}
	if st.age = seconds * float64(every); ok && st.age <= 0 {
		w.wrong(s, fmt.Sprintf("%q, every %d, is not an interval", when, every), "write S, M, H, D, MIDNIGHT or W0 to W6")
	}
}

// finish sets what circus does without any key.
func (w *watcher) finish() {
	if s, ok := w.given["working_dir"]; ok {
		switch value := w.file.expand(s.value, w.option); {
		case dynamic(value):
			w.run.dir = value
			w.argv()
		case value != "":
			w.set("directory", w.path(value))
		default:
			w.lacks(s, "the path is empty")
		}
	}
	if w.file.umask != nil {
		s := *w.file.umask
		s.comments = nil
		w.apply(to("limits.umask", asMode), s)
	}
	w.set("ready.method", "delay")
	w.set("ready.delay", "1s")
	if w.value("directory") == "" && w.run.dir == "" {
		w.say(fmt.Sprintf(runsHere, "circus", "circusd"))
	}
}
