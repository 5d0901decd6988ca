package convert

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	"example.org/supervisord/internal/convert/draft"
	"example.org/supervisord/internal/convert/shell"
	"example.org/supervisord/internal/convert/source"
	"example.org/supervisord/internal/pattern"
)

// circusFile is a configuration of circus and what it includes.
type circusFile struct {
	*draft.Draft
	*source.INI
	variables []source.Setting // of [env]
	umask     *source.Setting
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
func (d *conversion) circus() {
	f := &circusFile{Draft: d.Draft, INI: source.NewCircusINI(), used: map[string]bool{}}
	f.INI.Parse(d.Name, d.Text)
	f.include()
	f.Finish()
	if d.Problems = append(d.Problems, f.INI.Problems...); len(d.Problems) > 0 {
		return
	}
	if s := f.ByName["circus"]; s != nil {
		f.daemon(s)
	}
	f.variables = f.ByName["env"].Counting()
	for _, s := range f.Sections {
		switch kind, name, _ := strings.Cut(s.Name, ":"); kind {
		case "watcher":
			f.watcher(s, name)
		case "plugin":
			f.plugin(s)
		case "socket", "circus", "DEFAULT", "env":
		default:
			f.Whole(s, unknownToo)
		}
	}
	for _, s := range f.Sections {
		if name, ok := strings.CutPrefix(s.Name, "socket:"); ok && !f.used[strings.ToLower(name)] {
			f.Whole(s, "no watcher with use_sockets has it, and here a socket belongs to a program")
		}
	}
}

// include reads the files that [circus] names, all into the same sections.
func (f *circusFile) include() {
	f.Finish() // to see which include counts
	for _, key := range []string{"include", "include_dir"} {
		s, _ := f.ByName["circus"].Get(key)
		for _, pattern := range strings.Fields(s.Value) {
			pattern = f.Path(pattern)
			if key == "include_dir" {
				pattern = filepath.Join(pattern, "*.ini")
			}
			f.Included(s, pattern, f.INI.Parse)
		}
	}
}

// daemon converts [circus].
func (f *circusFile) daemon(s *source.Section) {
	levels := map[string]string{"DEBUG": "debug", "INFO": "info", "WARNING": "warn", "ERROR": "error", "CRITICAL": "error"}
	f.Head.Fill = f.fill(f.Head, nil)
	f.Head.Pending = append(f.Head.Pending, s.Comments...)
	f.Head.Each(s, draft.Keys(draft.Rules{
		"include include_dir": draft.Noted(includedToo),
		"pidfile":             draft.To("supervisor.pid_file", draft.AsPath),
		"umask":               func(_ *draft.Target, s source.Setting) { f.umask = &s },
		"loglevel": func(p *draft.Target, s source.Setting) {
			if level := levels[strings.ToUpper(s.Value)]; level != "" {
				p.Set("supervisor.log_level", level)
			} else {
				p.Lacks(s, "log_level is debug, info, warn or error")
			}
		},
		"check_delay":        draft.None("supervisord does not poll: the kernel reports when a worker exits"),
		"endpoint":           draft.None("supervisord has a control socket: see control, control_mode and control_group in [supervisor]"),
		"endpoint_owner":     draft.None("control_group in [supervisor] sets who may use the control socket"),
		"pubsub_endpoint":    draft.None("use `supervisord events --json`"),
		"multicast_endpoint": draft.None("supervisords do not discover each other"),
		"stats_endpoint statsd statsd_close_outputs": draft.None(metrics),
		"stream_backend": draft.None("supervisord captures output in one way"),
		"warmup_delay":   draft.None("programs start together; reload.strategy = \"rolling\" replaces the workers of one a few at a time"),
		"httpd httpd_host httpd_port httpd_close_outputs": draft.None(statusPage),
		"debug":        draft.None("set log_level = \"debug\" in [supervisor]"),
		"debug_gc":     draft.None("it concerns circus itself"),
		"logoutput":    draft.None("supervisord logs to its stderr: the journal under systemd, or `supervisord run 2>>FILE`"),
		"loggerconfig": draft.None("see log_level and log_format in [supervisor]"),
		"fqdn_prefix":  draft.None("whatever scrapes the metrics labels them"),
		"ssh_server":   draft.None("the control socket is local to this machine"),
		"proc_name":    draft.None("ps shows supervisord"),
	}), draft.None(unknownToo))
}

// plugin says what there is instead of a plugin of circus.
func (f *circusFile) plugin(s *source.Section) {
	use, _ := s.Get("use")
	instead := map[string]string{
		"Flapping":        byBackoff,
		"ResourceWatcher": "max_memory and max_age in [program.NAME.limits] replace a worker without a gap",
		"HttpObserver":    "[program.NAME.health] with method = \"http\" replaces a worker that does not answer",
		"CommandReloader": "watch in [program.NAME] replaces the workers when a file changes",
		"StatsdEmitter":   metrics,
		"FullStats":       metrics,
		"WatchDog":        "watchdog in [program.NAME.health] replaces a worker that stops sending WATCHDOG=1",
		"RedisObserver":   "[program.NAME.health] with method = \"tcp\" or \"exec\" replaces an unhealthy worker",
	}[use.Value[strings.LastIndexByte(use.Value, '.')+1:]]
	if instead == "" {
		instead = "write a program that uses the control socket or `supervisord events --json`"
	}
	f.Whole(s, instead)
}

// variablesOf returns the variables of a watcher: those of [env], then those of every [env:PATTERN] that matches.
func (f *circusFile) variablesOf(watcher string) []source.Setting {
	all := slices.Clone(f.variables)
	for _, s := range f.Sections {
		patterns, ok := strings.CutPrefix(s.Name, "env:")
		for pattern := range strings.SplitSeq(patterns, ",") {
			if matched, _ := path.Match(strings.TrimSpace(pattern), watcher); ok && matched {
				all = append(all, s.Counting()...)
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
		if strings.EqualFold(s.Key, variable) {
			return s.Value, true
		}
	}
	upper := strings.ToUpper(variable)
	_, set := f.Getenv(upper)
	return shell.Part(shell.Unquoted, "${"+upper+"}"), set && shell.Exportable(upper)
}

// fill returns the function that expands a value for a key that no shell reads.
func (f *circusFile) fill(p *draft.Target, known func(name string) (string, bool)) func(source.Setting) (source.Setting, bool) {
	return func(s source.Setting) (source.Setting, bool) { return p.Resolved(s, f.expand(s.Value, known)) }
}
