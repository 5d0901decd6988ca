package tests

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// spoken is plain with a TCP listener and a unix listener, in these dialects.
func spoken(t *testing.T, dialect string) (m *lab.Supervisord, env map[string]string) {
	m = lab.Start(t, lab.Plain+dialect+`
[[program.web.listen]]
name = "http"
address = "127.0.0.1:0"
[[program.web.listen]]
address = "unix:{dir}/s"
`)
	m.Serves(1)
	return m, lab.Environment(t, m.WorkerPID(1))
}

// has compares variables; "<none>" means that a variable must not be set.
func has(t *testing.T, env map[string]string, want map[string]string) {
	t.Helper()
	for name, value := range want {
		got, there := env[name]
		if !there {
			got = "<none>"
		}
		if got != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
}

func TestByDefaultAWorkerGetsAllHarmlessDialects(t *testing.T) {
	t.Parallel()
	_, env := spoken(t, "")
	has(t, env, map[string]string{
		"LISTEN_FDS": "2", "SERVER_STARTER_GENERATION": "1", "EINHORN_FD_COUNT": "2", "EINHORN_FD_0": "3", "EINHORN_FD_1": "4",
		"EINHORN_FD_FAMILY_0": "AF_INET", "EINHORN_FD_FAMILY_1": "AF_UNIX", "EINHORN_MASTER_PID": "<none>", "EINHORN_SOCK_PATH": "<none>",
		"NGINX": "<none>", "FPM_SOCKETS": "<none>", "UNICORN_FD": "<none>", "GUNICORN_FD": "<none>", "GUNICORN_PID": "<none>",
	})
}

func TestDialectReplacesTheDefault(t *testing.T) {
	t.Parallel()
	_, env := spoken(t, `dialect = ["nginx", "gunicorn"]`)
	has(t, env, map[string]string{
		"NGINX": "3;4;", "GUNICORN_FD": "3,4", "LISTEN_FDS": "<none>", "LISTEN_PID": "<none>", "LISTEN_FDNAMES": "<none>",
		"SERVER_STARTER_PORT": "<none>", "SERVER_STARTER_GENERATION": "<none>", "EINHORN_FD_COUNT": "<none>",
	})
}

func TestEmptyDialectPassesSocketsWithoutVariables(t *testing.T) {
	t.Parallel()
	m, env := spoken(t, "dialect = []")
	has(t, env, map[string]string{"LISTEN_FDS": "<none>", "SERVER_STARTER_PORT": "<none>", "EINHORN_FD_COUNT": "<none>", "SUPERVISORD_GENERATION": "1"})
	if fds := lab.Descriptors(t, m.WorkerPID(1)); !strings.HasPrefix(fds[3], "socket:") || !strings.HasPrefix(fds[4], "socket:") {
		t.Errorf("descriptors are %v", fds)
	}
}

func TestFPMSocketsHasTheAddressesThatAreBound(t *testing.T) {
	t.Parallel()
	m, env := spoken(t, `dialect = "php-fpm"`)
	has(t, env, map[string]string{"FPM_SOCKETS": m.Address() + "=3," + m.Path("s") + "=4"})
}

func TestGunicornGetsThePIDOfItsParent(t *testing.T) {
	t.Parallel()
	m, env := spoken(t, `dialect = "gunicorn"`)
	parent := strconv.Itoa(m.PID())
	has(t, env, map[string]string{"GUNICORN_PID": parent, "GUNICORN_FD": "3,4"})
	if got := lab.ProcStatus(m.WorkerPID(1))["PPid"]; got != parent {
		t.Errorf("its parent is %s, and the variable says %s", got, parent)
	}
}

func TestWorkersDoNotGetTheSocketVariablesOfSupervisord(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Env = []string{"EINHORN_FD_7=9", "EINHORN_MASTER_PID=1", "NGINX=9;"}
	m.Start(lab.Plain + "dialect = [\"nginx\", \"einhorn\"]\n[[program.web.listen]]\naddress = \"127.0.0.1:0\"\n")
	m.Serves(1)
	has(t, lab.Environment(t, m.WorkerPID(1)), map[string]string{"EINHORN_FD_7": "<none>", "EINHORN_MASTER_PID": strconv.Itoa(m.PID()), "NGINX": "3;"})
}

func TestReloadUsesTheNewlyConfiguredDialect(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	config := lab.Plain + "dialect = [\"%s\"]\n[[program.web.listen]]\naddress = \"127.0.0.1:0\"\n"
	m.Start(fmt.Sprintf(config, "unicorn"))
	m.Serves(1)
	has(t, lab.Environment(t, m.WorkerPID(1)), map[string]string{"UNICORN_FD": "3", "SERVER_STARTER_GENERATION": "<none>"})
	m.Write(fmt.Sprintf(config, "start_server"))
	m.Reload()
	m.Serves(2)
	has(t, lab.Environment(t, m.WorkerPID(2)), map[string]string{"UNICORN_FD": "<none>", "SERVER_STARTER_GENERATION": "2"})
}

// redeployed puts a worker under load while supervisord replaces it, and while supervisord upgrades itself. The Python code in
// take finds the number of the socket; the script answers with its generation.
func redeployed(t *testing.T, dialect, take string) {
	t.Helper()
	python := interpreter(t, "python3", "-c print(__import__('sys').executable)")
	m := lab.Prepare(t)
	m.File("worker.py", `
import os, select, signal, socket, time
`+take+`
s = socket.socket(fileno=fd)
s.setblocking(False)
stopped, stop = os.pipe()
os.set_blocking(stop, False)
signal.set_wakeup_fd(stop)
signal.signal(signal.SIGTERM, lambda *_: None)
body = ('generation=' + os.environ['SUPERVISORD_GENERATION']).encode()
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'READY=1', os.environ['NOTIFY_SOCKET'])
while stopped not in select.select([s, stopped], [], [])[0]:
    try:
        c, _ = s.accept()
    except BlockingIOError:
        continue
    c.setblocking(True)
    c.recv(4096)
    c.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s' % (len(body), body))
    c.close()
`)
	m.Start(fmt.Sprintf(`
[program.web]
command = [%q, "{dir}/worker.py"]
dialect = [%q]
workers = 2
ready.method = "notify"
[[program.web.listen]]
address = "127.0.0.1:0"
`, python, dialect))
	m.Serves(1)
	l := lab.PressNew(t, m.Address(), 4, 5*time.Millisecond)
	for generation := 2; generation <= 3; generation++ {
		m.Reload()
		m.Serves(generation)
		m.Gone(generation - 1)
	}
	m.Signal(syscall.SIGUSR2)
	m.Await(lab.Says(lab.Upgraded))
	m.Reload()
	m.Serves(4)
	m.Gone(3)
	l.Lossless(t)
}

func TestRedeploysByListenFDS(t *testing.T) {
	t.Parallel()
	redeployed(t, "systemd", "assert os.environ['LISTEN_PID'] == str(os.getpid()) and os.environ['LISTEN_FDS'] == '1'\nfd = 3")
}

func TestRedeploysByServerStarterPort(t *testing.T) {
	t.Parallel()
	redeployed(t, "start_server", "fd = int(os.environ['SERVER_STARTER_PORT'].split('=')[1])\nassert int(os.environ['SERVER_STARTER_GENERATION']) > 0")
}

func TestRedeploysByEinhornFD(t *testing.T) {
	t.Parallel()
	redeployed(t, "einhorn", `
assert int(os.environ['EINHORN_MASTER_PID']) == os.getppid() and os.environ['EINHORN_FD_COUNT'] == '1'
assert os.environ['EINHORN_CHILD_INDEX'] == os.environ['SUPERVISORD_SLOT'] and os.environ['EINHORN_FDS'] == '3'
assert socket.socket(fileno=os.dup(int(os.environ['EINHORN_FD_0']))).family == getattr(socket, os.environ['EINHORN_FD_FAMILY_0'])
fd = int(os.environ['EINHORN_FD_0'])`)
}

func TestRedeploysByNGINX(t *testing.T) {
	t.Parallel()
	redeployed(t, "nginx", "numbers = os.environ['NGINX']\nassert numbers.endswith(';')\nfd = int(numbers.split(';')[0])\nassert not os.get_blocking(fd)")
}

func TestRedeploysByFPMSockets(t *testing.T) {
	t.Parallel()
	redeployed(t, "php-fpm", `
address, fd = os.environ['FPM_SOCKETS'].split('=')
fd = int(fd)
assert address == '%s:%d' % socket.socket(fileno=os.dup(fd)).getsockname()`)
}

func TestRedeploysByUnicornFD(t *testing.T) {
	t.Parallel()
	redeployed(t, "unicorn", "assert 'LISTEN_FDS' not in os.environ\nfd, = [int(n) for n in os.environ['UNICORN_FD'].split(',')]")
}

func TestRedeploysByGunicornFD(t *testing.T) {
	t.Parallel()
	redeployed(t, "gunicorn", "assert int(os.environ['GUNICORN_PID']) == os.getppid()\nfd, = [int(n) for n in os.environ['GUNICORN_FD'].split(',')]")
}

func TestCheckNamesTheDialectThatWasMeant(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Write(lab.Plain + "dialect = [\"system\"]\n")
	out, code := m.Run("check", "-c", m.Path("config.toml"))
	if code == 0 || !strings.Contains(out, `program.web.dialect[0]: "system" is not known: did you mean "systemd"?`) {
		t.Errorf("check exited with %d:\n%s", code, out)
	}
}

// acking is a Python worker that reports readiness only by an einhorn ack, once the file {dir}/go exists.
func acking(t *testing.T, ack string) *lab.Supervisord {
	python := interpreter(t, "python3", "-c print(__import__('sys').executable)")
	m := lab.Prepare(t)
	m.File("worker.py", `
import os, signal, socket, time
c = socket.socket(socket.AF_UNIX)
c.connect(os.environ['EINHORN_SOCK_PATH'])
born = socket.socket(fileno=int(os.environ['EINHORN_SOCK_FD']))
ack = b'{"command":"worker:ack","pid":%d}\n' % os.getpid()
def go():
    while not os.path.exists('{dir}/go'): time.sleep(0.005)
`+ack+`
time.sleep(1000)
`)
	m.Start(fmt.Sprintf("[program.web]\ncommand = [%q, \"{dir}/worker.py\"]\ndialect = \"einhorn\"\nready.method = \"notify\"\nlisten = [{ address = \"127.0.0.1:0\" }]\n", python))
	return m
}

func TestAckToEinhornMakesAWorkerReady(t *testing.T) {
	t.Parallel()
	m := acking(t, "go()\nc.sendall(ack)")
	m.WorkerPID(1)
	time.Sleep(200 * time.Millisecond)
	m.Never(lab.Says(lab.WorkerReady))
	m.File("go", "")
	m.Serves(1)
	m.Reload()
	m.Serves(2)
	m.Gone(1)
}

func TestHalfAnAckSurvivesAnUpgrade(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{"by the path": "c", "by the descriptor": "born"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := acking(t, line+".sendall(ack[:20])\nopen('{dir}/half', 'w').close()\ngo()\n"+line+".sendall(ack[20:])")
			m.WorkerPID(1)
			m.Until("half of the ack is sent", func() bool { return lab.Exists(m.Path("half")) })
			m.Upgrade(lab.Upgraded)
			m.Never(lab.Says(lab.WorkerReady))
			m.File("go", "")
			m.Serves(1)
		})
	}
}

func TestAckAfterAnUpgradeIsHeard(t *testing.T) {
	t.Parallel()
	m := acking(t, "c.close()\ngo()\nc = socket.socket(socket.AF_UNIX)\nc.connect(os.environ['EINHORN_SOCK_PATH'])\nc.sendall(ack)")
	p := m.WorkerPID(1)
	m.Upgrade(lab.Upgraded)
	m.Upgrade(lab.Upgraded)
	m.File("go", "")
	m.Serves(1)
	path := lab.Environment(t, p)["EINHORN_SOCK_PATH"]
	m.Reload()
	m.Gone(1)
	if lab.Exists(path) {
		t.Errorf("%s is left after its worker exited", path)
	}
}
