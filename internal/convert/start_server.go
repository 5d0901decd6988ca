package convert

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"supervisord/internal/pattern"
)

// starterFlags are the options of start_server, of all of Server::Starter 0.35's.
var starterFlags = flags{oneDash: true, known: []flag{
	{"port", "", true}, {"path", "", true}, {"interval", "", true}, {"log-file", "", true}, {"pid-file", "", true}, {"dir", "", true},
	{"signal-on-hup", "", true}, {"signal-on-term", "", true}, {"backlog", "", true}, {"envdir", "", true},
	{"enable-auto-restart", "", false}, {"daemonize", "", false}, {"auto-restart-interval", "", true}, {"kill-old-delay", "", true},
	{"status-file", "", true}, {"restart", "", false}, {"stop", "", false}, {"help", "", false}, {"version", "", false},
}}

// starter is a start_server command line while it is converted.
type starter struct {
	*program
	line         commandLine
	dir          *item
	backlog      *item
	interval     item
	hup, term    item
	autoRestart  *item
	restartEvery item
	killOldDelay *item
	descriptors  map[int]string // that were asked for, and by what
}

// startServer converts a command line of start_server.
func (d *document) startServer(s Source) {
	line, ok := d.commandLine(s)
	if !ok {
		return
	}
	options, rest, ok := starterFlags.parse(d, line.words[1:])
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
	c := &starter{program: p, line: line, interval: item{at: line.words[0].at, key: "--interval", value: "1"},
		hup: item{key: "--signal-on-hup", value: "TERM"}, term: item{key: "--signal-on-term", value: "TERM"},
		restartEvery: item{at: line.words[0].at, key: "--auto-restart-interval", value: "360"}, descriptors: map[int]string{}}
	c.variables()
	for _, o := range options {
		starterConvert[o.flag.long](c, o.item)
	}
	c.finish()
}

// variables takes the variables of the line: some are start_server's own options, the others are the program's.
func (c *starter) variables() {
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
var starterConvert = map[string]func(c *starter, it item){
	"port": (*starter).port,
	"path": func(c *starter, it item) {
		if t := c.listenTable(it, "", "unix:"+c.doc.path(it.value)); t != nil {
			t.set("mode", "0777") // as start_server makes it
			c.starterName(it, t, it.value, c.doc.path(it.value))
		}
	},
	"interval":            func(c *starter, it item) { c.interval = it },
	"log-file":            (*starter).logFile,
	"pid-file":            func(c *starter, it item) { c.doc.global.set("pid_file", c.doc.path(it.value)) },
	"dir":                 func(c *starter, it item) { c.dir = &it },
	"signal-on-hup":       func(c *starter, it item) { c.hup = it },
	"signal-on-term":      func(c *starter, it item) { c.term = it },
	"backlog":             func(c *starter, it item) { c.backlog = &it },
	"envdir":              func(c *starter, it item) { c.set("", "environment_dir", c.doc.path(it.value)) },
	"enable-auto-restart": func(c *starter, it item) { c.autoRestart = &it },
	"daemonize": func(c *starter, it item) {
		c.lacks(it, "supervisord stays in the foreground: systemd keeps it running, docs/systemd.md")
	},
	"auto-restart-interval": func(c *starter, it item) { c.restartEvery = it },
	"kill-old-delay":        func(c *starter, it item) { c.killOldDelay = &it },
	"status-file":           func(c *starter, it item) { c.set("", "status_file", c.doc.path(it.value)) },
}

// starterPort is a port as start_server takes it: an address or [address], u for UDP, a port, and the descriptor that is wanted.
var starterPort = pattern.Lazy(`^(?:(.*):)?(u?)([0-9]+)(?:=([0-9]+))?$`)

func (c *starter) port(it item) {
	m := starterPort().FindStringSubmatch(it.value)
	if m == nil {
		c.wrong(it, fmt.Sprintf("%q is no port", it.value), "write 8080, 127.0.0.1:8080, [::1]:8080 or u53")
		return
	}
	host, port := strings.TrimSuffix(strings.TrimPrefix(m[1], "["), "]"), unpadded(m[3])
	name, usual := host+":"+port, host+":"+port
	switch {
	case strings.Contains(host, ":"):
		name, usual = "["+host+"]:"+port, "["+host+"]:"+port
	case host == "":
		name, usual = port, port
	case host == "0.0.0.0":
		usual = port
	}
	address := usual
	if usual == port {
		address = "0.0.0.0:" + port
	}
	if m[2] == "u" {
		address = "udp:" + address
	}
	if t := c.listenTable(it, "", address); t != nil {
		c.starterName(it, t, name, usual)
		c.descriptor(it, t, m[4])
	}
}

// unpadded is a number without zeros before it.
func unpadded(digits string) string {
	return strings.TrimLeft(digits[:len(digits)-1], "0") + digits[len(digits)-1:]
}

// starterName writes under which name a worker finds the socket in SERVER_STARTER_PORT, unless that is the usual one.
func (c *starter) starterName(it item, t *table, name, usual string) {
	switch {
	case name == usual:
	case strings.ContainsAny(name, ";=") || strings.ContainsFunc(name, unicode.IsControl):
		c.lacks(it, "the name cannot travel in SERVER_STARTER_PORT")
	default:
		t.set("starter_name", name)
	}
}

// descriptor writes the number that a worker wants the socket at.
func (c *starter) descriptor(it item, t *table, number string) {
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

func (c *starter) logFile(it item) {
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
func (c *starter) finish() {
	c.here(c.line, c.dir)
	c.backlogs()
	if n, ok := c.doc.integer(c.interval); ok {
		c.note("ready", c.interval, "a worker that lives so long is taken for ready, as nearly every one is; with method = \"notify\" it says so itself, with \"accept\" the kernel shows that it waits on its sockets")
		c.readyAfter(c.interval, float64(max(n, 0)))
	}
	c.restartsByItself()
	c.stopping()
}

// backlogs gives every listener but those for UDP the backlog.
func (c *starter) backlogs() {
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
func (c *starter) restartsByItself() {
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
func (c *starter) stopping() {
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
	c.waitsForEver()
}

// waitsForEver writes that no worker is ever killed.
func (p *program) waitsForEver() {
	p.table("stop").comment(string(p.doc.Kind) + " waits for ever, and so does this; a timeout such as \"60s\" ends a worker that hangs.")
	p.set("stop", "timeout", "infinity")
	p.set("stop", "max_draining", 0)
}
