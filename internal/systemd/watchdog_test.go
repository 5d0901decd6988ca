package systemd

import (
	"testing"
	"time"
)

// variables is an environment for getenv.
type variables map[string]string

func (v variables) get(name string) string { return v[name] }

func TestWatchdogInterval(t *testing.T) {
	for _, c := range []struct {
		usec, pid string
		want      time.Duration
	}{
		{"30000000", "7", 15 * time.Second},
		{"30000000", "", 15 * time.Second},
		{"30000000", "8", 0},
		{"", "7", 0}, {"0", "7", 0}, {"-5", "7", 0}, {"x", "7", 0}, {"9223372036854775807", "7", 0},
	} {
		environment := variables{"WATCHDOG_USEC": c.usec, "WATCHDOG_PID": c.pid}
		if got := WatchdogInterval(environment.get, 7); got != c.want {
			t.Errorf("WATCHDOG_USEC=%s WATCHDOG_PID=%s: %v, want %v", c.usec, c.pid, got, c.want)
		}
	}
}
