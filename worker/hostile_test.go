package worker

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/ready"
)

// inPythonReady is a Python worker that reports its readiness itself.
func inPythonReady(t *testing.T, script string) Spec {
	spec := inPython(t, script)
	spec.Ready = ready.Check{Method: ready.Notify}
	return spec
}

// othersAreHeard fails unless an ordinary worker can start, get ready and exit.
func othersAreHeard(t *testing.T, l *Launcher) {
	t.Helper()
	s := started(t, l, shell(`echo >&$NOTIFY_FD; exec sleep 100`))
	next[life.ReadySaid](s)
	s.kill()
}

func TestKillIsSentAgainUntilTheWorkerHasEnded(t *testing.T) {
	l := launcher(t)
	s, pid := sleeper(t, l, nil)
	s.w.mu.Lock()
	pidfd := s.w.process.pidfd
	s.w.process.pidfd, s.w.process.child = -1, false // as if no signal could reach it
	s.w.deliver(Pending{Signal: syscall.SIGKILL, Group: true})
	s.w.process.pidfd, s.w.process.child = pidfd, true
	s.w.mu.Unlock()
	if e := next[life.Exited](s); e.PID != pid || e.Status.Signal() != syscall.SIGKILL {
		t.Error(e)
	}
}

func TestDescendantMaySpeakForItsWorker(t *testing.T) {
	l := launcher(t)
	for name, script := range map[string]string{
		"a child that stays":     "os.fork() == 0 and say('READY=1')",
		"a child that has ended": "os.fork() == 0 and (say('READY=1'), os._exit(0)) or os.wait()",
		"a grandchild":           "os.fork() == 0 and (os.fork() == 0 and say('READY=1'))",
		"a daemon that has forked twice": "os.fork() == 0 and (os.setsid(), os.fork() == 0 and " +
			"(time.sleep(0.1), say('READY=1')) or os._exit(0)) or os.wait()",
		"a daemon that has forgotten where it was": "os.fork() == 0 and (os.setsid(), os.fork() == 0 and " +
			"(time.sleep(0.1), os.chdir('/'), say('READY=1')) or os._exit(0)) or os.wait()",
		"a child in another process group": "os.fork() == 0 and (os.setpgid(0, 0), say('READY=1'))",
	} {
		t.Run(name, func(t *testing.T) {
			s := started(t, l, inPythonReady(t, script+"\ntime.sleep(1000)"))
			next[life.ReadySaid](s)
			s.kill()
		})
	}
}

func TestMemoryThatIsWithheldDoesNotKeepAWorkerFromEnding(t *testing.T) {
	l := launcher(t)
	path := slowFile(t, l)
	fd := rawSocket(t, unix.SOCK_STREAM)
	s := start(t, l, inPython(t, fmt.Sprintf(`
import ctypes
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
page = libc.mmap(None, 4096, 3, 0x22, -1, 0)
def replace():
    time.sleep(0.2)
    libc.mmap(page, 4096, 1, 0x11, os.open(%q, os.O_RDONLY), 0)
threading.Thread(target=replace, daemon=True).start()
libc.poll(ctypes.c_void_p(page), 1, -1)`, path), fd))
	next[life.Spawned](s)
	await(t, "no thread reads its memory", func() bool { return threadsThatCannotBeInterrupted() > 0 })
	begin := time.Now()
	s.kill()
	if took := time.Since(begin); took > sideTimeout/2 {
		t.Errorf("its end took %v", took)
	}
	othersAreHeard(t, l)
}

// threadsThatCannotBeInterrupted counts threads of this process in uninterruptible sleep, such as a read that waits for
// a page of a file.
func threadsThatCannotBeInterrupted() (n int) {
	threads, _ := os.ReadDir("/proc/self/task")
	for _, thread := range threads {
		text, _ := os.ReadFile("/proc/self/task/" + thread.Name() + "/stat")
		if strings.Contains(string(text), ") D ") {
			n++
		}
	}
	return n
}

// withholds maps a page of memory that never arrives: a process that reads it waits forever (userfaultfd(2)).
const withholds = `
import ctypes, platform
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
def withheld():
    page = libc.mmap(None, 8192, 3, 0x22, -1, 0)
    fault = libc.syscall({'x86_64': 323, 'aarch64': 282}[platform.machine()], 0o4000)
    api = (ctypes.c_uint64 * 3)(0xAA, 0, 0)
    area = (ctypes.c_uint64 * 4)(page + 4096, 4096, 1, 0)
    def refused(number, what): return libc.ioctl(fault, ctypes.c_ulong(number), what)
    if fault < 0 or refused(0xC018AA3F, api) or refused(0xC020AA00, area):
        say('STATUS=skip'); time.sleep(1000)
    return page + 4096
`

func TestPipeLockedByItsWriterDelaysNothing(t *testing.T) {
	needRoot(t, "userfaultfd")
	l := launcher(t)
	s := start(t, l, inPythonReady(t, withholds+`
import threading
class iovec(ctypes.Structure): _fields_ = [('at', ctypes.c_void_p), ('size', ctypes.c_size_t)]
page = withheld()
pieces = (iovec * 2)(iovec(page - 4096, 4096), iovec(page, 4096))
threading.Thread(target=lambda: libc.writev(int(os.environ['NOTIFY_FD']), pieces, 2), daemon=True).start()
time.sleep(0.3)
say('READY=1')
time.sleep(1000)`))
	next[life.Spawned](s)
	if e, skip := s.next().(life.StatusText); skip {
		t.Skip("userfaultfd cannot be used here: ", e)
	}
	othersAreHeard(t, l)
	if err := s.w.Signal(syscall.SIGTERM, false); err != nil {
		t.Error(err)
	}
	next[life.Exited](s)
}
