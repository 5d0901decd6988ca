package systemd_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// hiding is a program whose workers each have a process that only the control group reveals.
func hiding() string {
	return program("parent", "127.0.0.1:8080", "/bin/sh", "-c", "env -i setsid sleep 3333 & exec /usr/local/bin/hello")
}

// hidden returns the number of these processes.
func (l *Lab) hidden() string {
	l.t.Helper()
	out, _ := l.Try("pgrep", "-c", "-f", "^sleep 3333")
	return out
}

func (l *Lab) delegated() {
	l.t.Helper()
	l.Copy(filepath.Join(repository(l.t), "systemd/drop-ins/delegate.conf"), dropIns+"/delegate.conf")
	l.Run("systemctl", "daemon-reload")
}

func TestDelegatedControlGroupEndsEveryDescendantOfAWorker(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Prepare(hiding())
		l.delegated()
		l.Run("systemctl", "start", "supervisord")
		workers := l.Workers("hello")
		if group := l.Run("cat", "/proc/"+workers[0]+"/cgroup"); !strings.Contains(group, "/supervisord.service/worker-") {
			t.Fatalf("the worker is in %q", group)
		}
		l.Until("the hidden process runs", func() bool { return l.hidden() == "1" })
		l.kill()
		l.Until("a new master has adopted the worker",
			func() bool { return l.Property("supervisord", "ActiveState") == "active" && l.Master() != "0" })
		l.reloads(t, workers)
		l.Until("only the new worker's hidden process is left", func() bool { return l.hidden() == "1" })
		l.Run("systemctl", "stop", "supervisord")
		// KILL was sent; the exit may take a moment
		l.Until("nothing is left behind", func() bool { return l.hidden() == "0" })
		l.cleanStop(t)
	})
}

func TestWithADelegatedControlGroupTheKillAtTheDeadlineReachesEverything(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Prepare(program("stubborn", "127.0.0.1:8080", "/bin/sh", "-c",
			"trap '' TERM; env -i setsid sleep 3333 & systemd-notify --ready; while :; do sleep 0.1; done") +
			"[program.stubborn.stop]\ntimeout = \"500ms\"\n")
		l.delegated()
		l.Run("systemctl", "start", "supervisord")
		l.Until("the hidden process runs", func() bool { return l.hidden() == "1" })
		l.Run("systemctl", "stop", "supervisord")
		// KILL was sent; the exit may take a moment
		l.Until("nothing is left behind", func() bool { return l.hidden() == "0" })
		l.cleanStop(t)
	})
}
