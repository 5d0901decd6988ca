package worker

import (
	"os"
	"slices"
	"strings"

	"example.org/supervisord/internal/reserved"
	"example.org/supervisord/worker/output"
)

// Inheritable returns the part of the supervisor's own environment that its workers get: without what systemd or another supervisor told
// the supervisor about itself. environ is not changed. JOURNAL_STREAM and CREDENTIALS_DIRECTORY stay: they are right for a worker that
// shares the supervisor's stderr or user, and Start removes them for one that does not.
func Inheritable(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return reserved.ForSupervisor(name)
	})
}

// withoutOwn leaves out the variables that Start sets itself, and those from systemd that this worker may not use.
func (s *Spec) withoutOwn() []string {
	return slices.DeleteFunc(slices.Clone(s.Environment), func(v string) bool {
		name, value, _ := strings.Cut(v, "=")
		switch name {
		case "NOTIFY_SOCKET", "NOTIFY_FD", "LISTEN_PID", "LISTEN_PIDFDID", "WATCHDOG_USEC", "WATCHDOG_PID":
			return true
		case "JOURNAL_STREAM": // "device:inode" of our stderr
			return s.Stderr.Kind != output.Inherit && s.Stderr.Kind != "" && value == os.Getenv(name)
		case "CREDENTIALS_DIRECTORY": // only our user may read it
			return s.Credential != nil && int(s.Credential.UID) != os.Geteuid() && value == os.Getenv(name)
		}
		return false
	})
}
