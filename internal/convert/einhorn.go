package convert

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"example.org/supervisord/internal/getopt"
	"example.org/supervisord/internal/pattern"
)

// einhornLine is a command line of einhorn while it is converted.
type einhornLine struct {
	*program
	louder int // -v less -q
	surge  int
}

// einhorn converts a command line of einhorn.
func (d *draft) einhorn() {
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
		case slices.Contains([]string{"help", "version", "upgrade-check"}, o.key):
			d.wrong(o, "starts nothing", "convert the command line that starts the program")
			return
		case o.key == "command-name" && d.Program == "":
			d.Program = o.value
		}
	}
	if e.program = d.begin(line, append(rest, len(line.words))[0]); e.program == nil {
		return
	}
	e.argv() // it comes first; command sets it again
	e.set("dialect", []string{"einhorn"})
	for _, v := range line.environment {
		e.environment(v, v.key, v.value)
	}
	for _, o := range options {
		e.apply(known[o.key], o)
	}
	e.command(line, rest)
	e.finish(line)
}

// options are the options of einhorn.
func (e *einhornLine) options() []optionRule {
	const text, flag = getopt.Text, getopt.Switch
	louder := func(by int) rule { return func(*program, setting) { e.louder += by } }
	return []optionRule{
		{"bind", "b", text, e.bind},
		{"command-name", "c", text, noted("names the program here; ps shows the command")},
		{"socket-path", "d", text, none("use `supervisord status`, reload, scale, … instead of einhornsh; control in [supervisor] sets their socket")},
		{"pidfile", "e", text, to("supervisor.pid_file", asPath)},
		{"lockfile", "f", text, none("supervisord locks pid_file itself")},
		{"command-socket-as-fd", "g", flag, noted("the dialect always sets EINHORN_SOCK_FD")},
		{"help", "h", flag, kept},
		{"kill-children-on-exit", "k", flag, none("workers survive the death of supervisord, and the next one adopts them")},
		{"backlog", "l", text, kept},
		{"ack-mode", "m", text, kept},
		{"number", "n", text, to("workers", asWorkers)},
		{"preload", "p", text, none("each worker loads its own code; reload.preflight can check beforehand that it loads")},
		{"quiet", "q", flag, louder(-1)},
		{"seconds", "s", text, e.respawn},
		{"verbose", "v", flag, louder(1)},
		{"drop-env-var", "", text, none("supervisord keeps its environment over an upgrade: start it without the variable")},
		{"reexec-as", "", text, none("`supervisord upgrade` executes the binary at its own path")},
		{"nice", "", text, e.nice},
		{"with-state-fd", "", text, none("einhorn uses it only for its own upgrade")},
		{"upgrade-check", "", flag, kept},
		{"signal-timeout", "t", text, to("stop.timeout", asWholeSeconds(0.001))},
		{"max-unacked", "", text, e.atOnce},
		{"max-upgrade-additional", "", text, e.atOnce},
		{"gc-before-fork", "", flag, none("supervisord forks no loaded program")},
		{"working-dir", "w", text, kept},
		{"version", "", flag, kept},
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
		s := setting{at: line.at[at], key: word, text: word}
		if m := einhornServer().FindStringSubmatch(word); m != nil {
			name := "srv" + strconv.Itoa(i)
			if e.listen(s, name, m[2], m[3]) {
				word = m[1] + part(fdPart, name)
			}
		} else if einhornLookalike().MatchString(word) {
			e.lacks(s, "einhorn does not replace it by a socket either: write srv:HOST:PORT, perhaps followed by ,r or ,n, and convert again")
		}
		e.run.words = append(e.run.words, word)
	}
	e.argv()
}

func (e *einhornLine) bind(_ *program, s setting) {
	if m := einhornAddress().FindStringSubmatch(s.value); m != nil {
		e.listen(s, "", m[1]+":"+m[2], m[3])
		return
	}
	path, options, _ := strings.Cut(strings.TrimPrefix(s.value, "unix:"), ",")
	if path == "" || strings.Contains(path, ":") {
		e.wrong(s, fmt.Sprintf("%q is not an address", s.value), "write address:port, perhaps followed by ,r or ,n")
		return
	}
	e.listen(s, "", "unix:"+e.path(path), options)
}

// listen adds a listener with einhorn's options.
func (e *einhornLine) listen(s setting, name, address, options string) bool {
	t := e.listener(s, name, address)
	for option := range strings.SplitSeq(strings.ToLower(options), ",") {
		switch option {
		case "":
		case "r", "so_reuseaddr":
			e.note("", s, "not needed: supervisord always sets SO_REUSEADDR")
		case "n", "o_nonblock":
			if t != nil {
				t.set("nonblock", true)
			}
		default:
			e.lacks(s, "einhorn does not know "+option+" either")
		}
	}
	return t != nil
}

// respawn converts the delay before a worker is restarted.
func (e *einhornLine) respawn(p *program, s setting) {
	const longest = 30 // restart.backoff.max, in seconds
	if n, ok := p.integer(s); ok && p.unless(n < 1 || n > year, s, "the first delay is 200ms: restart.backoff.min") {
		p.set("restart.backoff", raw(fmt.Sprintf(`{ min = "%ds", max = "%ds" }`, n, max(n, longest))))
	}
}

// nice converts MASTER[:WORKER[:RENICE]].
func (e *einhornLine) nice(p *program, s setting) {
	parts := strings.SplitN(s.value, ":", 3)
	if len(parts) > 1 && parts[1] != "" {
		n, err := strconv.Atoi(parts[1])
		if err != nil || n < -20 || n > 19 {
			p.wrong(s, fmt.Sprintf("%q is not a niceness", parts[1]), "write a number from -20 to 19")
			return
		}
		p.set("limits.nice", n)
	}
	p.unless(parts[0] != "" || len(parts) > 2, s, "set the niceness of supervisord itself where it is started: Nice= of systemd, or nice(1)")
}

// atOnce converts a bound on how many new workers start at a time.
func (e *einhornLine) atOnce(p *program, s setting) {
	n, ok := p.integer(s)
	if !ok || !p.unless(n < 1 || n > 10_000, s, "reload.max_surge must be from 1 to 10000") {
		return
	}
	if e.surge != 0 && n >= e.surge {
		p.note("reload", s, "the smaller bound applies")
		return
	}
	e.surge = n
	p.set("reload.strategy", "rolling")
	p.set("reload.max_surge", n)
}

// finish sets what depends on several options, and what einhorn does without any.
func (e *einhornLine) finish(line commandLine) {
	dir := e.given["working-dir"].value
	if line.dir != nil {
		dir = joinPath(line.dir.value, dir)
	} else if dir == "" {
		e.table("").comment("einhorn runs it in the directory where it was started, which is assumed to be this one.")
	}
	e.set("directory", e.path(dir))
	if s, ok := e.given["backlog"]; ok {
		if n, ok := e.integer(s); ok && e.unless(n < 1, s, "a backlog is at least 1") {
			for _, t := range e.program.listen {
				t.set("backlog", n)
			}
		}
	}
	e.ready(line)
	if e.louder != 0 {
		e.set("supervisor.log_level", map[bool]string{true: "debug", false: "error"}[e.louder > 0])
	}
	e.set("stop.signal", "TERM")
	e.table("stop").comment("einhorn sends this to the workers that an upgrade replaces, and to all on INT.")
	e.set("stop.reload_signal", "USR2")
	e.set("stop.int_signal", "USR2")
	if e.value("stop.timeout") == "" {
		e.waitsForever()
	}
}

// ready converts how a worker is found ready.
func (e *einhornLine) ready(line commandLine) {
	s, ok := e.given["ack-mode"]
	if !ok {
		s = setting{at: line.at[0], key: "--ack-mode", value: "1"}
	}
	if s.value == "manual" {
		e.set("ready.method", "notify")
		return
	}
	n, err := strconv.ParseFloat(s.value, 64)
	if err != nil {
		e.wrong(s, fmt.Sprintf("%q is not a mode", s.value), "write a number of seconds, or manual")
		return
	}
	e.note("ready", s, aliveFor)
	e.readyAfter(s, n)
}
