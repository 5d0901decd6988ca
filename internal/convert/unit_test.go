package convert

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/supervisord/internal/convert/source"
)

// unitFiles writes files, and converts one of them as `supervisord convert NAME` does.
func unitFiles(t *testing.T, name string, files map[string]string) (Result, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := elsewhere(dir)
	text, err := w.Read("/srv/app/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return Convert(source.Input{Name: name, Text: text}, w)
}

func contains(t *testing.T, r Result, err error, want ...string) {
	t.Helper()
	if err == nil {
		err = check(t, r)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, r.Text)
	}
	for _, line := range want {
		if !strings.Contains(r.Text, line) {
			t.Errorf("no %s in\n%s", line, r.Text)
		}
	}
}

func TestTemplateWithoutAnInstanceIsRejected(t *testing.T) {
	_, err := unitFiles(t, "web@.service", map[string]string{"web@.service": "[Service]\nExecStart=/x %i\n"})
	if err == nil || !strings.Contains(err.Error(), "supervisord convert web@NAME.service") {
		t.Error(err)
	}
}

func TestSocketOfUnknownServerIsInherited(t *testing.T) {
	r, err := unitFiles(t, "echo.service",
		map[string]string{"echo.service": "[Service]\nExecStart=/usr/bin/echod\nSockets=a.socket\n",
			"a.socket": "[Socket]\nListenStream=7\n"})
	contains(t, r, err, `address = ":7"`, `method = "accept"`)
	if strings.Contains(r.Text, "stop-first") {
		t.Error(r.Text)
	}
	for name, files := range map[string]map[string]string{
		"a.service": {"a.service": "[Service]\nExecStart=/x\nSockets=b.socket\n"},
		"b.socket":  {"b.socket": "[Socket]\nListenStream=7\n"},
	} {
		if _, err := unitFiles(t, name, files); err == nil ||
			!strings.Contains(err.Error(), "convert them from one directory") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
