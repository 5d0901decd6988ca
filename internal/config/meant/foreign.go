package meant

import (
	"regexp"
	"strings"

	"example.org/supervisord/internal/pattern"
)

// Format is a kind of file that is not a configuration of this program, and what to do with it, with its path as %s.
type Format struct{ Is, Remedy string }

const convertIt = "convert it with: supervisord convert %s"

// formats are recognized by a line with which no TOML file begins, or by a section that no configuration of supervisord
// has.
var formats = []struct {
	line func() *regexp.Regexp
	Format
}{
	{pattern.Lazy(`^\[(supervisord|supervisorctl|unix_http_server|inet_http_server|(program|group|eventlistener|fcgi-program|rpcinterface):[^\]]*)\]`),
		Format{"the configuration of Python's Supervisor, which is another program", convertIt}},
	{pattern.Lazy(`^\[(circus|(watcher|socket|plugin|env):[^\]]*)\]`),
		Format{"the configuration of circus, which is another program",
			"write a [program.NAME] table for each watcher: docs/configuration.md has the keys"}},
	{pattern.Lazy(`^\[(Unit|Service|Socket|Install)\]`), Format{"a unit of systemd", convertIt}},
	{pattern.Lazy(`^services:\s*(#.*)?$`), Format{"a file of Docker Compose", convertIt}},
	{pattern.Lazy(`^(module\.exports\b|export default\b)`),
		Format{"JavaScript, such as an ecosystem file of pm2", "supervisord convert %s says how to convert it"}},
	{pattern.Lazy(`^\{`), Format{"JSON, and a configuration is TOML",
		"write [program.NAME] tables, or if this is pm2's, " + convertIt}},
	{pattern.Lazy(`^(---\s*$|[A-Za-z_][A-Za-z0-9_-]*:(\s|$))`),
		Format{"YAML, and a configuration is TOML",
			"write [program.NAME] tables with key = value, as in config.toml.example"}},
}

// ForeignFormat recognizes a file of another program. It returns the format, and the line that shows it.
func ForeignFormat(text string) (is Format, line int) {
	for _, f := range formats {
		line = 0
		for l := range strings.Lines(text) {
			line++
			if f.line().MatchString(strings.TrimSpace(l)) {
				return f.Format, line
			}
		}
	}
	return Format{}, 0
}

// removed has the keys of supervisord before its first release, by their full name without the program's name, such as
// "program.listen.nonblock": the path of the key in the program that has replaced it, or what to do. Version 1.0 drops
// this table.
var removed = map[string]struct{ to, remedy string }{
	"program.drain.idle": {"",
		"remove it: drain.silence is how long an open connection must be silent before its worker is told to stop"},
	"program.environment_dir":      {"environment_file", ""},
	"program.limits.as":            {"limits.rlimits.as", ""},
	"program.limits.cpu":           {"limits.rlimits.cpu", ""},
	"program.limits.data":          {"limits.rlimits.data", ""},
	"program.limits.fsize":         {"limits.rlimits.fsize", ""},
	"program.limits.locks":         {"", ignoredByLinux},
	"program.limits.rlimits.locks": {"", ignoredByLinux},
	"program.limits.rlimits.rss":   {"", ignoredByLinux},
	"program.limits.msgqueue":      {"limits.rlimits.msgqueue", ""},
	"program.limits.rlimit_nice":   {"limits.rlimits.nice", ""},
	"program.limits.rss":           {"", ignoredByLinux},
	"program.limits.rtprio":        {"limits.rlimits.rtprio", ""},
	"program.limits.rttime":        {"limits.rlimits.rttime", ""},
	"program.limits.sigpending":    {"limits.rlimits.sigpending", ""},
	"program.listen.defer_accept":  {"listen.socket.defer_accept", ""},
	"program.listen.fast_open":     {"listen.socket.fast_open", ""},
	"program.listen.interface":     {"listen.socket.interface", ""},
	"program.listen.ipv6_only":     {"listen.socket.ipv6_only", ""},
	"program.listen.keep_alive":    {"listen.socket.keep_alive", ""},
	"program.listen.reuse_port":    {"listen.socket.reuse_port", ""},
	"program.listen.starter_name":  {"", "write compat.starter_names = { LISTENER = \"8080\" } in the program"},
	"program.reload.retry":         {"compat.retry", ""},
	"program.restart.generation":   {"compat.generation", ""},
	"program.status_file":          {"compat.status_file", ""},
	"program.stdin": {"",
		"remove it; for a listener as standard input write fd = 0 in its [[program.NAME.listen]]"},
	"program.reload.draining_full": {"", "remove it: the next reload waits until one of max_draining generations has gone; " +
		"`supervisord kill NAME --generation N` ends one"},
	"program.reload.preflight_timeout": {"", "remove it: a preflight has as long as ready.timeout"},
	"program.stop.draining_full":       {"", "remove it: the next reload waits until one of max_draining generations has gone"},
	"program.stop.int_signal":          {"compat.int_signal", ""},
	"program.stop.max_draining":        {"reload.max_draining", ""},
	"program.stop.reload_signal":       {"compat.reload_signal", ""},
	"supervisor.control_mode": {"",
		"remove it: supervisord's user and control_group may connect, and everybody with control_read = \"any\""},
}

const ignoredByLinux = "remove it: Linux ignores it"

// programPrefix is the beginning of the full name of a key of a program; an index is that of an element of an array.
var programPrefix, index = pattern.Lazy(`^program\.("[^"]*"|[^.]+)`), pattern.Lazy(`\[\d+\]`)

// genericName returns the full name of a key without the program's name and without indexes.
func genericName(key string) string {
	key = programPrefix().ReplaceAllString(strings.TrimPrefix(key, "."), "program")
	return index().ReplaceAllString(key, "")
}
