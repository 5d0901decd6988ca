package convert

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
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
	c := &starter{program: p, line: line, interval: item{at: line.words[0].at, key: "--interval", value: "1"},
		hup: item{key: "--signal-on-hup", value: "TERM"}, term: item{key: "--signal-on-term", value: "TERM"},
		restartEvery: item{at: line.words[0].at, key: "--auto-restart-interval", value: "360"}}
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
	"status-file": func(c *starter, it item) {
		c.lacks(it, "`supervisord status --json` says which workers there are")
	},
}

// starterPort is a port as start_server takes it: an address or [address], u for UDP, a port, and the descriptor that is wanted.
var starterPort = regexp.MustCompile(`^(?:(.*):)?(u?)([0-9]+)(?:=([0-9]+))?$`)

func (c *starter) port(it item) {
	m := starterPort.FindStringSubmatch(it.value)
	if m == nil {
		c.wrong(it, fmt.Sprintf("%q is no port", it.value), "write 8080, 127.0.0.1:8080, [::1]:8080 or u53")
		return
	}
	host, port := m[1], m[3]
	if bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"); !strings.Contains(bare, ":") {
		host = bare // [127.0.0.1] is an IPv4 address
	}
	if host == "" {
		host = "0.0.0.0"
	}
	address := host + ":" + strings.TrimLeft(port[:len(port)-1], "0") + port[len(port)-1:]
	if m[2] == "u" {
		address = "udp:" + address
	}
	if c.listenTable(it, "", address) != nil && m[4] != "" {
		c.lacks(it, "the descriptor's number is the listener's turn, from 3: let the program read SERVER_STARTER_PORT, or {fd:NAME} in its command")
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
		c.note("ready", c.interval, "a worker that lives so long is taken for ready, as nearly every one is; with method = \"notify\" it says so itself")
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

// restartsByItself converts the automatic restart, and the delay before the old workers are killed.
func (c *starter) restartsByItself() {
	soak := 0
	if c.autoRestart != nil {
		soak = 5 // start_server's default with --enable-auto-restart
		if n, ok := c.doc.integer(c.restartEvery); ok {
			c.note("limits", *c.autoRestart, "each worker is replaced when it is so old, give or take a tenth")
			c.seconds("limits", "max_age", c.restartEvery, float64(n), 1000)
		}
	}
	delay := item{at: c.restartEvery.at, key: "--kill-old-delay", value: strconv.Itoa(soak)}
	if c.killOldDelay != nil {
		delay = *c.killOldDelay
	}
	if n, ok := c.doc.integer(delay); ok && (n > 0 || c.killOldDelay != nil) {
		c.seconds("reload", "soak", delay, float64(n), 0)
	}
}

// stopping converts the signals. There is one stop plan, for deploys and for the end; the one for deploys is what counts.
func (c *starter) stopping() {
	hup, ok1 := c.doc.signal(c.hup)
	term, ok2 := c.doc.signal(c.term)
	if !ok1 || !ok2 {
		return
	}
	c.stopSignal(c.hup)
	if hup == "" {
		hup = "TERM"
	}
	if hup != term {
		at := c.term
		if at.text == "" {
			at = c.hup
		}
		c.lacks(at, fmt.Sprintf("a worker gets %s when it is replaced, and the same at the end, not %s", hup, term))
	}
	c.table("stop").comment("start_server waits for ever; here a worker that is not gone by then is killed.")
	c.set("stop", "timeout", "30s")
}
