package convert

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/rogpeppe/go-internal/txtar"

	"example.org/supervisord/internal/convert/source"
	"example.org/supervisord/internal/lab/must"
)

// TestStories converts the sources of testdata/stories. A file "convert KIND NAME" or "convert NAME" is a source, as is
// the command line "convert $ WORDS"; behind it come lines that the result has and lacks, or that the error has, in
// which \n is a line break. Files "file NAME" are in the directory that the sources of the story read.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", tells)
}

// tells checks each source of a story.
func tells(t *testing.T, path string) {
	archive := must.Get(txtar.ParseFile(path))(t)
	dir, result, text := t.TempDir(), error(nil), ""
	told := func(wanted string, want bool) {
		t.Helper()
		for line := range strings.Lines(wanted) {
			line = strings.ReplaceAll(strings.TrimSuffix(line, "\n"), `\n`, "\n")
			if strings.Contains(text, line) != want {
				t.Errorf("%q: %v, want %v in\n%s", line, !want, want, text)
			}
		}
	}
	for _, f := range archive.Files {
		what, rest, _ := strings.Cut(f.Name, " ")
		if what != "error" && result != nil {
			t.Errorf("before %q: %v\n%s", f.Name, result, text)
		}
		switch what {
		case "file":
			write(t, filepath.Join(dir, rest), string(f.Data))
		case "convert":
			text, result = converted(t, dir, rest, string(f.Data))
		case "has":
			told(string(f.Data), true)
		case "lacks":
			told(string(f.Data), false)
		case "error":
			if result == nil {
				t.Errorf("no error %q, but\n%s", f.Data, text)
				continue
			}
			text, result = result.Error(), nil
			told(string(f.Data), true)
		default:
			t.Fatalf("%q is neither file, convert, has, lacks nor error", f.Name)
		}
	}
	if result != nil {
		t.Errorf("%v\n%s", result, text)
	}
}

// converted converts a source of a story, and checks the result as `supervisord check` does.
func converted(t *testing.T, dir, name, text string) (string, error) {
	t.Helper()
	s := source.Input{Name: name, Text: text}
	if kind, name, ok := strings.Cut(name, " "); kind == "$" {
		s = source.Input{Args: strings.Fields(name)}
	} else if ok {
		s.Kind, s.Name = source.SourceKind(kind), name
	}
	r, err := Convert(s, elsewhere(dir))
	if err == nil {
		err = check(t, r)
	}
	return r.Text, err
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
}

func TestOrdinaryUsersProgramIsToldToBind(t *testing.T) {
	w := elsewhere("testdata")
	w.Ordinary = true
	for text, bind := range map[string]bool{
		"[Service]\nExecStart=/srv/web --port 80\n":                      true,
		"[Service]\nExecStart=/srv/web --port 80\nNoNewPrivileges=yes\n": false, "[Service]\nExecStart=/srv/web\n": false,
		"[Service]\nExecStart=/srv/web\n[Socket]\nListenStream=80\n": false,
	} {
		r, err := Convert(source.Input{Kind: source.Systemd, Name: "web.service", Text: text}, w)
		if err != nil || strings.Contains(r.Text, "bind      = \"on\"") != bind {
			t.Errorf("%q: %v\n%s", text, err, r.Text)
		}
	}
}

func TestStageOfPM2IsChosen(t *testing.T) {
	const text = `{"apps": [{"script": "a.js", "env": {"A": 1, "B": 1}, "env_production": {"B": 2}, "env_test": {"B": ` +
		`3}}]}`
	r, err := Convert(source.Input{Name: "ecosystem.json", Stage: "production", Text: text}, elsewhere("testdata"))
	for _, line := range []string{`A = "1"`, `B = "2"`, "convert with --env test"} {
		if err != nil || !strings.Contains(r.Text, line) {
			t.Errorf("%v, no %s in\n%s", err, line, r.Text)
		}
	}
}
