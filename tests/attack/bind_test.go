package attack

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// binder is an evil program with a listener that it may bind at port 3000.
func binder(t *testing.T, script string) *lab.Supervisord {
	t.Helper()
	return evil(t, `
listen = [{ name = "own", address = "127.0.0.1:0", binds = "127.0.0.1:3000" }]
bind = "on"
ready = { timeout = "1m" }
`, `
import threading, ctypes
def bind(port, *options):
    s = socket.socket()
    for o in options: s.setsockopt(socket.SOL_SOCKET, o, 1)
    try: s.bind(('127.0.0.1', port))
    except OSError as e: return s, e.errno
    return s, 0
def tell(name, text):
    open('{dir}/open/new', 'w').write(str(text))
    os.rename('{dir}/open/new', '{dir}/open/' + name)
`+script)
}

// told waits for what the evil program tells.
func told(m *lab.Supervisord, name string) string {
	m.T.Helper()
	m.Until("there is "+name, func() bool { return lab.Exists(m.Path("open/" + name)) })
	return m.Read("open/" + name)
}

func webAddress(m *lab.Supervisord) string {
	m.T.Helper()
	for _, p := range m.Status().Programs {
		if p.Name == "web" {
			return p.Listeners[0].Address
		}
	}
	m.T.Fatal("there is no program web")
	return ""
}

func TestBindsWithoutEndDisturbNoOtherProgram(t *testing.T) {
	for name, port := range map[string]string{"of its listener": "3000", "of any port": "0"} {
		t.Run(name, func(t *testing.T) {
			m := binder(t, `
tell('began', 1)
def loop():
    while True: bind(`+port+`)[0].close()
for _ in range(3): threading.Thread(target=loop).start()
`)
			told(m, "began")
			load := lab.PressNew(t, webAddress(m), 4, 5*time.Millisecond)
			for range 3 {
				m.CtlOK("reload", "web", "--drained", "--timeout", "20s")
			}
			load.Lossless(t)
			wellBeside(m, 0)
		})
	}
}

// One thread binds while another changes the port in its memory.
func TestAddressThatChangesWhileItIsReadGetsNoSocketOfAnotherProgram(t *testing.T) {
	m := binder(t, `
libc = ctypes.CDLL(None)
tell('began', 1)
while not os.path.exists('{dir}/web'): time.sleep(0.01)
web = int(open('{dir}/web').read().rsplit(':')[1])
addresses = [struct.pack('=H', 2) + struct.pack('!H', port) + bytes([127, 0, 0, 1]) + bytes(8)
    for port in (3000, web, 1)] + [b'\xff' * 16]
memory = ctypes.create_string_buffer(addresses[0], 16)
over = False
def rewrite():
    while not over:
        for a in addresses: ctypes.memmove(memory, a, 16)
rewriting = threading.Thread(target=rewrite); rewriting.start()
own, got, wrong = os.fstat(3).st_ino, 0, []
sys.setswitchinterval(1e-5)
end = time.time() + 2
while time.time() < end:
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    before = os.fstat(s.fileno()).st_ino
    if libc.bind(s.fileno(), memory, 16) == 0:
        after = os.fstat(s.fileno()).st_ino
        got += after == own
        if after not in (own, before) or s.getsockname()[1] == web: wrong.append(s.getsockname())
    s.close()
over = True; rewriting.join()
tell('result', '%d of %r' % (got > 0, wrong))
time.sleep(1000)
`)
	m.File("web", webAddress(m))
	if got := told(m, "result"); got != "1 of []" {
		t.Error("it got its own listener (1) and others of", got)
	}
	wellBeside(m, 0)
}

// In the middle of bind(2) processes are stopped, killed, and replaced by exec(3).
func TestProcessesThatEndInTheMiddleOfBindLeaveNothing(t *testing.T) {
	m := binder(t, `
from select import epoll
def loop():
    while True:
        s = socket.socket(); e = epoll(); e.register(s.fileno())
        try: s.bind(('127.0.0.1', 3000))
        except OSError: pass
        s.close(); e.close()
def child(end):
    pid = os.fork()
    if pid == 0:
        if end == 'exec': threading.Thread(target=loop).start(); time.sleep(0.004); os.execv('/bin/true', ['true'])
        loop()
    time.sleep(0.003)
    if end == 'stop':
        os.kill(pid, signal.SIGSTOP); time.sleep(0.003)
        os.kill(pid, signal.SIGCONT); time.sleep(0.001); os.kill(pid, signal.SIGSTOP)
    if end != 'exec': os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
tell('began', 1)
while not os.path.exists('{dir}/go'): time.sleep(0.01)
for _ in range(60):
    for end in 'stop', 'kill', 'exec': child(end)
s, error = bind(3000)
tell('result', '%d %r' % (error, os.fstat(s.fileno()).st_ino == os.fstat(3).st_ino))
time.sleep(1000)
`)
	told(m, "began")
	m.CtlOK("status")
	before := lab.DescriptorKinds(t, m.PID())
	m.File("go", "")
	if got := told(m, "result"); got != "0 True" {
		t.Error("after that, the errno of bind, and whether it got the listener, are", got)
	}
	m.Until("supervisord has no descriptor more", func() bool {
		for kind, n := range lab.DescriptorKinds(t, m.PID()) {
			if n > before[kind] {
				return false
			}
		}
		return true
	})
	wellBeside(m, 0)
}

// filters is Python that installs a seccomp filter: install(action, flags) acts on bind, or on another call.
const filters = `
def install(action, flags, call={'x86_64': 49, 'aarch64': 200}[os.uname().machine]):
    libc = ctypes.CDLL(None, use_errno=True)
    code = struct.pack('=HBBI', 0x20, 0, 0, 0) + struct.pack('=HBBI', 0x15, 0, 1, call)
    code += struct.pack('=HBBI', 6, 0, 0, action) + struct.pack('=HBBI', 6, 0, 0, 0x7fff0000)
    program = ctypes.create_string_buffer(code, len(code))
    libc.prctl(38, 1, 0, 0, 0)
    seccomp = {'x86_64': 317, 'aarch64': 277}[os.uname().machine]
    got = libc.syscall(seccomp, 1, flags, struct.pack('=HxxxxxxQ', 4, ctypes.addressof(program)))
    return got, ctypes.get_errno()
`

func TestFilterOfTheWorkersOwnGoesOn(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"its error is what bind returns": {"install(0x50000 | 13, 0)\ntell('result', bind(3000)[1])", "13"},
		"its notifications are refused, EBUSY": {"_, errno = install(0x7fc00000, 8)\ntell('result', (errno, bind(3000)[1]))",
			"(16, 0)"},
	} {
		t.Run(name, func(t *testing.T) {
			m := binder(t, filters+"\ntell('began', 1)\n"+c.script+"\ntime.sleep(1000)\n")
			if got := told(m, "result"); got != c.want {
				t.Errorf("it got %s, want %s", got, c.want)
			}
			wellBeside(m, 0)
		})
	}
}

// below makes supervisord run below a filter whose notifications another process takes.
func below(m *lab.Supervisord) {
	script := m.File("below.py", "import ctypes, os, struct, sys, time\n"+filters+`
fd, _ = install(0x7fc00000, 8, 9999)
assert fd > 0
if os.fork() == 0:
    ctypes.CDLL(None).prctl(1, 9)
    while os.getppid() != 1: time.sleep(0.05)
    os._exit(0)
os.execv(sys.argv[1], sys.argv[1:])
`)
	m.Via = []string{"/usr/bin/python3", "-S", script}
}

const opensPort = `
import os, socket
s = socket.socket(); s.bind(('127.0.0.1', 3000)); s.listen(16)
while True:
    c, _ = s.accept(); c.recv(4096)
    c.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nyes'); c.close()
`

// opener is a program that opens port 3000.
func opener(more string) string {
	return fmt.Sprintf(`
[program.web]
command = ["/usr/bin/python3", "-S", "-c", '''%s''']
listen = [{ name = "http", address = "127.0.0.1:0", binds = "127.0.0.1:3000" }]
ready = { timeout = "20s" }
%s
`, opensPort, more)
}

func TestSupervisordBelowAnotherListenerGoesOnWithout(t *testing.T) {
	lab.NeedRoot(t, "filter without no_new_privs")
	m := lab.Prepare(t)
	below(m)
	m.Start(lab.Hello)
	m.Await(lab.Says(lab.GenerationServes))
	m.Write(opener(`bind = "on"`))
	cmd := exec.Command(m.Via[0], append(m.Via[1:], lab.Built.Supervisord, "check", "-c", m.Path("config.toml"))...)
	cmd.Env = m.Environ()
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "supervisord runs below another one") {
		t.Errorf("check: %v\n%s", err, out)
	}
	m.Write(lab.Hello)
	m.CtlOK("reload", "web", "--timeout", "20s")
}

// Programs of 32 bits ask in two ways: by calls of their own, and by socketcall(2), whose arguments are in memory.
func TestProgramOf32BitsGetsTheListener(t *testing.T) {
	lab.Need(t, "gcc")
	for name, bind := range map[string]string{
		"bind":       "sc(361,s,(long)a,16); sc(363,s,16,0);",
		"socketcall": "long b[3]={s,(long)a,16}; sc(102,2,(long)b,0); long l[2]={s,16}; sc(102,4,(long)l,0);",
	} {
		t.Run(name, func(t *testing.T) {
			m := lab.Prepare(t)
			source := m.File("server.c", `
static long sc(long n,long a,long b,long c){
  long r;
  __asm__ volatile("int $0x80":"=a"(r):"a"(n),"b"(a),"c"(b),"d"(c),"S"(0L):"memory");
  return r;
}
static const char answer[]="HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nyes";
void _start(void){
#ifdef END
  sc(1,0,0,0);
#endif
  static const unsigned char a[16]={2,0,3000>>8,3000&255,127,0,0,1};
  char buffer[4096];
  long s=sc(359,2,1,0);
  `+bind+`
  for(;;){
    long c=sc(364,s,0,0); if(c<0) sc(1,1,0,0);
    sc(3,c,(long)buffer,4096); sc(4,c,(long)answer,sizeof answer-1); sc(6,c,0,0); }
}
`)
			for _, program := range []string{"-DEND -o" + m.Path("end"), "-o" + m.Path("server")} {
				flags := append([]string{"-m32", "-static", "-nostdlib", "-fno-stack-protector", source},
					strings.Fields(program)...)
				if out, err := exec.Command("gcc", flags...).CombinedOutput(); err != nil {
					t.Skipf("gcc does not compile for 32 bits: %v\n%s", err, out)
				}
			}
			if err := exec.Command(m.Path("end")).Run(); err != nil {
				t.Skip("programs of 32 bits do not run here:", err)
			}
			m.Start(`
[program.web]
command = ["{dir}/server"]
listen = [{ name = "http", address = "127.0.0.1:0", binds = "127.0.0.1:3000" }]
bind = "on"
stop = { signal = "KILL" }
`)
			for generation := 1; generation <= 2; generation++ {
				m.Serves(generation)
				if got := lab.Ask(t, m.Address(), "/"); got != "yes" {
					t.Errorf("the answer is %q", got)
				}
				m.Reload()
			}
			m.Serves(3)
		})
	}
}

// Privileges that a program gets by exec are lost only where no_new_privs is needed, and asked for.
func TestBindTakesNoPrivilegeAwayUnlessAskedTo(t *testing.T) {
	lab.NeedRoot(t, "make a program that sets its user")
	for name, c := range map[string]struct {
		ordinary           bool
		bind, privs, proof string
	}{
		"root's, auto":             {false, "auto", "0", "root"},
		"root's, on":               {false, "on", "0", "root"},
		"an ordinary user's, auto": {true, "auto", "0", "root"},
		"an ordinary user's, on":   {true, "on", "1", "nobody"},
	} {
		t.Run(name, func(t *testing.T) {
			m := lab.Prepare(t)
			user := "user = \"nobody\"\n"
			lab.OpenToAll(t)
			if c.ordinary {
				m, user = lab.PrepareOrdinary(t), ""
			}
			setuid := m.File("whoami", lab.Text(lab.Need(t, "whoami")))
			lab.Must(t, os.Chmod(setuid, 0o755|os.ModeSetuid))
			m.Start(fmt.Sprintf(`
[program.web]
command = ["/usr/bin/python3", "-S", "-c", '''
import os, subprocess, time
open('/proc/self/comm', 'w').write(subprocess.check_output(['{dir}/whoami'], text=True).strip())
time.sleep(1000)
''']
listen = ["127.0.0.1:0"]
bind = %q
ready = { method = "delay", delay = "10ms" }
%s`, c.bind, user))
			pid := m.WorkerPID(1)
			m.Until("it has said who it is",
				func() bool { return !strings.Contains("python3 (python3)", lab.ProcStatus(pid)["Name"]) })
			if s := lab.ProcStatus(pid); s["Name"] != c.proof || s["NoNewPrivs"] != c.privs {
				t.Errorf("it is %s, and NoNewPrivs is %s", s["Name"], s["NoNewPrivs"])
			}
		})
	}
}

// A worker that changes its user lets no other process look at it without CAP_SYS_PTRACE, which containers do not have.
func TestBindAfterAChangeOfTheUserNeedsTheRightToLook(t *testing.T) {
	lab.NeedRoot(t, "change the user")
	lab.Need(t, "setpriv")
	for name, c := range map[string]struct {
		without []string
		more    string
		script  string
		answers bool
	}{
		"by itself": {nil, "", "os.setgid(65534); os.setuid(65534)", true},
		"by itself, without CAP_SYS_PTRACE": {[]string{"setpriv", "--bounding-set", "-sys_ptrace"}, "",
			"os.setgid(65534); os.setuid(65534)", false},
		"by supervisord without CAP_SYS_PTRACE": {[]string{"setpriv", "--bounding-set", "-sys_ptrace"},
			"user = \"65534\"\ngroup = \"65534\"", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			m := lab.Prepare(t)
			m.Via = c.without
			at := lab.Reserve(t)
			_, port, _ := strings.Cut(at, ":")
			config := strings.ReplaceAll(opener("bind = \"on\"\n"+c.more), "3000", port)
			m.Start(strings.Replace(config, "import os, socket\n", "import os, socket\n"+c.script+"\n", 1))
			if c.answers {
				m.Serves(1)
				if got := lab.Ask(t, m.Address(), "/"); got != "yes" {
					t.Errorf("the answer is %q", got)
				}
				return
			}
			said := m.Await(lab.Says(lab.TrialFailed), lab.Gen(1)).Reason
			for _, word := range []string{"is not answered: its memory cannot be read", "CAP_SYS_PTRACE", "user ="} {
				if !strings.Contains(said, word) {
					t.Errorf("%q is missing in:\n%s", word, said)
				}
			}
		})
	}
}

// The kernel lets nobody but CAP_SYS_PTRACE look at a process whose binary its user may execute and not read.
// supervisord itself may be such a binary; a worker that is one is told.
func TestBinaryThatItsUserMayNotRead(t *testing.T) {
	lab.NeedRoot(t, "make a binary that its user cannot read")
	m := lab.PrepareOrdinary(t)
	closed := func(name, binary string) string {
		lab.Must(t, exec.Command("cp", binary, m.Path(name)).Run())
		lab.Must(t, os.Chmod(m.Path(name), 0o711))
		return m.Path(name)
	}
	m.Write(opener(`bind = "on"`))
	cmd := exec.Command(closed("supervisord", lab.Built.Supervisord), "check", "-c", m.Path("config.toml"))
	cmd.Env, cmd.SysProcAttr = m.Environ(), &syscall.SysProcAttr{Credential: m.As}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("check: %v\n%s", err, out)
	}
	at := lab.Reserve(t)
	m.Start(fmt.Sprintf(`
[program.web]
command = [%q, "-address", %q]
listen = [{ name = "own", address = "127.0.0.1:0", binds = %[2]q }]
bind = "on"
dialect = []
`, closed("hello", lab.Built.Hello), at))
	m.Await(lab.Says("worker is not ready yet"), lab.Contains("(hello) is not answered: its memory cannot be read"))
}
