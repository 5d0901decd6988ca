package unit

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/convert/draft"
	"example.org/supervisord/internal/convert/source"
)

// resources are the limits that have the same name in systemd, after "Limit".
var resources = strings.Fields(
	"as core cpu data fsize memlock msgqueue nice nofile nproc rtprio rttime sigpending stack")

// keys says what has no equivalent.
//
//go:embed keys.txt
var keys string

// rules are the keys of [Service].
func (x *service) rules() draft.Rules {
	return draft.Keys(draft.Notes(keys, "Service"), draft.Rules{
		"ExecStart":             x.exec(&x.commands),
		"ExecStartPre":          x.exec(&x.before),
		"ExecCondition":         x.exec(&x.before),
		"ExecStop ExecStopPost": x.stop,
		"Type Sockets":          draft.Kept,
		"User":                  draft.To("user", draft.AsAccount),
		"Group":                 draft.To("group", draft.AsAccount),
		"DynamicUser": draft.Whether(
			draft.None("create a user with sysusers.d(5) or useradd --system, and name it in user"),
			draft.Unneeded("the user is a fixed one")),
		"WorkingDirectory":    x.directory,
		"Environment":         x.environment,
		"EnvironmentFile":     x.environmentFile,
		"UMask":               draft.To("limits.umask", draft.AsMode),
		"Nice":                draft.To("limits.nice", asInteger(-20, 19)),
		"OOMScoreAdjust":      draft.To("limits.oom_score_adj", asInteger(-1000, 1000)),
		"NoNewPrivileges":     draft.To("limits.no_new_privileges", draft.AsTruth),
		"IgnoreSIGPIPE":       draft.To("limits.ignore_sigpipe", draft.AsTruth),
		"AmbientCapabilities": capabilities,
		"KillSignal":          draft.To("stop.signal", draft.AsSignal),
		"RestartKillSignal":   draft.To("compat.reload_signal", draft.AsSignal),
		"KillMode":            killMode,
		"SendSIGKILL": draft.Whether(
			draft.Unneeded("KILL comes at stop.timeout"), draft.Always("stop.timeout", "infinity")),
		"TimeoutStopSec":    draft.To("stop.timeout", asSpan(0.001)),
		"TimeoutStartSec":   startsWithin,
		"TimeoutSec":        timeoutSec,
		"RuntimeMaxSec":     draft.To("limits.max_age", asSpan(1)),
		"WatchdogSec":       watchdog,
		"Restart":           x.restart,
		"RestartSec":        restartSec,
		"SuccessExitStatus": x.success,
		"StandardOutput":    output("stdout"),
		"StandardError":     output("stderr"),
		"StandardInput":     x.standardInput,
	})
}

// ofUnit are the keys of [Unit]. sockets are the units that are converted with the service.
func ofUnit(sockets ...*file) draft.Rules {
	return draft.Keys(draft.Notes(keys, "Unit"), draft.Rules{
		"After Before Wants Requires Requisite BindsTo PartOf Upholds Conflicts": draft.When(nothingElse(sockets),
			draft.Unneeded("supervisord's own unit starts after the network, and supervisord opens the sockets first"),
			draft.None("programs start after supervisord's own unit; where this program needs another one of supervisord's, "+
				"write after = [\"NAME\"]")),
	})
}

// nothingElse reports whether a setting names nothing but targets that every unit of the system starts after, and these
// sockets.
func nothingElse(sockets []*file) draft.Condition {
	return func(_ *draft.Block, s source.Setting) (yes, ok bool) {
		names := strings.Fields(s.Value)
		others := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			return isEarly(name) || isOneOf(name, sockets)
		})
		return len(names) > 0 && len(others) == 0, true
	}
}

func isOneOf(name string, units []*file) bool {
	return slices.ContainsFunc(units, func(f *file) bool { // the output of `systemctl cat` has both in one
		return f.whole == name || f.ByName["Socket"] != nil && strings.TrimSuffix(f.whole, ".service")+".socket" == name
	})
}

// isEarly reports whether every unit of the system starts after a target.
func isEarly(name string) bool {
	early := []string{"syslog.target", "basic.target", "local-fs.target", "remote-fs.target", "nss-lookup.target"}
	return strings.HasPrefix(name, "network") || slices.Contains(early, name)
}

// filled returns the words of a setting, each with its specifiers expanded.
func (x *service) filled(s source.Setting) (words []string, ok bool) {
	list, err := split(s.Value)
	if err != nil {
		x.Wrong(s, err.Error(), "fix the value")
		return nil, false
	}
	for _, w := range list {
		of := s
		of.Value, of.Text = w, s.String()
		if of, ok = x.unit.specifiers(x.Block, of); !ok {
			return nil, false
		}
		words = append(words, strings.ToValidUTF8(of.Value, "?"))
	}
	return words, true
}

func (x *service) environment(p *draft.Block, s source.Setting) {
	words, ok := x.filled(s)
	if s.Value == "" {
		p.Note("", s, "removes those before it")
	}
	for _, w := range words {
		if name, value, assigns := strings.Cut(w, "="); assigns && ok {
			p.Environment(s, name, value)
		} else {
			p.Lacks(s, fmt.Sprintf("systemd ignores %q too: it is not NAME=VALUE", source.Shorten(w)))
		}
	}
}

func (x *service) environmentFile(p *draft.Block, s source.Setting) {
	filled, ok := p.Filled(s)
	path, optional := strings.CutPrefix(filled.Value, "-")
	switch {
	case !ok:
		return
	case path == "":
		p.Note("", s, "removes those before it")
		return
	case strings.ContainsAny(path, "*?["):
		p.Lacks(s, "write the names of the files: environment_file = […]")
		return
	}
	path = p.Path(path)
	if optional {
		path = "-" + path
	}
	x.files = append(x.files, path)
	p.Set("environment_file", x.files)
}

func (x *service) directory(p *draft.Block, s source.Setting) {
	filled, ok := p.Filled(s)
	filled.Value = strings.TrimPrefix(filled.Value, "-")
	switch {
	case !ok:
	case filled.Value == "~":
		p.Lacks(s, "write the home directory of the user")
	default:
		if path, ok := draft.AsPath(p, "directory", filled); ok {
			p.Set("directory", path)
		}
	}
}

// stop finds the signal of a command that sends one.
func (x *service) stop(p *draft.Block, s source.Setting) {
	words, _ := split(strings.TrimLeft(s.Value, "-@:+!"))
	if len(words) > 2 && strings.HasSuffix(words[0], "kill") && strings.Contains(words[len(words)-1], "MAINPID") {
		of := s
		if of.Value = strings.TrimPrefix(words[1], "-"); of.Value == "s" {
			of.Value = words[2]
		}
		p.Apply(draft.To("stop.signal", draft.AsSignal), of)
		return
	}
	p.Lacks(s, "supervisord stops a program by a signal: stop.signal, or several in stop.steps")
}

func (x *service) restart(p *draft.Block, s source.Setting) {
	when := map[string]string{"no": "never", "always": "always", "on-failure": "on-failure", "on-abnormal": "on-failure",
		"on-abort": "on-failure", "on-watchdog": "on-failure", "on-success": "always"}[s.Value]
	switch {
	case when == "":
		p.Wrong(s, fmt.Sprintf("%q is unknown", s.Value), "write one of always, on-failure, no")
		return
	case when != s.Value && s.Value != "no":
		p.Lacks(s, "restart.when is always, on-failure or never: this is the nearest")
	}
	p.Set("restart.when", when)
}

// success adds to the exit codes that are a success: systemd takes numbers, and names of signals.
func (x *service) success(p *draft.Block, s source.Setting) {
	for word := range strings.FieldsSeq(s.Value) {
		n, err := strconv.Atoi(word)
		if sig := unix.SignalNum("SIG" + strings.TrimPrefix(word, "SIG")); err != nil && sig != 0 {
			n, err = 128+int(sig), nil
		}
		if err != nil || n < 0 || n > 255 {
			p.Lacks(s, word+": write its number into success_exit_codes")
			continue
		}
		x.codes = append(x.codes, n)
	}
	if s.Value == "" {
		x.codes = nil
	}
	if len(x.codes) > 0 {
		p.Set("success_exit_codes", x.codes)
	}
}

func restartSec(p *draft.Block, s source.Setting) {
	const longest, shortest = 30, 0.2 // restart.backoff.max and min, in seconds
	n, ok := span(p, s)
	if !ok || !p.Unless(n < shortest || n > draft.Year, s, "the first wait is 200ms: restart.backoff.min") {
		return
	}
	from, _ := p.Duration("restart.backoff", s, n, shortest)
	to, _ := p.Duration("restart.backoff", s, math.Max(n, longest), shortest)
	p.Set("restart.backoff", draft.Raw(fmt.Sprintf("{ min = %q, max = %q }", from, to)))
}

// span reads a time span in seconds, below 0 if it is infinite.
func span(p *draft.Block, s source.Setting) (float64, bool) {
	n, ok := seconds(s.Value, 1)
	if !ok {
		p.Wrong(s, fmt.Sprintf("%q is not a time span", s.Value), "write for example 30s or 1min 30s")
	}
	return n, ok
}

// asSpan reads a time span of at least the shortest, in seconds. For most of systemd's keys 0 means without end.
func asSpan(shortest float64) draft.Reader {
	return func(p *draft.Block, key string, s source.Setting) (any, bool) {
		switch n, ok := span(p, s); {
		case !ok:
			return nil, false
		case n <= 0 && key == "stop.timeout":
			return "infinity", true
		case n <= 0:
			p.Note("", s, "not needed: it is off")
			return nil, false
		default:
			return p.Duration(key, s, n, shortest)
		}
	}
}

func startsWithin(p *draft.Block, s source.Setting) {
	if n, ok := span(p, s); ok && n <= 0 {
		p.Set("ready.timeout", draft.Longest)
	} else if ok {
		draft.To("ready.timeout", asSpan(0.001))(p, s)
	}
}

func timeoutSec(p *draft.Block, s source.Setting) {
	startsWithin(p, s)
	draft.To("stop.timeout", asSpan(0.001))(p, s)
}

func watchdog(p *draft.Block, s source.Setting) {
	if n, ok := span(p, s); ok && n <= 0 {
		p.Note("", s, "not needed: this is not a watchdog")
	} else if ok {
		draft.To("health.watchdog", asSpan(0.001))(p, s)
	}
}

func killMode(p *draft.Block, s source.Setting) {
	switch s.Value {
	case "control-group":
		p.Note("stop", s, "the signal goes to all processes of a worker (stop.group)")
	case "mixed":
		p.Note("stop", s, "not needed: the signal goes to the worker, and KILL to all of its processes")
	case "process", "none":
		p.Lacks(s, "KILL reaches all processes of a worker")
	default:
		p.Wrong(s, fmt.Sprintf("%q is unknown", s.Value), "write control-group, mixed or process")
	}
}

func capabilities(p *draft.Block, s source.Setting) {
	names := strings.Fields(s.Value)
	if len(names) == 0 || strings.HasPrefix(s.Value, "~") {
		p.Lacks(s, "name the capabilities that the program needs: limits.ambient_capabilities")
		return
	}
	p.Set("limits.ambient_capabilities", names)
}

func asInteger(least, most int) draft.Reader {
	return func(p *draft.Block, key string, s source.Setting) (any, bool) {
		n, ok := p.Integer(s)
		if ok && (n < least || n > most) {
			p.Wrong(s, fmt.Sprintf("%d is out of range", n), fmt.Sprintf("write a number from %d to %d", least, most))
			return nil, false
		}
		return n, ok
	}
}

// asLimit reads a limit, of which a soft and a hard one may be given. supervisord sets the soft one, and raises the
// hard one if need be.
func asLimit(p *draft.Block, key string, s source.Setting) (any, bool) {
	soft, _, two := strings.Cut(strings.TrimSpace(s.Value), ":")
	if two {
		p.Note("limits", s, "the soft limit; the hard one stays as it is, unless it is lower")
	}
	value := soft
	if value == "infinity" {
		return "unlimited", true
	}
	scale := 1.0
	switch {
	case key == draft.Limit("cpu") || key == draft.Limit("rttime"):
		bare := 1.0
		if key == draft.Limit("rttime") {
			bare = 1e-6
		}
		n, ok := seconds(value, bare)
		if ok && n >= 0 {
			return int64(math.Ceil(n / bare)), true
		}
	case key == draft.Limit("nice") && strings.IndexAny(value, "+-") == 0:
		if n, err := strconv.Atoi(value); err == nil && n >= -20 && n < 20 {
			return 20 - n, true
		}
	default:
		if at := slices.Index([]string{"K", "M", "G", "T", "P", "E"}, value[max(len(value)-1, 0):]); at >= 0 {
			value, scale = value[:len(value)-1], math.Pow(1024, float64(at+1))
		}
		if n, err := strconv.ParseFloat(value, 64); err == nil && n >= 0 && n*scale < 1<<62 {
			return int64(n * scale), true
		}
	}
	p.Wrong(s, fmt.Sprintf("%q is not a limit", s.Value), "write a number, perhaps with K, M, G or T, or infinity")
	return nil, false
}

// output converts where an output goes.
func output(name string) draft.Rule {
	return func(p *draft.Block, s source.Setting) {
		filled, ok := p.Filled(s)
		if !ok {
			return
		}
		how, path, _ := strings.Cut(filled.Value, ":")
		switch how {
		case "file", "append", "truncate":
			if how == "truncate" {
				p.Lacks(s, "the file is appended to")
			}
			filled.Value = path
			draft.To(name, draft.AsPath)(p, filled)
		case "null":
			p.Set(name, "null")
		case "inherit", "journal", "journal+console", "syslog", "kmsg", "tty", "kmsg+console":
			p.Note("", s, "not needed: the output goes where supervisord's own goes, under systemd to the journal")
		default:
			p.Lacks(s, "the output goes where supervisord's own goes: null, capture or a path is another place")
		}
	}
}

func (x *service) standardInput(p *draft.Block, s source.Setting) {
	switch s.Value {
	case "null":
		p.Note("", s, "not needed: stdin is /dev/null")
	case "socket":
		x.stdin = true
	default:
		p.Lacks(s, "stdin is /dev/null or a listener: start the program as sh -c 'exec PROGRAM <FILE'")
	}
}
