package convert

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// The defaults of supervisor for log files.
const (
	supervisorLogSize  = 50 << 20 // bytes
	supervisorLogFiles = 10
)

// supervisorKeys says what becomes of each key of [program:x] and [fcgi-program:x].
var supervisorKeys = map[string]func(p *supervisorProgram, it item){
	"command":        (*supervisorProgram).setCommand,
	"process_name":   (*supervisorProgram).processName,
	"numprocs":       (*supervisorProgram).setWorkers,
	"numprocs_start": (*supervisorProgram).numbersFrom,
	"directory":      (*supervisorProgram).directory,
	"umask":          (*supervisorProgram).umask,
	"priority": func(p *supervisorProgram, it item) {
		p.lacks(it, "programs start together: one that needs another has to wait for it, or to end and be started again")
	},
	"autostart":    (*supervisorProgram).autostart,
	"autorestart":  func(p *supervisorProgram, it item) { p.autorestart, _ = p.now(it) },
	"exitcodes":    func(p *supervisorProgram, it item) { p.exitCodes, _ = p.now(it) },
	"startsecs":    (*supervisorProgram).startsecs,
	"startretries": (*supervisorProgram).startretries,
	"stopsignal": func(p *supervisorProgram, it item) {
		if it, ok := p.now(it); ok {
			p.stopSignal(it)
		}
	},
	"stopwaitsecs": (*supervisorProgram).stopwaitsecs,
	"stopasgroup":  (*supervisorProgram).stopasgroup,
	"killasgroup":  (*supervisorProgram).killasgroup,
	"user": func(p *supervisorProgram, it item) {
		if it, ok := p.now(it); ok {
			p.owner(it, "user")
		}
	},
	"redirect_stderr": func(p *supervisorProgram, it item) { p.redirect = p.switched(it) },
	"serverurl":       (*supervisorProgram).serverURL,
	"environment":     func(*supervisorProgram, item) {}, // read before, because others refer to it

	"stdout_logfile":          func(p *supervisorProgram, it item) { p.logfile(it, &p.stdout) },
	"stderr_logfile":          func(p *supervisorProgram, it item) { p.logfile(it, &p.stderr) },
	"stdout_logfile_maxbytes": func(p *supervisorProgram, it item) { p.logSize(it, &p.stdout) },
	"stderr_logfile_maxbytes": func(p *supervisorProgram, it item) { p.logSize(it, &p.stderr) },
	"stdout_logfile_backups":  func(p *supervisorProgram, it item) { p.logBackups(it, &p.stdout) },
	"stderr_logfile_backups":  func(p *supervisorProgram, it item) { p.logBackups(it, &p.stderr) },
	"stdout_capture_maxbytes": (*supervisorProgram).captureMode,
	"stderr_capture_maxbytes": (*supervisorProgram).captureMode,
	"stdout_events_enabled":   (*supervisorProgram).logEvents,
	"stderr_events_enabled":   (*supervisorProgram).logEvents,
	"stdout_syslog":           func(p *supervisorProgram, it item) { p.syslog(it, &p.stdout) },
	"stderr_syslog":           func(p *supervisorProgram, it item) { p.syslog(it, &p.stderr) },

	"socket":         func(p *supervisorProgram, it item) { p.fcgi.address = it; p.ofFCGI(it) },
	"socket_backlog": func(p *supervisorProgram, it item) { p.fcgi.backlog = it; p.ofFCGI(it) },
	"socket_owner":   func(p *supervisorProgram, it item) { p.fcgi.owner = it; p.ofFCGI(it) },
	"socket_mode":    func(p *supervisorProgram, it item) { p.fcgi.mode = it; p.ofFCGI(it) },
}

func (p *supervisorProgram) setCommand(it item) {
	t, ok := p.expand(it)
	if !ok {
		return
	}
	if words, ok := p.doc.commandWords(it, t); ok {
		p.run.words, p.command = words, it
		p.carry(p.table(""))
		p.set("", "command", p.run.argv()) // in its place; finish writes it again when all is known
	}
}

func (p *supervisorProgram) processName(it item) {
	switch {
	case it.value == "%(program_name)s":
	case p.name != fit(p.title):
		p.note("", it, "gives each of the programs its name")
	default:
		p.lacks(it, "workers are known by their slot, from 0: SUPERVISORD_SLOT")
	}
}

// setWorkers writes how many workers there are, unless each process is a program.
func (p *supervisorProgram) setWorkers(it item) {
	n, err := strconv.Atoi(p.known["numprocs"].String())
	switch {
	case err != nil:
	case n < 1:
		p.lacks(it, "nothing runs; remove the # of these lines for one")
	case p.name != fit(p.title) || strings.Contains(p.commandItem().value, "%(process_num)") && n > 1:
		p.note("", it, "the processes differ by process_num, so each is a program of its own; with a listener, one program and workers = "+strconv.Itoa(n)+" would do")
	default:
		p.workers(it, n)
	}
}

func (p *supervisorProgram) commandItem() item {
	it, _ := p.section.get("command")
	return it
}

func (p *supervisorProgram) numbersFrom(it item) {
	if strings.TrimSpace(it.value) != "0" && p.table("").has("workers") {
		p.lacks(it, "slots are counted from 0: SUPERVISORD_SLOT")
	}
}

// directory writes where the program runs. Where only a shell knows, that goes there.
func (p *supervisorProgram) directory(it item) {
	t, ok := p.expand(it)
	switch {
	case !ok:
	case t.dynamic():
		p.run.dir = t
	case t.String() == "":
		p.lacks(it, "it is empty")
	default:
		it.value = t.String()
		if value, _, missing := p.file.resolve(t); missing == "" {
			p.set("", "directory", p.doc.path(value))
		} else {
			p.lacks(it, missing+" is not set here: write its value")
		}
	}
}

func (p *supervisorProgram) umask(it item) {
	if it, ok := p.now(it); ok {
		if mask, ok := p.doc.permissions(it); ok {
			p.set("limits", "umask", mask)
		}
	}
}

func (p *supervisorProgram) autostart(it item) {
	it, ok := p.now(it)
	if !ok {
		return
	}
	switch on, ok := p.doc.truth(it); {
	case ok && on:
		p.holds(it, "every program starts with supervisord")
	case ok:
		p.off = true
		p.lacks(it, "every program starts with supervisord; remove the # of these lines if this one may")
	}
}

func (p *supervisorProgram) startsecs(it item) {
	if it, ok := p.now(it); ok {
		if n, ok := p.doc.integer(it); ok {
			p.note("ready", it, "a worker that lives so long is taken for ready, as nearly every one is; with method = \"notify\" it says so itself")
			p.readyAfter(it, float64(max(n, 0)))
		}
	}
}

func (p *supervisorProgram) startretries(it item) {
	p.lacks(it, "supervisord does not give up: it waits longer each time, up to restart.backoff.max (30s)")
}

func (p *supervisorProgram) stopwaitsecs(it item) {
	if it, ok := p.now(it); ok {
		if n, ok := p.doc.integer(it); ok {
			p.seconds("stop", "timeout", it, float64(max(n, 0)), 1)
		}
	}
}

func (p *supervisorProgram) stopasgroup(it item) {
	it, ok := p.now(it)
	if !ok {
		return
	}
	if on, ok := p.doc.truth(it); ok {
		p.set("stop", "group", on)
	}
}

func (p *supervisorProgram) killasgroup(it item) {
	it, ok := p.now(it)
	if !ok {
		return
	}
	switch on, ok := p.doc.truth(it); {
	case ok && on:
		p.holds(it, "KILL always reaches the whole process group")
	case ok:
		p.lacks(it, "KILL always reaches the whole process group")
	}
}

// switched reads true or false.
func (p *supervisorProgram) switched(it item) bool {
	it, ok := p.now(it)
	if !ok {
		return false
	}
	on, _ := p.doc.truth(it)
	return on
}

func (p *supervisorProgram) serverURL(it item) {
	if strings.EqualFold(strings.TrimSpace(it.value), "AUTO") {
		p.holds(it, "there is no XML-RPC server")
		return
	}
	p.lacks(it, "there is no XML-RPC server; programs are told by signals and NOTIFY_SOCKET, and ask by the control socket")
}

// logfile reads where a stream goes.
func (p *supervisorProgram) logfile(it item, into *stream) {
	it, ok := p.now(it)
	if !ok {
		return
	}
	into.item = it
	switch strings.ToLower(it.value) {
	case "none", "off", "":
		into.kind = toNull
	case "auto":
		into.kind = kept
	case "syslog":
		into.kind = unsaid
		p.lacks(it, "the output goes where supervisord's own goes: under systemd to the journal")
	default:
		into.kind, into.path = toFile, it.value
		into.special()
	}
}

// logSize reads a size such as 50MB, of which supervisor's have powers of 1024.
func (p *supervisorProgram) logSize(it item, into *stream) {
	it, ok := p.now(it)
	if !ok {
		return
	}
	n, ok := p.bytes(it)
	into.size = n
	if into.item.key == "" {
		into.item = it
	}
	if ok && (n < 0 || n > 1<<50) {
		p.wrong(it, it.value+" is no size", "write such as 50MB")
	}
}

func (p *supervisorProgram) bytes(it item) (int64, bool) {
	value, unit := strings.ToLower(strings.TrimSpace(it.value)), int64(1)
	for suffix, size := range map[string]int64{"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30} {
		if digits, ok := strings.CutSuffix(value, suffix); ok {
			value, unit = strings.TrimSpace(digits), size
		}
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n > math.MaxInt64/unit || n < -1<<40 {
		p.wrong(it, fmt.Sprintf("%q is no size", it.value), "write such as 50MB")
		return 0, false
	}
	return n * unit, true
}

func (p *supervisorProgram) logBackups(it item, into *stream) {
	if it, ok := p.now(it); ok {
		into.backups, _ = p.doc.integer(it)
	}
}

func (p *supervisorProgram) captureMode(it item) {
	if n, ok := p.bytes(it); ok && n > 0 {
		p.lacks(it, "what a program writes between tags is not told to others; it may use the control socket")
	} else if ok {
		p.holds(it, "there is no capture mode")
	}
}

func (p *supervisorProgram) logEvents(it item) {
	it, ok := p.now(it)
	if !ok {
		return
	}
	switch on, ok := p.doc.truth(it); {
	case ok && on:
		p.lacks(it, "`supervisord logs --follow --json` tells what a program writes")
	case ok:
		p.holds(it, "there are no such events")
	}
}

func (p *supervisorProgram) syslog(it item, into *stream) {
	it, ok := p.now(it)
	if !ok {
		return
	}
	switch on, ok := p.doc.truth(it); {
	case ok && on:
		p.lacks(it, "a program without a log file writes where supervisord's own output goes: under systemd to the journal")
		if into.kind != toFile {
			into.kind = unsaid
		}
	case ok:
		p.holds(it, "nothing is written to syslog")
	}
}

// fcgiSocket is what [fcgi-program:x] says about its socket.
type fcgiSocket struct{ address, backlog, owner, mode item }

// ofFCGI says of a key for a socket that it does nothing in [program:x].
func (p *supervisorProgram) ofFCGI(it item) {
	if !p.isFCGI {
		p.lacks(it, "supervisor ignores it too in [program:x]; here write [[program.NAME.listen]]")
	}
}

// socket writes the listener of an [fcgi-program:x], which has it as its stdin.
func (p *supervisorProgram) socket() {
	if p.fcgi.address.key == "" {
		p.wrong(p.section.item, "has no socket", "write such as socket = unix:///run/x.sock")
		return
	}
	it, ok := p.now(p.fcgi.address)
	if !ok {
		return
	}
	path, unix := strings.CutPrefix(it.value, "unix://")
	address, tcp := strings.CutPrefix(it.value, "tcp://")
	if unix {
		address = "unix:" + path
	}
	if !unix && !tcp {
		p.wrong(it, fmt.Sprintf("%q is no socket", it.value), "write unix:///path or tcp://host:port")
		return
	}
	t := p.listenTable(it, "", address)
	if t == nil {
		p.off = true
		return
	}
	if n := p.fcgi.backlog; n.key != "" {
		if backlog, ok := p.doc.integer(n); ok && backlog >= 1 {
			t.set("backlog", backlog)
		}
	}
	p.socketOwner(t, unix)
	p.set("", "stdin", "socket") // which is where FastCGI has it
}

// socketOwner writes the permissions of a unix socket.
func (p *supervisorProgram) socketOwner(t *table, unix bool) {
	for _, it := range []item{p.fcgi.owner, p.fcgi.mode} {
		if !unix && it.key != "" {
			p.wrong(it, "is for a unix socket only", "remove it")
			return
		}
	}
	if !unix {
		return
	}
	if p.fcgi.mode.key == "" {
		t.set("mode", "0700") // supervisor's default
	} else if mode, ok := p.doc.permissions(p.fcgi.mode); ok && mode != "0000" {
		t.set("mode", mode)
	}
	user, group, both := strings.Cut(p.fcgi.owner.value, ":")
	if user == "" {
		if it, ok := p.section.get("user"); ok { // as supervisor does
			it, _ = p.now(it)
			user = it.value
		}
	}
	if user != "" {
		t.set("user", user)
	}
	if both && group != "" {
		t.set("group", group)
	}
}
