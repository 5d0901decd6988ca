package convert

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"example.org/supervisord/internal/pattern"
)

// circusFile is a configuration of circus with what it includes.
type circusFile struct {
	*document
	ini         ini
	environment []item // of [env]
	umask       *item
	used        map[string]bool // sockets that a watcher has
}

// circus converts a configuration of circus.
func (d *document) circus(s Source) {
	f := &circusFile{document: d, used: map[string]bool{}}
	f.ini.readINI(s.Name, s.Text, circusDialect)
	f.include()
	f.ini.settle(circusDialect)
	if d.problems = append(d.problems, f.ini.problems...); len(d.problems) > 0 {
		return
	}
	f.own(f.ini.find("circus"))
	if s := f.ini.find("env"); s != nil {
		for _, e := range s.entries {
			if e.over == nil {
				f.environment = append(f.environment, e.item)
			}
		}
	}
	for _, s := range f.ini.sections {
		if !f.enough() {
			f.section(s)
		}
	}
	f.unused()
}

// include reads the files that [circus] names: all of them into the same sections.
func (f *circusFile) include() {
	s := f.ini.find("circus")
	f.ini.settle(circusDialect)
	var patterns []string
	files, _ := s.get("include")
	for _, pattern := range strings.Fields(files.value) {
		patterns = append(patterns, f.path(pattern))
	}
	dirs, _ := s.get("include_dir")
	for _, dir := range strings.Fields(dirs.value) {
		patterns = append(patterns, filepath.Join(f.path(dir), "*.ini"))
	}
	for _, pattern := range patterns {
		paths, err := f.Glob(pattern)
		if err != nil || len(paths) == 0 {
			f.note(or(files.key != "", files, dirs), "no file matches "+pattern)
		}
		for _, path := range paths {
			data, err := f.Read(path)
			if err == nil {
				err = checkText(place{file: path}, data)
			}
			if err != nil {
				f.wrong(or(files.key != "", files, dirs), "cannot read "+path+": "+err.Error(), "make it readable, or take it out of the pattern")
				continue
			}
			f.ini.readINI(path, data, circusDialect)
		}
	}
}

// circusKeys says what becomes of the keys of [circus].
var circusKeys = map[string]string{
	"check_delay":          "supervisord does not poll: it is told when a worker ends",
	"endpoint":             "supervisord has a control socket: control, control_mode and control_group in [supervisor]",
	"endpoint_owner":       "control_group in [supervisor] says who may use the control socket",
	"pubsub_endpoint":      "`supervisord events --json` tells what happens",
	"multicast_endpoint":   "supervisords do not look for each other",
	"stats_endpoint":       "http in [supervisor] serves metrics for Prometheus",
	"statsd":               "http in [supervisor] serves metrics for Prometheus",
	"statsd_close_outputs": "http in [supervisor] serves metrics for Prometheus",
	"stream_backend":       "there is one way in which output is captured",
	"warmup_delay":         "programs start together; reload.strategy = \"rolling\" replaces the workers of one a few at a time",
	"httpd":                "http in [supervisor] serves a page",
	"httpd_host":           "http in [supervisor] serves a page",
	"httpd_port":           "http in [supervisor] serves a page",
	"httpd_close_outputs":  "http in [supervisor] serves a page",
	"debug":                "log_level = \"debug\" in [supervisor]",
	"debug_gc":             "there is nothing to look at",
	"logoutput":            "supervisord logs to its stderr: the journal under systemd, or `supervisord run 2>>FILE`",
	"loggerconfig":         "log_level and log_format in [supervisor]",
	"fqdn_prefix":          "metrics are named by who scrapes them",
	"ssh_server":           "the control socket is on this machine",
	"proc_name":            "ps shows supervisord",
}

// own converts [circus].
func (f *circusFile) own(s *section) {
	if s == nil {
		return
	}
	f.head = append(f.head, s.comments...)
	for _, e := range s.entries {
		it := e.item
		instead, known := circusKeys[e.key]
		switch {
		case e.over != nil:
			f.note(it, fmt.Sprintf("does not count: %s has it before", e.over))
		case e.key == "include" || e.key == "include_dir":
			f.note(it, "what it names is converted along, into this file")
		case e.key == "pidfile":
			f.global.set("pid_file", f.path(f.value(it, nil).String()))
		case e.key == "loglevel":
			f.logLevel(it)
		case e.key == "umask":
			f.umask = &it
		case known:
			f.lacks(it, instead)
		default:
			f.lacks(it, "circus does not know it either")
		}
	}
}

func (f *circusFile) logLevel(it item) {
	levels := map[string]string{"DEBUG": "debug", "INFO": "info", "WARNING": "warn", "ERROR": "error", "CRITICAL": "error"}
	if level, ok := levels[strings.ToUpper(it.value)]; ok {
		f.global.set("log_level", level)
		return
	}
	f.lacks(it, "log_level is debug, info, warn or error")
}

// section converts one section.
func (f *circusFile) section(s *section) {
	kind, name, _ := strings.Cut(s.name, ":")
	switch {
	case kind == "watcher":
		f.watcher(s, name)
	case kind == "plugin":
		f.plugin(s)
	case kind == "socket", kind == "circus", kind == "DEFAULT", kind == "env":
	default:
		f.lacks(s.item, "circus does not know it either")
		for _, e := range s.entries {
			f.note(e.item, "belongs to ["+s.name+"]")
		}
	}
}

// plugins says what there is instead of circus' own plugins, by the end of their names.
var plugins = map[string]string{
	"Flapping":        "a worker that ends too often waits longer each time: restart.backoff",
	"ResourceWatcher": "max_memory and max_age in [program.NAME.limits] replace a worker with overlap",
	"HttpObserver":    "[program.NAME.health] with method = \"http\" replaces a worker that does not answer",
	"CommandReloader": "watch in [program.NAME] replaces the workers when a file changes",
	"StatsdEmitter":   "http in [supervisor] serves metrics for Prometheus",
	"FullStats":       "http in [supervisor] serves metrics for Prometheus",
	"WatchDog":        "watchdog in [program.NAME.health] replaces a worker that does not say WATCHDOG=1",
	"RedisObserver":   "[program.NAME.health] with method = \"tcp\" or \"exec\" replaces a worker that is not well",
}

// plugin says what there is instead of a plugin.
func (f *circusFile) plugin(s *section) {
	use, _ := s.get("use")
	instead, ok := plugins[use.value[strings.LastIndexByte(use.value, '.')+1:]]
	if !ok {
		instead = "a program of its own may use the control socket or `supervisord events --json`"
	}
	f.lacks(s.item, instead)
	for _, e := range s.entries {
		f.note(e.item, "belongs to ["+s.name+"]")
	}
}

// unused tells of sockets that no watcher has.
func (f *circusFile) unused() {
	for _, s := range f.ini.sections {
		name, ok := strings.CutPrefix(s.name, "socket:")
		if !ok || f.used[strings.ToLower(name)] || f.used[name] {
			continue
		}
		f.lacks(s.item, "no watcher with use_sockets has it, and a socket belongs to a program here")
		for _, e := range s.entries {
			f.note(e.item, "belongs to ["+s.name+"]")
		}
	}
}

// variables are the variables of a watcher: those of [env], then those of every [env:…] that names it.
func (f *circusFile) variables(watcher string) []item {
	all := slices.Clone(f.environment)
	for _, s := range f.ini.sections {
		patterns, ok := strings.CutPrefix(s.name, "env:")
		if !ok {
			continue
		}
		for pattern := range strings.SplitSeq(patterns, ",") {
			if matched, _ := path.Match(strings.TrimSpace(pattern), watcher); !matched {
				continue
			}
			for _, e := range s.entries {
				if e.over == nil {
					all = append(all, e.item)
				}
			}
		}
	}
	return all
}

// circusVariable is $(circus.NAME) or ((circus.NAME)), in letters of any size.
var circusVariable = pattern.Lazy(`(?i)\$\(circus\.([\w.\-]+)\)|\(\(circus\.([\w.\-]+)\)\)`)

// value puts in what circus puts in place of $(circus.…). What is not known to it stays, as it does there.
func (f *circusFile) value(it item, known func(name string) (text, bool)) text {
	var t text
	rest := it.value
	for rest != "" {
		at := circusVariable().FindStringSubmatchIndex(rest)
		if at == nil {
			return append(t, plain(rest)...)
		}
		m := circusVariable().FindStringSubmatch(rest)
		t = append(t, plain(rest[:at[0]])...)
		name := strings.ToLower(m[1] + m[2])
		found, ok := f.environ(name)
		if known != nil && !ok {
			found, ok = known(name)
		}
		if !ok {
			found = plain(m[0])
		}
		t, rest = append(t, found...), rest[at[1]:]
	}
	return t
}

// environ is a variable env.NAME, which circus finds by its name in letters of any size.
func (f *circusFile) environ(name string) (text, bool) {
	variable, ok := strings.CutPrefix(name, "env.")
	if !ok {
		return nil, false
	}
	for _, it := range f.environment {
		if strings.EqualFold(it.key, variable) {
			return plain(it.value), true
		}
	}
	upper := strings.ToUpper(variable)
	if _, set := f.Getenv(upper); !set || !exportable(upper) {
		return nil, false
	}
	return text{{shell: "${" + upper + "}"}}, true
}
