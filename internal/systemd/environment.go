package systemd

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// own are the variables that systemd sets for the process that it started, and for that one only (systemd.exec(5),
// "Environment Variables Set or Propagated by the Service Manager"). JOURNAL_STREAM is another matter: it holds for
// whoever has the stream.
var own = []string{
	"NOTIFY_SOCKET", "LISTEN_PID", "LISTEN_PIDFDID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID", "WATCHDOG_USEC",
	"FDSTORE", "MAINPID", "MAINPIDFDID", "MANAGERPID", "MANAGERPIDFDID", "SYSTEMD_EXEC_PID", "MEMORY_PRESSURE_WATCH",
	"MEMORY_PRESSURE_WRITE",
}

// Strip returns the environment without what systemd meant for this process alone, as a worker should get it.
func Strip(environment []string) []string {
	return slices.DeleteFunc(slices.Clone(environment), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(own, name)
	})
}

// WatchdogInterval says how often Watchdog must be called: at half of WATCHDOG_USEC, as sd_watchdog_enabled(3) advises, or
// 0 if there is no watchdog or WATCHDOG_PID says that it is for another process than pid.
func WatchdogInterval(getenv func(string) string, pid int) time.Duration {
	usec, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || usec <= 0 || usec > int64(time.Duration(1<<63-1)/time.Microsecond) {
		return 0
	}
	if whose := getenv("WATCHDOG_PID"); whose != "" && whose != strconv.Itoa(pid) {
		return 0
	}
	return time.Duration(usec) * time.Microsecond / 2
}
