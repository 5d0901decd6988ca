package config

import (
	"strings"

	"example.org/supervisord/internal/pattern"
)

// Sections that only the ini files of other supervisors have. None of them is a table of this configuration.
var (
	supervisorSection = pattern.Lazy(`^\[(supervisord|supervisorctl|unix_http_server|inet_http_server|(program|group|eventlistener|fcgi-program|rpcinterface):[^\]]*)\]`)
	circusSection     = pattern.Lazy(`^\[(circus|(watcher|socket|plugin|env):[^\]]*)\]`)
)

// otherSupervisor recognizes the configuration of another supervisor. It returns whose it is, and the line of the first section
// that shows it, or "".
func otherSupervisor(text string) (whose string, line int) {
	for l := range strings.Lines(text) {
		line++
		l = strings.TrimSpace(l)
		switch {
		case supervisorSection().MatchString(l):
			return "Python's Supervisor", line
		case circusSection().MatchString(l):
			return "circus", line
		}
	}
	return "", 0
}

// refuseOther notes that a file is the configuration of another supervisor; false: it is not.
func (l *loader) refuseOther(file, text string) bool {
	whose, line := otherSupervisor(text)
	if whose == "" {
		return false
	}
	l.refuse(Problem{
		File: file, Line: line, What: "this is the configuration of " + whose + ", which is another program",
		Remedy: "convert it with: supervisord convert " + file,
	})
	return true
}
