package convert

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"example.org/supervisord/internal/starter"
)

// starterFlags are the options of start_server, and those that supervisord's has besides.
func starterFlags() flags {
	f := flags{oneDash: true}
	for _, known := range starter.Flags() {
		f.known = append(f.known, flag{known.Name, "", known.Kind != starter.Switch})
	}
	return f
}

// starterLine is a start_server command line while it is converted.
type starterLine struct {
	*program
	line         commandLine
	dir          *item
	backlog      *item
	interval     item
	hup, term    item
	autoRestart  *item
	restartEvery item
	killOldDelay *item
	ready        *item
	stopTimeout  *item
	descriptors  map[int]string // that were asked for, and by what
}

// startServer converts a command line of start_server.
func (d *document) startServer(s Source) {
	line, ok := d.commandLine(s)
	if !ok {
		return
	}
	options, rest, ok := starterFlags().parse(d, line.words[1:])
	if !ok {
		return
	}
	for _, o := range options {
		switch o.flag.long {
		case "restart", "stop", "help", "version":
			d.wrong(o.item, "starts nothing", "the commands of supervisord are: supervisord reload, supervisord stop NAME")
			return
		}
	}
	p := d.begin(line, rest)
	if p == nil {
		return
	}
	p.argv(rest)
	p.set("limits", "ignore_sigpipe", true) // as start_server starts its workers
	c := &starterLine{program: p, line: line, interval: item{at: line.words[0].at, key: "--interval", value: "1"},
		hup: item{key: "--signal-on-hup", value: "TERM"}, term: item{key: "--signal-on-term", value: "TERM"},
		restartEvery: item{at: line.words[0].at, key: "--auto-restart-interval", value: "360"}, descriptors: map[int]string{}}
	c.variables()
	for _, o := range options {
		starterConvert[o.flag.long](c, o.item)
	}
	c.finish()
}

// variables takes the variables of the line: some are start_server's own options, the others are the program's.
func (c *starterLine) variables() {
	for _, it := range c.line.environment {
		switch it.key {
		case "ENABLE_AUTO_RESTART":
			if it.value != "" && it.value != "0" {
				c.autoRestart = &it
			}
		case "AUTO_RESTART_INTERVAL":
			c.restartEvery = it
		case "KILL_OLD_DELAY":
			c.killOldDelay = &it
		case "ENVDIR":
			c.set("", "environment_dir", c.doc.path(it.value))
		default:
			c.variable(it, it.key, it.value)
		}
	}
}

// starterConvert says what becomes of each option.
var starterConvert = map[string]func(c *starterLine, it item){
	"port": (*starterLine).port,
	"path": func(c *starterLine, it item) {
		if t := c.listenTable(it, "", "unix:"+c.doc.path(it.value)); t != nil {
			t.set("mode", "0777") // as start_server makes it
			c.starterName(it, t, it.value, c.doc.path(it.value))
		}
	},
	"interval":            func(c *starterLine, it item) { c.interval = it },
	"log-file":            (*starterLine).logFile,
	"pid-file":            func(c *starterLine, it item) { c.doc.global.set("pid_file", c.doc.path(it.value)) },
	"dir":                 func(c *starterLine, it item) { c.dir = &it },
	"signal-on-hup":       func(c *starterLine, it item) { c.hup = it },
	"signal-on-term":      func(c *starterLine, it item) { c.term = it },
	"backlog":             func(c *starterLine, it item) { c.backlog = &it },
	"envdir":              func(c *starterLine, it item) { c.set("", "environment_dir", c.doc.path(it.value)) },
	"enable-auto-restart": func(c *starterLine, it item) { c.autoRestart = &it },
	"daemonize": func(c *starterLine, it item) {
		c.lacks(it, "supervisord stays in the foreground: systemd keeps it running, docs/systemd.md")
	},
	"auto-restart-interval": func(c *starterLine, it item) { c.restartEvery = it },
	"kill-old-delay":        func(c *starterLine, it item) { c.killOldDelay = &it },
	"status-file":           func(c *starterLine, it item) { c.set("", "status_file", c.doc.path(it.value)) },

	// Of supervisord's own start_server.
	"ready":        func(c *starterLine, it item) { c.ready = &it },
	"stop-timeout": func(c *starterLine, it item) { c.stopTimeout = &it },
	"timeout": func(c *starterLine, it item) {
		c.lacks(it, "it is for --restart and --stop: supervisord reload --timeout")
	},
	"set": func(c *starterLine, it item) { c.lacks(it, "it is a line of [program.NAME] as it stands") },
}

func (c *starterLine) port(it item) {
	p, err := starter.ParsePort(it.value)
	if err != nil {
		c.wrong(it, fmt.Sprintf("%q is no port", it.value), "write 8080, 127.0.0.1:8080, [::1]:8080 or u53")
		return
	}
	if t := c.listenTable(it, "", p.Address); t != nil {
		c.starterName(it, t, p.Name, strings.TrimPrefix(strings.TrimPrefix(p.Address, "udp:"), "0.0.0.0:"))
		c.descriptor(it, t, p.FD)
	}
}

// starterName writes under which name a worker finds the socket in SERVER_STARTER_PORT, unless that is the usual one.
func (c *starterLine) starterName(it item, t *table, name, usual string) {
	switch {
	case name == usual:
	case strings.ContainsAny(name, ";=") || strings.ContainsFunc(name, unicode.IsControl):
		c.lacks(it, "the name cannot travel in SERVER_STARTER_PORT")
	default:
		t.set("starter_name", name)
	}
}

// descriptor writes the number that a worker wants the socket at.
func (c *starterLine) descriptor(it item, t *table, number string) {
	if number == "" {
		return
	}
	n, err := strconv.Atoi(number)
	switch taken, again := c.descriptors[n]; {
	case err != nil || n != 0 && n < 3 || n > 1023:
		c.lacks(it, "fd is 0, or from 3 to 1023")
	case again:
		c.lacks(it, fmt.Sprintf("%d is already asked for by %s", n, taken))
	default:
		c.descriptors[n] = it.String()
		t.set("fd", n)
	}
}

func (c *starterLine) logFile(it item) {
	if command, piped := strings.CutPrefix(strings.TrimSpace(it.value), "|"); piped {
		c.lacks(it, "a pipe has no place in the configuration: supervisord run 2>&1 | "+strings.TrimSpace(command))
		return
	}
	c.note("", it, "the program's output; supervisord's own log goes to its stderr")
	path := c.doc.path(it.value)
	c.set("", "stdout", path)
	c.set("", "stderr", path)
}

// finish writes what depends on several options.
func (c *starterLine) finish() {
	c.here(c.line, c.dir)
	c.backlogs()
	if c.ready != nil {
		c.readyBy(*c.ready)
	} else if n, ok := c.doc.integer(c.interval); ok {
		c.note("ready", c.interval, "a worker that lives so long is taken for ready, as nearly every one is; with method = \"notify\" it says so itself, with \"accept\" the kernel shows that it waits on its sockets")
		c.readyAfter(c.interval, float64(max(n, 0)))
	}
	c.restartsByItself()
	c.stopping()
}

// readyBy converts --ready.
func (c *starterLine) readyBy(it item) {
	switch method, _, _ := strings.Cut(it.value, "="); {
	case method == "notify" && it.value == method, method == "accept" && it.value == method && len(c.listen) > 0:
		c.set("ready", "method", method)
	case method == "http", method == "tcp", method == "exec":
		c.lacks(it, `write the method and its url, address or command into [program.NAME.ready]`)
	default:
		c.wrong(it, fmt.Sprintf("%q is no way to find out that a worker is ready", it.value), "write notify, accept (with a --port or --path), http=URL, tcp=HOST:PORT or exec=COMMAND")
	}
}

// backlogs gives every listener but those for UDP the backlog.
func (c *starterLine) backlogs() {
	if c.backlog == nil {
		return
	}
	n, ok := c.doc.integer(*c.backlog)
	switch {
	case !ok:
	case n < 1:
		c.lacks(*c.backlog, "a backlog is at least 1: the default is net.core.somaxconn")
	default:
		for _, t := range c.listen {
			if !t.udp() {
				t.set("backlog", n)
			}
		}
	}
}

// udp reports whether the listener is one for UDP.
func (t *table) udp() bool { return strings.HasPrefix(t.value("address"), `"udp:`) }

// restartsByItself converts the automatic restart, the delay before the old workers are killed, and what follows a failure.
func (c *starterLine) restartsByItself() {
	soak := "0"
	if c.autoRestart != nil {
		soak = "5" // start_server's default with --enable-auto-restart
		if n, ok := c.doc.integer(c.restartEvery); ok {
			c.note("reload", *c.autoRestart, "a new generation comes so often by itself")
			c.seconds("reload", "every", c.restartEvery, float64(n), 1000)
		}
	}
	delay := item{at: c.restartEvery.at, key: "--kill-old-delay", value: soak}
	if c.killOldDelay != nil {
		delay = *c.killOldDelay
	}
	if n, ok := c.doc.integer(delay); ok && (n > 0 || c.killOldDelay != nil) {
		c.seconds("reload", "soak", delay, float64(n), 0)
	}
	if n, ok := c.doc.integer(c.interval); ok {
		c.table("reload").comment("start_server tries until a new worker lives; without this a reload that failed is over, and `supervisord reload` says so.")
		c.seconds("reload", "retry", c.interval, float64(max(n, 1)), 1000)
	}
}

// stopping converts the signals, and that start_server waits for ever.
func (c *starterLine) stopping() {
	hup, ok1 := c.doc.signal(c.hup)
	term, ok2 := c.doc.signal(c.term)
	if !ok1 || !ok2 {
		return
	}
	c.stopSignal(c.term)
	if hup != term && hup != "" {
		c.set("stop", "reload_signal", hup)
	} else if hup == "" {
		c.lacks(c.hup, "real-time signals are not sent: let the program take TERM")
	}
	if term != "TERM" {
		c.table("stop").comment("start_server passes INT on as TERM.")
		c.set("stop", "int_signal", "TERM")
	}
	if c.stopTimeout == nil {
		c.waitsForEver()
		return
	}
	text := c.stopTimeout.value
	if n, err := strconv.Atoi(text); err == nil {
		text = (time.Duration(n) * time.Second).String()
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		c.wrong(*c.stopTimeout, fmt.Sprintf("%q is no duration", c.stopTimeout.value), "write such as 30s or 5m")
		return
	}
	c.seconds("stop", "timeout", *c.stopTimeout, d.Seconds(), 1)
	c.set("stop", "max_draining", 0)
}

// waitsForEver writes that no worker is ever killed.
func (p *program) waitsForEver() {
	p.table("stop").comment(string(p.doc.Kind) + " waits for ever, and so does this; a timeout such as \"60s\" ends a worker that hangs.")
	p.set("stop", "timeout", "infinity")
	p.set("stop", "max_draining", 0)
}
