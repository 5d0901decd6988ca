package systemd_test

import (
	"slices"
	"strings"
	"testing"
)

// reloadable skips a test that needs the control socket if supervisord has none yet.
func reloadable(l *Lab) {
	if !strings.Contains(l.Run("/usr/local/bin/supervisord", "--help"), "\n  reload ") {
		l.t.Skip("this supervisord has no `reload` command")
	}
}

func TestSystemctlReloadReturnsWhenTheNewWorkersServe(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Prepare(helloConfig)
		reloadable(l)
		l.Run("systemctl", "start", "supervisord")
		before := l.Workers("hello")
		l.Write("/etc/supervisord/config.toml", strings.ReplaceAll(helloConfig, `"1"`, `"2"`), 0o644)
		l.Run("systemctl", "reload", "supervisord")
		old := func(pid string) bool { return slices.Contains(before, pid) }
		if after := l.Workers("hello"); !slices.ContainsFunc(after, func(pid string) bool { return !old(pid) }) {
			t.Errorf("after the reload all workers %v are old", after)
		}
		l.Until("the old workers have exited", func() bool { return !slices.ContainsFunc(l.Workers("hello"), old) })
		body, err := l.Get("http://127.0.0.1:8080/") // an old worker may answer until it has read its TERM
		if err != nil || !strings.Contains(body, "version=2") {
			t.Errorf("after the reload the answer is %q (%v)", body, err)
		}
	})
}

func TestSystemctlReloadFailsWithTheReasonAndTheOldGenerationServes(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Prepare(helloConfig)
		reloadable(l)
		l.Run("systemctl", "start", "supervisord")
		before := l.Workers("hello")
		for what, config := range map[string]string{
			"told to fail": strings.ReplaceAll(helloConfig, `"1"`, `"2", "-fail"`),
			"unknown key":  helloConfig + "\nfoo = 1\n",
			"no such file": strings.ReplaceAll(helloConfig, "/usr/local/bin/hello", "/usr/local/bin/none"),
		} {
			l.Write("/etc/supervisord/config.toml", config, 0o644)
			if out, code := l.Try("systemctl", "reload", "supervisord"); code == 0 {
				t.Errorf("%s: systemctl reload succeeds: %s", what, out)
			}
			l.t.Logf("%s: %s", what, l.reason())
			if result := l.Property("supervisord", "ReloadResult"); result != "exit-code" {
				t.Errorf("%s: systemd calls the reload %q", what, result)
			}
			if now := l.Workers("hello"); !slices.Equal(now, before) {
				t.Errorf("%s: the workers were %v and are %v", what, before, now)
			}
			if _, err := l.Get("http://127.0.0.1:8080/"); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

func TestSystemctlReloadMayExceedItsTimeoutIfTheProgramAllowsIt(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Prepare(helloConfig)
		reloadable(l)
		l.Write(dropIns+"/short.conf", "[Service]\nTimeoutStartSec=2\n", 0o644)
		l.Run("systemctl", "daemon-reload")
		l.Run("systemctl", "start", "supervisord")
		l.Write("/etc/supervisord/config.toml", strings.ReplaceAll(helloConfig, `"1"`, `"2", "-boot-delay", "3500ms"`), 0o644)
		l.reloads(t, l.Workers("hello")) // the deadline of the reload is later than that of the next start
		l.Run("systemctl", "reload", "supervisord")
	})
}

// reason returns the output of the failed `supervisord reload` from the journal.
func (l *Lab) reason() string {
	l.t.Helper()
	var said []string
	for _, entry := range l.Journal("-u", "supervisord") {
		if entry["_PID"] != l.Master() && strings.Contains(entry["_CMDLINE"]+entry["MESSAGE"], "reload") {
			said = append(said, entry["MESSAGE"])
		}
	}
	return strings.Join(said, " | ")
}
