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

// Servers that open a port of their own, 3000, and have never heard of inherited sockets. Each answers with its
// generation.
var ownPort = map[string]struct{ program, script string }{
	"Python's http.server": {"python3", `
import http.server, os
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = ('generation=%s ' % os.environ['SUPERVISORD_GENERATION']).encode()
        self.send_response(200); self.send_header('Content-Length', str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(('127.0.0.1', 3000), H).serve_forever()
`},
	"Node": {"node", `
const body = 'generation=' + process.env.SUPERVISORD_GENERATION + ' ';
require('http').createServer((q, a) => { a.setHeader('Content-Length', body.length); a.end(body); }).listen(3000);
`},
	"Python that prefers IPv6": {"python3", serveWith + `
s = socket.socket(socket.AF_INET6); s.bind(('::', 3000)); s.listen(1)
serve(s)
`},
	"Python with an epoll set before bind": {"python3", serveWith + `
s = socket.socket(); s.setblocking(False)
e = select.epoll(); e.register(s.fileno(), select.EPOLLIN)
s.bind(('127.0.0.1', 3000)); s.listen(1)
while True:
    e.poll()
    try: c, _ = s.accept()
    except BlockingIOError: continue
    answer(c)
`},
	"Python that tries the port first": {"python3", serveWith + `
for _ in range(3):
    t = socket.socket(); t.bind(('127.0.0.1', 3000)); t.listen(5); t.close()
s = socket.socket(); s.bind(('127.0.0.1', 3000)); s.listen(1)
serve(s)
`},
	"Python with SO_REUSEPORT and options": {"python3", serveWith + `
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1); s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
s.bind(('0.0.0.0', 3000)); s.listen(1)
assert s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) and s.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
serve(s)
`},
	"Python that defers accept, and takes data with the first packet": {"python3", serveWith + `
s = socket.socket()
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 5); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 16)
s.bind(('127.0.0.1', 3000)); s.listen(1)
assert s.getsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT)
assert s.getsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN) == 16
serve(s)
`},
	"Python that says itself which socket gets a connection": {"python3", serveWith + `
import ctypes, struct
code = ctypes.create_string_buffer(struct.pack('=HBBI', 6, 0, 0, 0)) # the first one
first = struct.pack('HxxxxxxP', 1, ctypes.addressof(code))
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
s.setsockopt(socket.SOL_SOCKET, 51, first) # SO_ATTACH_REUSEPORT_CBPF
s.bind(('127.0.0.1', 3000)); s.listen(1)
serve(s)
`},
	"Python that says so after bind": {"python3", serveWith + `
import ctypes, struct
code = ctypes.create_string_buffer(struct.pack('=HBBI', 6, 0, 0, 0))
first = struct.pack('HxxxxxxP', 1, ctypes.addressof(code))
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
s.bind(('127.0.0.1', 3000)); s.listen(1)
s.setsockopt(socket.SOL_SOCKET, 51, first)
serve(s)
`},
	"a child that forks, behind a shell": {"python3", serveWith + `
s = socket.socket(); s.bind(('127.0.0.1', 3000)); s.listen(16)
import signal
children = []
for _ in range(2):
    pid = os.fork()
    if pid == 0: signal.signal(signal.SIGTERM, signal.SIG_DFL); serve(s)
    children.append(pid)
def stop(*_):
    for p in children: os.kill(p, signal.SIGTERM)
    for p in children: os.waitpid(p, 0)
    os._exit(0)
signal.signal(signal.SIGTERM, stop)
while True: signal.pause()
`},
}

// serveWith is the beginning of a Python server.
const serveWith = `
import os, select, socket
body = ('generation=%s ' % os.environ['SUPERVISORD_GENERATION']).encode()
def answer(c):
    c.setblocking(True)
    c.recv(4096)
    c.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s' % (len(body), body))
    c.close()
def serve(s):
    while True: answer(s.accept()[0])
`

// opensItsPort is a program that opens port 3000, behind a listener at a port that the kernel chooses.
func opensItsPort(t *testing.T, program, script, more string) string {
	lab.Need(t, program)
	flag := map[string]string{"python3": "-c", "node": "-e"}[program]
	return fmt.Sprintf(`
[program.web]
command = [%q, %q, '''%s''']
listen = [{ name = "http", address = "127.0.0.1:0", binds = "127.0.0.1:3000" }]
ready = { timeout = "20s" }
%s
`, program, flag, script, more)
}

func TestServerThatOpensItsPortLosesNoRequest(t *testing.T) {
	t.Parallel()
	for name, server := range ownPort {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, opensItsPort(t, server.program, server.script, `bind = "on"`))
			m.RedeployUnderLoad()
		})
	}
}

func TestServerOfAnOrdinaryUserThatOpensItsPortLosesNoRequest(t *testing.T) {
	t.Parallel()
	lab.NeedRoot(t, "only root can run a worker as another user")
	for _, name := range []string{"Node", "Python with an epoll set before bind"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := ownPort[name]
			m := lab.Start(t, opensItsPort(t, server.program, server.script,
				"bind = \"on\"\nuser = \"65534\"\ngroup = \"65534\"\nlimits = { no_new_privileges = true }"))
			m.RedeployUnderLoad()
		})
	}
}

// lateBinder binds when a file is there.
const lateBinder = serveWith + `
import time
open('{dir}/runs', 'w').close()
while not os.path.exists('{dir}/go'): time.sleep(0.005)
s = socket.socket(); s.bind(('127.0.0.1', 3000)); s.listen(1)
serve(s)
`

func TestWorkerThatBindsAfterAnUpgradeGetsItsListener(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	m.Start(opensItsPort(t, "python3", lateBinder, `bind = "on"`))
	m.WorkerPID(1)
	m.Until("the worker runs", func() bool { _, err := os.Stat(m.Path("runs")); return err == nil })
	m.Upgrade(lab.Upgraded)
	m.File("go", "")
	m.Serves(1)
	if got := lab.Ask(t, m.Address(), "/"); got != "generation=1 " {
		t.Errorf("the answer is %q", got)
	}
	for generation := 2; generation <= 3; generation++ {
		m.Upgrade(lab.Upgraded)
		m.Reload()
		m.Serves(generation)
	}
}

// daemonizer starts a daemon, in generation 1, that leaves its session and forgets its environment, and serves.
const daemonizer = serveWith + `
if os.environ['SUPERVISORD_GENERATION'] == '1':
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0: os.execve('/usr/bin/python3', ['python3', '-S', '{dir}/daemon.py', '{dir}'], {})
        os._exit(0)
    os.wait()
s = socket.socket(); s.bind(('127.0.0.1', 3000)); s.listen(1)
serve(s)
`

// Such a process has the filter of its worker until it ends, whatever becomes of the worker and of supervisord.
func TestProcessThatOutlivesItsWorkerStillBinds(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	m.File("daemon.py", `
import errno, os, socket, sys, time
n = 1
while os.path.isdir(sys.argv[1]) and not os.path.exists('end'):
    os.chdir(sys.argv[1])
    if os.path.exists('ask%d' % n):
        s = socket.socket()
        try: s.bind(('127.0.0.1', 0)); text = 'bound'
        except OSError as e: text = errno.errorcode[e.errno]
        open('new', 'w').write(text); os.rename('new', 'answer%d' % n); n += 1
    time.sleep(0.005)
`)
	m.Start(opensItsPort(t, "python3", daemonizer, `bind = "on"`))
	m.Serves(1)
	ask := func(n int, when string) {
		m.File(fmt.Sprintf("ask%d", n), "")
		answer := fmt.Sprintf("answer%d", n)
		m.Until("the daemon has bound "+when, func() bool { return lab.Exists(m.Path(answer)) })
		if got := m.Read(answer); got != "bound" {
			t.Errorf("%s its bind fails with %s", when, got)
		}
	}
	ask(1, "beside its worker")
	m.Reload()
	m.Gone(1)
	ask(2, "after its worker")
	m.Upgrade(lab.Upgraded)
	ask(3, "after an upgrade")
	m.File("end", "")
	m.Until("the filter of generation 2 alone is left", func() bool {
		return lab.DescriptorKinds(t, m.PID())["anon_inode:seccomp notify"] == 1
	})
}

// A generation binds while supervisord is replaced again and again, under load.
func TestUpgradesUnderLoadWhileAWorkerBindsLoseNothing(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	m.Start(opensItsPort(t, "python3", lateBinder, `bind = "on"`))
	m.File("go", "")
	m.Serves(1)
	load := lab.PressNew(t, m.Address(), 4, 5*time.Millisecond)
	for generation := 2; generation <= 4; generation++ {
		lab.Must(t, os.Remove(m.Path("go")))
		lab.Must(t, os.Remove(m.Path("runs")))
		m.Signal(syscall.SIGHUP)
		m.Until("the next worker runs", func() bool { return lab.Exists(m.Path("runs")) })
		m.Upgrade(lab.Upgraded)
		m.File("go", "")
		m.Upgrade(lab.Upgraded)
		m.Serves(generation)
		m.Until("it has answered", func() bool { return load.By(generation) })
	}
	load.Lossless(t)
}

func TestCrashedServerThatOpensItsPortIsReplaced(t *testing.T) {
	t.Parallel()
	server := ownPort["Python's http.server"]
	m := lab.Start(t, opensItsPort(t, server.program, server.script, `bind = "on"`))
	m.Serves(1)
	lab.Must(t, syscall.Kill(m.WorkerPID(1), syscall.SIGKILL))
	m.AwaitN(2, lab.Says(lab.WorkerReady))
	if got := lab.Ask(t, m.Address(), "/"); got != "generation=1 " {
		t.Errorf("the answer is %q", got)
	}
}

func TestIPv4SocketOnAnIPv6ListenerIsRefusedWithARemedy(t *testing.T) {
	t.Parallel()
	config := opensItsPort(t, "python3",
		serveWith+"s = socket.socket(); s.bind(('0.0.0.0', 3000)); s.listen(1)\nserve(s)\n", `bind = "on"`)
	m := lab.Start(t, strings.Replace(config, `"127.0.0.1:0", binds = "127.0.0.1:3000"`, `"[::1]:0", binds = "[::]:3000"`,
		1))
	m.Await(lab.Contains("with an IPv4 socket, but the listener http is an IPv6 socket"), lab.Contains("[::]:3000"))
	if reason := m.Await(lab.Says(lab.TrialFailed)).Reason; !strings.Contains(reason, "let it bind [::]:3000") {
		t.Errorf("the trial failed because: %s", reason)
	}
}

// Web servers open both families, each with a socket of its own.
func TestServerWithASocketForEachFamilyGetsBothListeners(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	_, port, _ := strings.Cut(lab.Reserve(t), ":")
	m.Start(fmt.Sprintf(`
[program.web]
command = ["/usr/bin/python3", "-S", "-c", '''%s
four = socket.socket(); four.bind(('0.0.0.0', %s)); four.listen(1)
six = socket.socket(socket.AF_INET6); six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
six.bind(('::', %[2]s)); six.listen(1)
while True:
    for s in select.select([four, six], [], [])[0]: answer(s.accept()[0])
''']
bind = "on"
listen = [{ name = "four", address = "0.0.0.0:%[2]s" },
	{ name = "six", address = "[::]:%[2]s", socket.ipv6_only = true }]
`, serveWith, port))
	for generation := 1; generation <= 3; generation++ {
		m.Serves(generation)
		for _, at := range []string{"127.0.0.1:" + port, "[::1]:" + port} {
			if got, want := lab.Ask(t, at, "/"), fmt.Sprintf("generation=%d ", generation); got != want {
				t.Errorf("%s answers %q, want %q", at, got, want)
			}
		}
		m.Reload()
	}
	m.Serves(4)
}

func TestBindThatFitsNoListenerIsTheProgramsOwn(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, opensItsPort(t, "python3", serveWith+`
o = socket.socket(); o.bind(('127.0.0.1', 0)); o.listen(1)
assert o.getsockname()[1] not in (0, 3000)
u = socket.socket(socket.AF_UNIX); u.bind('{dir}/own.sock'); u.listen(1)
d = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); d.bind(('127.0.0.1', 0))
s = socket.socket(); s.bind(('127.0.0.1', 3000)); s.listen(1)
try: n = socket.socket(); n.bind(('127.0.0.1', 1 << 15)); n.close()
except OSError: pass
serve(s)
`, `bind = "on"`))
	m.Serves(1)
	if got := lab.Ask(t, m.Address(), "/"); got != "generation=1 " {
		t.Errorf("the answer is %q", got)
	}
	lab.Must(t, os.Remove(m.Path("own.sock")))
}

func TestUnixSocketOfTheProgramsOwnIsAnswered(t *testing.T) {
	t.Parallel()
	config := opensItsPort(t, "python3", serveWith+`
try: os.unlink('{dir}/own.sock')
except FileNotFoundError: pass
s = socket.socket(socket.AF_UNIX); s.bind('{dir}/own.sock'); s.listen(1)
assert s.getsockname() == '{dir}/web.sock', s.getsockname()
os.chmod('{dir}/own.sock', 0o660)
serve(s)
`, `bind = "on"`)
	m := lab.Start(t, strings.Replace(config, `"127.0.0.1:0", binds = "127.0.0.1:3000"`,
		`"unix:{dir}/web.sock", binds = "unix:{dir}/own.sock"`, 1))
	for generation := 1; generation <= 3; generation++ {
		m.Serves(generation)
		m.Reload()
	}
	m.Serves(4)
	lab.Must(t, os.Remove(m.Path("own.sock")))
}

func TestProgramThatOpensAUnixSocketIsToldToUseAPathOfItsOwn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ server, says string }{
		"at the listener's path": {"s.bind('{dir}/web.sock')", "write binds = `unix:{dir}/web.sock.own` in the listener"},
		"elsewhere": {"s.bind('{dir}/own.sock'); s.listen(1)",
			"listens on unix:{dir}/own.sock with a socket of its own: if clients are to reach it there, write binds = "},
		"at a path that it renames": {"s.bind('{dir}/new'); s.listen(1); os.rename('{dir}/new', '{dir}/own.sock')",
			"listens on unix:{dir}/new with a socket of its own: let it use the inherited socket"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Prepare(t)
			inFolder := strings.NewReplacer("{dir}", m.Dir, "`", `\"`)
			config := opensItsPort(t, "python3", serveWith+"import os\ns = socket.socket(socket.AF_UNIX)\n"+c.server+
				"\nserve(s)\n", `bind = "on"`)
			m.Start(strings.Replace(config, `"127.0.0.1:0", binds = "127.0.0.1:3000"`, `"unix:{dir}/web.sock"`, 1))
			m.Await(lab.Says("worker is not ready yet"), lab.Contains(inFolder.Replace(c.says)))
			os.Remove(m.Path("own.sock")) //nolint:errcheck // not every program has made it
		})
	}
}

func TestBindOffLeavesTheProgramToItself(t *testing.T) {
	t.Parallel()
	server := ownPort["Python's http.server"]
	config := strings.Replace(opensItsPort(t, server.program, server.script, `bind = "off"`), `, binds = "127.0.0.1:3000"`,
		"", 1)
	m := lab.Start(t, strings.Replace(config, "3000", "0", 1))
	m.Await(lab.Says("worker is not ready yet"), lab.Contains("a socket of its own: write bind = "))
}

// Without bind, a newcomer's server is named within two seconds, or when it ends because the port is taken, with the
// ways out.
func TestOrdinaryUsersServerThatOpensItsPortIsToldTheWaysOut(t *testing.T) {
	t.Parallel()
	lab.NeedRoot(t, "only root can run supervisord as another user, without what bind needs")
	for name, c := range map[string]struct {
		server string
		early  bool
		says   []string
	}{
		"at another port": {
			"s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(1)\nserve(s)\n", true,
			[]string{"python3 (PID ", ") listens on 127.0.0.1:", "write bind = ", "inherited socket, fd 3"},
		},
		"at the listener's": {
			"s = socket.socket(); s.bind(('127.0.0.1', PORT)); s.listen(1)\nserve(s)\n", false,
			[]string{"exited with status 1; if that is because supervisord holds the port that it opens: write bind = \"on\"",
				"inherited socket"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.PrepareOrdinary(t)
			at := lab.Reserve(t)
			_, port, _ := strings.Cut(at, ":")
			m.Start(fmt.Sprintf("[program.web]\ncommand = [\"/usr/bin/python3\", \"-S\", \"-c\", '''%s''']\nlisten = [%q]\n"+
				"ready = { timeout = \"3s\" }\n",
				serveWith+strings.Replace(c.server, "PORT", port, 1), at))
			told := []string{}
			if c.early {
				told = append(told, m.Await(lab.Says("worker is not ready yet"), lab.Gen(1)).Text, m.CtlOK("status"))
			}
			told = append(told, m.Await(lab.Says(lab.TrialFailed), lab.Gen(1)).Reason)
			out, code := m.Ctl("reload", "--timeout", "20s")
			if told = append(told, out); code == 0 {
				t.Error("the reload succeeds")
			}
			for _, text := range told {
				for _, word := range c.says {
					if !strings.Contains(text, word) {
						t.Errorf("%q is missing in:\n%s", word, text)
					}
				}
			}
		})
	}
}
