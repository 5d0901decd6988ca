package tests

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

func TestStartWithoutPermissionToAdoptSaysHowToFindTheHolderOfTheSocket(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root to run as two users")
	}
	m, address := lab.Prepare(t), lab.Reserve(t)
	m.Start(lab.WebAt(address))
	m.Serves(1)
	old := m.WorkerPID(1)
	m.Die()
	lab.Must(t, os.Chown(m.Dir, 65534, 65534))
	m.As = &syscall.Credential{Uid: 65534, Gid: 65534}
	m.Write(lab.WebAt(address))
	m.File("config.toml", strings.Replace(m.Read("config.toml"), m.Path("run"), m.Path("run2"), 1))
	m.Launch("-c", m.Path("config.toml"))
	m.Wait()
	if code := m.Cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit code %d", code)
	}
	m.Await(lab.Contains("cannot listen on tcp " + address +
		": address already in use: `ss -ltnp` as root shows which process has it"))
	if !lab.Alive(old) {
		t.Error("the worker of the other user has exited")
	}
	m.Sweep()
}

func TestSupervisordOnRTMIN1LeavesItsWorkersToTheNextOne(t *testing.T) {
	t.Parallel()
	m, address := lab.Prepare(t), lab.Reserve(t)
	config := lab.PIDFile + strings.Replace(lab.WebAt(address), "{worker}", "{hello}", 1) + soonDrained
	m.Start(config)
	m.Serves(1)
	old := m.WorkerPID(1)
	load := lab.Press(t, address, 4, 5*time.Millisecond)
	m.Signal(syscall.Signal(35)) // RTMIN+1
	m.Wait()
	if code := m.Cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(m.Path("p.pid")); err == nil {
		t.Error("the pid file is still there")
	}
	if _, err := os.Lstat(m.Path("run/control.sock")); err == nil {
		t.Error("the control socket is still there")
	}
	lab.Ask(t, address, "/")
	m.Start(config)
	m.Serves(1)
	m.Until("the orphaned worker has exited", func() bool { return !lab.Alive(old) })
	load.Lossless(t)
}

// soonDrained is for orphans whose clients never stop asking: the next supervisord does not know that they drain
// themselves.
const soonDrained = "[program.web.drain]\ntimeout = \"1s\"\n"

// loggers are servers that write a line for each request before they answer it. Only C and Perl have SIGPIPE at its
// default; in Python and Node the write fails.
var loggers = map[string]struct{ interpreter, script string }{
	"Perl": {"perl", `
use IO::Socket::INET; use IO::Socket::UNIX;
open(my $s, '+<&=', 3) or die; bless $s, 'IO::Socket::INET';
IO::Socket::UNIX->new(Type => SOCK_DGRAM, Peer => $ENV{NOTIFY_SOCKET})->send('READY=1');
for (;;) { my $c = $s->accept or next; sysread($c, my $r, 4096);
  syswrite(STDOUT, "a request\n"); syswrite(STDERR, "an error\n");
  syswrite($c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\npid=$$ "); close $c; }
`},
	"Python": {"python3", `
import os, socket, sys
s = socket.socket(fileno=3)
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'READY=1', os.environ['NOTIFY_SOCKET'])
while True:
    c, _ = s.accept(); c.recv(4096); print('a request', flush=True); print('an error', file=sys.stderr, flush=True)
    c.sendall(b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\npid=%d ' % os.getpid()); c.close()
`},
	"Node": {"node", `
require('http').createServer((q, r) => {
  console.log('a request'); console.error('an error'); r.setHeader('Connection', 'close');
  r.end('pid=' + process.pid + ' ');
}).listen({ fd: 3 }, () => require('fs').writeSync(+process.env.NOTIFY_FD, '\n'));
`},
}

func TestWorkersThatLogServeOnWithoutSupervisord(t *testing.T) {
	t.Parallel()
	for language, l := range loggers {
		for _, to := range []string{"capture", "{dir}/web.log"} {
			for how, leave := range map[string]func(m *lab.Supervisord){
				"kill -9": func(m *lab.Supervisord) { m.Die() },
				"RTMIN+1": func(m *lab.Supervisord) { m.Signal(syscall.Signal(35)); m.Wait() },
			} {
				t.Run(language+" to "+to+", "+how, func(t *testing.T) {
					t.Parallel()
					logsOn(t, l.interpreter, l.script, to, leave)
				})
			}
		}
	}
}

func logsOn(t *testing.T, interpreter, script, to string, leave func(m *lab.Supervisord)) {
	m, at := lab.Prepare(t), lab.Reserve(t)
	m.File("worker", script)
	config := lab.PIDFile + fmt.Sprintf(`
[program.web]
command = [%q, "{dir}/worker"]
stdout = %q
stderr = %q
ready.method = "notify"
listen = [%q]
`, lab.Need(t, interpreter), to, to, at)
	m.Start(config)
	m.Serves(1)
	old := m.WorkerPID(1)
	leave(m)
	for range 20 {
		if got := lab.Ask(t, at, "/"); !strings.Contains(got, fmt.Sprintf("pid=%d ", old)) {
			t.Fatalf("%s, want process %d", got, old)
		}
	}
	m.Start(config)
	m.Serves(1)
	m.Until("the orphaned worker has exited", func() bool { return !lab.Alive(old) })
	said := func() string {
		if to == "capture" {
			return m.CtlOK("logs", "web")
		}
		return m.Read("web.log")
	}
	m.Until("the next supervisord has what was said meanwhile", func() bool {
		return strings.Count(said(), "a request") == 20 && strings.Count(said(), "an error") == 20
	})
}

// A death in the middle of a deploy: the trial has its socket and does not accept yet. Connections stay with the
// generation that serves.
func TestDeathDuringATrialSendsNobodyToTheTrial(t *testing.T) {
	t.Parallel()
	m, at := lab.Prepare(t), lab.Reserve(t)
	m.File("worker", `
import os, socket, sys, time
if os.path.exists(sys.argv[1] + '/slow'): time.sleep(float(open(sys.argv[1] + '/slow').read()))
s = socket.socket(fileno=3)
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'READY=1', os.environ['NOTIFY_SOCKET'])
while True:
    c, _ = s.accept(); c.recv(4096)
    who = b'pid=%d generation=%s ' % (os.getpid(), os.environ['SUPERVISORD_GENERATION'].encode())
    c.sendall(b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n' + who); c.close()
`)
	config := lab.PIDFile + fmt.Sprintf(
		"[program.web]\ncommand = [%q, \"{dir}/worker\", \"{dir}\"]\nready.method = \"notify\"\nlisten = [%q]\n", lab.Need(t,
			"python3"), at)
	m.Start(config)
	m.Serves(1)
	old := m.WorkerPID(1)
	lab.Must(t, os.WriteFile(m.Path("slow"), []byte("1000"), 0o644))
	m.Reload()
	m.WorkerPID(2)
	m.Die()
	lab.Must(t, os.WriteFile(m.Path("slow"), []byte("3"), 0o644))
	l := lab.PressNew(t, at, 4, 5*time.Millisecond)
	m.Start(config)
	m.Await(lab.Says(lab.WorkerRuns), lab.Gen(1))
	for range 20 {
		if got := lab.Ask(t, at, "/"); !strings.Contains(got, fmt.Sprintf("pid=%d ", old)) {
			t.Errorf("%s answers, want %d", got, old)
		}
	}
	m.Serves(1)
	m.Until("the orphaned worker has exited", func() bool { return !lab.Alive(old) })
	l.Lossless(t)
}
