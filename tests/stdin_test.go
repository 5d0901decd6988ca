package tests

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A server as it is written for inetd's "wait": it finds the socket as its standard input, and nothing else.
const forInetd = `
import os, select, signal, socket
s = socket.socket(fileno=0)
s.setblocking(False)
r, w = os.pipe()
os.set_blocking(w, False)
signal.set_wakeup_fd(w)
signal.signal(signal.SIGTERM, lambda *_: None)
body = ('generation=' + os.environ['SUPERVISORD_GENERATION']).encode()
while r not in select.select([s, r], [], [])[0]:
    try: c, _ = s.accept()
    except BlockingIOError: continue
    c.setblocking(True)
    c.recv(4096)
    c.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s' % (len(body), body))
    c.close()
`

func inetd(t *testing.T, stdin, listen string) *master {
	python := interpreter(t, "python3", "-c print(__import__('sys').executable)")
	m := prepare(t)
	m.file("server.py", forInetd)
	m.start(fmt.Sprintf("[program.web]\ncommand = [%q, \"{dir}/server.py\"]\nstdin = %q\nready.method = \"accept\"\nlisten = [%s]\n", python, stdin, listen))
	return m
}

func TestAServerForInetdIsRedeployedWithoutLoss(t *testing.T) {
	t.Parallel()
	m := inetd(t, "socket", `{ address = "127.0.0.1:0" }`)
	m.serves(1)
	if fds := descriptors(t, m.worker(1)); !strings.HasPrefix(fds[0], "socket:") || fds[3] == fds[0] {
		t.Errorf("descriptors are %v", fds)
	}
	has(t, environment(t, m.worker(1)), map[string]string{"LISTEN_FDS": "<none>", "EINHORN_FD_0": "0"})
	l := pressNew(t, m.address(), 4, 5*time.Millisecond)
	for generation := 2; generation <= 4; generation++ {
		m.reload()
		m.serves(generation)
		m.gone(generation - 1)
	}
	m.upgrade(upgraded)
	m.reload()
	m.serves(5)
	l.lossless(t)
}

func TestStdinCanBeOneListenerOfSeveral(t *testing.T) {
	t.Parallel()
	m := start(t, plain+"stdin = \"socket:b\"\nlisten = [{ name = \"a\", address = \"unix:{dir}/a\" }, { name = \"b\", address = \"unix:{dir}/b\" }]\n")
	m.serves(1)
	env, fds := environment(t, m.worker(1)), descriptors(t, m.worker(1))
	if want := m.path("a") + "=3;" + m.path("b") + "=0"; env["SERVER_STARTER_PORT"] != want || env["LISTEN_FDNAMES"] != "a" || !strings.HasPrefix(fds[0], "socket:") || fds[0] == fds[3] {
		t.Errorf("it is told %s and %s, and has %v", env["SERVER_STARTER_PORT"], env["LISTEN_FDNAMES"], fds)
	}
}

func TestANewlineOnANumberThatIsConfiguredIsReady(t *testing.T) {
	t.Parallel()
	m := start(t, "[program.web]\ncommand = [\"sh\", \"-c\", \"echo >&9; exec sleep 1000\"]\nready = { method = \"notify\", fd = 9 }\nlisten = [{ address = \"127.0.0.1:0\" }]\n")
	m.serves(1)
	m.reload()
	m.gone(1)
	has(t, environment(t, m.worker(2)), map[string]string{"NOTIFY_FD": "9"})
}
