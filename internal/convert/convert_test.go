package convert

import (
	"errors"
	goflag "flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/convert/source"
	"example.org/supervisord/internal/lab/must"
)

var update = goflag.Bool("update", false, "rewrite the golden files")

// elsewhere returns a World that is the same on every machine, with the files of dir in /srv/app.
func elsewhere(dir string) source.World {
	variables := map[string]string{"HOME": "/home/app", "STAGE": "production", "N": "3"}
	return source.World{
		Dir: "/srv/app", Host: "web1",
		Getenv: func(name string) (string, bool) { v, ok := variables[name]; return v, ok },
		Glob: func(pattern string) ([]string, error) {
			rest, ok := strings.CutPrefix(pattern, "/srv/app/")
			if !ok {
				return nil, nil
			}
			found, err := filepath.Glob(filepath.Join(dir, rest))
			for i := range found {
				found[i] = "/srv/app/" + strings.TrimPrefix(found[i], dir+"/")
			}
			return found, err
		},
		Read: func(path string) (string, error) {
			rest, ok := strings.CutPrefix(path, "/srv/app/")
			if !ok {
				return "", fs.ErrNotExist
			}
			data, err := os.ReadFile(filepath.Join(dir, rest))
			return string(data), err
		},
	}
}

// check checks a configuration as `supervisord check` does. It accepts users that this machine does not have, and a
// configuration without a program that would start.
func check(t testing.TB, r Result) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.toml")
	must.Do(t, os.WriteFile(path, []byte(r.Text), 0o600))
	c, err := config.Load(path)
	var refused *document.Error
	if err == nil {
		if len(c.Programs) != r.Programs {
			t.Errorf("%d programs, said to be %d", len(c.Programs), r.Programs)
		}
		return nil
	}
	if !errors.As(err, &refused) {
		return err
	}
	for _, p := range refused.Problems {
		if strings.HasPrefix(p.What, "there is no user") || strings.HasPrefix(p.What, "there is no group") ||
			strings.HasPrefix(p.What, "cannot look up the") ||
			p.What == "there is no program" && r.Programs == 0 {
			continue
		}
		return err
	}
	return nil
}

// goldenFiles returns the golden files: NAME.in is converted to NAME.toml, or to an error in NAME.err. The directory
// names the format.
func goldenFiles(t testing.TB) map[string]source.Input {
	paths, err := filepath.Glob("testdata/*/*.in")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	found := map[string]source.Input{}
	for _, path := range paths {
		text := must.Get(os.ReadFile(path))(t)
		found[path] = source.Input{Kind: source.SourceKind(filepath.Base(filepath.Dir(path))), Name: filepath.Base(path),
			Text: string(text)}
	}
	return found
}

func TestGoldenFiles(t *testing.T) {
	for path, s := range goldenFiles(t) {
		t.Run(strings.TrimPrefix(path, "testdata/"), func(t *testing.T) {
			isConverted(t, s, filepath.Dir(path), strings.TrimSuffix(path, ".in"))
		})
	}
}

// testdata/real has files as projects ship them, with other names: NAME is converted to NAME.toml, or rejected with
// NAME.err, beside what it reads. Its kind is recognized.
func TestRealFiles(t *testing.T) {
	converted, err := filepath.Glob("testdata/real/*/*.toml")
	if err != nil || len(converted) < 40 {
		t.Fatalf("%d real files are converted, %v", len(converted), err)
	}
	rejected, _ := filepath.Glob("testdata/real/*/*.err") //nolint:errcheck // the pattern is right
	for _, path := range append(converted, rejected...) {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			name := strings.TrimSuffix(path, filepath.Ext(path))
			text := must.Get(os.ReadFile(name))(t)
			isConverted(t, source.Input{Name: filepath.Base(name), Text: string(text)}, filepath.Dir(path), name)
		})
	}
}

// isConverted compares what is made of a source with golden.toml, or the error with golden.err.
func isConverted(t *testing.T, s source.Input, dir, golden string) {
	r, err := Convert(s, elsewhere(dir))
	file, got := golden+".toml", r.Text
	if err != nil {
		file, got = golden+".err", err.Error()+"\n"
	} else if refused := check(t, r); refused != nil {
		t.Errorf("check rejects it: %v\n%s", refused, r.Text)
	}
	if *update {
		os.WriteFile(file, []byte(got), 0o644)
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; it would be:\n%s", err, got)
	}
	if got != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestKindIsRecognizedByTheFile(t *testing.T) {
	for path, s := range goldenFiles(t) {
		want := s.Kind
		s.Kind = ""
		if want == source.Procfile {
			s.Name = "Procfile"
		}
		if strings.HasSuffix(path, "no-section.in") || strings.HasSuffix(path, "binary.in") {
			continue // this format cannot be recognized
		}
		if got, err := recognize(s); got != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
}

func TestKindIsRecognizedByTheFirstWord(t *testing.T) {
	for command, want := range map[string]source.SourceKind{
		"start_server": source.StartServer, "/usr/local/bin/start_server": source.StartServer, "foreman": source.Procfile,
		"honcho": source.Procfile,
	} {
		if got, err := recognize(source.Input{Args: []string{command, "x"}}); got != want {
			t.Errorf("%s: %q, %v", command, got, err)
		}
	}
	for _, s := range []source.Input{{Args: []string{"./app"}}, {Args: []string{}}, {Name: "x", Text: "nothing\n"},
		{Name: "x", Text: "[Service]\n[program:b]\n"}} {
		if got, err := recognize(s); err == nil ||
			!strings.Contains(err.Error(), "write for example") && !strings.Contains(err.Error(), "--from") {
			t.Errorf("%v: %q, %v", s, got, err)
		}
	}
}

func TestOversizedSourcesAreRejected(t *testing.T) {
	big := "[program:x]\ncommand=y " + strings.Repeat("z", source.MaxText)
	wide := "[program:x]\ncommand=y " + strings.Repeat("z ", source.MaxText/2-100)
	many := strings.Builder{}
	for range 8_000 {
		many.WriteString("[program:x]\n")
	}
	for _, text := range []string{big, wide, many.String()} {
		if _, err := Convert(source.Input{Kind: source.Supervisor, Name: "s", Text: text},
			elsewhere("testdata")); err == nil || !strings.Contains(err.Error(), "s:") {
			t.Errorf("%.40s…: %.200v", text, err)
		}
	}
}

// FuzzConvert checks that Convert returns for any source, that package config accepts the result, and that errors have
// positions.
func FuzzConvert(f *testing.F) {
	for _, s := range goldenFiles(f) {
		for i, k := range Kinds() {
			if s.Kind == k {
				f.Add(uint8(i), s.Text)
			}
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, text string) {
		s := source.Input{Kind: Kinds()[int(kind)%len(Kinds())], Name: "source", Text: text}
		if kind >= 128 {
			s = source.Input{Kind: s.Kind, Args: strings.Split(text, "\n")}
		}
		r, err := Convert(s, elsewhere("testdata/supervisor"))
		var refused *document.Error
		switch {
		case err == nil:
			if bad := check(t, r); bad != nil {
				t.Errorf("%v\n%s", bad, r.Text)
			}
		case !errors.As(err, &refused) || len(refused.Problems) == 0:
			t.Errorf("rejected with %T", err)
		}
	})
}
