package servers

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"example.org/supervisord/internal/config"
)

const examples = "../../examples/servers"

// TestTableSaysTheSameAsTheExamples compares each example with what the table makes of its command: [program.NAME] with the server's settings
// must be the example's program, apart from what is the example's own.
func TestTableSaysTheSameAsTheExamples(t *testing.T) {
	unrecognizable := []string{"go-activation.toml", "rust.toml", "tftpd.toml"} // programs of the user's, and a server for datagrams
	files, err := filepath.Glob(examples + "/*.toml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		c, err := config.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range c.Programs {
			s, ok := Recognize(p.Command)
			switch {
			case slices.Contains(unrecognizable, filepath.Base(file)):
				continue
			case !ok:
				t.Errorf("%s: %s is not recognized", file, p.Command)
				continue
			}
			seen[s.Example] = true
			compare(t, file, &p, s)
		}
	}
	for _, s := range table() {
		if s.Inherits() && !seen[s.Example] {
			t.Errorf("%s: no program of %s is recognized", s.Name, s.Example)
		}
	}
}

// compare builds the program of an example from the table and compares the two.
func compare(t *testing.T, file string, p *config.Program, s *Server) {
	t.Helper()
	if s.Hooked != nil && filepath.Base(file) == s.Example {
		hooked := *s
		hooked.Settings = s.Hooked
		s = &hooked
	}
	var listen []Listen
	for _, l := range p.Listen {
		listen = append(listen, Listen{l.Name, l.Address.String()})
	}
	text := fmt.Sprintf("[program.%s]\ncommand = [\"x\"]\ndirectory = %q\n%s", p.Name, p.Directory, s.Lines(p.Name, listen))
	built, err := config.Parse(filepath.Dir(file), file, []byte(text))
	if err != nil {
		t.Fatalf("%s: %v\n%s", file, err, text)
	}
	got := built.Programs[0]
	if !reflect.DeepEqual(got.Ready, p.Ready) || !reflect.DeepEqual(got.Stop, p.Stop) || !slices.Equal(got.Dialects, p.Dialects) ||
		!reflect.DeepEqual(got.Listen, p.Listen) || !reflect.DeepEqual(got.Drain, p.Drain) || !reflect.DeepEqual(got.Reload, p.Reload) {
		t.Errorf("%s: %s has\n%+v\nthe table makes\n%+v", file, p.Name, *p, got)
	}
}

// TestAdaptedCommandsAreTheExamples: what an adapted command adds is what the example has.
func TestAdaptedCommandsAreTheExamples(t *testing.T) {
	for file, before := range map[string]string{
		"gunicorn.toml": "gunicorn --workers 4 --bind 127.0.0.1:8111 app:app", "starman.toml": "/usr/bin/starman --workers 10 --port 8105 starman/app.psgi",
		"starlet.toml": "/usr/bin/plackup -s Starlet --max-workers 10 -a starlet/app.psgi -p 8106",
	} {
		c, err := config.Load(filepath.Join(examples, file))
		if err != nil {
			t.Fatal(err)
		}
		argv := strings.Fields(before)
		s, _ := Recognize(argv)
		want, got := slices.Sorted(slices.Values(c.Programs[0].Command)), slices.Sorted(slices.Values(s.Adapt(argv, World{}).Argv))
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%q\nhas\n%q", file, got, want)
		}
	}
}

func TestEveryServerIsOnItsPage(t *testing.T) {
	for _, s := range table() {
		file, anchor, _ := strings.Cut(s.Page, "#")
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		found := anchor == ""
		for line := range strings.Lines(string(text)) {
			if title, ok := strings.CutPrefix(line, "### "); ok {
				found = found || strings.ReplaceAll(strings.ToLower(strings.TrimSpace(title)), " ", "-") == anchor
			}
		}
		if !found {
			t.Errorf("%s: %s has no such heading", s.Name, s.Page)
		}
		if !s.Inherits() && s.Remedy == "" {
			t.Errorf("%s cannot inherit, and nothing says what to do", s.Name)
		}
	}
}

func TestServersAreRecognizedByTheirCommands(t *testing.T) {
	for command, want := range map[string]string{
		"gunicorn app:app":                             "gunicorn",
		"/srv/venv/bin/gunicorn -c x.py app":           "gunicorn",
		"python -m gunicorn app:app":                   "gunicorn",
		"/srv/venv/bin/python3.11 -u -m uvicorn a:b":   "uvicorn",
		"python3 /srv/venv/bin/hypercorn a:b":          "hypercorn",
		"env A=1 B=2 nice -n 10 poetry run gunicorn x": "gunicorn",
		"bundle exec puma -C config/puma.rb":           "Puma",
		"bundle exec unicorn_rails -c x":               "unicorn",
		"bin/rails server -b 0.0.0.0":                  "Rails",
		"bundle exec rails s":                          "Rails",
		"plackup -s Starman app.psgi":                  "Starman",
		"plackup --server=Starlet app.psgi":            "Starlet",
		"plackup app.psgi":                             "plackup's development server",
		"gosu www-data uwsgi --ini x.ini":              "uWSGI",
		"/usr/sbin/nginx -g 'daemon off;'":             "nginx",
		"/usr/sbin/php-fpm8.2 -F":                      "PHP-FPM",
		"node --max-old-space-size=512 server.js":      "Node",
		"node_modules/.bin/next start -p 3000":         "Next.js",
		"npx next start":                               "Next.js",
		"npm run start":                                "a script of package.json",
		"python3 -m http.server 8000":                  "Python's http.server",
		"python manage.py runserver":                   "Django's development server",
		"flask --app x run":                            "Flask's development server",
		"php artisan serve":                            "",
		"php -S 0:8000":                                "PHP's development server",
		"newrelic-admin run-program gunicorn x":        "gunicorn",
		"caddy run --config x":                         "Caddy",
		"dumb-init -- /usr/bin/java -jar x.jar":        "Java",
		"./web":                                        "",
		"python worker.py":                             "",
		"celery -A x worker":                           "",
		"node --version":                               "",
		"bundle install":                               "",
		"rails runner x":                               "",
		"":                                             "",
		"bundle exec":                                  "",
		"env":                                          "",
		"python":                                       "",
		"gosu":                                         "",
	} {
		if s, ok := Recognize(strings.Fields(command)); ok != (want != "") || ok && s.Name != want {
			t.Errorf("%s: %v, want %q", command, s, want)
		}
	}
	for script, want := range map[string]string{"exec gunicorn app:app": "gunicorn", "cd /srv && A=1 exec bundle exec puma": "Puma", `exec /usr/sbin/nginx -g "x"`: "nginx", "true; ./x": ""} {
		if s, ok := Recognize([]string{"/bin/sh", "-c", script}); ok != (want != "") || ok && s.Name != want {
			t.Errorf("sh -c %s: %v", script, s)
		}
	}
}

func TestCommandsAreAdaptedToInheritedSockets(t *testing.T) {
	files := map[string]string{
		"unix.py": "bind = 'unix:run/g.sock'  # for nginx\n", "config/puma.rb": `port ENV.fetch("PORT") { 3000 }` + "\n", "u.rb": "listen \"127.0.0.1:8080\", backlog: 64\nlisten '/run/u.sock'\n",
		"env.rb": `port ENV.fetch("PORT", 4000)`, "/etc/nginx/nginx.conf": "http {\n include mime.types;\n include sites/*;\n}\n",
		"/etc/nginx/sites/a": "server {\n  listen 80 default_server;\n  listen [::]:80;\n  listen 443 ssl;\n}", "odd.py": "bind = f'0.0.0.0:{port}'",
		"unix.conf": "[www]\nlisten = /run/php.sock\n", "pool.conf": "[www]\nlisten = 127.0.0.1:9000\n",
	}
	w := World{
		Read: func(path string) (string, error) {
			if text, ok := files[path]; ok {
				return text, nil
			}
			return "", os.ErrNotExist
		},
		Glob: func(pattern string) (found []string, err error) {
			for name := range files {
				if ok, _ := filepath.Match(pattern, name); ok {
					found = append(found, name)
				}
			}
			return found, nil
		},
		Getenv: func(name string) string { return map[string]string{"PORT": ""}[name] },
	}
	for _, c := range []struct{ before, after, listen string }{
		{"gunicorn --bind 0.0.0.0:8000 --workers=3 app:app", "gunicorn --preload --graceful-timeout 25 --workers=3 app:app", "0.0.0.0:8000"},
		{"gunicorn -b unix:/run/a.sock -b :8000 --graceful-timeout=9 --preload app:app", "gunicorn --graceful-timeout=9 --preload app:app", "unix:/run/a.sock 0.0.0.0:8000"},
		{"gunicorn app:app -D -p /run/x.pid -b127.0.0.1:80", "gunicorn --preload --graceful-timeout 25 app:app", "127.0.0.1:80"},
		{"gunicorn -c unix.py app", "gunicorn --preload --graceful-timeout 25 -c unix.py app", "unix:run/g.sock"},
		{"gunicorn -c odd.py app", "", ""},
		{"gunicorn -c missing.py app", "", ""},
		{"gunicorn app", "gunicorn --preload --graceful-timeout 25 app", "127.0.0.1:8000"},
		{"gunicorn -b fd://3 app", "", ""},
		{"gunicorn -b 0.0.0.0:$PORT app", "", ""},
		{"python -m uvicorn a:b --host 0.0.0.0 --port=80 --workers 4", "python -m uvicorn --fd {fd:http} a:b", "0.0.0.0:80"},
		{"uvicorn a:b --uds /run/u.sock", "uvicorn --fd {fd:http} a:b", "unix:/run/u.sock"},
		{"uvicorn a:b --host ::1", "uvicorn --fd {fd:http} a:b", "[::1]:8000"},
		{"hypercorn -b 0.0.0.0:80 -b [::]:80 a:b", "hypercorn --bind fd://{fd:http} --bind fd://{fd:http2} a:b", "0.0.0.0:80 [::]:80"},
		{"uwsgi --http :9090 --die-on-term --wsgi-file a.py --master", "uwsgi --http-socket fd://{fd:http} --need-app --hook-master-start unix_signal:15 gracefully_kill_them_all " +
			"--worker-reload-mercy 25 --add-header Connection: close --wsgi-file a.py --master", "0.0.0.0:9090"},
		{"uwsgi --ini x.ini", "", ""},
		{"puma -b tcp://0.0.0.0:9292?low_latency=true -w 2", "puma --bind-to-activated-sockets only", "0.0.0.0:9292"},
		{"puma", "puma --bind-to-activated-sockets only", "0.0.0.0:3000"},
		{"puma -C env.rb", "puma --bind-to-activated-sockets only -C env.rb", "0.0.0.0:4000"},
		{"puma -b ssl://0.0.0.0:443?key=k", "", ""},
		{"bundle exec rails server -b 127.0.0.1 -p 4000 -e production -P x.pid", "bundle exec puma --bind-to-activated-sockets only -e production", "127.0.0.1:4000"},
		{"unicorn -c u.rb", "unicorn --listen 127.0.0.1:8080 --listen /run/u.sock -c u.rb", "127.0.0.1:8080 unix:/run/u.sock"},
		{"unicorn -l 8080 -D", "unicorn --listen 8080", "0.0.0.0:8080"},
		{"starman --listen :5001 --pid x app.psgi", "starman --disable-keepalive app.psgi", "0.0.0.0:5001"},
		{"/usr/sbin/nginx -g pid=x", "sh -c exec '/usr/sbin/nginx' -g 'pid=x daemon off; pid /run/nginx.'\"$SUPERVISORD_GENERATION.pid;\"", "0.0.0.0:80 [::]:80 0.0.0.0:443"},
		{"php-fpm -F -y pool.conf", "php-fpm --nodaemonize -y pool.conf", "127.0.0.1:9000"},
		{"php-fpm -F -y unix.conf", "", ""}, // it removes the path when it ends
		{"php-cgi -b 127.0.0.1:9000", "php-cgi", "127.0.0.1:9000"},
		{"node server.js", "", ""},
		{"sh -c gunicorn", "", ""},
		{"flask run", "", ""},
	} {
		argv := strings.Fields(c.before)
		s, ok := Recognize(argv)
		if !ok {
			t.Errorf("%s is not recognized", c.before)
			continue
		}
		got := s.Adapt(argv, w)
		var listen []string
		for _, l := range got.Listen {
			listen = append(listen, l.Address)
		}
		after := strings.Join(got.Argv, " ")
		if c.listen == "" {
			c.after = c.before
		}
		if after != c.after || strings.Join(listen, " ") != c.listen {
			t.Errorf("%s:\n%s at %s\nwant\n%s at %s\n%q", c.before, after, listen, c.after, c.listen, got.Notes)
		}
	}
}

func TestWorkersOfTheCommandBecomeSupervisords(t *testing.T) {
	s, _ := Recognize([]string{"uvicorn"})
	if c := s.Adapt(strings.Fields("uvicorn --workers 4 a:b"), World{}); c.Workers != 4 {
		t.Error(c)
	}
}

func FuzzAdapt(f *testing.F) {
	f.Add("gunicorn -b 0.0.0.0:80 app")
	f.Add("env A=1 bundle exec rails s -p")
	f.Add("nginx -g")
	f.Add("sh -c ; -c")
	f.Fuzz(func(t *testing.T, command string) {
		argv := strings.Fields(command)
		if s, ok := Recognize(argv); ok {
			if c := s.Adapt(argv, World{}); len(c.Argv) == 0 || len(c.Listen) == 0 && !slices.Equal(c.Argv, argv) {
				t.Errorf("%+v", c)
			}
		}
	})
}
