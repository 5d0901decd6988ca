package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/proc"
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

// A page of what it writes never arrives, userfaultfd(2).
func TestPipeLockedByItsWriterDelaysNothing(t *testing.T) {
	needRoot(t, "userfaultfd")
	l := launcher(t)
	s := started(t, l, inPythonReady(t, `
import ctypes, platform
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
page = libc.mmap(None, 8192, 3, 0x22, -1, 0) + 4096
fault = libc.syscall({'x86_64': 323, 'aarch64': 282}[platform.machine()], 0o4000)
api, area = (ctypes.c_uint64 * 3)(0xAA, 0, 0), (ctypes.c_uint64 * 4)(page, 4096, 1, 0)
def refused(number, what): return libc.ioctl(fault, ctypes.c_ulong(number), what)
if fault < 0 or refused(0xC018AA3F, api) or refused(0xC020AA00, area): say('STATUS=skip')
class iovec(ctypes.Structure): _fields_ = [('at', ctypes.c_void_p), ('size', ctypes.c_size_t)]
pieces = (iovec * 2)(iovec(page - 4096, 4096), iovec(page, 4096))
threading.Thread(target=lambda: libc.writev(int(os.environ['NOTIFY_FD']), pieces, 2), daemon=True).start()
time.sleep(0.3)
say('READY=1')
time.sleep(1000)`))
	if e, skip := s.next().(life.StatusText); skip {
		t.Skip("userfaultfd cannot be used here: ", e)
	}
	othersAreHeard(t, l)
	s.signal(int(syscall.SIGTERM))
	next[life.Exited](s)
}

// An executable on a disk that is dead hangs the exec. That holds up neither other workers nor this process, and the
// process that hangs holds nothing of the supervisor's: no socket whose port stays taken, no lock that keeps out the
// next supervisord. Here the exec waits for the lease of the file, fcntl(2).
func TestExecThatHangsHoldsUpNothing(t *testing.T) {
	l, path := launcher(t), filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(path, []byte("#!/bin/sh\nexit 9\n"), 0o755))
	file := must.Get(os.Open(path))(t)
	defer file.Close()
	lease := func(command, kind int) int {
		return must.Get(unix.FcntlInt(file.Fd(), command, kind))(t)
	}
	lease(unix.F_SETLEASE, unix.F_WRLCK)
	rawSocket(t, unix.SOCK_STREAM)
	s := start(t, l, command(path))
	var pid int
	must.Become(t, "hanging", func() bool {
		pid = s.w.State().PID // the fork may be over there, and not yet here
		return pid != 0 && lease(unix.F_GETLEASE, 0) != unix.F_WRLCK
	})
	othersAreHeard(t, l)
	runtime.GC()
	if got := fmt.Sprint(descriptors(t, pid)); got != "[0 1 2 3 4]" { // NOTIFY_FD and the report
		t.Errorf("it has the descriptors %s", got)
	}
	for _, key := range []string{"SigPnd", "SigBlk", "SigIgn", "SigCgt"} {
		if got := strings.Trim(status(t, pid, key), "0"); got != "" {
			t.Errorf("%s %s", key, got)
		}
	}
	if name := proc.Name(pid); name != "(file)" {
		t.Errorf("its name is %s", name)
	}
	freeze(t, l) // an upgrade waits for no exec
	l.Thaw()
	lease(unix.F_SETLEASE, unix.F_UNLCK)
	next[life.Spawned](s)
	exits(s, 9)
}
