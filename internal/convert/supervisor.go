package convert

import (
	_ "embed"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"example.org/supervisord/internal/config/environment"
	"example.org/supervisord/internal/convert/draft"
	"example.org/supervisord/internal/convert/shell"
	"example.org/supervisord/internal/convert/source"
)

// supervisorFile is a configuration of Python's supervisor and what it includes.
type supervisorFile struct {
	*draft.Draft
	*source.INI
	variables []environment.Variable // of [supervisord], for every program
	groups    map[string]string      // the group of each program
	inherited []source.Setting       // keys of [supervisord] that hold for every program without them
}

// keys says what has no equivalent.
//
//go:embed keys.txt
var keys string

// ignoresToo is about a key that supervisor does not know.
const ignoresToo = "supervisor ignores it too"

// supervisor converts a configuration of Python's supervisor.
func (d *conversion) supervisor() {
	f := &supervisorFile{Draft: d.Draft, INI: source.NewSupervisorINI(), groups: map[string]string{}}
	f.readFile(d.Name, d.Text, d.Dir)
	f.include()
	f.Finish()
	if d.Problems = append(d.Problems, f.INI.Problems...); len(d.Problems) > 0 {
		return
	}
	for _, s := range f.Sections {
		if name, ok := strings.CutPrefix(s.Name, "group:"); ok {
			programs, _ := s.Get("programs")
			for program := range strings.SplitSeq(programs.Value, ",") {
				f.groups[strings.TrimSpace(program)] = strings.TrimSpace(name)
			}
		}
	}
	if s := f.ByName["supervisord"]; s != nil {
		f.supervisord(s)
	}
	for _, s := range f.Sections {
		f.section(s)
	}
}

// readFile reads a file, whose directory is %(here)s in it.
func (f *supervisorFile) readFile(name, text, dir string) {
	file := source.NewSupervisorINI()
	file.Parse(name, text)
	f.INI.Problems = append(f.INI.Problems, file.Problems...)
	for _, s := range file.Sections {
		for _, e := range s.Entries {
			e.Value = strings.ReplaceAll(e.Value, "%(here)s", strings.ReplaceAll(dir, "%", "%%"))
		}
		f.Add(s)
	}
}

// include reads the files that [include] names.
func (f *supervisorFile) include() {
	s := f.ByName["include"]
	if s == nil {
		return
	}
	files, ok := s.Get("files")
	if !ok {
		f.Wrong(s.Setting, "has no files", "write files = conf.d/*.conf, or remove the section")
		return
	}
	filled, ok := f.fill(f.Head, nil)(files)
	if !ok {
		return
	}
	for _, pattern := range strings.Fields(filled.Value) {
		f.Included(files, f.Path(pattern), func(path, text string) { f.readFile(path, text, filepath.Dir(path)) })
	}
}

// section converts one section.
func (f *supervisorFile) section(s *source.Section) {
	kind, name, named := strings.Cut(s.Name, ":")
	instead := map[string]string{
		"unix_http_server": "supervisord has its own control socket: see control and control_group in [supervisor]",
		"inet_http_server": "http in [supervisor] serves metrics and a status page; there is no XML-RPC",
		"supervisorctl":    "supervisord status, reload, stop, logs, … find the control socket by the configuration",
		"rpcinterface":     "the control socket speaks HTTP and JSON: docs/control.md",
		"ctlplugin":        "supervisord's commands cannot be extended",
		"eventlistener":    "use hooks in the program, or `supervisord events --json`",
		"group": "supervisord has no groups: name each program, or run a second supervisord with its own " +
			"configuration",
	}[kind]
	switch {
	case (kind == "program" || kind == "fcgi-program") && named:
		f.programsOf(s, strings.TrimSpace(name), kind == "fcgi-program")
	case kind == "supervisord", kind == "DEFAULT":
	case kind == "include":
		f.Head.Each(s, draft.Rules{"files": draft.Noted(includedToo)}, draft.None(ignoresToo))
	case instead != "":
		f.Whole(s, instead)
	default:
		f.Whole(s, ignoresToo)
	}
}

// supervisord converts [supervisord].
func (f *supervisorFile) supervisord(s *source.Section) {
	f.Head.Fill = f.fill(f.Head, nil)
	f.Head.Pending = append(f.Head.Pending, s.Comments...)
	f.Head.Each(s, draft.Keys(draft.Notes(keys, "supervisord"), draft.Rules{
		"loglevel": draft.To("supervisor.log_level",
			draft.OneOf(map[string]string{"critical": "error", "error": "error", "warn": "warn",
				"info": "info", "debug": "debug", "trace": "debug", "blather": "debug"})),
		"pidfile":              draft.To("supervisor.pid_file", draft.AsPath),
		"umask user directory": func(_ *draft.Block, s source.Setting) { f.inherited = append(f.inherited, s) },
		"nodaemon":             draft.Whether(draft.Unneeded("supervisord stays in the foreground"), draft.None(foreground)),
		"environment":          f.environment,
	}), draft.None(ignoresToo))
}

// environment reads the variables of [supervisord]. supervisor expands this value twice: a percent sign is four of
// them.
func (f *supervisorFile) environment(_ *draft.Block, s source.Setting) {
	if once, ok := f.expand(s, nil); ok {
		s.Text, s.Value = s.String(), once
		f.variables = f.pairs(s, nil)
	}
}

// Remedies that several sources share.
const (
	includedToo  = "the files are converted too, into this one"
	foreground   = "supervisord stays in the foreground: let systemd run it, docs/systemd.md"
	startsAll    = "supervisord starts every program; remove the # of these lines to run this one"
	startsAnyway = "supervisord starts every program"
	runsNone     = "nothing runs; remove the # of these lines to run one"
	runsHere     = "A program without directory runs in the directory of this file; under %s it ran where %s was started."
)

// programRules are the keys of [program:x] and [fcgi-program:x].
func (f *supervisorFile) programRules(x *supervisorProcess) draft.Rules {
	ofSocket := draft.Kept
	if !x.fcgi {
		ofSocket = draft.None("supervisor ignores it in [program:x] too; write [[program.NAME.listen]]")
	}
	const always = "KILL always reaches the whole process group"
	return draft.Keys(draft.Notes(keys, "program"), draft.Rules{
		"command":        x.command,
		"process_name":   x.processName,
		"numprocs":       x.workers,
		"numprocs_start": x.firstNumber,
		"directory":      x.directory,
		"umask":          draft.To("limits.umask", draft.AsMode),
		"autostart":      draft.Whether(draft.Unneeded(startsAnyway), draft.Commented(startsAll)),
		"autorestart": draft.To("restart.when",
			draft.OneOf(map[string]string{"unexpected": "on-failure", "yes": "always", "true": "always", "on": "always",
				"1": "always", "no": "never", "false": "never", "off": "never", "0": "never"})),
		"startsecs":    startsecs,
		"stopsignal":   draft.To("stop.signal", draft.AsSignal),
		"stopwaitsecs": draft.To("stop.timeout", draft.AsWholeSeconds(0.001)),
		"stopasgroup":  draft.To("stop.group", draft.AsTruth),
		"killasgroup":  draft.Whether(draft.Unneeded(always), draft.None(always)),
		"user":         draft.To("user", draft.AsAccount),
		"serverurl": draft.When(draft.Is("AUTO"), draft.Unneeded("there is no XML-RPC server"),
			draft.None("there is no XML-RPC server: programs get signals and NOTIFY_SOCKET, and can query the control socket")),
		"socket socket_backlog socket_owner socket_mode": ofSocket,
		"exitcodes redirect_stderr stdout_logfile stdout_logfile_maxbytes stdout_logfile_backups " +
			"stderr_logfile stderr_logfile_maxbytes stderr_logfile_backups environment": draft.Kept,
		"stdout_capture_maxbytes stderr_capture_maxbytes": draft.When(noBytes, draft.Unneeded("there is no capture mode"),
			draft.None("output between tags is not sent to listeners; a program can use the control socket")),
		"stdout_events_enabled stderr_events_enabled": draft.Whether(
			draft.None("`supervisord logs --follow --json` reports what a program writes"),
			draft.Unneeded("there are no such events")),
		"stdout_syslog stderr_syslog": draft.Whether(
			draft.None("without a log file output goes where supervisord's own goes: under systemd to the journal"),
			draft.Unneeded("nothing is written to syslog")),
	})
}

// noBytes is a size of 0.
func noBytes(p *draft.Block, s source.Setting) (yes, ok bool) {
	n, ok := p.Bytes(s)
	return ok && n == 0, ok
}

func startsecs(p *draft.Block, s source.Setting) {
	if s, ok := p.Filled(s); ok {
		if n, ok := p.Integer(s); ok {
			p.Note("ready", s, draft.AliveFor)
			p.ReadyAfter(s, float64(n))
		}
	}
}

func (x *supervisorProcess) command(p *draft.Block, s source.Setting) {
	if value, ok := x.file.expand(s, x.own); ok {
		if words, ok := p.CommandWords(s, value); ok {
			p.Run.Words = words
			p.Argv() // at its position; finish sets it again when everything is known
		}
	}
}

// directory sets where the program runs. If only a shell knows that, the shell goes there.
func (x *supervisorProcess) directory(p *draft.Block, s source.Setting) {
	if value, ok := x.file.expand(s, x.own); ok && shell.Dynamic(value) {
		p.Run.Dir = value
	} else if ok {
		draft.To("directory", draft.AsPath)(p, s)
	}
}

// nearest says what may be meant by an unknown key.
func nearest(key string, known draft.Rules) string {
	bare := func(s string) string { return strings.ReplaceAll(s, "_", "") }
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if len(key) > 3 && (bare(key) == bare(name) || strings.HasPrefix(name, key[:len(key)-1]) ||
			strings.HasPrefix(key, name)) {
			return ignoresToo + "; did you mean " + name + "?"
		}
	}
	return ignoresToo
}
