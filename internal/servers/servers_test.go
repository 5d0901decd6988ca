package servers

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
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
		c, err := config.Load(file)
		if err != nil {
			t.Fatal(err)
		}
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
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
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

var ofServers = map[string]string{
	"unix.py": "bind = 'unix:run/g.sock'  # for nginx\n", "config/puma.rb": `port ENV.fetch("PORT") { 3000 }` + "\n",
	"u.rb":                  "listen \"127.0.0.1:8080\", backlog: 64\nlisten '/run/u.sock'\n",
	"env.rb":                `port ENV.fetch("PORT", 4000)`,
	"/etc/nginx/nginx.conf": "http {\n include mime.types;\n include sites/*;\n}\n",
	"/etc/nginx/sites/a":    "server {\n  listen 80 default_server;\n  listen [::]:80;\n  listen 443 ssl;\n}",
	"odd.py":                "bind = f'0.0.0.0:{port}'", "empty.py": "workers = 4\n",
	"unix.conf": "[www]\nlisten = /run/php.sock\n", "pool.conf": "[www]\nlisten = 127.0.0.1:9000\n",
	"own.conf":                  "daemon off;\npid x.pid;\nhttp { server {\nlisten 81;\n} }\n",
	"/etc/apache2/apache2.conf": "Include ports.conf\n",
	"/etc/apache2/ports.conf":   "Listen 80\n<IfModule ssl_module>\n  Listen 443\n</IfModule>\n",
	"h.cfg":                     "frontend a\n  bind *:80\n  bind 127.0.0.1:8404\n", "/etc/redis.conf": "port 6380\n",
}

func TestCommandsStayAsTheyAre(t *testing.T) {
	for _, c := range []struct{ before, after, listen string }{ // after: "" for the same
		{"gunicorn --bind 0.0.0.0:8000 --workers=3 app:app", "", "0.0.0.0:8000"},
		{"gunicorn -b unix:/run/a.sock -b :8000 --graceful-timeout=9 app:app", "", "unix:/run/a.sock 0.0.0.0:8000"},
		{"gunicorn app:app -D -p /run/x.pid -b127.0.0.1:80", "gunicorn app:app -b127.0.0.1:80", "127.0.0.1:80"},
		{"gunicorn -c unix.py app", "", "unix:run/g.sock"},
		{"gunicorn -c odd.py app", "", ""},
		{"gunicorn -c empty.py app", "", "127.0.0.1:8000"},
		{"gunicorn -c missing.py app", "", ""},
		{"gunicorn app", "", "127.0.0.1:8000"},
		{"gunicorn -b fd://3 app", "", ""},
		{"gunicorn -b 0.0.0.0:$PORT app", "", ""},
		{"python -m uvicorn a:b --host 0.0.0.0 --port=80 --workers 4", "", "0.0.0.0:80"},
		{"uvicorn a:b --uds /run/u.sock", "uvicorn a:b --fd {fd:http}", "unix:/run/u.sock"},
		{"uvicorn a:b --host ::1", "", "[::1]:8000"},
		{"hypercorn -b 0.0.0.0:80 -b [::]:80 a:b", "", "0.0.0.0:80 [::]:80"},
		{"hypercorn --bind=unix:/run/u.sock a:b", "hypercorn --bind fd://{fd:http} a:b", "unix:/run/u.sock"},
		{"uwsgi --http :9090 --die-on-term --wsgi-file a.py --master", "", "0.0.0.0:9090"},
		{"uwsgi -s /run/u.sock --wsgi-file a.py", "uwsgi -s fd://{fd:http} --wsgi-file a.py", "unix:/run/u.sock"},
		{"uwsgi --ini x.ini", "", ""},
		{"puma -b tcp://0.0.0.0:9292?low_latency=true -w 2", "", "0.0.0.0:9292"},
		{"puma", "", "0.0.0.0:3000"},
		{"puma -C env.rb", "", "0.0.0.0:4000"},
		{"puma -b ssl://0.0.0.0:443?key=k", "", ""},
		{"bundle exec rails server -b 127.0.0.1 -p 4000 -e production -P x.pid",
			"bundle exec rails server --pid tmp/pids/server.{generation}.{slot}.pid -b 127.0.0.1 -p 4000 -e production",
			"127.0.0.1:4000"},
		{"unicorn -c u.rb", "", "127.0.0.1:8080 unix:/run/u.sock"},
		{"unicorn -l 8080 -D", "unicorn -l 8080", "0.0.0.0:8080"},
		{"starman --listen :5001 --pid x app.psgi", "starman --disable-keepalive --listen :5001 app.psgi", "0.0.0.0:5001"},
		{"/usr/sbin/nginx -g pid=x", "/usr/sbin/nginx -g pid=x; daemon off; pid /run/nginx.{generation}.{slot}.pid;",
			"0.0.0.0:80 [::]:80 0.0.0.0:443"},
		{"nginx -c own.conf", "", "0.0.0.0:81"},
		{"php-fpm -F -y pool.conf", "", "127.0.0.1:9000"},
		{"php-fpm -y pool.conf", "php-fpm --nodaemonize -y pool.conf", "127.0.0.1:9000"},
		{"php-fpm -F -y unix.conf", "", ""}, // it removes the path when it ends
		{"php-cgi -b 127.0.0.1:9000", "", "127.0.0.1:9000"},
		{"apache2 -DFOREGROUND", "apache2 -c PidFile /run/apache2.{generation}.{slot}.pid -DFOREGROUND", "0.0.0.0:80"},
		{"haproxy -Ws -f h.cfg -p /run/h.pid", "haproxy -Ws -f h.cfg", "0.0.0.0:80 127.0.0.1:8404"},
		{"redis-server /etc/redis.conf", "", "0.0.0.0:6380"},
		{"node server.js", "", ""},
		{"sh -c gunicorn", "", "127.0.0.1:8000"},
		{"flask run", "", "127.0.0.1:5000"},
	} {
		argv := strings.Fields(c.before)
		got := Read(argv, project(ofServers))
		if got.Server == nil && argv[0] != "sh" {
			t.Errorf("%s is not recognized", c.before)
		}
		want := cmp.Or(c.after, c.before)
		if after := strings.Join(got.Argv, " "); after != want || addresses(got) != c.listen ||
			(c.after != "") != (len(got.Changes) > 0) {
			t.Errorf("%s:\n%s at %s\nwant\n%s at %s\n%q", c.before, after, addresses(got), want, c.listen, got.Changes)
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
	f.Fuzz(func(t *testing.T, command string) {
		argv := strings.Fields(command)
		c := Read(argv, project(ofServers))
		if len(c.Argv) < min(len(argv), 1) || len(c.Changes) == 0 && !slices.Equal(c.Argv, argv) {
			t.Errorf("%+v", c)
		}
		c.Trim()
	})
}
