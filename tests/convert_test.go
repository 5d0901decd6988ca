package tests

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

// convert runs supervisord convert, which must succeed, and writes its output into the configuration of the test.
func convert(m *lab.Supervisord, args ...string) {
	m.T.Helper()
	out, code := m.Run(append([]string{"convert", "-o", m.Path("config.toml"), "--force"}, args...)...)
	if code != 0 {
		m.T.Fatalf("exit code %d: %s", code, out)
	}
	text := m.Read("config.toml")
	own := "[supervisor]\nruntime_dir = \"" + m.Dir + "/run\"\nlog_level = \"debug\"\n"
	if head, rest, ok := strings.Cut(text, "[supervisor]\n"); ok {
		text = head + own + rest
	} else {
		text = own + text
	}
	m.File("config.toml", text)
	if out, code := m.Run("check", "-c", m.Path("config.toml")); code != 0 || !strings.HasSuffix(out, "ok\n") {
		m.T.Fatalf("check exits with %d: %s\n%s", code, out, text)
	}
}

// deploys redeploys once under load and checks that the new generation answers.
func deploys(m *lab.Supervisord, address string) {
	m.T.Helper()
	m.Serves(1)
	lab.Ask(m.T, address, "/")
	m.Reload()
	m.Serves(2)
	m.Gone(1) // the library of this worker may drop a connection that it has just accepted
	lab.Ask(m.T, address, "/")
}

func TestConvertedStartServerLineServesAndIsRedeployed(t *testing.T) {
	t.Parallel()
	m, at := lab.Prepare(t), lab.Reserve(t)
	convert(m, "--", "start_server", "--port", at, "--interval=1", "--pid-file=app.pid", "--signal-on-hup=TERM", "--",
		lab.Built.Starter)
	m.Launch("-c", m.Path("config.toml"))
	deploys(m, at)
	if pid := strings.TrimSpace(m.Read("app.pid")); pid != strconv.Itoa(m.PID()) {
		t.Errorf("app.pid has %q, supervisord is %d", pid, m.PID())
	}
	m.Never(lab.Says(lab.WorkerKilled))
}

func TestConvertedSupervisorINIServesAndIsRedeployed(t *testing.T) {
	t.Parallel()
	m, at := lab.Prepare(t), lab.Reserve(t)
	m.File("supervisord.conf", `
[supervisord]
nodaemon=true
environment=WORD="of all"

; the server, which opens its port itself
[program:web]
command=sh -c "echo it begins; exec \"`+lab.Built.Hello+`\" -address %(ENV_AT)s" ; in the foreground
process_name=%(program_name)s_%(process_num)02d
directory=%(here)s
startsecs=1
autorestart=true
environment=AT="`+at+`",HERE="%(ENV_HOME)s"
redirect_stderr=true
stdout_logfile=%(here)s/web.log
stdout_logfile_maxbytes=5MB

[program:once]
command=/bin/false
autostart=false
`)
	convert(m, m.Path("supervisord.conf"))
	m.Launch("-c", m.Path("config.toml"))
	deploys(m, at)
	env := lab.Environment(t, m.WorkerPID(2))
	if env["WORD"] != "of all" || env["AT"] != at || env["HERE"] != os.Getenv("HOME") {
		t.Errorf("the worker has WORD=%q AT=%q HERE=%q", env["WORD"], env["AT"], env["HERE"])
	}
	if log := m.Read("web.log"); !strings.Contains(log, "it begins\n") {
		t.Errorf("the log file has %q", log)
	}
}

// The server opens port 3000, whatever the source is, and clients come to the port that the source publishes.
func TestConvertedServerThatOpensItsPortLosesNoRequest(t *testing.T) {
	t.Parallel()
	lab.Need(t, "python3")
	for name, file := range map[string]struct{ name, text string }{
		"compose": {"compose.yaml", "services:\n  web:\n    build: .\n    command: python3 server.py\n" +
			"    working_dir: {dir}\n    ports: ['{at}:3000']\n"},
		"systemd": {"web.service", "[Service]\nWorkingDirectory={dir}\nEnvironment=PORT={port} HOST=127.0.0.1\n" +
			"ExecStart=/usr/bin/env python3 server.py\n"},
		"pm2": {"ecosystem.json", `{"apps": [{"name": "web", "cwd": "{dir}", "script": "server.py", "interpreter": ` +
			`"python3", "env": {"PORT": {port}, "HOST": "127.0.0.1"}}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, at := lab.Prepare(t), lab.Reserve(t)
			_, port, _ := strings.Cut(at, ":")
			m.File("server.py", strings.ReplaceAll(ownPort["Python's http.server"].script, "3000",
				"int(os.environ.get('PORT', 3000))"))
			m.File(file.name, strings.NewReplacer("{dir}", m.Dir, "{at}", at, "{port}", port).Replace(file.text))
			convert(m, m.Path(file.name))
			if text := m.Read("config.toml"); strings.Contains(text, "stop-first") || !strings.Contains(text, "server.py\"]") {
				t.Errorf("the command is another, or the program stops first:\n%s", text)
			}
			m.Launch("-c", m.Path("config.toml"))
			m.RedeployUnderLoad()
		})
	}
}

// A program of [fcgi-program:x] gets its socket as its stdin.
func TestConvertedFastCGIProgramHasItsSocketAsStdin(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.File("php.ini", "[fcgi-program:php]\nsocket=unix://"+m.Path("s")+
		"\nsocket_mode=0700\ncommand=python3 -c \"import socket; socket.socket(fileno=0).accept()\"\n")
	convert(m, m.Path("php.ini"))
	m.Launch("-c", m.Path("config.toml"))
	m.Serves(1)
	link, err := os.Readlink("/proc/" + strconv.Itoa(m.WorkerPID(1)) + "/fd/0")
	lab.Must(t, err)
	if !strings.HasPrefix(link, "socket:") {
		t.Errorf("stdin is %s", link)
	}
}

func TestConvertedProcfileRunsWithItsPortAndItsVariables(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.File("Procfile", "web: echo $PORT $WORD >>web.out; exec sleep 1000\nworker: sleep 1000\n")
	m.File(".env", "WORD=dotenv\nPORT=7000\n")
	convert(m, "--", "foreman", "start", "-f", m.Path("Procfile"), "-m", "web=2,worker=1")
	m.Launch("-c", m.Path("config.toml"))
	m.AwaitN(2, lab.Says(lab.GenerationServes))
	words := strings.Fields(m.Read("web.out"))
	for _, want := range []string{"7000", "7001", "dotenv"} {
		if !strings.Contains(strings.Join(words, " "), want) {
			t.Errorf("no %s: %q", want, words)
		}
	}
	if env := lab.Environment(t, m.Await(lab.Says(lab.WorkerRuns), lab.Program("worker")).PID); env["PORT"] != "7100" ||
		env["WORD"] != "dotenv" {
		t.Errorf("the worker has PORT=%q WORD=%q", env["PORT"], env["WORD"])
	}
}
