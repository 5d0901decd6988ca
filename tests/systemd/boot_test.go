package systemd_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The systemd versions that the lab must have.
var versions = map[string]string{"bookworm": "systemd 252 ", "trixie": "systemd 257 "}

func TestLabRunsTheSystemdOfItsSuite(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		if got := l.Run("systemctl", "is-system-running"); got != "running" {
			t.Errorf("the system is %s, want running", got)
		}
		if got := l.Run("systemctl", "--version"); !strings.HasPrefix(got, versions[l.Suite]) {
			t.Errorf("it is %q, want %s", got, versions[l.Suite])
		}
		l.Service("hello.service", "[Service]\nType=notify\nNotifyAccess=all\n"+
			"ExecStart=/bin/sh -c 'echo here; systemd-notify --ready --status=hello; exec sleep 1000'\n")
		l.Run("systemctl", "start", "hello")
		if got := l.Property("hello", "StatusText"); got != "hello" {
			t.Errorf("the status is %q, want hello", got)
		}
		if entries := l.Journal("-u", "hello", "MESSAGE=here"); len(entries) != 1 {
			t.Errorf("the journal has its line %d times, want once", len(entries))
		}
		l.Run("systemctl", "stop", "hello")
	})
}

func TestLabLeavesNothingBehind(t *testing.T) {
	before, _ := filepath.Glob("/run/supervisord-lab/*") // of other tests
	for _, suite := range suites {
		var pid string
		t.Run(suite, func(t *testing.T) {
			l := Boot(t, suite)
			pid = l.Path("/")
			l.Run("systemctl", "--force", "poweroff")
		})
		if _, err := os.Stat(pid); pid != "" && err == nil {
			t.Errorf("%s is still there", pid)
		}
	}
	left, _ := filepath.Glob("/run/supervisord-lab/*")
	for _, lab := range left {
		_, err := os.Stat(filepath.Join("/proc", filepath.Base(lab))) // it belongs to another test that has begun meanwhile
		if !slices.Contains(before, lab) && err != nil {
			t.Errorf("left behind: %s", lab)
		}
	}
}

func TestLabIsReachedFromItsOwnNetwork(t *testing.T) {
	l := Boot(t, "bookworm")
	l.Install("tests/systemd/probe", "/usr/local/bin/probe")
	l.Service("web.service", "[Service]\nType=notify\nExecStart=/usr/local/bin/probe serve 127.0.0.1:8080\n")
	l.Run("systemctl", "start", "web")
	load := l.Load("127.0.0.1:8080", 2, 2)
	l.Until("100 requests have been answered", func() bool { return load.Requests() > 100 })
	if requests, failures, bodies := load.Stop(); len(failures) > 0 || bodies["hello"] != requests {
		t.Errorf("of %d requests failed %q, bodies %v", requests, failures, bodies)
	}
}
