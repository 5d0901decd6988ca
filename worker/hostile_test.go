package worker

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/ready"
)

// lingers is a Python prelude: lingering() returns a TCP socket whose last close waits for an hour; leave() sends one
// over a socket and closes its own copy.
const lingers = `
import array, struct
signal.signal(signal.SIGALRM, lambda *a: None)
signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1) # where it closes last itself, that ends
def lingering():
    l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen(1)
    c = socket.socket(); c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 3600))
    c.connect(l.getsockname())
    keep.append(l.accept()); c.setblocking(False)
    try:
        while True: c.send(b'x' * 65536)
    except BlockingIOError: return c
keep = []
def leave(to, text, *where):
    c = lingering()
    to.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [c.fileno()]))], 0, *where)
    os.close(c.detach())
box = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
`

// inPythonReady is a Python worker that reports its readiness itself.
func inPythonReady(t *testing.T, script string) Spec {
	spec := inPython(t, script)
	spec.Ready = ready.Check{Method: ready.Notify}
	return spec
}

// othersAreHeard fails unless an ordinary worker can start, get ready and exit.
func othersAreHeard(t *testing.T, l *Launcher) {
	t.Helper()
	s := start(t, l, shell(`echo >&$NOTIFY_FD; exec sleep 100`))
	must[life.Spawned](s)
	must[life.ReadySaid](s)
	s.kill()
}

func TestLingeringSocketInTheQueueOfAnExitedWorkerDelaysNothing(t *testing.T) {
	l := launcher(t)
	spec := inPythonReady(t, lingers+`
say('READY=1')
say('STATUS=unread')
for i in range(5): leave(box, b'STATUS=slow', os.environ['NOTIFY_SOCKET'])
say('STATUS=last')
os._exit(7)`)
	s := &subject{t: t, events: make(chan life.Event, 100), unsaved: true} // the launcher reads nothing after READY=1
	s.w = l.Start(spec, s.post)
	t.Cleanup(s.end)
	must[life.Spawned](s)
	must[life.ReadySaid](s)
	for must[life.StatusText](s).Text != "last" {
	}
	if e := must[life.Exited](s); e.Status.ExitStatus() != 7 {
		t.Error(e)
	}
	othersAreHeard(t, l)
}

func TestWorkerCannotLeaveItsProcessGroup(t *testing.T) {
	s := start(t, launcher(t), inPythonReady(t, `
for leave in os.setsid, os.setpgrp, lambda: os.setpgid(0, os.getpgid(os.getppid())):
    try: leave()
    except PermissionError: pass
say('READY=1'); time.sleep(1000)`))
	pid := must[life.Spawned](s).PID
	must[life.ReadySaid](s)
	if group, err := unix.Getpgid(pid); err != nil || group != pid {
		t.Errorf("group %d of process %d, %v", group, pid, err)
	}
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
	if e := must[life.Exited](s); e.PID != pid || e.Status.Signal() != syscall.SIGKILL {
		t.Error(e)
	}
}

func TestWorkersOfOneUserCannotSpeakForEachOther(t *testing.T) {
	l := launcher(t)
	for name, script := range map[string]string{
		"itself":  "box.sendto(b'READY=1', path)",
		"a child": "os.fork() == 0 and (box.sendto(b'READY=1', path), time.sleep(1000))",
	} {
		t.Run(name, func(t *testing.T) {
			victim := start(t, l, inPythonReady(t,
				"signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]); say('STATUS=waits'); "+
					"signal.sigwait([signal.SIGUSR1]); say('STATUS=true'); time.sleep(1000)"))
			must[life.Spawned](victim)
			must[life.StatusText](victim)
			forger := start(t, l, inPythonReady(t, fmt.Sprintf(`box = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); path = %q
%s
time.sleep(0.1); say('STATUS=done'); time.sleep(1000)`, notifyPath(t, victim.w), script)))
			must[life.Spawned](forger)
			must[life.StatusText](forger)
			victim.signal(int(syscall.SIGUSR1))
			if e := must[life.StatusText](victim); e.Text != "true" {
				t.Error(e)
			}
			forger.kill()
			victim.kill()
		})
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
			s := start(t, l, inPythonReady(t, script+"\ntime.sleep(1000)"))
			must[life.Spawned](s)
			must[life.ReadySaid](s)
			s.kill()
		})
	}
}

func TestMemoryThatIsWithheldDoesNotKeepAWorkerFromEnding(t *testing.T) {
	l := launcher(t)
	path := slowFile(t, l)
	fd, _ := listeningSocket(t)
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
	must[life.Spawned](s)
	if !eventually(func() bool { return threadsThatCannotBeInterrupted() > 0 }) {
		t.Fatal("no thread reads its memory")
	}
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
	must[life.Spawned](s)
	if e, skip := s.next().(life.StatusText); skip {
		t.Skip("userfaultfd cannot be used here: ", e)
	}
	othersAreHeard(t, l)
	if err := s.w.Signal(syscall.SIGTERM, false); err != nil {
		t.Error(err)
	}
	must[life.Exited](s)
}

func TestProbesLeaveNothingBehind(t *testing.T) {
	l := launcher(t)
	full, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(full)
	unix.Bind(full, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	unix.Listen(full, 0)
	at, _ := unix.Getsockname(full)
	address := "127.0.0.1:" + strconv.Itoa(at.(*unix.SockaddrInet4).Port)
	for range 3 { // the queue is full, so a SYN gets no answer
		c, err := net.DialTimeout("tcp", address, 50*time.Millisecond)
		if err == nil {
			defer c.Close()
		}
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and sends nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s, _ := sleeper(t, l, nil)
	settled(s.w)
	fds, routines := openDescriptors(), runtime.NumGoroutine()
	for _, r := range []ready.Check{
		{Method: ready.HTTP, URL: "http://" + address}, {Method: ready.HTTP,
			URL: "https://" + silent.Addr().String()}, {Method: ready.HTTP, URL: "http://" + silent.Addr().String()},
		{Method: ready.TCP, Address: address}, {Method: ready.Exec, Command: []string{"sleep", "100"}},
	} {
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			if s.w.Probe(ctx, r) == nil {
				t.Errorf("%+v succeeds", r)
			}
			cancel()
		}
		if !eventually(func() bool { return openDescriptors() <= fds && runtime.NumGoroutine() <= routines }) {
			t.Errorf("%+v leaves %d descriptors (%d before) and %d goroutines (%d)", r, openDescriptors(), fds,
				runtime.NumGoroutine(), routines)
		}
	}
}
