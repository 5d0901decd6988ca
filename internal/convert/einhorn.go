package convert

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"example.org/supervisord/internal/convert/draft"
	"example.org/supervisord/internal/convert/shell"
	"example.org/supervisord/internal/convert/source"
	"example.org/supervisord/internal/getopt"
	"example.org/supervisord/internal/pattern"
)

// einhornLine is a command line of einhorn while it is converted.
type einhornLine struct {
	*draft.Target
	louder int // -v less -q
	surge  int
}

// einhorn converts a command line of einhorn.
func (d *conversion) einhorn() {
	line, ok := d.commandLine()
	if !ok {
		return
	}
	e := &einhornLine{}
	syntax, known := byOption(e.options())
	options, rest, ok := d.options(line, syntax)
	if !ok {
		return
	}
	for _, o := range options {
		switch {
		case slices.Contains([]string{"help", "version", "upgrade-check"}, o.Key):
			d.Wrong(o, "starts nothing", "convert the command line that starts the program")
			return
		case o.Key == "command-name" && d.Program == "":
			d.Program = o.Value
		}
	}
	if e.Target = d.begin(line, append(rest, len(line.words))[0]); e.Target == nil {
		return
	}
	e.Argv() // it comes first; command sets it again
	e.Set("dialect", []string{"einhorn"})
	for _, v := range line.environment {
		e.Environment(v, v.Key, v.Value)
	}
	for _, o := range options {
		e.Apply(known[o.Key], o)
	}
	e.command(line, rest)
	e.finish(line)
	e.Serve(source.Setting{At: line.at[0]})
	e.Argv()
}

// options are the options of einhorn.
func (e *einhornLine) options() []optionRule {
	const text, flag = getopt.Text, getopt.Switch
	louder := func(by int) draft.Rule { return func(*draft.Target, source.Setting) { e.louder += by } }
	return []optionRule{
		{"bind", "b", text, e.bind},
		{"command-name", "c", text, draft.Noted("names the program here; ps shows the command")},
		{"socket-path", "d", text, draft.None("use `supervisord status`, reload, scale, … instead of einhornsh; control in [supervisor] sets their socket")},
		{"pidfile", "e", text, draft.To("supervisor.pid_file", draft.AsPath)},
		{"lockfile", "f", text, draft.None("supervisord locks pid_file itself")},
		{"command-socket-as-fd", "g", flag, draft.Noted("the dialect always sets EINHORN_SOCK_FD")},
		{"help", "h", flag, draft.Kept},
		{"kill-children-on-exit", "k", flag, draft.None("workers survive the death of supervisord, and the next one adopts them")},
		{"backlog", "l", text, draft.Kept},
		{"ack-mode", "m", text, draft.Kept},
		{"number", "n", text, draft.To("workers", draft.AsWorkers)},
		{"preload", "p", text, draft.None("each worker loads its own code; reload.preflight can check beforehand that it loads")},
		{"quiet", "q", flag, louder(-1)},
		{"seconds", "s", text, e.respawn},
		{"verbose", "v", flag, louder(1)},
		{"drop-env-var", "", text, draft.None("supervisord keeps its environment over an upgrade: start it without the variable")},
		{"reexec-as", "", text, draft.None("`supervisord upgrade` executes the binary at its own path")},
		{"nice", "", text, e.nice},
		{"with-state-fd", "", text, draft.None("einhorn uses it only for its own upgrade")},
		{"upgrade-check", "", flag, draft.Kept},
		{"signal-timeout", "t", text, draft.To("stop.timeout", draft.AsWholeSeconds(0.001))},
		{"max-unacked", "", text, e.atOnce},
		{"max-upgrade-additional", "", text, e.atOnce},
		{"gc-before-fork", "", flag, draft.None("supervisord forks no loaded program")},
		{"working-dir", "w", text, draft.Kept},
		{"version", "", flag, draft.Kept},
	}
}

// An address with options. Before -b existed it was a word of the command; einhorn passes on a word that only looks like one.
var (
	einhornAddress   = pattern.Lazy(`^([^:,]+):(\d+)((?:,\w+)*)$`)
	einhornServer    = pattern.Lazy(`^(.*=|)srv:([^:]+:\d+)((?:,\w+)*)$`)
	einhornLookalike = pattern.Lazy(`(?:^|=)srv:`)
)

// command sets the command, with {fd:NAME} for srv:HOST:PORT.
func (e *einhornLine) command(line commandLine, rest []int) {
	for i, at := range rest {
		word := line.words[at]
		s := source.Setting{At: line.at[at], Key: word, Text: word}
		if m := einhornServer().FindStringSubmatch(word); m != nil {
			name := "srv" + strconv.Itoa(i)
			if e.listen(s, name, m[2], m[3]) {
				word = m[1] + shell.Part(shell.Descriptor, name)
			}
		} else if einhornLookalike().MatchString(word) {
			e.Lacks(s, "einhorn does not replace it by a socket either: write srv:HOST:PORT, perhaps followed by ,r or ,n, and convert again")
		}
		e.Run.Words = append(e.Run.Words, word)
	}
	e.Argv()
}

func (e *einhornLine) bind(_ *draft.Target, s source.Setting) {
	if m := einhornAddress().FindStringSubmatch(s.Value); m != nil {
		e.listen(s, "", m[1]+":"+m[2], m[3])
		return
	}
	path, options, _ := strings.Cut(strings.TrimPrefix(s.Value, "unix:"), ",")
	if path == "" || strings.Contains(path, ":") {
		e.Wrong(s, fmt.Sprintf("%q is not an address", s.Value), "write address:port, perhaps followed by ,r or ,n")
		return
	}
	e.listen(s, "", "unix:"+e.Path(path), options)
}

// listen adds a listener with einhorn's options.
func (e *einhornLine) listen(s source.Setting, name, address, options string) bool {
	t := e.Listener(s, name, address)
	for option := range strings.SplitSeq(strings.ToLower(options), ",") {
		switch option {
		case "":
		case "r", "so_reuseaddr":
			e.Note("", s, "not needed: supervisord always sets SO_REUSEADDR")
		case "n", "o_nonblock":
			if t != nil {
				t.Set("nonblock", true)
			}
		default:
			e.Lacks(s, "einhorn does not know "+option+" either")
		}
	}
	return t != nil
}

// respawn converts the delay before a worker is restarted.
func (e *einhornLine) respawn(p *draft.Target, s source.Setting) {
	const longest = 30 // restart.backoff.max, in seconds
	if n, ok := p.Integer(s); ok && p.Unless(n < 1 || n > draft.Year, s, "the first delay is 200ms: restart.backoff.min") {
		p.Set("restart.backoff", draft.Raw(fmt.Sprintf(`{ min = "%ds", max = "%ds" }`, n, max(n, longest))))
	}
}

// nice converts MASTER[:WORKER[:RENICE]].
func (e *einhornLine) nice(p *draft.Target, s source.Setting) {
	parts := strings.SplitN(s.Value, ":", 3)
	if len(parts) > 1 && parts[1] != "" {
		n, err := strconv.Atoi(parts[1])
		if err != nil || n < -20 || n > 19 {
			p.Wrong(s, fmt.Sprintf("%q is not a niceness", parts[1]), "write a number from -20 to 19")
			return
		}
		p.Set("limits.nice", n)
	}
	p.Unless(parts[0] != "" || len(parts) > 2, s, "set the niceness of supervisord itself where it is started: Nice= of systemd, or nice(1)")
}

// atOnce converts a bound on how many new workers start at a time.
func (e *einhornLine) atOnce(p *draft.Target, s source.Setting) {
	n, ok := p.Integer(s)
	if !ok || !p.Unless(n < 1 || n > 10_000, s, "reload.max_surge must be from 1 to 10000") {
		return
	}
	if e.surge != 0 && n >= e.surge {
		p.Note("reload", s, "the smaller bound applies")
		return
	}
	e.surge = n
	p.Set("reload.strategy", "rolling")
	p.Set("reload.max_surge", n)
}

// finish sets what depends on several options, and what einhorn does without any.
func (e *einhornLine) finish(line commandLine) {
	dir := e.Given["working-dir"].Value
	if line.dir != nil {
		dir = draft.JoinPath(line.dir.Value, dir)
	} else if dir == "" {
		e.Table("").Comment("einhorn runs it in the directory where it was started, which is assumed to be this one.")
	}
	e.Set("directory", e.Path(dir))
	if s, ok := e.Given["backlog"]; ok {
		if n, ok := e.Integer(s); ok && e.Unless(n < 1, s, "a backlog is at least 1") {
			for _, t := range e.Target.Listen {
				t.Set("backlog", n)
			}
		}
	}
	e.ready(line)
	if e.louder != 0 {
		e.Set("supervisor.log_level", map[bool]string{true: "debug", false: "error"}[e.louder > 0])
	}
	e.Set("stop.signal", "TERM")
	e.Table("stop").Comment("einhorn sends this to the workers that an upgrade replaces, and to all on INT.")
	e.Set("stop.reload_signal", "USR2")
	e.Set("stop.int_signal", "USR2")
	if e.Value("stop.timeout") == "" {
		e.WaitsForever()
	}
}

// ready converts how a worker is found ready.
func (e *einhornLine) ready(line commandLine) {
	s, ok := e.Given["ack-mode"]
	if !ok {
		s = source.Setting{At: line.at[0], Key: "--ack-mode", Value: "1"}
	}
	if s.Value == "manual" {
		e.Set("ready.method", "notify")
		return
	}
	n, err := strconv.ParseFloat(s.Value, 64)
	if err != nil {
		e.Wrong(s, fmt.Sprintf("%q is not a mode", s.Value), "write a number of seconds, or manual")
		return
	}
	e.Note("ready", s, draft.AliveFor)
	e.ReadyAfter(s, n)
}
