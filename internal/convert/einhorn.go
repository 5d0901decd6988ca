package convert

import (
	"fmt"
	"strconv"
	"strings"

	"example.org/supervisord/internal/pattern"
)

// einhornFlags are the options of einhorn.
var einhornFlags = flags{known: []flag{
	{"bind", "b", true}, {"command-name", "c", true}, {"socket-path", "d", true}, {"pidfile", "e", true}, {"lockfile", "f", true},
	{"command-socket-as-fd", "g", false}, {"help", "h", false}, {"kill-children-on-exit", "k", false}, {"backlog", "l", true},
	{"ack-mode", "m", true}, {"number", "n", true}, {"preload", "p", true}, {"quiet", "q", false}, {"seconds", "s", true},
	{"verbose", "v", false}, {"drop-env-var", "", true}, {"reexec-as", "", true}, {"nice", "", true}, {"with-state-fd", "", true},
	{"upgrade-check", "", false}, {"signal-timeout", "t", true}, {"max-unacked", "", true}, {"max-upgrade-additional", "", true},
	{"gc-before-fork", "", false}, {"working-dir", "w", true}, {"version", "", false},
}}

// einhornLine is an einhorn command line while it is converted.
type einhornLine struct {
	*program
	backlog   *item
	dir       *item
	ack       item
	louder    int
	verbosity item
	surge     int
	timeout   bool
}

// einhorn converts a command line of einhorn.
func (d *document) einhorn(s Source) {
	line, ok := d.commandLine(s)
	if !ok {
		return
	}
	options, rest, ok := einhornFlags.parse(d, line.words[1:])
	if !ok {
		return
	}
	for _, o := range options {
		switch o.flag.long {
		case "help", "version", "upgrade-check":
			d.wrong(o.item, "starts nothing", "convert the command line that starts the program")
			return
		case "command-name":
			if d.Program == "" {
				d.Program = o.value
			}
		}
	}
	p := d.begin(line, rest)
	if p == nil {
		return
	}
	e := &einhornLine{program: p, ack: item{at: line.words[0].at, key: "--ack-mode", value: "1"}}
	e.set("", "command", []string{}) // comes first; what it is depends on the listeners
	e.set("", "dialect", []string{"einhorn"})
	for _, it := range line.environment {
		p.variable(it, it.key, it.value)
	}
	for _, o := range options {
		einhornConvert[o.flag.long](e, o.item)
	}
	e.command(rest)
	e.finish(line)
}

// einhornServer is an argument in place of which einhorn put the descriptor of a socket, before it had -b.
var einhornServer = pattern.Lazy(`^(.*=|)srv:([^:]+):(\d+)((?:,\w+)*)$`)

// command writes the command, with {fd:NAME} for srv:HOST:PORT.
func (e *einhornLine) command(rest []word) {
	var run invocation
	for i, w := range rest {
		m := einhornServer().FindStringSubmatch(w.String())
		if m == nil {
			e.unlikeServer(w)
			run.words = append(run.words, w.value)
			continue
		}
		name := "srv" + strconv.Itoa(i)
		it := item{at: w.at, key: w.String(), text: w.String()}
		if t := e.bindTo(it, name, m[2]+":"+m[3], m[4]); t != nil {
			run.words = append(run.words, append(plain(m[1]), atom{fd: name}))
		} else {
			run.words = append(run.words, w.value)
		}
	}
	e.set("", "command", run.argv())
}

// einhornAlmost is an argument that was probably meant as an einhornServer. einhorn passes it on as it is.
var einhornAlmost = pattern.Lazy(`(?:^|=)srv:`)

// unlikeServer says that an argument names no socket, if it looks like one that does.
func (e *einhornLine) unlikeServer(w word) {
	if text := w.String(); einhornAlmost().MatchString(text) {
		e.lacks(item{at: w.at, key: text, text: text}, "einhorn does not replace it by a socket either; write srv:HOST:PORT, with ,r or ,n or both behind it, and convert again")
	}
}

// einhornConvert says what becomes of each option.
var einhornConvert = map[string]func(e *einhornLine, it item){
	"bind":         (*einhornLine).bind,
	"command-name": func(e *einhornLine, it item) { e.note("", it, "is the program's name here; ps shows the command") },
	"socket-path": func(e *einhornLine, it item) {
		e.lacks(it, "`supervisord status`, reload, scale, … do what einhornsh did; control in [supervisor] says where their socket is")
	},
	"pidfile":  func(e *einhornLine, it item) { e.doc.global.set("pid_file", e.doc.path(it.value)) },
	"lockfile": func(e *einhornLine, it item) { e.lacks(it, "pid_file is locked itself") },
	"command-socket-as-fd": func(e *einhornLine, it item) {
		e.note("", it, "the dialect always gives a worker EINHORN_SOCK_FD")
	},
	"kill-children-on-exit": func(e *einhornLine, it item) {
		e.lacks(it, "workers live on when supervisord dies, and the next one takes them over")
	},
	"backlog":  func(e *einhornLine, it item) { e.backlog = &it },
	"ack-mode": func(e *einhornLine, it item) { e.ack = it },
	"number": func(e *einhornLine, it item) {
		if n, ok := e.doc.integer(it); ok {
			e.workers(it, n)
		}
	},
	"preload": func(e *einhornLine, it item) {
		e.lacks(it, "each worker loads its own code; reload.preflight can see beforehand that it loads")
	},
	"quiet":   func(e *einhornLine, it item) { e.louder, e.verbosity = e.louder-1, it },
	"verbose": func(e *einhornLine, it item) { e.louder, e.verbosity = e.louder+1, it },
	"seconds": (*einhornLine).respawn,
	"drop-env-var": func(e *einhornLine, it item) {
		e.lacks(it, "supervisord keeps its environment over an upgrade; start it without the variable")
	},
	"reexec-as": func(e *einhornLine, it item) {
		e.lacks(it, "`supervisord upgrade` executes the binary at its own path")
	},
	"nice":          (*einhornLine).nice,
	"with-state-fd": func(e *einhornLine, it item) { e.lacks(it, "einhorn gives it to itself") },
	"signal-timeout": func(e *einhornLine, it item) {
		if n, ok := e.doc.integer(it); ok {
			e.timeout = e.program.seconds("stop", "timeout", it, float64(n), 1)
		}
	},
	"max-unacked":            (*einhornLine).atOnce,
	"max-upgrade-additional": (*einhornLine).atOnce,
	"gc-before-fork":         func(e *einhornLine, it item) { e.lacks(it, "nothing is forked from a loaded program") },
	"working-dir":            func(e *einhornLine, it item) { e.dir = &it },
}

// einhornAddress is an address with flags.
var einhornAddress = pattern.Lazy(`^([^:,]+):(\d+)((?:,\w+)*)$`)

func (e *einhornLine) bind(it item) {
	if m := einhornAddress().FindStringSubmatch(it.value); m != nil {
		e.bindTo(it, "", m[1]+":"+m[2], m[3])
		return
	}
	path, options, _ := strings.Cut(strings.TrimPrefix(it.value, "unix:"), ",")
	if path == "" || strings.Contains(path, ":") {
		e.wrong(it, fmt.Sprintf("%q is no address", it.value), "write address:port, and ,r or ,n behind it")
		return
	}
	e.bindTo(it, "", "unix:"+e.doc.path(path), options)
}

// bindTo adds a listener.
func (e *einhornLine) bindTo(it item, name, address, options string) *table {
	t := e.listenTable(it, name, address)
	for option := range strings.SplitSeq(strings.ToLower(options), ",") {
		switch option {
		case "", "r", "so_reuseaddr": // SO_REUSEADDR is always set
		case "n", "o_nonblock":
			if t != nil {
				t.set("nonblock", true)
			}
		default:
			e.lacks(it, option+" is not known to einhorn either")
		}
	}
	return t
}

// respawn converts the wait before a worker is started again.
func (e *einhornLine) respawn(it item) {
	n, ok := e.doc.integer(it)
	const year, longest = 365 * 24 * 3600, 30 // restart.backoff.max, in seconds
	switch {
	case !ok:
	case n < 1 || n > year:
		e.lacks(it, "the first wait is 200ms: restart.backoff.min")
	default:
		e.set("restart", "backoff", raw(fmt.Sprintf(`{ min = "%ds", max = "%ds" }`, n, max(n, longest))))
	}
}

// nice converts MASTER[:WORKER[:RENICE]].
func (e *einhornLine) nice(it item) {
	parts := strings.SplitN(it.value, ":", 3)
	if len(parts) > 1 && parts[1] != "" {
		n, err := strconv.Atoi(parts[1])
		if err != nil || n < -20 || n > 19 {
			e.wrong(it, fmt.Sprintf("%q is no niceness", parts[1]), "write a number from -20 to 19")
			return
		}
		e.set("limits", "nice", n)
	}
	if parts[0] != "" || len(parts) > 2 {
		e.lacks(it, "the niceness of supervisord itself is that with which it is started: Nice= of systemd, or nice(1)")
	}
}

// atOnce converts a bound on how many new workers are started at a time.
func (e *einhornLine) atOnce(it item) {
	n, ok := e.doc.integer(it)
	switch {
	case !ok:
	case n < 1 || n > 10_000:
		e.lacks(it, "reload.max_surge is from 1 to 10000")
	case e.surge == 0 || n < e.surge:
		e.surge = n
		e.set("reload", "strategy", "rolling")
		e.set("reload", "max_surge", n)
	default:
		e.note("reload", it, "the smaller bound holds")
	}
}

// finish writes what depends on several options, and what einhorn does without any.
func (e *einhornLine) finish(line commandLine) {
	e.here(line, e.dir)
	if e.backlog != nil {
		if n, ok := e.doc.integer(*e.backlog); ok && n > 0 {
			for _, t := range e.listen {
				t.set("backlog", n)
			}
		} else if ok {
			e.lacks(*e.backlog, "a backlog is at least 1")
		}
	}
	e.acknowledged()
	if e.louder != 0 {
		level := map[bool]string{true: "debug", false: "error"}[e.louder > 0]
		e.doc.global.set("log_level", level)
	}
	e.set("stop", "signal", "TERM")
	e.table("stop").comment("What einhorn sends to the workers that an upgrade replaces, and to all when it is told INT.")
	e.set("stop", "reload_signal", "USR2")
	e.set("stop", "int_signal", "USR2")
	if !e.timeout {
		e.waitsForEver()
	}
}

// acknowledged converts how a worker is found to be ready.
func (e *einhornLine) acknowledged() {
	if e.ack.value == "manual" {
		e.set("ready", "method", "notify")
		return
	}
	n, err := strconv.ParseFloat(e.ack.value, 64)
	if err != nil {
		e.wrong(e.ack, fmt.Sprintf("%q is no mode", e.ack.value), "write a number of seconds, or manual")
		return
	}
	e.note("ready", e.ack, "a worker that lives so long is taken for ready, as nearly every one is; with method = \"notify\" it says so itself, with \"accept\" the kernel shows that it waits on its sockets")
	e.readyAfter(e.ack, max(n, 0))
}
