package config

import (
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
