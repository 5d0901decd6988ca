package convert

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	"example.org/supervisord/internal/pattern"
)

// circusFile is a configuration of circus and what it includes.
type circusFile struct {
	*draft
	*iniFile
	variables []setting // of [env]
	umask     *setting
	used      map[string]bool // sockets that a watcher has
}

// The remedies for keys of circus that several have.
const (
	unknownToo = "circus does not know it either"
	metrics    = "http in [supervisor] serves metrics for Prometheus"
	statusPage = "http in [supervisor] serves a status page"
	preflight  = "reload.preflight runs a command that must succeed first"
	afterHook  = "hooks.after_reload runs a command afterwards"
	crashHook  = "hooks.worker_crashed runs a command when a worker crashes"
	byBackoff  = "a worker that exits too often is restarted at growing intervals: restart.backoff"
)

// circus converts a configuration of circus.
func (d *draft) circus() {
	f := &circusFile{draft: d, iniFile: newINI(circusDialect()), used: map[string]bool{}}
	f.iniFile.read(d.Name, d.Text)
	f.include()
	f.finish()
	if d.problems = append(d.problems, f.iniFile.problems...); len(d.problems) > 0 {
		return
	}
	if s := f.byName["circus"]; s != nil {
		f.daemon(s)
	}
	f.variables = f.byName["env"].counting()
	for _, s := range f.sections {
		switch kind, name, _ := strings.Cut(s.name, ":"); kind {
		case "watcher":
			f.watcher(s, name)
		case "plugin":
			f.plugin(s)
		case "socket", "circus", "DEFAULT", "env":
		default:
			f.whole(s, unknownToo)
		}
	}
	for _, s := range f.sections {
		if name, ok := strings.CutPrefix(s.name, "socket:"); ok && !f.used[strings.ToLower(name)] {
			f.whole(s, "no watcher with use_sockets has it, and here a socket belongs to a program")
		}
	}
}

// include reads the files that [circus] names, all into the same sections.
func (f *circusFile) include() {
	f.finish() // to see which include counts
	for _, key := range []string{"include", "include_dir"} {
		s, _ := f.byName["circus"].get(key)
		for _, pattern := range strings.Fields(s.value) {
			pattern = f.path(pattern)
			if key == "include_dir" {
				pattern = filepath.Join(pattern, "*.ini")
			}
			f.included(s, pattern, f.iniFile.read)
		}
	}
}

// daemon converts [circus].
func (f *circusFile) daemon(s *section) {
	levels := map[string]string{"DEBUG": "debug", "INFO": "info", "WARNING": "warn", "ERROR": "error", "CRITICAL": "error"}
	f.head.fill = f.fill(f.head, nil)
	f.head.pending = append(f.head.pending, s.comments...)
	f.head.each(s, keys(rules{
		"include include_dir": noted(includedToo),
		"pidfile":             to("supervisor.pid_file", asPath),
		"umask":               func(_ *program, s setting) { f.umask = &s },
		"loglevel": func(p *program, s setting) {
			if level := levels[strings.ToUpper(s.value)]; level != "" {
				p.set("supervisor.log_level", level)
			} else {
				p.lacks(s, "log_level is debug, info, warn or error")
			}
		},
		"check_delay":        none("supervisord does not poll: the kernel reports when a worker exits"),
		"endpoint":           none("supervisord has a control socket: see control, control_mode and control_group in [supervisor]"),
		"endpoint_owner":     none("control_group in [supervisor] sets who may use the control socket"),
		"pubsub_endpoint":    none("use `supervisord events --json`"),
		"multicast_endpoint": none("supervisords do not discover each other"),
		"stats_endpoint statsd statsd_close_outputs": none(metrics),
		"stream_backend": none("supervisord captures output in one way"),
		"warmup_delay":   none("programs start together; reload.strategy = \"rolling\" replaces the workers of one a few at a time"),
		"httpd httpd_host httpd_port httpd_close_outputs": none(statusPage),
		"debug":        none("set log_level = \"debug\" in [supervisor]"),
		"debug_gc":     none("it concerns circus itself"),
		"logoutput":    none("supervisord logs to its stderr: the journal under systemd, or `supervisord run 2>>FILE`"),
		"loggerconfig": none("see log_level and log_format in [supervisor]"),
		"fqdn_prefix":  none("whatever scrapes the metrics labels them"),
		"ssh_server":   none("the control socket is local to this machine"),
		"proc_name":    none("ps shows supervisord"),
	}), none(unknownToo))
}

// plugin says what there is instead of a plugin of circus.
func (f *circusFile) plugin(s *section) {
	use, _ := s.get("use")
	instead := map[string]string{
		"Flapping":        byBackoff,
		"ResourceWatcher": "max_memory and max_age in [program.NAME.limits] replace a worker without a gap",
		"HttpObserver":    "[program.NAME.health] with method = \"http\" replaces a worker that does not answer",
		"CommandReloader": "watch in [program.NAME] replaces the workers when a file changes",
		"StatsdEmitter":   metrics,
		"FullStats":       metrics,
		"WatchDog":        "watchdog in [program.NAME.health] replaces a worker that stops sending WATCHDOG=1",
		"RedisObserver":   "[program.NAME.health] with method = \"tcp\" or \"exec\" replaces an unhealthy worker",
	}[use.value[strings.LastIndexByte(use.value, '.')+1:]]
	if instead == "" {
		instead = "write a program that uses the control socket or `supervisord events --json`"
	}
	f.whole(s, instead)
}

// variablesOf returns the variables of a watcher: those of [env], then those of every [env:PATTERN] that matches.
func (f *circusFile) variablesOf(watcher string) []setting {
	all := slices.Clone(f.variables)
	for _, s := range f.sections {
		patterns, ok := strings.CutPrefix(s.name, "env:")
		for pattern := range strings.SplitSeq(patterns, ",") {
			if matched, _ := path.Match(strings.TrimSpace(pattern), watcher); ok && matched {
				all = append(all, s.counting()...)
			}
		}
	}
	return all
}

// circusVariable is $(circus.NAME) or ((circus.NAME)), in any case.
var circusVariable = pattern.Lazy(`(?i)\$\(circus\.([\w.\-]+)\)|\(\(circus\.([\w.\-]+)\)\)`)

// expand replaces $(circus.NAME). A name that circus does not know stays, as it does there.
func (f *circusFile) expand(value string, known func(name string) (string, bool)) string {
	return circusVariable().ReplaceAllStringFunc(value, func(whole string) string {
		name := strings.ToLower(strings.Trim(whole, "$()")[len("circus."):])
		found, ok := f.environ(name)
		if !ok && known != nil {
			found, ok = known(name)
		}
		if !ok {
			return whole
		}
		return found
	})
}

// environ returns the variable env.NAME, whose case does not matter to circus.
func (f *circusFile) environ(name string) (string, bool) {
	variable, ok := strings.CutPrefix(name, "env.")
	if !ok {
		return "", false
	}
	for _, s := range f.variables {
		if strings.EqualFold(s.key, variable) {
			return s.value, true
		}
	}
	upper := strings.ToUpper(variable)
	_, set := f.Getenv(upper)
	return part(shellPart, "${"+upper+"}"), set && exportable(upper)
}

// fill returns the function that expands a value for a key that no shell reads.
func (f *circusFile) fill(p *program, known func(name string) (string, bool)) func(setting) (setting, bool) {
	return func(s setting) (setting, bool) { return p.resolved(s, f.expand(s.value, known)) }
}
