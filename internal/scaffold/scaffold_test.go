package scaffold

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/supervisord/internal/config"
)

// project makes a directory shop with files: NAME=TEXT, and NAME! for an executable one.
func project(t *testing.T, files ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "shop")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name, text, _ := strings.Cut(file, "=")
		mode := os.FileMode(0o644)
		if n, is := strings.CutSuffix(name, "!"); is {
			name, mode = n, 0o755
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestProgramIsFoundByItsProject(t *testing.T) {
	for _, c := range []struct {
		files      []string
		name, want string
		lines      string // in the configuration
	}{
		{[]string{"go.mod=module example.com/a/web/v2\n", "main.go="}, "web", "./web", `command = ["./web"]`},
		{[]string{"go.mod=module example.com/a\n", "cmd/api/main.go="}, "api", "./bin/api", `address = "127.0.0.1:8080"`},
		{[]string{`package.json={"name":"@me/till","scripts":{"start":"node server.js --port 80"}}`}, "till", "node server.js --port 80", `method = "accept"`},
		{[]string{`package.json={"scripts":{"start":"NODE_ENV=production node ."}}`}, "shop", "sh -c exec NODE_ENV=production node .", "listen"},
		{[]string{`package.json={"name":"x"}`, "index.js="}, "x", "node index.js", "listen"},
		{[]string{"manage.py=", "till/wsgi.py="}, "till", "gunicorn till.wsgi:application", `method = "notify"`},
		{[]string{"manage.py=", "till/wsgi.py=", "venv/bin/gunicorn!="}, "till", "venv/bin/gunicorn till.wsgi:application", `"till.wsgi:application"`},
		{[]string{"Gemfile=gem 'rails'\ngem \"puma\", \"~> 6\"\n"}, "shop", "bundle exec puma", "--bind-to-activated-sockets"},
		{[]string{"pom.xml=<project><artifactId>till</artifactId><version>1.2</version></project>"}, "till", "java -jar target/till-1.2.jar", "till-1.2"},
		{[]string{"Cargo.toml=[package]\nname = \"till\"\n"}, "till", "target/release/till", "listen"},
		{[]string{"server!=", "README=", ".hidden!="}, "server", "./server", `command = ["./server"]`},
	} {
		dir := project(t, c.files...)
		found, err := Find(dir)
		if err != nil || found.Name != c.name || strings.Join(found.Command, " ") != c.want {
			t.Errorf("%q: got %+v, %v, want %s: %s", c.files, found, err, c.name, c.want)
			continue
		}
		text, todo := found.Configuration("")
		if !strings.Contains(text, c.lines) || strings.Contains(text, "\n\n\n") {
			t.Errorf("%q: the configuration lacks %s:\n%s", c.files, c.lines, text)
		}
		if _, err := config.Parse(dir, "c.toml", []byte(text)); err != nil {
			t.Errorf("%q: %v", c.files, err)
		}
		if found.Build != "" && !strings.Contains(strings.Join(todo, "\n"), found.Build) {
			t.Errorf("%q: nothing says how to build it: %q", c.files, todo)
		}
	}
}

func TestDirectoryWithoutAProgramIsAnErrorThatSaysWhatToDo(t *testing.T) {
	for _, c := range []struct {
		files []string
		want  string
	}{
		{nil, "supervisord init -- ./server"},
		{[]string{"README=", "package.json=x", "go.mod=x", "pom.xml=x", "Cargo.toml=x", "manage.py="}, "supervisord init -- ./server"},
		{[]string{"a!=", "b!="}, "several executable files (a, b)"},
		{[]string{"Procfile=web: x", "go.mod=module a"}, "supervisord convert "},
	} {
		if found, err := Find(project(t, c.files...)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %+v, %v, want %q", c.files, found, err, c.want)
		}
	}
}

func TestNamedCommandIsKeptWordByWord(t *testing.T) {
	found := Named("/srv/x", []string{"./my server.sh", `a "b"`, ""})
	text, _ := found.Configuration("/srv/x")
	c, err := config.Parse("/srv/x", "c.toml", []byte(text))
	if err != nil || c.Programs[0].Name != "my-server" || strings.Join(c.Programs[0].Command, "|") != `./my server.sh|a "b"|` || c.Programs[0].Directory != "/srv/x" {
		t.Errorf("%v\n%s", err, text)
	}
}
