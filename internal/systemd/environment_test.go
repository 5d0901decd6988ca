package systemd

import (
	"slices"
	"testing"
	"time"
)

// variables is an environment for getenv.
type variables map[string]string

func (v variables) get(name string) string { return v[name] }

func TestStripKeepsWhatIsNotSystemds(t *testing.T) {
	environment := []string{"PATH=/bin", "NOTIFY_SOCKET=/run/x", "LISTEN_FDS=2", "LISTEN_FDNAMES=a:b", "NOTIFY_SOCKETS=1", "JOURNAL_STREAM=1:2"}
	before := slices.Clone(environment)
	want := []string{"PATH=/bin", "NOTIFY_SOCKETS=1", "JOURNAL_STREAM=1:2"}
	if got := Strip(environment); !slices.Equal(got, want) {
		t.Errorf("it leaves %q, want %q", got, want)
	}
	if !slices.Equal(environment, before) {
		t.Errorf("it changed its argument to %q", environment)
	}
}

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
