package systemd_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// script runs one of the project's scripts with a prebuilt program.
func script(t *testing.T, name string, environment ...string) string {
	t.Helper()
	build(t, "cmd/supervisord-tools") // which are installed from beside it
	build(t, "cmd/start_server")
	command := exec.Command(filepath.Join(repository(t), "scripts", name))
	command.Env = append(os.Environ(), append(environment, "BINARY="+build(t, "cmd/supervisord"))...)
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

// filesIn lists the files below a directory, relative to it.
func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	must(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			relative, _ := filepath.Rel(dir, path)
			found = append(found, relative)
		}
		return err
	}))
	return found
}

func TestInstallPutsEverythingInItsPlace(t *testing.T) {
	dir := t.TempDir()
	script(t, "install", "DESTDIR="+dir, "PREFIX=/opt/sv", "SYSCONFDIR=/opt/etc")
	found := filesIn(t, dir)
	for _, want := range []string{
		"opt/sv/bin/supervisord", "opt/sv/lib/systemd/system/supervisord.service", "opt/etc/supervisord/config.toml",
		"opt/sv/share/bash-completion/completions/supervisord", "opt/sv/share/zsh/site-functions/_supervisord",
		"opt/sv/lib/supervisord/supervisord-tools", "opt/sv/lib/supervisord/start_server",
		"opt/etc/supervisord/config.toml.example",
		"opt/sv/share/fish/vendor_completions.d/supervisord.fish", "opt/sv/share/doc/supervisord/drop-ins/README.md",
		"opt/sv/share/doc/supervisord/README.md", "opt/sv/share/doc/supervisord/LICENSE",
		"opt/sv/share/doc/supervisord/docs/configuration.md", "opt/sv/share/doc/supervisord/docs/openapi.yaml",
		"opt/sv/share/doc/supervisord/docs/images/page-idle-dark.webp",
		"opt/sv/share/doc/supervisord/examples/servers/nginx/nginx.conf",
	} {
		if !slices.Contains(found, want) {
			t.Errorf("%s is not among %q", want, found)
		}
	}
	unit, err := os.ReadFile(filepath.Join(dir, "opt/sv/lib/systemd/system/supervisord.service"))
	must(t, err)
	if !strings.Contains(string(unit), "\nExecStart=/opt/sv/bin/supervisord run -c /opt/etc/supervisord/config.toml\n") {
		t.Errorf("the unit does not start what was installed:\n%s", unit)
	}
	if want := "\nExecReload=/opt/sv/bin/supervisord reload -c /opt/etc/supervisord/config.toml\n"; !strings.Contains(
		string(unit), want) {
		t.Errorf("the unit lacks %q:\n%s", want, unit)
	}
}

func TestInstallTwiceChangesNothing(t *testing.T) {
	dir := t.TempDir()
	script(t, "install", "DESTDIR="+dir)
	before := filesIn(t, dir)
	again := script(t, "install", "DESTDIR="+dir)
	for line := range strings.Lines(again) {
		if !strings.HasPrefix(line, "unchanged") && !strings.HasPrefix(line, "kept") {
			t.Errorf("the second run prints %q", line)
		}
	}
	if after := filesIn(t, dir); !slices.Equal(before, after) {
		t.Errorf("the files are %q and were %q", after, before)
	}
}

func TestInstallAndUninstallKeepAnEditedConfiguration(t *testing.T) {
	dir := t.TempDir()
	script(t, "install", "DESTDIR="+dir)
	edited := filepath.Join(dir, "etc/supervisord/config.toml")
	must(t, os.WriteFile(edited, []byte("# mine\n"), 0o644))
	script(t, "install", "DESTDIR="+dir)
	script(t, "uninstall", "DESTDIR="+dir)
	raw, err := os.ReadFile(edited)
	if err != nil || string(raw) != "# mine\n" {
		t.Errorf("the configuration is %q (%v)", raw, err)
	}
}

func TestUninstallRemovesEverythingThatInstallCreated(t *testing.T) {
	dir := t.TempDir()
	script(t, "install", "DESTDIR="+dir)
	script(t, "uninstall", "DESTDIR="+dir)
	if left := filesIn(t, dir); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	script(t, "uninstall", "DESTDIR="+dir)
}

func TestInstalledServiceStartsWithoutAProgramAndTakesOneAtAReload(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		script(t, "install", "DESTDIR="+l.Path("/"))
		l.Run("systemctl", "daemon-reload")
		l.Run("supervisord", "check")
		l.Run("systemctl", "start", "supervisord")
		if state := l.Property("supervisord", "ActiveState"); state != "active" {
			t.Errorf("the service is %s", state)
		}
		l.Run("systemctl", "reload", "supervisord")
		l.Write("/etc/supervisord/conf.d/sleep.toml",
			"[program.sleep]\ncommand = [\"sleep\", \"1234\"]\nready.delay = \"10ms\"\n", 0o644)
		l.Run("systemctl", "reload", "supervisord")
		l.Run("pgrep", "-f", "sleep 1234")
		l.Run("systemctl", "stop", "supervisord")
	})
}

func TestUninstallLeavesTheServiceOfAnotherProgram(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Write("/usr/lib/systemd/system/supervisord.service", "[Service]\nExecStart=/bin/sleep 4321\n", 0o644)
		l.Copy(filepath.Join(repository(t), "scripts/uninstall"), "/root/uninstall")
		l.Run("systemctl", "daemon-reload")
		l.Run("systemctl", "start", "supervisord")
		l.Run("/root/uninstall")
		if state := l.Property("supervisord", "ActiveState"); state != "active" {
			t.Errorf("the service is %s", state)
		}
	})
}

func TestUninstallEndsTheService(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		script(t, "install", "DESTDIR="+l.Path("/"))
		l.Copy(filepath.Join(repository(t), "scripts/uninstall"), "/root/uninstall")
		under(l, "exec sleep 1000")
		l.Run("systemctl", "enable", "supervisord")
		l.Run("/root/uninstall")
		if out, code := l.Try("systemctl", "is-active", "supervisord"); code == 0 {
			t.Errorf("the service is %s", out)
		}
		if out, code := l.Try("pgrep", "-x", "sleep"); code == 0 {
			t.Errorf("still running: %s", out)
		}
		l.Run("/root/uninstall")
	})
}
