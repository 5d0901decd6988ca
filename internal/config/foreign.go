package config

import (
	"fmt"
	"regexp"
	"strings"

	"example.org/supervisord/internal/pattern"
)

// format is a kind of file that is not a configuration of this program, and what to do with it, with its path as %s.
type format struct{ is, remedy string }

const convertIt = "convert it with: supervisord convert %s"

// formats are recognized by a line that no TOML file begins with, or a section that no configuration of this program has.
var formats = []struct {
	line func() *regexp.Regexp
	format
}{
	{pattern.Lazy(`^\[(supervisord|supervisorctl|unix_http_server|inet_http_server|(program|group|eventlistener|fcgi-program|rpcinterface):[^\]]*)\]`),
		format{"the configuration of Python's Supervisor, which is another program", convertIt}},
	{pattern.Lazy(`^\[(circus|(watcher|socket|plugin|env):[^\]]*)\]`), format{"the configuration of circus, which is another program", "write a [program.NAME] table for each watcher: docs/configuration.md has the keys"}},
	{pattern.Lazy(`^\[(Unit|Service|Socket|Install)\]`), format{"a unit of systemd", convertIt}},
	{pattern.Lazy(`^services:\s*(#.*)?$`), format{"a file of Docker Compose", convertIt}},
	{pattern.Lazy(`^(module\.exports\b|export default\b)`), format{"JavaScript, such as an ecosystem file of pm2", "supervisord convert %s says how to convert it"}},
	{pattern.Lazy(`^\{`), format{"JSON, and a configuration is TOML", "write [program.NAME] tables, or if this is pm2's, " + convertIt}},
	{pattern.Lazy(`^(---\s*$|[A-Za-z_][A-Za-z0-9_-]*:(\s|$))`), format{"YAML, and a configuration is TOML", "write [program.NAME] tables with key = value, as in config.toml.example"}},
}

// foreignFormat recognizes a file of another program. It returns what it is, and the line that shows it.
func foreignFormat(text string) (is format, line int) {
	for _, f := range formats {
		line = 0
		for l := range strings.Lines(text) {
			line++
			if f.line().MatchString(strings.TrimSpace(l)) {
				return f.format, line
			}
		}
	}
	return format{}, 0
}

// synonyms are the words of other supervisors (Python's Supervisor, circus, systemd, pm2, Compose and others) for keys of a program, in
// lower case without dashes and underscores.
var synonyms = map[string]string{
	"numprocs": "workers", "numprocesses": "workers", "instances": "workers", "replicas": "workers", "processes": "workers", "concurrency": "workers",
	"env": "environment", "envvars": "environment", "environ": "environment", "vars": "environment",
	"envfile": "environment_file", "environmentfiles": "environment_file", "dotenv": "environment_file", "envdir": "environment_dir",
	"cmd": "command", "exec": "command", "execstart": "command", "script": "command", "entrypoint": "command", "args": "command", "run": "command",
	"cwd": "directory", "workingdir": "directory", "workingdirectory": "directory", "workdir": "directory", "dir": "directory", "chdir": "directory",
	"uid": "user", "username": "user", "gid": "group",
	"stopsignal": "stop.signal", "killsignal": "stop.signal",
	"stopwaitsecs": "stop.timeout", "killtimeout": "stop.timeout", "gracefultimeout": "stop.timeout", "stopgraceperiod": "stop.timeout",
	"timeoutstopsec": "stop.timeout", "stoptimeout": "stop.timeout", "killasgroup": "stop.group", "stopasgroup": "stop.group",
	"startsecs": "ready.delay", "minuptime": "restart.stable_after", "waitready": "ready.method",
	"listentimeout": "ready.timeout", "timeoutstartsec": "ready.timeout", "startuptimeout": "ready.timeout", "healthcheck": "health", "watchdogsec": "health.watchdog",
	"stdoutlogfile": "stdout", "stdoutstream": "stdout", "outfile": "stdout", "standardoutput": "stdout",
	"stderrlogfile": "stderr", "stderrstream": "stderr", "errorfile": "stderr", "errfile": "stderr", "standarderror": "stderr",
	"stdoutlogfilemaxbytes": "log.max_size", "stderrlogfilemaxbytes": "log.max_size", "stdoutlogfilebackups": "log.max_files", "stderrlogfilebackups": "log.max_files",
	"maxbytes": "log.max_size", "backups": "log.max_files", "logfile": "log.file",
	"autorestart": "restart.when", "respawn": "restart.when", "restartpolicy": "restart.when",
	"restartsec": "restart.backoff", "restartdelay": "restart.backoff", "retryin": "restart.backoff", "startretries": "restart.budget", "maxrestarts": "restart.budget",
	"maxmemoryrestart": "limits.max_memory", "memory": "limits.max_memory", "memlimit": "limits.max_memory", "memorymax": "limits.max_memory",
	"limitnofile": "limits.nofile", "minfds": "limits.nofile", "umask": "limits.umask", "nice": "limits.nice", "oomscoreadjust": "limits.oom_score_adj",
	"ports": "listen", "socket": "listen", "sockets": "listen", "address": "listen", "port": "listen", "listenstream": "listen", "usesockets": "listen",
}

// unsupported are words for what this program does not do, and what does.
var unsupported = map[string]string{
	"redirectstderr": "remove it, and write the same path for stdout and stderr to have both in one file", "mergelogs": "remove it, and write the same path for stdout and stderr to have both in one file",
	"autostart": "remove it: every program starts with supervisord; `supervisord stop` stops one",
	"priority":  noOrder, "dependson": noOrder, "requires": noOrder, "after": noOrder, "wants": noOrder,
	"cronrestart": "remove it, and write reload.every, or a timer of systemd that runs `supervisord reload`",
	"schedule":    "remove it: supervisord does not run jobs at times; use a timer of systemd, or cron",
	"exitcodes":   "remove it; write restart.when = \"on-failure\": 0 is the code of success",
	"execmode":    "remove it; write workers = \"auto\" and a listener, which all workers share",
	"image":       "remove it: supervisord runs programs, not images", "volumes": "remove it: supervisord runs programs, not images", "networks": "remove it: supervisord runs programs, not images",
}

const noOrder = "remove it: all programs start at the same time; let a program try again until what it needs is there"

// synonym returns what to write instead of a key that was removed, or that other supervisors have in the table of a program, and
// the key that is meant.
func synonym(table, key string) (meant, remedy string) {
	if remedy = removedKey(table, key); remedy != "" {
		return "", remedy
	}
	name, inside := strings.CutPrefix(table, "program.")
	if !inside || strings.ContainsAny(name, ".[") && !strings.HasPrefix(name, `"`) {
		return "", ""
	}
	word := strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(key))
	if remedy = unsupported[word]; remedy != "" {
		return "", remedy
	}
	path := synonyms[word]
	if path == "" || path == key {
		return "", ""
	}
	meant, _, _ = strings.Cut(path, ".")
	switch meant {
	case "listen":
		return meant, fmt.Sprintf("write [[%s.listen]] and address = \"127.0.0.1:8080\" below it", table)
	case "command":
		return meant, `write command = ["program", "argument", …]`
	}
	return meant, "write " + path
}
