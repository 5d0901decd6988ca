package tests

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// redeployed puts a worker under load while supervisord replaces it, and while supervisord upgrades itself. The Python
// code in take finds the number of the socket; the script answers with its generation.
func redeployed(t *testing.T, told, take string) {
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
%s
workers = 2
ready.method = "notify"
[[program.web.listen]]
name = "http"
address = "127.0.0.1:0"
nonblock = true
`, python, told))
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
	redeployed(t, `dialect = "systemd"`,
		"assert os.environ['LISTEN_PID'] == str(os.getpid()) and os.environ['LISTEN_FDS'] == '1'\nfd = 3")
}

func TestRedeploysByServerStarterPort(t *testing.T) {
	t.Parallel()
	redeployed(t, `dialect = ["start_server"]`,
		"fd = int(os.environ['SERVER_STARTER_PORT'].split('=')[1])\nassert int(os.environ['SERVER_STARTER_GENERATION']) > 0")
}

// nginx and PHP-FPM take their sockets from variables of their own, which the configuration sets.
func TestRedeploysByAVariableOfTheConfiguration(t *testing.T) {
	t.Parallel()
	for name, c := range map[string][2]string{
		"as nginx": {`environment = { NGINX = "{fd:http};" }`,
			"fd = int(os.environ['NGINX'].split(';')[0])\nassert not os.get_blocking(fd)"},
		"as PHP-FPM": {`environment = { FPM_SOCKETS = "127.0.0.1:9000={fd:http}" }`,
			"fd = int(os.environ['FPM_SOCKETS'].split('=')[1])"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redeployed(t, c[0], c[1])
		})
	}
}
