package meant

import (
	"strings"

	"example.org/supervisord/internal/pattern"
)

// Format is a kind of file that is not a configuration of this program, and what to do with it, with its path as %s.
type Format struct{ Is, Remedy string }

// formats are recognized by a line with which no TOML file begins, or by a section that no configuration of supervisord
// has.
var formats = []struct{ line, is, remedy string }{
	{`^\[(supervisord|supervisorctl|unix_http_server|inet_http_server|` +
		`(program|group|eventlistener|fcgi-program|rpcinterface):[^\]]*)\]`,
		"the configuration of Python's Supervisor, which is another program", "convert it with: supervisord convert %s"},
	{`^\[(Unit|Service|Socket|Install)\]`, "a unit of systemd", "convert it with: supervisord convert %s"},
	{`^services:\s*(#.*)?$`, "a file of Docker Compose", "convert it with: supervisord convert %s"},
	{`^(module\.exports\b|export default\b)`, "JavaScript, such as an ecosystem file of pm2",
		"supervisord convert %s says how to convert it"},
	{`^\{`, "JSON, and a configuration is TOML",
		"write [program.NAME] tables, or if this is pm2's, convert it with: supervisord convert %s"},
	{`^(---\s*$|[A-Za-z_][A-Za-z0-9_-]*:(\s|$))`, "YAML, and a configuration is TOML",
		"write [program.NAME] tables with key = value, as in config.toml.example"},
}

// ForeignFormat recognizes a file of another program. It returns the format, and the line that shows it.
func ForeignFormat(text string) (is Format, line int) {
	for _, f := range formats {
		begins := pattern.Lazy(f.line)()
		line = 0
		for l := range strings.Lines(text) {
			line++
			if begins.MatchString(strings.TrimSpace(l)) {
				return Format{f.is, f.remedy}, line
			}
		}
	}
	return Format{}, 0
}
