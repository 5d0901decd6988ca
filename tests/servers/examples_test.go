package servers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

// every returns the names of all examples.
func every(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(examples, "*.toml"))
	lab.Must(t, err)
	if len(files) == 0 {
		t.Fatal("no examples found")
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".toml"))
	}
	return names
}

func TestEveryExampleIsAValidConfiguration(t *testing.T) {
	t.Parallel()
	for _, name := range every(t) {
		s := prepareFrom(t, examples, name)
		out, code := s.run("check")
		for line := range strings.Lines(out) {
			// on this machine
			notInstalled := strings.Contains(line, ": there is no /") || strings.Contains(line, " in PATH, which is ")
			note := strings.Contains(line, ": note: ") && strings.Contains(line, "the generations share the listener")
			if line != "ok\n" && !notInstalled && !note {
				t.Errorf("%s.toml: %s", name, line)
			}
		}
		if code != 0 {
			t.Errorf("%s.toml: exit code %d", name, code)
		}
	}
}

func TestEveryExampleIsDescribedAndListed(t *testing.T) {
	t.Parallel()
	table, err := os.ReadFile("../../docs/servers.md")
	lab.Must(t, err)
	for _, name := range every(t) {
		text, err := os.ReadFile(filepath.Join(examples, name+".toml"))
		lab.Must(t, err)
		if !strings.HasPrefix(string(text), "# ") {
			t.Errorf("%s.toml does not begin with a description", name)
		}
		if !strings.Contains(string(table), "examples/servers/"+name+".toml") {
			t.Errorf("docs/servers.md does not name examples/servers/%s.toml", name)
		}
	}
}

func TestEveryExampleIsTested(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{"tftpd": true, "aioquic": true, "nginx-quic": true}
	for _, c := range table() {
		tested[c.example] = true
	}
	for _, name := range every(t) {
		if !tested[name] {
			t.Errorf("no test opens examples/servers/%s.toml", name)
		}
		delete(tested, name)
	}
	for name := range tested {
		t.Errorf("the test opens examples/servers/%s.toml, which is not there", name)
	}
}
