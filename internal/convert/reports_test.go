package convert

import (
	"strings"
	"testing"

	"example.org/supervisord/internal/convert/source"
)

// converts is one source, and what its conversion has or lacks.
type converts struct {
	name, text string
	has, lacks []string
}

// expect converts sources, and checks the results as `supervisord check` does.
func expect(t *testing.T, kind source.SourceKind, all ...converts) {
	t.Helper()
	for _, c := range all {
		r, err := Convert(source.Input{Kind: kind, Name: c.name, Text: c.text}, elsewhere("testdata"))
		if err == nil {
			err = check(t, r)
		}
		if err != nil {
			t.Errorf("%q: %v\n%s", c.text, err, r.Text)
			continue
		}
		for _, want := range c.has {
			if !strings.Contains(r.Text, want) {
				t.Errorf("%q lacks %s:\n%s", c.text, want, r.Text)
			}
		}
		for _, not := range c.lacks {
			if strings.Contains(r.Text, not) {
				t.Errorf("%q has %s:\n%s", c.text, not, r.Text)
			}
		}
	}
}

func TestPathWithoutAModeIsForEverybodyAsBefore(t *testing.T) {
	const service = "[Service]\nExecStart=/srv/web\n"
	expect(t, source.Systemd,
		converts{name: "web.service", text: service + "[Socket]\nListenStream=/run/web.sock\n",
			has: []string{`mode    = "0666"`}},
		converts{name: "web.service", text: service + "[Socket]\nListenStream=/run/web.sock\nSocketMode=0600\n",
			has: []string{`mode    = "0600"`}, lacks: []string{"0666"}},
		converts{name: "web.service", text: service + "[Socket]\nListenStream=80\nListenStream=@web\n",
			lacks: []string{"mode "}},
		converts{name: "web.service", text: "[Service]\nExecStart=/usr/bin/gunicorn -b unix:/run/web.sock app:app\n",
			has: []string{`mode    = "0666"`}})
	expect(t, source.Procfile, converts{name: "Procfile", text: "web: uvicorn --uds /run/web.sock a:b\n",
		has: []string{`mode    = "0666"`}})
}

func TestTimeWithoutEndIsOneThatCheckAccepts(t *testing.T) {
	unit := func(lines string) string { return "[Service]\nExecStart=/srv/web\n" + lines }
	expect(t, source.Systemd,
		converts{name: "a.service", text: unit("TimeoutStartSec=0\n"), has: []string{`timeout = "8760h"`}},
		converts{name: "b.service", text: unit("TimeoutStartSec=infinity\nType=notify\n"),
			has: []string{`timeout = "8760h"`}},
		converts{name: "c.service", text: unit("TimeoutSec=infinity\n"),
			has: []string{`timeout = "8760h"`, `timeout = "infinity"`}},
		converts{name: "d.service", text: unit("RuntimeMaxSec=infinity\nWatchdogSec=0\n"),
			has: []string{"RuntimeMaxSec = infinity: not needed"}, lacks: []string{": no equivalent"}},
		converts{name: "e.service", text: unit("[Socket]\nListenStream=80\nDeferAcceptSec=0\nKeepAliveTimeSec=0\n"),
			lacks: []string{"no equivalent: defer", "no equivalent: keep"}})
}

func TestKeysThatAddUpAreNotOverridden(t *testing.T) {
	expect(t, source.Systemd,
		converts{name: "a.service", text: "[Unit]\nAfter=network.target\nAfter=redis.service\nAfter=\nWants=a.service\n" +
			"Wants=b.service\n[Service]\nExecStart=/x\n",
			has: []string{"After = redis.service: no equivalent", "Wants = a.service: no equivalent",
				"Wants = b.service: no equivalent"}, lacks: []string{"ignored"}},
		converts{name: "b.service", text: "[Service]\nExecStart=/x\nReadWritePaths=/a\nReadWritePaths=/b\n" +
			"SystemCallFilter=@a\nSystemCallFilter=~@b\n", lacks: []string{"ignored"}},
		converts{name: "c.service", text: "[Service]\nExecStart=/x\nUser=nobody\nUser=daemon\n",
			has: []string{`user      = "daemon"`, "User = nobody: ignored"}})
}

func TestProcessesOfAnFCGIProgramShareItsSocket(t *testing.T) {
	const head = "[fcgi-program:f]\nsocket=tcp://127.0.0.1:9000\nnumprocs=4\n" +
		"process_name=%(program_name)s_%(process_num)02d\n"
	expect(t, source.Supervisor,
		converts{name: "a", text: head + "command=/srv/f\nstdout_logfile=/var/log/f_%(process_num)d.log\n",
			has: []string{"[program.f]", "workers = 4", `address = "127.0.0.1:9000"`,
				"the workers of a program share this value"}, lacks: []string{"#[program", "f_01"}},
		converts{name: "b", text: head + "command=/srv/f --number %(process_num)02d\nnumprocs_start=1\n",
			has: []string{"workers = 4", `$(printf %02d \"$((SUPERVISORD_SLOT + 1))\")`}, lacks: []string{"#[program"}})
}

func TestEnvironmentOfSupervisordIsExpandedTwice(t *testing.T) {
	expect(t, source.Supervisor,
		converts{name: "a", text: "[supervisord]\nenvironment=A=\"50%%%%\",H=\"%(host_node_name)s\"\n" +
			"[program:x]\ncommand=y\n", has: []string{"A = \"50%\""}},
		converts{name: "b", text: "[supervisord]\nenvironment=A=\"x%%%%s\"\n[program:x]\ncommand=y %(ENV_A)s\n" +
			"environment=B=\"10%%\"\n", has: []string{`A = "x%s"`, `B = "10%"`, `"x%s"`}})
}

func TestProgramThatGoesIntoTheBackgroundGetsANote(t *testing.T) {
	const want = ": no equivalent: supervisord starts programs in the foreground"
	expect(t, source.Systemd,
		converts{name: "a.service", text: "[Service]\nType=simple\nExecStart=/usr/sbin/thing --daemon -c /etc/thing\n",
			has: []string{"--daemon" + want}},
		converts{name: "b.service", text: "[Service]\nExecStart=/usr/sbin/thing -- --daemon\n", lacks: []string{want}})
	expect(t, source.Supervisor, converts{name: "c", text: "[program:x]\ncommand=/srv/x --daemonize\n",
		has: []string{"--daemonize" + want}})
	expect(t, source.Procfile, converts{name: "Procfile", text: "web: ./x --background\n",
		has: []string{"--background" + want}})
}

func TestProgramOfAnImageIsCommentedOut(t *testing.T) {
	expect(t, source.Compose,
		converts{name: "compose.yaml", text: "services:\n  a:\n    image: vendor/app:1\n    command: --port 80\n",
			has: []string{"#[program.a]", "may have an ENTRYPOINT"}},
		converts{name: "compose.yaml",
			text: "services:\n  a:\n    image: vendor/app\n    entrypoint: [/docker-entrypoint.sh, serve]\n",
			has:  []string{"#[program.a]", "is in the image"}},
		converts{name: "compose.yaml", text: "services:\n  a:\n    image: python:3\n    command: gunicorn -b :8000 a:b\n",
			has: []string{"\n[program.a]"}},
		converts{name: "compose.yaml", text: "services:\n  a:\n    build: .\n    command: ./serve\n",
			has: []string{"\n[program.a]"}})
}

func TestOnlyAFileOfProcessesIsAProcfile(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		kind source.SourceKind
		want string // in the error
	}{
		"web.procs":   {"# all of it\nweb: ./web\nqueue: ./queue -v\n", source.Procfile, ""},
		"values":      {"image: nginx\nports:\n  - 80\n", "", "not a known kind"},
		"values.yaml": {"host: localhost\nport: 80\n", "", "not a known kind"},
		"passwd":      {"root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1::/:/bin/false\n", "", "not a known kind"},
		"web.toml":    {"[program.web]\ncommand = [\"x\"]\n", "", "supervisord check -c web.toml"},
		"settings":    {"[supervisor] # ours\nhttp = \":80\"\n", "", "supervisord's own configuration already"},
		"web.conf.j2": {"[program:web]\ncommand={{ app_dir }}/web\n", "", "template"},
		"web.service": {"[Service]\n{% if debug %}\nExecStart=/x\n{% endif %}\n", "", "template"},
		"puppet.conf": {"[program:web]\ncommand=<%= @bin %>\n", "", "template"},
		"Procfile":    {"web: helm {{ .Values.port }}\n", "", "template"},
		"ps.service": {"[Service]\nExecStart=/usr/bin/docker ps --format '{{.Names}} {{json .Ports}}'\n", source.Systemd,
			""},
		"shell.conf": {"[program:x]\ncommand=sh -c 'echo ${A} $((1+1)) {a,b}'\n", source.Supervisor, ""},
	} {
		r, err := Convert(source.Input{Name: name, Text: c.text}, elsewhere("testdata"))
		if c.want == "" && (err != nil || r.Kind != c.kind) || c.want != "" &&
			(err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %q, %v, want %q %s", name, r.Kind, err, c.kind, c.want)
		}
	}
}

func TestServerEndsByItselfBeforeKILL(t *testing.T) {
	unit := func(server, stop string) string {
		return "[Service]\nExecStart=/usr/bin/" + server + "\n" + stop
	}
	const gunicorn, cut = "gunicorn -b :80 a:b", "but KILL comes after "
	expect(t, source.Systemd,
		converts{name: "a.service", text: unit(gunicorn, "TimeoutStopSec=5\n"),
			has: []string{"it gives its requests 30s to end, " + cut + "5s", `timeout = "5s"`}},
		converts{name: "b.service", text: unit(gunicorn+" --graceful-timeout 3", "TimeoutStopSec=5\n"),
			has: []string{`timeout = "5s"`, `"--graceful-timeout", "3"`}, lacks: []string{cut}},
		converts{name: "c.service", text: unit(gunicorn, "TimeoutStopSec=120\n"), has: []string{`timeout = "120s"`},
			lacks: []string{cut}},
		converts{name: "d.service", text: unit(gunicorn+" --graceful-timeout 90", ""), has: []string{`timeout = "95s"`},
			lacks: []string{cut}})
	expect(t, source.Procfile, converts{name: "Procfile", text: "web: gunicorn a:b\n",
		has: []string{`timeout = "35s"`, `["gunicorn", "a:b"]`}})
}

func TestSocketThatIsConvertedIsNotMissing(t *testing.T) {
	const socket = "[Socket]\nListenStream=/run/web.sock\n"
	expect(t, source.Systemd,
		converts{name: "web.service", text: "[Unit]\nRequires=web.socket\nAfter=network.target web.socket\n[Service]\n" +
			"ExecStart=/usr/bin/gunicorn --bind unix:/run/web.sock a:b\n" + socket,
			has: []string{"Requires = web.socket: not needed", "After = network.target web.socket: not needed",
				"unix:/run/web.sock is removed from the command"},
			lacks: []string{`"--bind"`, "Requires = web.socket: no equivalent"}},
		converts{name: "web.service", text: "[Unit]\nRequires=db.service\n[Service]\n" +
			"ExecStart=/usr/bin/puma -b unix:///run/web.sock\n" + socket,
			has: []string{"Requires = db.service: no equivalent",
				`["/usr/bin/puma"]`}, lacks: []string{"unix:///run/web.sock\","}})
}

func TestWorkerOfAQueueNeedsNoListener(t *testing.T) {
	expect(t, source.Procfile,
		converts{name: "Procfile", text: "jobs: bundle exec sidekiq\n", lacks: []string{"stop-first", "opens its port"}},
		converts{name: "Procfile", text: "clock: celery -A tasks beat\n", has: []string{"stop-first", "twice"},
			lacks: []string{"opens its port"}})
	expect(t, source.Systemd, converts{name: "q.service",
		text: "[Service]\nExecStart=/srv/venv/bin/python manage.py rqworker\n", lacks: []string{"stop-first"}})
}

// TestProgramThatOpensItsPortIsNotStoppedFirst has programs that cannot inherit a socket, from every source.
func TestProgramThatOpensItsPortIsNotStoppedFirst(t *testing.T) {
	gone := []string{"stop-first", "LISTEN_FDS", "fd://", "{fd:"}
	expect(t, source.Systemd,
		converts{name: "a.service", text: "[Service]\nExecStart=/usr/bin/java -jar /srv/a.jar --server.port=9009\n",
			has: []string{`command   = ["/usr/bin/java", "-jar", "/srv/a.jar", "--server.port=9009"]`,
				`address = "0.0.0.0:9009"`, `method = "accept"`}, lacks: gone},
		converts{name: "b.service", text: "[Service]\nEnvironment=PORT=3000 HOST=127.0.0.1\nExecStart=/usr/bin/npm start\n",
			has: []string{`["/usr/bin/npm", "start"]`}},
		converts{name: "c.service", text: "[Service]\nExecStart=/srv/web --listen 127.0.0.1:80\nNoNewPrivileges=yes\n",
			has: []string{`address = "127.0.0.1:80"`}, lacks: gone},
		converts{name: "d.service", text: "[Service]\nExecStart=/usr/bin/redis-server --port 7000\n",
			has: []string{`address = "0.0.0.0:7000"`, "would write the same data", "stop-first"}})
	expect(t, source.Supervisor,
		converts{name: "a", text: "[program:x]\ncommand=python3 -m http.server 8000 --bind 127.0.0.1\n",
			has: []string{`"8000", "--bind", "127.0.0.1"]`, `address = "127.0.0.1:8000"`}, lacks: gone},
		converts{name: "b", text: "[program:x]\ncommand=/usr/bin/php -S 0.0.0.0:81 -t /srv\n",
			has: []string{`address = "0.0.0.0:81"`}, lacks: gone})
	expect(t, source.Procfile, converts{name: "Procfile", text: "web: ./web\nworker: ./worker\n",
		has: []string{`address = "0.0.0.0:5000"`, "stop-first"}, lacks: []string{"0.0.0.0:5100"}})
	expect(t, source.PM2, converts{name: "ecosystem.json",
		text: `{"apps": [{"script": "npm", "args": "start", "env": {"PORT": 1}}, {"script": "x.js", "port": 3002, ` +
			`"instances": 4, "exec_mode": "cluster"}]}`,
		has: []string{`address = "0.0.0.0:3002"`, "workers   = 4"}})
	expect(t, source.Compose,
		converts{name: "compose.yaml", text: "services:\n  a:\n    build: .\n    command: ./serve\n    ports: ['80:3000']\n",
			has: []string{`address = "0.0.0.0:80"`, `binds   = ":3000"`, `["./serve"]`}, lacks: gone},
		converts{name: "compose.yaml",
			text: "services:\n  a:\n    build: .\n    command: gunicorn -b 0.0.0.0:8000 a:b\n" +
				"    ports: ['127.0.0.1:8080:8000']\n",
			has: []string{`address = "127.0.0.1:8080"`, `binds   = "0.0.0.0:8000"`,
				`["gunicorn", "-b", "0.0.0.0:8000", "a:b"]`}, lacks: gone},
		converts{name: "compose.yaml",
			text: "services:\n  a:\n    build: .\n    command: ./serve\n    ports: ['53:53/udp', '80:80']\n",
			has:  []string{`address = "0.0.0.0:80"`, "stop-first", "udp:"}})
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
