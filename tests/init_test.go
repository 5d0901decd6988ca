package tests

import (
	"os"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

func TestInitWritesAConfigurationThatRunsAndReplacesNoFile(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.File("app/server", "#!/bin/sh\nexec sleep 1000\n")
	lab.Must(t, os.Chmod(m.Path("app/server"), 0o755))
	path := m.Path("app/supervisord.toml")
	out, code := m.Run("init", m.Path("app"))
	if code != 0 || !strings.Contains(out, "wrote "+path+": program server runs ./server\n") ||
		!strings.Contains(out, "supervisord check -c "+path) {
		t.Fatalf("exit code %d: %s", code, out)
	}
	if out, code := m.Run("check", "-c", path); code != 0 || out != "ok\n" {
		t.Errorf("check of what init wrote: exit code %d: %s", code, out)
	}
	before, err := os.ReadFile(path)
	lab.Must(t, err)
	if out, code := m.Run("init", m.Path("app"), "--", "./other"); code == 0 || !strings.Contains(out, path+" exists") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if after, _ := os.ReadFile(path); string(after) != string(before) {
		t.Errorf("init has changed the file:\n%s", after)
	}
}
