package attack

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab"
)

// evil is a hostile Python program of an ordinary user beside another program, which must not suffer. In its script
// {dir} is the directory of the test, and say() sends to its NOTIFY_SOCKET.
func evil(t *testing.T, table, script string) *lab.Supervisord {
	t.Helper()
	m := lab.Prepare(t)
	user := ""
	if os.Geteuid() == 0 {
		lab.OpenToAll(t)
		user = `user = "nobody"`
	}
	python := "/usr/bin/python3" // every user can execute this one
	if _, err := os.Stat(python); err != nil {
		t.Skip("there is no ", python)
	}
	m.File("evil.py", `
import array, os, signal, socket, struct, sys, time
def say(text): socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(text.encode(), os.environ['NOTIFY_SOCKET'])
`+script)
	lab.Must(t, os.Mkdir(m.Path("open"), 0o777))
	lab.Must(t, os.Chmod(m.Path("open"), 0o777))
	m.Start(lab.Hello + fmt.Sprintf(`
[program.evil]
command = [%q, "-S", "{dir}/evil.py"]
%s
%s
[program.evil.stop]
timeout = "500ms"
`, python, user, table))
	m.Await(lab.Says(lab.GenerationServes), lab.Program("web"))
	return m
}

// wellBeside fails unless the other program can be reloaded, the evil one stops with this exit code, and clients get
// their answers.
func wellBeside(m *lab.Supervisord, code int) {
	m.T.Helper()
	m.CtlOK("reload", "web", "--drained", "--timeout", "20s")
	m.CtlOK("status")
	m.CtlFails(code, nil, "stop", "evil", "--timeout", "20s")
	m.CtlOK("status")
	m.Finish()
}

const lingering = `
signal.signal(signal.SIGALRM, lambda *a: None)
signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1) # ends its own close, where that is the last
keep = []
def leave(to, *where):
    l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen(1)
    c = socket.socket(); c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 3600))
    c.connect(l.getsockname())
    keep.append(l.accept()); c.setblocking(False)
    try:
        while True: c.send(b'x' * 65536)
    except BlockingIOError: pass
    # so that the copy here is closed before the other end has read so far
    for i in range(30): to.sendmsg([b'STATUS=busy\n' * 50], [], 0, *where)
    to.sendmsg([b'STATUS=x\n'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [c.fileno()]))], 0, *where)
    os.close(c.detach())
box = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
`

func TestLingeringSocketsDelayOnlyTheirSender(t *testing.T) {
	for name, c := range map[string]struct{ table, script string }{
		"to NOTIFY_SOCKET": {"", "for i in range(4): leave(box, os.environ['NOTIFY_SOCKET'])"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := evil(t, c.table+"\nready = { method = \"notify\" }",
				lingering+"say('READY=1')\ntime.sleep(0.2)\n"+c.script+"\nopen('{dir}/open/sent', 'w')\ntime.sleep(1000)")
			m.Until("the messages are sent", func() bool { return lab.Exists(m.Path("open/sent")) })
			wellBeside(m, 0)
		})
	}
}

// It waits for clients by poll(2) with an array that is in a file of the disk: who looks what it waits for waits, too.
func TestWorkerWithMemoryOnADiskThatHangsDelaysNothing(t *testing.T) {
	disk := newDisk(t)
	lab.Must(t, os.Chmod(filepath.Dir(disk.Dir), 0o755))
	lab.Must(t, exec.Command("dd", "if=/dev/zero", "of="+disk.Path("page"), "bs=4096", "count=1", "status=none").Run())
	m := evil(t, "listen = [\"127.0.0.1:0\"]\nready = { method = \"accept\", timeout = \"1m\" }", `
import ctypes, threading
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
page, file = libc.mmap(None, 4096, 3, 0x22, -1, 0), os.open('`+disk.Path("page")+`', os.O_RDONLY)
def replace():
    open('{dir}/open/began', 'w')
    while not os.path.exists('{dir}/open/go'): time.sleep(0.01)
    libc.mmap(page, 4096, 1, 0x11, file, 0)
threading.Thread(target=replace, daemon=True).start()
libc.poll(ctypes.c_void_p(page), 1, -1)`)
	m.Until("it has opened the file", func() bool { return lab.Exists(m.Path("open/began")) })
	disk.Hang()
	m.File("open/go", "")
	m.Until("supervisord looks", disk.Waits)
	wellBeside(m, 0)
}

func TestWorkerCannotSpeakForAnotherProgramOfItsUser(t *testing.T) {
	lab.NeedRoot(t, "run workers as another user")
	m := evil(t, "ready = { method = \"notify\" }", `
me, others = os.environ['NOTIFY_SOCKET'], set()
say('READY=1')
while len(others) == 0:
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try: environ = dict(v.split('=', 1) for v in open('/proc/%s/environ' % pid).read().split('\0') if '=' in v)
        except OSError: continue
        path = environ.get('NOTIFY_SOCKET', me)
        if path.startswith('{dir}') and path != me and environ.get('SUPERVISORD_PROGRAM') == 'victim': others.add(path)
for path in others: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'READY=1', path)
open('{dir}/open/sent', 'w')
time.sleep(1000)`)
	gate := m.Gate("gate")
	config := strings.TrimPrefix(m.Read("config.toml"),
		"[supervisor]\nruntime_dir = \""+m.Dir+"/run\"\nlog_level = \"debug\"\n")
	m.Write(config + "\n[program.victim]\ncommand = [{worker}, \"gate=" + gate +
		"\"]\nuser = \"nobody\"\nready = { method = \"notify\" }\n")
	m.Signal(syscall.SIGHUP)
	m.Until("it has sent a message for the other program", func() bool { return lab.Exists(m.Path("open/sent")) })
	m.CtlOK("reload", "web", "--timeout", "20s") // earlier messages have been read by then
	m.Never(lab.Says(lab.GenerationServes), lab.Program("victim"))
	m.Open(gate)
	m.Await(lab.Says(lab.GenerationServes), lab.Program("victim"))
}

func TestProbesThatGetNoAnswerLeaveNoDescriptors(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(lab.Plain, "\nready", "\nworkers = 4\nready", 1)+`
[program.web.health]
method = "http"
url = "http://`+nobodyAccepts(t)+`/"
interval = "20ms"
timeout = "20ms"
failures = 1000
`)
	m.Serves(1)
	before := len(lab.Descriptors(t, m.PID()))
	for range 20 {
		time.Sleep(100 * time.Millisecond)
		if now := len(lab.Descriptors(t, m.PID())); now > before+8 {
			t.Fatalf("%d descriptors, and %d before", now, before)
		}
	}
}

// nobodyAccepts returns an address at which a SYN gets no answer because its queue is full.
func nobodyAccepts(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	lab.Must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	lab.Must(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	lab.Must(t, unix.Listen(fd, 0))
	at, err := unix.Getsockname(fd)
	lab.Must(t, err)
	for range 3 {
		c, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		lab.Must(t, err)
		t.Cleanup(func() { unix.Close(c) })
		if err := unix.Connect(c, at); err != nil && err != unix.EINPROGRESS {
			t.Fatal(err)
		}
	}
	return "127.0.0.1:" + strconv.Itoa(at.(*unix.SockaddrInet4).Port)
}

func TestWorkerOfAnotherUserCanOpenItsStdout(t *testing.T) {
	lab.NeedRoot(t, "run workers as another user")
	t.Parallel()
	m := lab.Start(t, `
[program.web]
command = ["sh", "-c", "echo by name >/dev/stdout; echo by name, too >/dev/stderr; exec sleep 1000"]
user = "nobody"
stdout = "capture"
stderr = "{dir}/err"
ready = { method = "delay", delay = "300ms" }
`)
	m.Serves(1)
	if out := m.CtlOK("logs", "web"); !strings.Contains(out, "by name") {
		t.Errorf("the log has %q", out)
	}
	m.Until("the file has its line", func() bool { return m.Read("err") == "by name, too\n" })
}
