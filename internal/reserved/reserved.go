// Package reserved lists the environment variables by which a supervisor speaks to a process that it starts. It is the
// only such list.
package reserved

import (
	"slices"
	"strings"
)

// A name that ends in _ stands for every name that begins with it.
var (
	// workers are told these by supervisord.
	workers = []string{
		"LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID", "LISTEN_PIDFDID", "SERVER_STARTER_PORT", "SERVER_STARTER_GENERATION",
		"NOTIFY_SOCKET", "NOTIFY_FD", "WATCHDOG_PID", "WATCHDOG_USEC", "SUPERVISORD_CONFIG", "SUPERVISORD_PROGRAM",
		"SUPERVISORD_SLOT",
		"SUPERVISORD_GENERATION",
	}
	// own are what systemd (systemd.exec(5), sd_notify(3), sd_watchdog_enabled(3)) or another supervisor tells supervisord
	// about itself.
	own = []string{
		"LISTEN_", "NOTIFY_", "SERVER_STARTER_", "SUPERVISORD_", "WATCHDOG_PID", "WATCHDOG_USEC", "FDSTORE", "MAINPID",
		"MAINPIDFDID",
		"MANAGERPID", "MANAGERPIDFDID", "SYSTEMD_EXEC_PID", "MEMORY_PRESSURE_WATCH", "MEMORY_PRESSURE_WRITE",
	}
)

// ForWorkers reports whether supervisord decides the variable for its workers, so that nothing else may set it.
func ForWorkers(name string) bool { return has(workers, name) }

// ForSupervisor reports whether the variable, in supervisord's own environment, is meant for supervisord and not for
// its workers.
func ForSupervisor(name string) bool { return has(own, name) }

func has(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool {
		return name == n || strings.HasSuffix(n, "_") && strings.HasPrefix(name, n)
	})
}
