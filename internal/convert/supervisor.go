package convert

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// supervisorFile is a configuration of Python's supervisor and what it includes.
type supervisorFile struct {
	*draft
	*iniFile
	variables []variable        // of [supervisord], for every program
	groups    map[string]string // the group of each program
	inherited []setting         // keys of [supervisord] that hold for every program without them
}

// ignoresToo is about a key that supervisor does not know.
const ignoresToo = "supervisor ignores it too"

// supervisor converts a configuration of Python's supervisor.
func (d *draft) supervisor() {
	f := &supervisorFile{draft: d, iniFile: newINI(supervisorDialect()), groups: map[string]string{}}
	f.readFile(d.Name, d.Text, d.Dir)
	f.include()
	f.finish()
	if d.problems = append(d.problems, f.iniFile.problems...); len(d.problems) > 0 {
		return
	}
	for _, s := range f.sections {
		if name, ok := strings.CutPrefix(s.name, "group:"); ok {
			programs, _ := s.get("programs")
			for program := range strings.SplitSeq(programs.value, ",") {
				f.groups[strings.TrimSpace(program)] = strings.TrimSpace(name)
			}
		}
	}
	if s := f.byName["supervisord"]; s != nil {
		f.supervisord(s)
	}
	for _, s := range f.sections {
		f.section(s)
	}
}

// readFile reads a file, whose directory is %(here)s in it.
func (f *supervisorFile) readFile(name, text, dir string) {
	file := newINI(f.dialect)
	file.read(name, text)
	f.iniFile.problems = append(f.iniFile.problems, file.problems...)
	for _, s := range file.sections {
		for _, e := range s.entries {
			e.value = strings.ReplaceAll(e.value, "%(here)s", strings.ReplaceAll(dir, "%", "%%"))
		}
		f.add(s)
	}
}

// include reads the files that [include] names.
func (f *supervisorFile) include() {
	s := f.byName["include"]
	if s == nil {
		return
	}
	files, ok := s.get("files")
	if !ok {
		f.wrong(s.setting, "has no files", "write files = conf.d/*.conf, or remove the section")
		return
	}
	filled, ok := f.fill(f.head, nil)(files)
	if !ok {
		return
	}
	for _, pattern := range strings.Fields(filled.value) {
		f.included(files, f.path(pattern), func(path, text string) { f.readFile(path, text, filepath.Dir(path)) })
	}
}

// section converts one section.
func (f *supervisorFile) section(s *section) {
	kind, name, named := strings.Cut(s.name, ":")
	instead := map[string]string{
		"unix_http_server": "supervisord has its own control socket: see control, control_mode and control_group in [supervisor]",
		"inet_http_server": "http in [supervisor] serves metrics and a status page; there is no XML-RPC",
		"supervisorctl":    "supervisord status, reload, stop, logs, … find the control socket by the configuration",
		"rpcinterface":     "the control socket speaks HTTP and JSON: docs/control.md",
		"ctlplugin":        "supervisord's commands cannot be extended",
		"eventlistener":    "use hooks in the program, or `supervisord events --json`",
		"group":            "supervisord has no groups: name each program, or run a second supervisord with its own configuration",
	}[kind]
	switch {
	case (kind == "program" || kind == "fcgi-program") && named:
		f.programsOf(s, strings.TrimSpace(name), kind == "fcgi-program")
	case kind == "supervisord", kind == "DEFAULT":
	case kind == "include":
		f.head.each(s, rules{"files": noted(includedToo)}, none(ignoresToo))
	case instead != "":
		f.whole(s, instead)
	default:
		f.whole(s, ignoresToo)
	}
}

// supervisord converts [supervisord].
func (f *supervisorFile) supervisord(s *section) {
	f.head.fill = f.fill(f.head, nil)
	f.head.pending = append(f.head.pending, s.comments...)
	f.head.each(s, keys(rules{
		"logfile":                          none("supervisord logs to its stderr: the journal under systemd, or `supervisord run 2>>FILE`"),
		"logfile_maxbytes logfile_backups": none("the journal or logrotate rotates the log"),
		"loglevel": to("supervisor.log_level", oneOf(map[string]string{"critical": "error", "error": "error", "warn": "warn",
			"info": "info", "debug": "debug", "trace": "debug", "blather": "debug"})),
		"pidfile":               to("supervisor.pid_file", asPath),
		"umask user directory":  func(_ *program, s setting) { f.inherited = append(f.inherited, s) },
		"nodaemon":              whether(unneeded("supervisord stays in the foreground"), none(foreground)),
		"silent":                none("log_level = \"error\" in [supervisor] logs little"),
		"minfds":                none("programs inherit the limit that supervisord is started with; nofile in [program.NAME.limits] sets one"),
		"minprocs":              none("programs inherit the limit that supervisord is started with; nproc in [program.NAME.limits] sets one"),
		"nocleanup childlogdir": none("there are no AUTO files: captured output is kept in memory"),
		"strip_ansi":            none("supervisord keeps output as it is"),
		"identifier":            none("a supervisord is identified by its control socket"),
		"environment":           func(_ *program, s setting) { f.variables = f.pairs(s, nil) },
	}), none(ignoresToo))
}

// Remedies that several sources share.
const (
	includedToo   = "the files are converted too, into this one"
	foreground    = "supervisord stays in the foreground: let systemd run it, docs/systemd.md"
	startTogether = "programs start together: a program that needs another must wait for it, or exit and be restarted"
	startsAll     = "supervisord starts every program; remove the # of these lines to run this one"
	startsAnyway  = "supervisord starts every program"
	runsNone      = "nothing runs; remove the # of these lines to run one"
	neverGivesUp  = "supervisord never gives up: it retries at growing intervals, up to restart.backoff.max (30s)"
	stopsFirst    = "supervisor stops a program before it starts it again, and so does strategy = \"stop-first\" here. Give the program a listener\n" +
		"([[program.NAME.listen]]) and remove that line, and a reload loses no request."
	runsHere = "A program without directory runs in the directory of this file; under %s it ran where %s was started."
)

// programRules are the keys of [program:x] and [fcgi-program:x].
func (f *supervisorFile) programRules(x *supervisorProcess) rules {
	ofSocket := kept
	if !x.fcgi {
		ofSocket = none("supervisor ignores it in [program:x] too; write [[program.NAME.listen]]")
	}
	const always = "KILL always reaches the whole process group"
	empty := func(p *program, s setting) (bool, bool) {
		n, ok := p.bytes(s)
		return ok && n == 0, ok
	}
	return keys(rules{
		"command":        x.command,
		"process_name":   x.processName,
		"numprocs":       x.workers,
		"numprocs_start": x.firstNumber,
		"directory":      x.directory,
		"umask":          to("limits.umask", asMode),
		"priority":       none(startTogether),
		"autostart":      whether(unneeded(startsAnyway), commented(startsAll)),
		"autorestart": to("restart.when", oneOf(map[string]string{"unexpected": "on-failure", "yes": "always", "true": "always", "on": "always",
			"1": "always", "no": "never", "false": "never", "off": "never", "0": "never"})),
		"startsecs":    startsecs,
		"startretries": none(neverGivesUp),
		"stopsignal":   to("stop.signal", asSignal),
		"stopwaitsecs": to("stop.timeout", asWholeSeconds(0.001)),
		"stopasgroup":  to("stop.group", asTruth),
		"killasgroup":  whether(unneeded(always), none(always)),
		"user":         to("user", asAccount),
		"serverurl": when(is("AUTO"), unneeded("there is no XML-RPC server"),
			none("there is no XML-RPC server: programs get signals and NOTIFY_SOCKET, and can query the control socket")),
		"socket socket_backlog socket_owner socket_mode": ofSocket,
		"exitcodes redirect_stderr stdout_logfile stdout_logfile_maxbytes stdout_logfile_backups " +
			"stderr_logfile stderr_logfile_maxbytes stderr_logfile_backups environment": kept,
		"stdout_capture_maxbytes stderr_capture_maxbytes": when(empty, unneeded("there is no capture mode"),
			none("output between tags is not sent to listeners; a program can use the control socket")),
		"stdout_events_enabled stderr_events_enabled": whether(none("`supervisord logs --follow --json` reports what a program writes"),
			unneeded("there are no such events")),
		"stdout_syslog stderr_syslog": whether(none("without a log file output goes where supervisord's own goes: under systemd to the journal"),
			unneeded("nothing is written to syslog")),
	})
}

func startsecs(p *program, s setting) {
	if s, ok := p.filled(s); ok {
		if n, ok := p.integer(s); ok {
			p.note("ready", s, aliveFor)
			p.readyAfter(s, float64(n))
		}
	}
}

func (x *supervisorProcess) command(p *program, s setting) {
	if value, ok := x.file.expand(s, x.own); ok {
		if words, ok := p.commandWords(s, value); ok {
			p.run.words = words
			p.argv() // at its position; finish sets it again when everything is known
		}
	}
}

// directory sets where the program runs. If only a shell knows that, the shell goes there.
func (x *supervisorProcess) directory(p *program, s setting) {
	if value, ok := x.file.expand(s, x.own); ok && dynamic(value) {
		p.run.dir = value
	} else if ok {
		to("directory", asPath)(p, s)
	}
}

// bytes reads a size such as 50MB. supervisor's units are powers of 1024.
func (d *draft) bytes(s setting) (int64, bool) {
	value, unit := strings.ToLower(strings.TrimSpace(s.value)), int64(1)
	for suffix, size := range map[string]int64{"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30} {
		if digits, ok := strings.CutSuffix(value, suffix); ok {
			value, unit = strings.TrimSpace(digits), size
		}
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n > math.MaxInt64/unit || n < 0 {
		d.wrong(s, fmt.Sprintf("%q is not a size", s.value), "write for example 50MB")
		return 0, false
	}
	return n * unit, true
}

// nearest says what may be meant by an unknown key.
func nearest(key string, known rules) string {
	bare := func(s string) string { return strings.ReplaceAll(s, "_", "") }
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if len(key) > 3 && (bare(key) == bare(name) || strings.HasPrefix(name, key[:len(key)-1]) || strings.HasPrefix(key, name)) {
			return ignoresToo + "; did you mean " + name + "?"
		}
	}
	return ignoresToo
}
