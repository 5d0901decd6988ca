package servers

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/worker/ready"
)

const examples = "../../examples/servers"

// TestTableSaysTheSameAsTheExamples compares the table with the configurations in examples/servers, which tests run
// under load.
func TestTableSaysTheSameAsTheExamples(t *testing.T) {
	files, err := filepath.Glob(examples + "/*.toml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	seen := 0
	for _, file := range files {
		c := must.Get(config.Load(file))(t)
		for _, p := range c.Programs {
			s, ok := Recognize(p.Command)
			if !ok || len(p.Stop.Steps) > 1 {
				continue // a program of the user's, or one that stops in steps
			}
			seen++
			want := p.Stop.Steps[0].Signal
			if signal := unix.SignalNum("SIG" + s.Signal); s.Signal != "" && signal != want &&
				s.Name != "uWSGI" { // whose example has a hook
				t.Errorf("%s stops by %s, and %s says %v", s.Name, s.Signal, file, want)
			}
			if s.Signal == "" && want != unix.SIGTERM {
				t.Errorf("%s stops by any signal, and %s says %v", s.Name, file, want)
			}
			if none := p.Dialects != nil && len(p.Dialects) == 0; none != (s.Untold != "") {
				t.Errorf("%s may be told about its sockets, unless %q, and %s says %v", s.Name, s.Untold, file, p.Dialects)
			}
			if s.Ready == notify && p.Ready.Method != ready.Notify { // the others may be set up to notify
				t.Errorf("%s notifies, and %s says %v", s.Name, file, p.Ready.Method)
			}
		}
	}
	if seen < 10 {
		t.Errorf("%d programs of the examples are recognized", seen)
	}
}

func TestEveryServerIsOnItsPage(t *testing.T) {
	for _, s := range table() {
		file, anchor, _ := strings.Cut(s.Page, "#")
		text := must.Get(os.ReadFile("../../" + file))(t)
		found := anchor == ""
		for line := range strings.Lines(string(text)) {
			if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && line[0] == '#' {
				found = found || strings.ReplaceAll(strings.ToLower(strings.TrimSpace(title)), " ", "-") == anchor
			}
		}
		if !found {
			t.Errorf("%s: %s has no such heading", s.Name, s.Page)
		}
		if s.Ready != notify && s.Ready != accept {
			t.Errorf("%s is ready by %q", s.Name, s.Ready)
		}
	}
}

func TestServersAreRecognizedByTheirCommands(t *testing.T) {
	for _, c := range rows(t, "recognized") {
		if s, ok := Recognize(strings.Fields(c[0])); ok != (c[1] != "-") || ok && s.Name != c[1] {
			t.Errorf("%s: %v, want %q", c[0], s, c[1])
		}
	}
	for script, want := range map[string]string{"exec gunicorn app:app": "gunicorn",
		"cd /srv && A=1 exec bundle exec puma": "Puma", `exec /usr/sbin/nginx -g "x"`: "nginx", "true; ./x": ""} {
		if s, ok := Recognize([]string{"/bin/sh", "-c", script}); ok != (want != "") || ok && s.Name != want {
			t.Errorf("sh -c %s: %v", script, s)
		}
	}
}

// project is Surroundings with files.
func project(files map[string]string, variables ...string) Surroundings {
	return Surroundings{
		Read: func(path string) (string, error) {
			if text, ok := files[path]; ok {
				return text, nil
			}
			return "", os.ErrNotExist
		},
		Glob: func(pattern string) (found []string, err error) {
			for _, name := range slices.Sorted(maps.Keys(files)) {
				if ok, _ := filepath.Match(pattern, name); ok {
					found = append(found, name)
				}
			}
			return found, nil
		},
		Getenv: func(name string) string {
			for _, v := range variables {
				if value, ok := strings.CutPrefix(v, name+"="); ok {
					return value
				}
			}
			return ""
		},
	}
}

func addresses(c CommandLine) string {
	var all []string
	for _, l := range c.Listen {
		all = append(all, l.Address)
	}
	return strings.Join(all, " ")
}

// ofServers has the files of testdata/servers.txt.
func ofServers(t testing.TB) map[string]string {
	t.Helper()
	archive := must.Get(txtar.ParseFile("testdata/servers.txt"))(t)
	files := map[string]string{}
	for _, f := range archive.Files {
		files[f.Name] = string(f.Data)
	}
	return files
}

// rows returns the fields of the lines of a file of testdata/servers.txt.
func rows(t *testing.T, name string) (all [][]string) {
	t.Helper()
	for line := range strings.Lines(ofServers(t)[name]) {
		all = append(all, strings.Split(strings.TrimSuffix(line, "\n"), " | "))
	}
	if len(all) < 30 {
		t.Fatalf("%d lines of %s", len(all), name)
	}
	return all
}

func TestCommandsStayAsTheyAre(t *testing.T) {
	files := project(ofServers(t))
	for _, c := range rows(t, "commands") {
		before, after, listen := c[0], c[1], strings.TrimPrefix(c[2], "-")
		got := Read(strings.Fields(before), files)
		if got.Server == nil && !strings.HasPrefix(before, "sh ") {
			t.Errorf("%s is not recognized", before)
		}
		if after == "=" {
			after = before
		}
		if argv := strings.Join(got.Argv, " "); argv != after || addresses(got) != listen ||
			(after != before) != (len(got.Changes) > 0) {
			t.Errorf("%s:\n%s at %s\nwant\n%s at %s\n%q", before, argv, addresses(got), after, listen, got.Changes)
		}
	}
}

func TestVariableSaysThePortIfNothingElseDoes(t *testing.T) {
	files := map[string]string{"a.js": "app.listen(process.env.PORT || 3000)", "b.js": "app.listen(3001)"}
	for command, want := range map[string]string{
		"node a.js": "127.0.0.2:80", "node b.js": "0.0.0.0:3001", "node dist/c.js": "127.0.0.2:80", "./web": "127.0.0.2:80",
		"./web --port 81": "0.0.0.0:81", "gunicorn a": "127.0.0.2:80",
		"gunicorn -b :82 a": "0.0.0.0:82", "env PORT=83 ./web": "127.0.0.2:83", "sleep 5": "", "next start": "127.0.0.2:80",
	} {
		if got := addresses(Read(strings.Fields(command), project(files, "PORT=80", "HOST=127.0.0.2"))); got != want {
			t.Errorf("%s: %s, want %s", command, got, want)
		}
	}
	for script, want := range map[string]string{"cd x && exec ./web -p $PORT": "0.0.0.0:80",
		"./web --listen ${ADDR:-:84}": "0.0.0.0:84", "A=1 exec puma -p ${PORT:-1}": "0.0.0.0:80"} {
		if got := addresses(Read([]string{"sh", "-c", script}, project(nil, "PORT=80"))); got != want {
			t.Errorf("%s: %s, want %s", script, got, want)
		}
	}
}

func TestServerWhoseSocketsAreThereDoesNotNameThem(t *testing.T) {
	for before, after := range map[string]string{
		"gunicorn --bind unix:/run/a.sock -w 2 --bind=:80 a": "gunicorn -w 2 a",
		"puma -b tcp://0.0.0.0:80 --bind=unix:///x -t 2":     "puma -t 2", "uvicorn --fd 3 a": "uvicorn --fd 3 a",
		"gunicorn -D -b:80 a": "gunicorn a", "./web -b :80": "./web -b :80",
	} {
		c := Read(strings.Fields(before), Surroundings{})
		if argv, _ := c.Trim(); strings.Join(argv, " ") != after {
			t.Errorf("%s becomes %s, want %s", before, argv, after)
		}
	}
}

func TestTimeThatAServerTakesToStopIsKnown(t *testing.T) {
	for command, want := range map[string]time.Duration{"gunicorn a": 30 * time.Second,
		"gunicorn --graceful-timeout 7 a": 7 * time.Second, "uvicorn a:b": 0,
		"uvicorn --timeout-graceful-shutdown=9 a:b": 9 * time.Second} {
		if got := Read(strings.Fields(command), Surroundings{}).Stop; got != want {
			t.Errorf("%s: %v, want %v", command, got, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add("gunicorn -b 0.0.0.0:80 app")
	f.Add("env A=1 bundle exec rails s -p")
	f.Add("nginx -g")
	f.Add("sh -c ; -c")
	f.Add("uvicorn --uds")
	files := project(ofServers(f))
	f.Fuzz(func(t *testing.T, command string) {
		argv := strings.Fields(command)
		c := Read(argv, files)
		if len(c.Argv) < min(len(argv), 1) || len(c.Changes) == 0 && !slices.Equal(c.Argv, argv) {
			t.Errorf("%+v", c)
		}
		c.Trim()
	})
}
