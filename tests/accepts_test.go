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

// claimant is a Python program that says READY=1 with say(). Its first generation serves; later ones, while the file
// {dir}/bad exists, do what script says.
func claimant(t *testing.T, more, script string) string {
	python := interpreter(t, "python3", "-c print(__import__('sys').executable)")
	return fmt.Sprintf(`
[program.web]
command = [%q, "-c", '''
import os, select, signal, socket, time
def say(): socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'READY=1', os.environ['NOTIFY_SOCKET'])
def answer(c):
    body = ('generation=' + os.environ['SUPERVISORD_GENERATION']).encode()
    c.recv(4096)
    c.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: %%d\r\nConnection: close\r\n\r\n%%s' %% (len(body), body))
    c.close()
def serve(s):
    while True: answer(s.accept()[0])
s = socket.socket(fileno=3)
if os.path.exists('{dir}/bad'):
    host, port = s.getsockname()[:2]
    %s
say()
serve(s)
''']
%s
[[program.web.listen]]
name = "http"
address = "127.0.0.1:0"
`, python, strings.ReplaceAll(strings.TrimSpace(script), "\n", "\n    "), more)
}

func TestWorkerThatIsReadyButDoesNotAcceptFailsTheTrial(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ ready, script, says string }{
		"never": {`method = "notify"`, "say(); time.sleep(1000)", "said READY=1, but no process waits on 127.0.0.1:"},
		"newline": {`method = "notify"`, "os.write(int(os.environ['NOTIFY_FD']), b'\\n'); time.sleep(1000)",
			"said READY=1, but no process waits on"},
		"elsewhere": {`method = "notify"`, "o = socket.create_server(('127.0.0.1', 0)); say(); serve(o)",
			"with a socket of its own: if clients are to reach it there, write binds = \"127.0.0.1:"},
		"reuseport": {`method = "notify"`,
			"s.close(); o = socket.create_server((host, port), reuse_port=True); say(); serve(o)", "with a socket of its own"},
		"delay": {`method = "delay"
delay = "10ms"`, "time.sleep(1000)", "has run for 10ms, but no process waits on"},
		"exec": {`method = "exec"
command = ["true"]`, "time.sleep(1000)", "the probe succeeded, but no process waits on"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bind := map[string]string{"reuseport": "bind = \"off\"\n"}[name] // otherwise it gets its listener
			m := lab.Start(t, claimant(t, bind+"[program.web.ready]\n"+c.ready+"\ntimeout = \"1500ms\"", c.script))
			m.Serves(1)
			m.File("bad", "")
			out, code := m.Ctl("reload")
			if code != 12 || !strings.Contains(out, c.says) {
				t.Errorf("reload exits with %d and says %s", code, out)
			}
			if got := lab.Ask(t, m.Address(), "/"); got != "generation=1" {
				t.Errorf("afterwards the answer is %q", got)
			}
		})
	}
}

func TestWorkerServesWhenItAcceptsAndNotWhenItSaysSo(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"blocking": "say()\nwhile os.path.exists('{dir}/hold'): time.sleep(0.005)\nserve(s)",
		"epoll": `say()
while os.path.exists('{dir}/hold'): time.sleep(0.005)
e = select.epoll()
e.register(3, select.EPOLLIN)
while True: e.poll(); answer(s.accept()[0])`,
		"child": "say()\nwhile os.path.exists('{dir}/hold'): time.sleep(0.005)\nif os.fork() == 0: serve(s)\nos.wait()",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, claimant(t, `ready.method = "notify"`, script))
			m.Serves(1)
			m.File("bad", "")
			m.File("hold", "")
			m.Reload()
			m.Await(lab.Says(lab.WorkerRuns), lab.Gen(2))
			time.Sleep(400 * time.Millisecond)
			m.Never(lab.Says(lab.WorkerReady), lab.Gen(2))
			lab.Must(t, os.Remove(m.Path("hold")))
			m.Serves(2)
			if got := lab.Ask(t, m.Address(), "/"); got != "generation=2" {
				t.Errorf("the answer is %q", got)
			}
		})
	}
}

// A worker that never waits in the kernel is believed when it accepts the connection that finds that out.
func TestWorkerThatPollsItsSocketIsReady(t *testing.T) {
	t.Parallel()
	const poll = `
s.setblocking(False)
say()
while True:
    try: c = s.accept()[0]
    except BlockingIOError: %s; continue
    c.setblocking(True)
    answer(c)`
	for name, idle := range map[string]string{"spinning": "pass", "sleeping": "time.sleep(0.05)"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, claimant(t, `ready.method = "notify"`, fmt.Sprintf(poll, idle)))
			m.Serves(1)
			m.File("bad", "")
			m.CtlOK("reload")
			if got := lab.Ask(t, m.Address(), "/"); got != "generation=2" {
				t.Errorf("the answer is %q", got)
			}
		})
	}
}

func TestStandbyIsReadyWithoutAccepting(t *testing.T) {
	t.Parallel()
	for _, method := range []string{`method = "notify"`, "method = \"delay\"\ndelay = \"10ms\""} {
		m := lab.Start(t, claimant(t, "[program.web.ready]\naccepts = false\n"+method, "say(); time.sleep(1000)"))
		m.Serves(1)
		m.File("bad", "")
		m.CtlOK("reload")
	}
}

// Where generations share a socket, only its own processes show that a generation accepts.
func TestWorkerOnASharedSocketIsReadyWhenItWaitsItself(t *testing.T) {
	t.Parallel()
	const worker = `
import os, socket, time
s = socket.socket(fileno=%[1]s)
if os.path.exists('{dir}/bad'): %[2]s
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'READY=1', os.environ['NOTIFY_SOCKET'])
while os.path.exists('{dir}/bad'): time.sleep(0.01)
while True: s.%[3]s
`
	python := interpreter(t, "python3", "-c print(__import__('sys').executable)")
	for name, c := range map[string]struct{ fd, wait, listener string }{
		"tcp":   {"3", "accept()", "address = \"127.0.0.1:0\"\nhandover = \"share\""},
		"udp":   {"3", "recvfrom(1000)", "address = \"udp:127.0.0.1:0\"\nhandover = \"share\""},
		"unix":  {"3", "accept()", "address = \"unix:{dir}/web.sock\"\nhandover = \"share\""},
		"stdin": {"0", "accept()", "address = \"127.0.0.1:0\"\nfd = 0\nhandover = \"share\""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, fmt.Sprintf(
				"[program.web]\ncommand = [%q, \"-c\", '''%s''']\nready = { method = \"notify\", timeout = \"1500ms\" }\n"+
					"[[program.web.listen]]\nname = \"http\"\n%s\n",
				python, fmt.Sprintf(worker, c.fd, "pass", c.wait), c.listener))
			m.Serves(1)
			m.File("bad", "")
			m.CtlFails(12, []string{"said READY=1, but no process waits on "}, "reload")
			lab.Must(t, os.Remove(m.Path("bad")))
			m.CtlOK("reload")
		})
	}
}

func TestCrashedWorkerIsReplacedByOneThatAccepts(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, claimant(t, "ready = { method = \"notify\", timeout = \"1s\" }\nrestart.backoff.min = \"10ms\"",
		"say(); time.sleep(1000)"))
	m.Serves(1)
	m.File("bad", "")
	lab.Must(t, syscall.Kill(m.WorkerPID(1), syscall.SIGKILL))
	late := m.Await(lab.Says("worker was not ready in time"))
	if !strings.Contains(late.Reason, "said READY=1, but no process waits on") {
		t.Errorf("the log says %s", late.Text)
	}
	lab.Must(t, os.Remove(m.Path("bad")))
	m.Await(lab.Says(lab.WorkerReady), func(l lab.Entry) bool { return l.Worker > 1 })
	if got := lab.Ask(t, m.Address(), "/"); got != "generation=1" {
		t.Errorf("the answer is %q", got)
	}
}

// Whatever the method is, what keeps a worker from accepting is said after two seconds, once for a generation, and by
// the failing reload.
func TestStartSaysWhyNobodyAccepts(t *testing.T) {
	t.Parallel()
	const server = `
import os, signal, socket, time
mine = os.environ.get('LISTEN_PID') == str(os.getpid())
s = socket.socket(fileno=3) if mine else socket.create_server(('127.0.0.1', 0))
if %s: s = socket.create_server(('127.0.0.1', 0))
while True: s.accept()[0].close()
`
	python := interpreter(t, "python3", "-c print(__import__('sys').executable)")
	for name, c := range map[string]struct {
		method  string
		wrapped bool
		says    []string
	}{
		"elsewhere": {"accept", false,
			[]string{"no process waits on 127.0.0.1:", ") listens on 127.0.0.1:", "write binds = "}},
		"wrapped": {"accept", true, []string{"LISTEN_PID is ", ", which is sh: python", "with a socket of its own"}},
		"notify":  {"notify", true, []string{"LISTEN_PID is ", ", which is sh: python"}},
		"http":    {"http", false, []string{"no answer yet to the probe of http://", "with a socket of its own"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Prepare(t)
			m.File("server.py", fmt.Sprintf(server, map[bool]string{true: "False", false: "True"}[c.wrapped]))
			command := fmt.Sprintf("[%q, %q]", python, m.Path("server.py"))
			if c.wrapped {
				command = fmt.Sprintf("[\"sh\", \"-c\", \"%s %s; exit 3\"]", python, m.Path("server.py"))
			}
			probe := ""
			if c.method == "http" {
				probe = `, url = "http://{listener:http}/"`
			}
			m.Start(fmt.Sprintf("[program.web]\nworkers = 2\ncommand = %s\nready = { method = %q, timeout = \"4s\"%s }\n"+
				"[[program.web.listen]]\nname = \"http\"\naddress = \"127.0.0.1:0\"\n", command, c.method, probe))
			early := m.Await(lab.Says("worker is not ready yet"), lab.Gen(1))
			status := m.CtlOK("status")
			failed := m.Await(lab.Says(lab.TrialFailed), lab.Gen(1))
			for _, word := range c.says {
				if !strings.Contains(early.Text, word) || !strings.Contains(status, word) ||
					!strings.Contains(failed.Reason, word) {
					t.Errorf("%q is missing in the log:\n%s\nthe status:\n%s\nor the failure:\n%s", word, early.Text, status,
						failed.Reason)
				}
			}
			if n := m.Count(lab.Says("worker is not ready yet"), lab.Gen(1)); n != 1 {
				t.Errorf("the log says it %d times", n)
			}
		})
	}
}

func TestWorkerThatEndsBecauseItsAddressIsTakenIsNamedWithItsLastLines(t *testing.T) {
	t.Parallel()
	const express = `
const server = require('http').createServer(() => {})
server.on('error', e => { console.error('no: ' + e.message); process.exit(%d) }).listen(%s, '127.0.0.1')
`
	for code, says := range map[int]string{0: "exited with status 0 before it was ready", 1: "exited with status 1"} {
		node := lab.Need(t, "node")
		at := lab.Reserve(t)
		m := lab.Prepare(t)
		m.File("express.js", fmt.Sprintf(express, code, at[strings.LastIndex(at, ":")+1:]))
		m.Start(fmt.Sprintf("[program.web]\ncommand = [%q, \"{dir}/express.js\"]\nstderr = \"capture\"\nbind = \"off\"\n"+
			"listen = [%q]\n", node, at))
		m.Await(lab.Says(lab.TrialFailed))
		m.CtlFails(11, []string{says, "no: listen EADDRINUSE"}, "reload")
		m.Finish()
	}
}
