package systemd_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const dropIns = "/etc/systemd/system/supervisord.service.d"

// exposure is the highest value that `systemd-analyze security` may report.
const exposure = "3.9"

// unpackUnit installs the unit and the files that it names.
func unpackUnit(t *testing.T, l *Lab) {
	t.Helper()
	l.Copy(filepath.Join(repository(t), "systemd/supervisord.service"), "/etc/systemd/system/supervisord.service")
	l.Copy(filepath.Join(repository(t), "systemd/supervisord.socket"), "/etc/systemd/system/supervisord.socket")
	l.Write("/usr/local/bin/supervisord", "#!/bin/sh\n", 0o755)
}

func TestEveryDropInIsInTheirReadme(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(repository(t), "systemd/drop-ins/*.conf"))
	readme, err := os.ReadFile(filepath.Join(repository(t), "systemd/drop-ins/README.md"))
	must(t, err)
	for _, file := range files {
		if name := filepath.Base(file); !strings.Contains(string(readme), "["+name+"]("+name+")") {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestUnitsAndDropInsLoadWithoutAWarningAndExposeNoMoreThanDocumented(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(repository(t), "systemd/drop-ins/*.conf"))
	if err != nil || len(files) == 0 {
		t.Fatal("no drop-ins found: ", err)
	}
	Each(t, func(t *testing.T, l *Lab) {
		unpackUnit(t, l)
		out, code := l.Try("systemd-analyze", "verify", "--man=no", "supervisord.service", "supervisord.socket")
		if code != 0 || out != "" {
			t.Errorf("exit status %d: %s", code, out)
		}
		threshold := strings.ReplaceAll(exposure, ".", "")
		out, code = l.Try("systemd-analyze", "security", "--no-pager", "--offline=yes", "--threshold="+threshold,
			"supervisord.service")
		if t.Log(out[strings.LastIndexByte(out, '\n')+1:]); code != 0 {
			t.Errorf("the unit is more exposed than %s:\n%s", exposure, out)
		}
		l.Write("/etc/sysusers.d/deploy.conf", "u deploy\n", 0o644)
		l.Run("systemd-sysusers")
		for _, file := range files {
			l.Copy(file, dropIns+"/one.conf")
			out, code := l.Try("systemd-analyze", "verify", "--man=no", "supervisord.service")
			if l.Suite == "bookworm" { // the drop-in says so
				out = regexp.MustCompile(`(?m)^.*Unknown key.* 'DelegateSubgroup'.*$`).ReplaceAllString(out, "")
			}
			if code != 0 || strings.TrimSpace(out) != "" {
				t.Errorf("%s: exit status %d: %s", filepath.Base(file), code, out)
			}
		}
	})
}

// under starts supervisord.service with a shell script instead of supervisord.
func under(l *Lab, script string) {
	l.t.Helper()
	l.Write("/usr/local/bin/script", "#!/bin/sh\n"+script, 0o755)
	l.Write(dropIns+"/zz-script.conf",
		"[Service]\nType=exec\nWatchdogSec=0\nExecStart=\nExecStart=/usr/local/bin/script\n", 0o644)
	l.Run("systemctl", "daemon-reload")
	l.Run("systemctl", "start", "supervisord")
}

func TestWorkersKeepTheirFilesWhenTheMasterDies(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		unpackUnit(t, l)
		under(l, `if mkdir /run/first; then touch /tmp/kept /run/supervisord/kept; sleep 1111 & fi; exec sleep 2222`)
		l.Until("the worker runs", func() bool { _, code := l.Try("pgrep", "-f", "sleep 1111"); return code == 0 })
		worker := l.Run("pgrep", "-f", "sleep 1111")
		l.Run("kill", "-KILL", l.Property("supervisord", "MainPID"))
		l.Until("the master has been started again", func() bool {
			return l.Property("supervisord", "NRestarts") == "1" && l.Property("supervisord", "ActiveState") == "active"
		})
		root := "/proc/" + worker + "/root"
		l.Run("ls", root+"/tmp/kept", root+"/run/supervisord/kept", "/tmp/kept", "/run/supervisord/kept")
	})
}

func TestDropInsGiveWorkersTheRightsThatTheyName(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		unpackUnit(t, l)
		script := func(says string) {
			t.Helper()
			under(l, "grep NoNewPrivs /proc/self/status >/run/tried; unshare --user --mount true; "+
				"echo unshare: $? >>/run/tried; exec sleep 1000")
			l.Run("systemctl", "restart", "supervisord")
			l.Until("it has tried, and says "+says, func() bool {
				out, _ := l.Try("cat", "/run/tried")
				return strings.Join(strings.Fields(out), " ") == says
			})
		}
		script("NoNewPrivs: 1 unshare: 1")
		for _, c := range [][2]string{{"setuid-programs.conf", "NoNewPrivs: 0 unshare: 1"},
			{"namespaces.conf", "NoNewPrivs: 1 unshare: 0"}} {
			l.Copy(filepath.Join(repository(t), "systemd/drop-ins", c[0]), dropIns+"/"+c[0])
			script(c[1])
			l.Run("rm", dropIns+"/"+c[0])
		}
	})
}

func TestDropInToLookIntoWorkersLetsTheMasterCountTheirConnections(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Start(strings.Replace(helloConfig, "workers = 2", "workers = 1\nuser = \"nobody\"", 1))
		status := func(want string) {
			t.Helper()
			l.Until("the status has "+want, func() bool {
				// a new connection each time, because the worker soon closes an idle one
				c, err := l.Dial("127.0.0.1:8080")(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				out, _ := l.Try("supervisord", "status", "--json")
				return strings.Contains(out, want)
			})
		}
		status("CAP_SYS_PTRACE")
		l.Copy(filepath.Join(repository(t), "systemd/drop-ins/look-into-workers.conf"), dropIns+"/look-into-workers.conf")
		l.Run("systemctl", "daemon-reload")
		l.Run("systemctl", "restart", "supervisord")
		status(`"connections": 1`)
	})
}
