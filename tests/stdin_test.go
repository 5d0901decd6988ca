package tests

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// A server for inetd's "wait" mode: it gets the socket as its standard input and in no other way.
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

func inetd(t *testing.T, listen string) *lab.Supervisord {
	python := interpreter(t, "python3", "-c print(__import__('sys').executable)")
	m := lab.Prepare(t)
	m.File("server.py", forInetd)
	m.Start(fmt.Sprintf("[program.web]\ncommand = [%q, \"{dir}/server.py\"]\nready.method = \"accept\"\n"+
		"listen = [{ fd = 0, %s }]\n", python, listen))
	return m
}

func TestServerForInetdIsRedeployedWithoutLoss(t *testing.T) {
	t.Parallel()
	m := inetd(t, `address = "127.0.0.1:0"`)
	m.Serves(1)
	if fds := lab.Descriptors(t, m.WorkerPID(1)); !strings.HasPrefix(fds[0], "socket:") || fds[3] == fds[0] {
		t.Errorf("descriptors are %v", fds)
	}
	env := lab.Environment(t, m.WorkerPID(1))
	if _, told := env["LISTEN_FDS"]; told || env["SERVER_STARTER_PORT"] != "127.0.0.1:0=0" {
		t.Errorf("the worker is told of %q and %q", env["LISTEN_FDS"], env["SERVER_STARTER_PORT"])
	}
	l := lab.PressNew(t, m.Address(), 4, 5*time.Millisecond)
	for generation := 2; generation <= 4; generation++ {
		m.Reload()
		m.Serves(generation)
		m.Gone(generation - 1)
	}
	m.Upgrade(lab.Upgraded)
	m.Reload()
	m.Serves(5)
	l.Lossless(t)
}
