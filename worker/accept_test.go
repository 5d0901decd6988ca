package worker

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/ready"
)

// beforeAndAfter is the Python prelude of these workers: they run a first part, report it, and run the rest on USR1.
const beforeAndAfter = `
import os, select, signal, socket, struct, sys, threading, time
def sock(fd): return socket.socket(fileno=fd)
def say(text): socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(text.encode(), os.environ['NOTIFY_SOCKET'])
def usr1(): say('STATUS=there'); signal.sigwait([signal.SIGUSR1])
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
`

// inPython is a Python worker with ready.method = "accept".
func inPython(t *testing.T, script string, sockets ...int) Spec {
	t.Helper()
	if python == "" {
		t.Skip("python3 is not installed")
	}
	spec := probed(ready.Check{Method: ready.Accept}, python, "-c", beforeAndAfter+script)
	spec.Sockets, spec.Stderr.Kind = sockets, output.Inherit
	return spec
}

// there waits until a worker has reported its start.
func there(s *subject) {
	s.t.Helper()
	next[life.Spawned](s)
	if e := next[life.StatusText](s); e.Text != "there" {
		s.t.Fatalf("the worker says %q", e.Text)
	}
}

// notYet fails if one of these workers counts as ready although it does not wait in accept: for many probes.
func notYet(all map[string]*subject) {
	for _, s := range all {
		there(s)
	}
	time.Sleep(300 * time.Millisecond)
	for name, s := range all {
		if len(s.events) > 0 {
			e := <-s.events
			s.t.Errorf("%s: it does not wait: got %T: %v", name, e, e)
		}
	}
}

// waits is a way to wait for connections, and a first part during which the worker does not wait yet.
var waits = []struct{ name, before, after string }{
	{"asyncio", `
import asyncio
async def serve(): return await asyncio.start_server(lambda r, w: None, sock=sock(3))
loop = asyncio.new_event_loop()
server = loop.run_until_complete(serve())
`, "loop.run_forever()"},
	{"a blocking accept", "s = sock(3)", "s.accept()"},
	{"accept with a timeout", "s = sock(3); s.settimeout(1000)", "s.accept()"},
	{"select", "r = [3, os.pipe()[0]]", "select.select(r, [], [])"},
	{"select of a high number", "os.dup2(3, 900); os.close(3)", "select.select([900], [], [])"},
	{"poll", "p = select.poll(); p.register(os.pipe()[0], select.POLLIN); p.register(3, select.POLLIN)", "p.poll()"},
	{"epoll", "e = select.epoll(); e.register(3, select.EPOLLIN)", "e.poll()"},
	{"an exclusive, edge-triggered epoll",
		"e = select.epoll(); e.register(3, select.EPOLLIN | select.EPOLLET | (1 << 28))", "e.poll()"},
	{"an epoll in an epoll", "e = select.epoll(); e.register(3, select.EPOLLIN); o = select.epoll(); " +
		"o.register(e.fileno(), select.EPOLLIN)", "o.poll()"},
	{"a poll of an epoll", "e = select.epoll(); e.register(3, select.EPOLLIN)",
		"p = select.poll(); p.register(e.fileno(), select.POLLIN); p.poll()"},
	{"a pool of threads", "s = sock(3)", "[threading.Thread(target=s.accept).start() for _ in range(3)]"},
	{"a child", "s = sock(3)", "s.accept() if os.fork() == 0 else os.wait()"},
	{"a grandchild in a session of its own", "s = sock(3)", `
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        s.accept()
    os._exit(0)
time.sleep(1000)`},
	{"an orphan without its variables", "s = sock(3)", `
if os.fork() == 0:
    if os.fork() == 0:
        os.set_inheritable(3, True)
        os.execve(sys.executable, [sys.executable, '-c', 'import socket; socket.socket(fileno=3).accept()'],
            {'LC_ALL': 'C.UTF-8'})
    os._exit(0)
time.sleep(1000)`},
	{"all three generations of a family", "s = sock(3)", "os.fork(); os.fork(); s.accept()"},
	{"stdin", "s = sock(0)", "s.accept()"},
	{"udp: recvfrom", "s = sock(3)", "s.recvfrom(100)"},
	{"udp: recvmsg", "s = sock(3)", "s.recvmsg(100)"},
	{"udp: read", "s = sock(3)", "os.read(3, 100)"},
	{"udp: select", "s = sock(3)", "select.select([s], [], [])"},
}

func TestAcceptIsSeenAndNothingBeforeIt(t *testing.T) {
	l, all := launcher(t), map[string]*subject{}
	for _, w := range waits {
		kind := unix.SOCK_STREAM
		if strings.HasPrefix(w.name, "udp") {
			kind = unix.SOCK_DGRAM
		}
		spec := inPython(t, w.before+"\nusr1()\n"+w.after, rawSocket(t, kind))
		if w.name == "stdin" {
			spec.Places = []int{0}
		}
		all[w.name] = start(t, l, spec)
	}
	notYet(all)
	for name, s := range all {
		t.Log(name)
		s.signal(int(syscall.SIGUSR1))
		next[life.ReadySaid](s)
		s.end()
	}
}

// TestAcceptIsNotSeenWithoutAWaitOnThisSocket has workers that do something else, or wait for something else.
func TestAcceptIsNotSeenWithoutAWaitOnThisSocket(t *testing.T) {
	l, all := launcher(t), map[string]*subject{}
	const then = "\nsay('STATUS=there')\n"
	own := "o = socket.socket(); o.bind(('127.0.0.1', 0)); o.listen()\n"
	for name, script := range map[string]string{
		"it sleeps":                        then + "time.sleep(1000)",
		"it accepts from another socket":   own + then + "o.accept()",
		"it selects another socket":        own + then + "select.select([o], [], [])",
		"it polls another socket":          own + "p = select.poll(); p.register(o, select.POLLIN)" + then + "p.poll()",
		"it waits for another in an epoll": own + "e = select.epoll(); e.register(o, select.EPOLLIN)" + then + "e.poll()",
		"it waits to write":                then + "select.select([os.pipe()[0]], [3], [3])",
		"it polls for errors only":         "p = select.poll(); p.register(3, select.POLLPRI)" + then + "p.poll()",
		"an epoll for nothing":             "e = select.epoll(); e.register(3, 0)" + then + "e.poll()",
		"an epoll that has fired once": "e = select.epoll(); e.register(3, select.EPOLLIN | select.EPOLLONESHOT); c " +
			"= socket.create_connection(sock(os.dup(3)).getsockname()); e.poll()" + then + "e.poll()",
		"an epoll that nobody waits in": "e = select.epoll(); e.register(3, select.EPOLLIN)" + then + "time.sleep(1000)",
		"an epoll beside the one with it": "e = select.epoll(); e.register(3, select.EPOLLIN); f = select.epoll()" + then +
			"f.poll()",
		"another socket in the same number": own + "os.dup2(3, 9); os.dup2(o.fileno(), 3)" + then + "sock(3).accept()",
		"a closed descriptor in an epoll": "e = select.epoll(); e.register(3, select.EPOLLIN); os.close(3)" + then +
			"e.poll()",
		"it only locks":         "import fcntl; r, w = os.pipe()" + then + "os.read(r, 1)",
		"it spins":              then + "while True: pass",
		"it waits for a signal": then + "signal.pause()",
	} {
		all[name] = start(t, l, inPython(t, script, rawSocket(t, unix.SOCK_STREAM)))
	}
	notYet(all)
}

// TestWorkerThatAcceptsBeforeItHasStartedIsNotReady: one of its threads accepts while the first one works.
func TestWorkerThatAcceptsBeforeItHasStartedIsNotReady(t *testing.T) {
	s := start(t, launcher(t), inPython(t, "threading.Thread(target=sock(3).accept).start(); say('STATUS=there')\n"+
		"while not signal.sigpending(): pass\nsignal.sigwait([signal.SIGUSR1])", rawSocket(t, unix.SOCK_STREAM)))
	there(s)
	must.Become(t, "seen", func() bool { return s.w.Seen() == "it accepts, and has not come to rest since it began" })
	s.signal(int(syscall.SIGUSR1))
	next[life.ReadySaid](s)
	s.end()
}

// TestBusyWorkerIsReadyByWhatItAccepted: it never waits in accept while somebody can see it.
func TestBusyWorkerIsReadyByWhatItAccepted(t *testing.T) {
	l, all, listeners := launcher(t), map[string]*subject{}, []net.Listener{}
	for network, at := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")} {
		ln := must.Get(net.Listen(network, at))(t)
		defer ln.Close()
		f := must.Get(ln.(interface{ File() (*os.File, error) }).File())(t)
		defer f.Close()
		all[network] = start(t, l, inPython(t, "s = sock(3); s.setblocking(False); say('STATUS=there')\nwhile True:\n"+
			"  try: c, _ = s.accept()\n  except BlockingIOError: pass", int(f.Fd())))
		listeners = append(listeners, ln)
	}
	notYet(all)
	for _, ln := range listeners {
		c := must.Get(net.Dial(ln.Addr().Network(), ln.Addr().String()))(t)
		defer c.Close()
		next[life.ReadySaid](all[ln.Addr().Network()])
	}
}

// TestWorkerThatWaitsByIOUringIsReadyAfterTheFallback: the kernel does not show what it waits for.
func TestWorkerThatWaitsByIOUringIsReadyAfterTheFallback(t *testing.T) {
	l := launcher(t)
	const ring = "import ctypes\n" +
		"if ctypes.CDLL(None, use_errno=True).syscall(425, 1, ctypes.create_string_buffer(120)) < 0: say('STATUS=none')"
	spec := inPython(t, ring+"\ntime.sleep(1000)", rawSocket(t, unix.SOCK_STREAM))
	spec.Ready.Fallback = 10 * time.Millisecond
	s := started(t, l, spec)
	switch e := s.next().(type) {
	case life.StatusText:
		t.Skip("io_uring is not available")
	case life.Unseen:
		if !strings.Contains(e.Err.Error(), "io_uring") {
			t.Errorf("the reason is %v", e.Err)
		}
	default:
		t.Fatalf("got %T: %v", e, e)
	}
	next[life.ReadySaid](s)
}
