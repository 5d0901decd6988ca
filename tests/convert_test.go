package tests

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"example.org/supervisord/tests/ports"
)

// convert runs supervisord convert, which has to succeed, and writes what it prints into the configuration of the test.
func (m *master) convert(args ...string) {
	m.t.Helper()
	out, code := m.run(append([]string{"convert", "-o", m.path("config.toml"), "--force"}, args...)...)
	if code != 0 {
		m.t.Fatalf("exit code %d: %s", code, out)
	}
	text := m.read("config.toml")
	own := "[supervisor]\nruntime_dir = \"" + m.dir + "/run\"\nlog_level = \"debug\"\n"
	if head, rest, ok := strings.Cut(text, "[supervisor]\n"); ok {
		text = head + own + rest
	} else {
		text = own + text
	}
	m.file("config.toml", text)
	if out, code := m.run("check", "-c", m.path("config.toml")); code != 0 || !strings.HasSuffix(out, "ok\n") {
		m.t.Fatalf("check ends with %d: %s\n%s", code, out, text)
	}
}

// deploys redeploys once, under requests, and sees that the new generation answers.
func (m *master) deploys(address string) {
	m.t.Helper()
	m.serves(1)
	ask(m.t, address, "/")
	m.reload()
	m.serves(2)
	m.gone(1) // a worker that stops as its library has it may drop what it has just accepted
	ask(m.t, address, "/")
}

func TestAConvertedStartServerLineServesAndIsRedeployed(t *testing.T) {
	t.Parallel()
	m, at := prepare(t), ports.Reserve(t)
	m.convert("--", "start_server", "--port", at, "--interval=1", "--pid-file=app.pid", "--signal-on-hup=TERM", "--", built.starter)
	m.launch("-c", m.path("config.toml"))
	m.deploys(at)
	if pid := strings.TrimSpace(m.read("app.pid")); pid != strconv.Itoa(m.pid()) {
		t.Errorf("app.pid has %q, supervisord is %d", pid, m.pid())
	}
	m.never(says(workerKilled))
}

func TestAConvertedSupervisorINIServesAndIsRedeployed(t *testing.T) {
	t.Parallel()
	m, at := prepare(t), ports.Reserve(t)
	m.file("supervisord.conf", `
[supervisord]
nodaemon=true
environment=WORD="of all"

; the server, which opens its port itself
[program:web]
command=sh -c "echo it begins; exec \"`+built.hello+`\" -address %(ENV_AT)s" ; in the foreground
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
	m.convert(m.path("supervisord.conf"))
	m.launch("-c", m.path("config.toml"))
	m.deploys(at)
	env := environment(t, m.worker(2))
	if env["WORD"] != "of all" || env["AT"] != at || env["HERE"] != os.Getenv("HOME") {
		t.Errorf("the worker has WORD=%q AT=%q HERE=%q", env["WORD"], env["AT"], env["HERE"])
	}
	if log := m.read("web.log"); !strings.Contains(log, "it begins\n") {
		t.Errorf("the log file has %q", log)
	}
}

// A program of [fcgi-program:x] finds its socket as its stdin.
func TestAConvertedFastCGIProgramHasItsSocketAsStdin(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.file("php.ini", "[fcgi-program:php]\nsocket=unix://"+m.path("s")+"\nsocket_mode=0700\ncommand=sleep 1000\n")
	m.convert(m.path("php.ini"))
	m.launch("-c", m.path("config.toml"))
	m.serves(1)
	link, err := os.Readlink("/proc/" + strconv.Itoa(m.worker(1)) + "/fd/0")
	must(t, err)
	if !strings.HasPrefix(link, "socket:") {
		t.Errorf("stdin is %s", link)
	}
}

func TestAConvertedCircusINIServesWithItsSocket(t *testing.T) {
	t.Parallel()
	m, at := prepare(t), ports.Reserve(t)
	host, port, _ := strings.Cut(at, ":")
	m.file("circus.ini", `
[watcher:web]
cmd = sh -c
args = "echo $(circus.sockets.http) $(circus.wid) $CAKE >>out; exec `+built.hello+`"
working_dir = `+m.dir+`
use_sockets = True
numprocesses = 2
copy_env = True

[socket:http]
host = `+host+`
port = `+port+`

[env:w*]
CAKE = lie
`)
	m.convert(m.path("circus.ini"))
	m.launch("-c", m.path("config.toml"))
	m.deploys(at)
	for _, want := range []string{"3 1 lie\n", "3 2 lie\n"} {
		if out := m.read("out"); !strings.Contains(out, want) {
			t.Errorf("no worker has the descriptor, the number and the variable %q: %q", want, out)
		}
	}
}

func TestAConvertedEinhornLineStopsItsWorkersByUSR2(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.convert("--", "einhorn", "-b", ports.Reserve(t), "-n", "2", "-m", "0.1", "--signal-timeout=20", "--",
		"sh", "-c", "trap 'echo graceful >>"+m.path("out")+"; exit' USR2; while :; do sleep 0.05; done")
	m.launch("-c", m.path("config.toml"))
	m.serves(1)
	m.reload()
	m.gone(1)
	if got := strings.Count(m.read("out"), "graceful"); got < 2 {
		t.Errorf("%d of 2 old workers had USR2", got)
	}
}

func TestAConvertedProcfileRunsWithItsPortAndItsVariables(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.file("Procfile", "web: echo $PORT $WORD >>web.out; exec sleep 1000\nworker: sleep 1000\n")
	m.file(".env", "WORD=dotenv\nPORT=7000\n")
	m.convert("--", "foreman", "start", "-f", m.path("Procfile"), "-m", "web=2,worker=1")
	m.launch("-c", m.path("config.toml"))
	m.awaitN(2, says(generationServes))
	words := strings.Fields(m.read("web.out"))
	for _, want := range []string{"7000", "7001", "dotenv"} {
		if !strings.Contains(strings.Join(words, " "), want) {
			t.Errorf("no %s: %q", want, words)
		}
	}
	if env := environment(t, m.await(says(workerRuns), program("worker")).PID); env["PORT"] != "7100" || env["WORD"] != "dotenv" {
		t.Errorf("the worker has PORT=%q WORD=%q", env["PORT"], env["WORD"])
	}
}

func TestConvertReadsStdinAndPrints(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.file("circus.ini", "[watcher:web]\ncmd = sleep 1000\npriority = 3\n")
	cmd := exec.Command("sh", "-c", `"$0" convert - <circus.ini 2>err`, built.supervisord)
	cmd.Env, cmd.Dir = m.environ(), m.dir
	raw, err := cmd.Output()
	must(t, err)
	out := string(raw)
	if !strings.Contains(out, "[program.web]\ncommand = [\"sleep\", \"1000\"]\n") || !strings.Contains(out, "# stdin:3: priority = 3: no equivalent: ") {
		t.Errorf("it prints:\n%s", out)
	}
	if said := m.read("err"); !strings.Contains(said, "converted 1 program from circus; 1 setting without an equivalent") {
		t.Errorf("it says %q", said)
	}
}

func TestConvertDoesNotWriteOverAFileUnlessForced(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.file("a.toml", "precious")
	args := []string{"convert", "-o", m.path("a.toml"), "--", "einhorn", "sleep", "5"}
	if out, code := m.run(args...); code == 0 || !strings.Contains(out, "--force") || m.read("a.toml") != "precious" {
		t.Errorf("exit code %d: %s; the file: %s", code, out, m.read("a.toml"))
	}
	args = append([]string{"convert", "--force"}, args[1:]...)
	if out, code := m.run(args...); code != 0 || !strings.Contains(m.read("a.toml"), "[program.sleep]") {
		t.Errorf("exit code %d: %s; the file: %s", code, out, m.read("a.toml"))
	}
	entries, err := os.ReadDir(m.dir)
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("besides the file there is %v", entries)
	}
}

func TestWhatIsConvertedIsReadByNobodyWhoMayNotReadTheSource(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	must(t, os.Chmod(m.file("s.ini", "[program:x]\ncommand=y\nenvironment=PASSWORD=\"sesame\"\n"), 0o600))
	m.run("convert", "-o", m.path("a.toml"), m.path("s.ini"))
	stat, err := os.Stat(m.path("a.toml"))
	must(t, err)
	if stat.Mode().Perm() != 0o600 {
		t.Errorf("its mode is %v", stat.Mode())
	}
}

func TestConvertSaysWhatIsMalformedAndWhere(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	path := m.file("s.ini", "[program:x]\ncommand=y\nstopsignal=NO\n[program:z]\n")
	out, code := m.run("convert", path)
	if code != 78 || !strings.Contains(out, path+":3: stopsignal: ") || !strings.Contains(out, path+":4: program:z: ") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestConvertAsksForWhatItCannotTell(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	path := m.file("s", "what is this\n")
	for _, args := range [][]string{{path}, {"--", "./app"}, {}, {path, path}, {"--from", "pm2", path}} {
		out, code := m.run(append([]string{"convert"}, args...)...)
		if code == 0 || !strings.Contains(out, "start_server") {
			t.Errorf("%q ends with %d: %s", args, code, out)
		}
	}
}
