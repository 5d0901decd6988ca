package convert

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"example.org/supervisord/internal/convert/draft"
	"example.org/supervisord/internal/convert/shell"
	"example.org/supervisord/internal/convert/source"
	"example.org/supervisord/internal/pattern"
)

// watcher is a [watcher:x] while it is converted.
type watcher struct {
	*draft.Target
	file    *circusFile
	section *source.Section
	sockets map[string]bool // listeners of the program
}

// watcher converts a [watcher:x].
func (f *circusFile) watcher(s *source.Section, name string) {
	w := &watcher{Target: f.NewProgram(s.Setting, name), file: f, section: s, sockets: map[string]bool{}}
	w.Fill = f.fill(w.Target, w.option)
	w.Each(s, watcherRules(), w.otherKey)
	if _, ok := w.Given["cmd"]; !ok {
		f.Wrong(s.Setting, "has no cmd", "write cmd = …")
		return
	}
	w.variables()
	w.listeners()
	w.command()
	w.Outputs(w.stream("stdout"), w.stream("stderr"))
	w.finish()
}

// slot is a worker's number as circus counts them, for a shell.
const slot = "$((SUPERVISORD_SLOT + 1))"

// watcherRules are the keys of [watcher:x], except those with a common prefix.
func watcherRules() draft.Rules {
	const inherits = "programs inherit the environment of supervisord"
	off := draft.Unneeded("supervisord does not do this")
	known := draft.Keys(draft.Rules{
		"cmd": func(p *draft.Target, _ source.Setting) { p.Argv() }, // keeps its position; command sets it
		"args shell shell_args use_sockets stdin_socket working_dir": draft.Kept,
		"uid":                                   draft.To("user", draft.AsAccount),
		"gid":                                   draft.To("group", draft.AsAccount),
		"copy_env":                              draft.Whether(draft.Unneeded(inherits), draft.None(inherits+"; start the command with env -i NAME=value to prevent it")),
		"copy_path":                             draft.Whether(draft.None("set PYTHONPATH in [program.NAME.environment]"), off),
		"warmup_delay":                          draft.None("reload.strategy = \"rolling\" replaces a few workers at a time"),
		"autostart":                             draft.Whether(draft.Unneeded(startsAnyway), draft.Commented(startsAll)),
		"numprocesses":                          draft.When(draft.AtMost(0), draft.Commented(runsNone), draft.To("workers", draft.AsWorkers)),
		"stop_signal":                           draft.To("stop.signal", draft.AsSignal),
		"stop_children":                         draft.To("stop.group", draft.AsTruth),
		"graceful_timeout":                      draft.To("stop.timeout", draft.AsSeconds(0.001)),
		"max_retry":                             draft.When(draft.Is("-1"), draft.Unneeded("supervisord never gives up"), draft.None(neverGivesUp)),
		"priority":                              draft.None(startTogether),
		"singleton":                             draft.Whether(draft.Always("reload.strategy", "stop-first"), draft.Unneeded("a program may have any number of workers")),
		"max_age":                               draft.When(draft.AtMost(0), draft.Unneeded("the age of a worker is not limited"), draft.To("limits.max_age", draft.AsWholeSeconds(1))),
		"max_age_variance":                      draft.None("limits.max_age varies by a tenth"),
		"on_demand":                             draft.Whether(draft.None("workers run before the first connection; systemd's socket activation can start supervisord on demand"), off),
		"virtualenv virtualenv_py_ver":          draft.None("write the path of its python in command"),
		"respawn":                               draft.Whether(draft.Always("restart.when", "always"), draft.Always("restart.when", "never")),
		"send_hup":                              draft.Whether(draft.None("a reload replaces the workers; `supervisord signal NAME HUP` sends them the signal"), off),
		"check_flapping":                        draft.Whether(draft.None(byBackoff), off),
		"executable":                            draft.None("the first word of command is executed; bash -c 'exec -a NAME …' shows another name"),
		"close_child_stdin":                     draft.Whether(draft.Unneeded("stdin is /dev/null"), draft.None("stdin is /dev/null: start the program as sh -c 'exec PROGRAM <FILE'")),
		"close_child_stdout close_child_stderr": draft.Whether(draft.Kept, draft.Unneeded("the output is not closed")),

		"rlimit_ofile": draft.To("limits.nofile", asLimit),
		"rlimit_nice":  draft.To("limits.rlimit_nice", asLimit),
	})
	maps.Copy(known, hookRules())
	for limit := range strings.FieldsSeq("as core cpu data fsize locks memlock msgqueue nofile nproc rss rtprio rttime sigpending stack") {
		known["rlimit_"+limit] = draft.To("limits."+limit, asLimit)
	}
	return known
}

// hookRules are the hooks of a [watcher:x].
func hookRules() draft.Rules {
	return draft.Keys(draft.Rules{
		"hooks.before_start hooks.before_spawn":  draft.None(preflight),
		"hooks.after_start hooks.after_spawn":    draft.None(afterHook),
		"hooks.before_stop":                      draft.None("the worker is notified by stop.signal"),
		"hooks.after_stop":                       draft.None(afterHook + "; " + crashHook),
		"hooks.before_signal hooks.after_signal": draft.None("the worker itself gets the signal"),
		"hooks.before_reap hooks.after_reap":     draft.None(crashHook),
		"hooks.extended_stats":                   draft.None(metrics),
	})
}

// asLimit reads a limit of setrlimit(2).
func asLimit(p *draft.Target, _ string, s source.Setting) (any, bool) {
	value := strings.TrimSpace(s.Value)
	if value == "" || value == "-1" {
		return "unlimited", true
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		p.Wrong(s, fmt.Sprintf("%q is not a number", s.Value), "write a whole number, or nothing for no limit")
		return nil, false
	}
	return n, true
}

// otherKey converts the keys that a prefix names.
func (w *watcher) otherKey(_ *draft.Target, s source.Setting) {
	name, limit := strings.CutPrefix(s.Key, "rlimit_")
	known, isKnown := watcherRules()["rlimit_"+strings.ToLower(name)]
	switch {
	case limit && isKnown:
		w.Apply(known, s)
	case limit:
		w.Lacks(s, "Linux has no such limit")
	case strings.HasPrefix(s.Key, "stdout_stream."), strings.HasPrefix(s.Key, "stderr_stream."): // see stream
	case strings.HasPrefix(s.Key, "hooks."):
		w.Lacks(s, unknownToo)
	default:
		w.Lacks(s, "circus only passes it to plugins")
	}
}

// option returns the value for $(circus.KEY), where KEY is a key of the watcher.
func (w *watcher) option(name string) (string, bool) {
	for _, s := range w.section.Counting() {
		if strings.EqualFold(s.Key, name) && !circusVariable().MatchString(s.Value) {
			return s.Value, true
		}
	}
	return "", false
}

// inCommand returns the value for $(circus.NAME) in a command.
func (w *watcher) inCommand(name string) (string, bool) {
	socket, ok := strings.CutPrefix(name, "sockets.")
	switch {
	case name == "wid":
		return shell.Part(shell.Unquoted, slot), true
	case ok && w.sockets[socket]:
		return shell.Part(shell.Descriptor, draft.ValidName(socket)), true
	}
	return w.option(name)
}

// command sets what is run: cmd and args, in a shell if shell is true.
func (w *watcher) command() {
	expand := func(s source.Setting) string {
		return strings.ReplaceAll(w.file.expand(s.Value, w.inCommand), "$WID", shell.Part(shell.Unquoted, slot)) // $WID is the older form
	}
	cmd, args := w.Given["cmd"], w.Given["args"]
	words, ok := w.CommandWords(cmd, expand(cmd))
	if !ok {
		return
	}
	more, err := shell.Split(expand(args))
	if err != nil {
		w.Wrong(args, err.Error(), "close it")
		return
	}
	w.Run.Words = append(words, more...)
	if shellArgs, given := w.Given["shell_args"]; w.IsOn("shell") {
		w.throughShell(cmd, args, strings.TrimSpace(shell.Show(expand(cmd))+" "+shell.Show(expand(args))))
	} else if given {
		w.Lacks(shellArgs, "circus uses it only with shell = true")
	}
	w.Argv()
}

// throughShell lets a shell read the command as it is written.
func (w *watcher) throughShell(cmd, args source.Setting, script string) {
	w.Run.Script = script
	if strings.Contains(cmd.Value+"\n"+args.Value, shell.Placeholder) {
		w.Wrong(cmd, "contains "+shell.Placeholder+", which refers to a listener in supervisord", "write it differently, for example {''fd:")
		return
	}
	s, ok := w.Given["shell_args"]
	if !ok {
		return
	}
	words, err := shell.Split(w.file.expand(s.Value, w.inCommand))
	if err != nil {
		w.Wrong(s, err.Error(), "close it")
	}
	if slices.ContainsFunc(words, func(word string) bool { _, ok := shell.Literal(word); return !ok }) {
		w.Lacks(s, "the arguments of a shell are not expanded: write such words in the command itself")
		return
	}
	w.Run.Args = words
}

// shellVariable is a variable of circus' own environment in a value of [env].
var shellVariable = pattern.Lazy(`\$(?:[A-Z_][A-Z0-9_]*|\{[A-Za-z_][A-Za-z0-9_]*\})`)

// variables sets the environment. A value that refers to another variable goes to a shell.
func (w *watcher) variables() {
	for _, s := range w.file.variablesOf(strings.TrimPrefix(w.section.Name, "watcher:")) {
		s.Text = "[env] " + s.Key + " = " + s.Value
		list := shell.Parts(w.file.expand(s.Value, w.option))
		for i := 0; i < len(list); i += 2 {
			list[i] = shellVariable().ReplaceAllStringFunc(list[i], func(v string) string {
				return shell.Part(shell.Unquoted, "${"+strings.Trim(v, "${}")+"}")
			})
		}
		for i := 1; i < len(list); i += 2 {
			list[i] = "\x00" + list[i] + "\x00"
		}
		w.Environment(s, s.Key, strings.Join(list, ""))
	}
	if _, given := w.Given["copy_env"]; !given {
		w.Say("Without copy_env a watcher has only the variables of [env]; here programs inherit those of supervisord too.")
	}
}

// stream reads where an output goes.
func (w *watcher) stream(name string) draft.Stream {
	prefix := name + "_stream."
	class := w.Given[prefix+"class"]
	st := draft.Stream{Setting: class}
	kind := class.Value[strings.LastIndexByte(class.Value, '.')+1:]
	options := slices.DeleteFunc(w.section.Counting(), func(s source.Setting) bool { return !strings.HasPrefix(s.Key, prefix) || s.Key == class.Key })
	if kind == "" && len(options) > 0 {
		kind = "FileStream" // as circus does
	}
	if st.Kind = w.streamKind(class, kind); w.IsOn("close_child_" + name) {
		st.Kind = draft.Discarded
	}
	if st.Kind != draft.ToFile {
		for _, s := range options {
			w.Lacks(s, "supervisord passes the output on unchanged")
		}
		return st
	}
	for _, s := range options {
		if filled, ok := w.Filled(s); ok {
			w.fileOption(&st, kind, strings.TrimPrefix(s.Key, prefix), filled)
		}
	}
	if kind == "TimedRotatingFileStream" {
		w.timed(&st, prefix)
	}
	if st.Kind == draft.ToFile && st.Path == "" {
		w.Lacks(st.Setting, "there is no filename: the output is captured for `supervisord logs`")
		st.Kind = draft.Captured
	}
	return st
}

// streamKind returns where the output of a class goes.
func (w *watcher) streamKind(s source.Setting, class string) draft.StreamKind {
	switch class {
	case "", "StdoutStream":
		return draft.Inherited
	case "FileStream", "WatchedFileStream", "TimedRotatingFileStream":
		return draft.ToFile
	case "FancyStdoutStream":
		w.Lacks(s, "output goes where supervisord's own goes, unchanged")
		return draft.Inherited
	case "QueueStream":
		return draft.Captured
	default:
		w.Lacks(s, "output goes to supervisord's own, to a file, or is captured for `supervisord logs`, as here")
		return draft.Captured
	}
}

// fileOption reads an option of an output that goes to a file.
func (w *watcher) fileOption(st *draft.Stream, class, key string, s source.Setting) {
	switch {
	case key == "filename":
		st.Setting = s
		st.To(s.Value)
	case key == "max_bytes" && class == "FileStream":
		n, err := strconv.ParseInt(strings.TrimSpace(s.Value), 10, 64)
		if err != nil || n < 0 {
			w.Wrong(s, fmt.Sprintf("%q is not a number of bytes", s.Value), "write a whole number")
		}
		st.Size = n
	case key == "backup_count":
		st.Backups, _ = w.Integer(s)
	case key == "rotate_when", key == "rotate_interval": // see timed
	case key == "utc":
		w.Lacks(s, "a file is rotated by its age, not by the clock")
	case key == "time_format":
		w.Lacks(s, "supervisord does not change lines; `supervisord logs --json` has their times")
	default:
		w.Lacks(s, unknownToo)
	}
}

// timed reads when a file is rotated by the clock.
func (w *watcher) timed(st *draft.Stream, prefix string) {
	every, ok := 1, true
	if s, given := w.Get(prefix + "rotate_interval"); given {
		every, ok = w.Integer(s)
	}
	s, given := w.Get(prefix + "rotate_when")
	if !given {
		s = st.Setting
		s.Value = ""
	}
	when := strings.ToUpper(s.Value)
	seconds := map[string]float64{"S": 1, "M": 60, "H": 3600, "D": 86400, "MIDNIGHT": 86400}[when]
	if len(when) == 2 && when[0] == 'W' {
		w.Lacks(s, "a file is rotated when it is a week old, on any day")
		seconds = 7 * 86400
	}
	if st.Age = seconds * float64(every); ok && st.Age <= 0 {
		w.Wrong(s, fmt.Sprintf("%q, every %d, is not an interval", when, every), "write S, M, H, D, MIDNIGHT or W0 to W6")
	}
}

// finish sets what circus does without any key.
func (w *watcher) finish() {
	if s, ok := w.Given["working_dir"]; ok {
		switch value := w.file.expand(s.Value, w.option); {
		case shell.Dynamic(value):
			w.Run.Dir = value
			w.Argv()
		case value != "":
			w.Set("directory", w.Path(value))
		default:
			w.Lacks(s, "the path is empty")
		}
	}
	if w.file.umask != nil {
		s := *w.file.umask
		s.Comments = nil
		w.Apply(draft.To("limits.umask", draft.AsMode), s)
	}
	w.Set("ready.method", "delay")
	w.Set("ready.delay", "1s")
	w.Serve(w.Given["cmd"])
	w.Argv()
	if w.Value("directory") == "" && w.Run.Dir == "" {
		w.Say(fmt.Sprintf(runsHere, "circus", "circusd"))
	}
}
