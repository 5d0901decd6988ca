package attack

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab"
)

// waitsOnDisk is a program that waits for clients by poll(2) with an array that is in the file DISK/page, as soon as
// the file {dir}/go is there: who looks what it waits for waits, too.
const waitsOnDisk = `
[program.evil]
command = ["/usr/bin/python3", "-S", "-c", '''
import ctypes, os, threading, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
page, file = libc.mmap(None, 4096, 3, 0x22, -1, 0), os.open('DISK/page', os.O_RDONLY)
def replace():
    while not os.path.exists('{dir}/go'): time.sleep(0.01)
    libc.mmap(page, 4096, 1, 0x11, file, 0)
threading.Thread(target=replace, daemon=True).start()
libc.poll(ctypes.c_void_p(page), 1, -1)
''']
user = "nobody"
listen = ["127.0.0.1:0"]
ready = { method = "accept", timeout = "1m" }
stop.timeout = "500ms"
`

func TestWorkerWithMemoryOnADiskThatHangsDelaysNothing(t *testing.T) {
	m := lab.Prepare(t)
	disk := newDisk(t, false, m)
	lab.Must(t, os.Chmod(filepath.Dir(disk.Dir), 0o755))
	lab.OpenToAll(t)
	lab.Must(t, exec.Command("dd", "if=/dev/zero", "of="+disk.Path("page"), "bs=4096", "count=1", "status=none").Run())
	m.Start(lab.Hello + strings.ReplaceAll(waitsOnDisk, "DISK", disk.Dir))
	m.Await(lab.Says(lab.GenerationServes), lab.Program("web"))
	evil := m.Await(lab.Says(lab.WorkerRuns), lab.Program("evil")).PID
	m.Until("it has opened the file", func() bool {
		return slices.Contains(slices.Collect(maps.Values(lab.Descriptors(t, evil))), disk.Path("page"))
	})
	disk.Hang()
	m.File("go", "")
	m.Until("supervisord looks", disk.Waits)
	m.CtlOK("reload", "web", "--drained", "--timeout", "20s")
	m.CtlOK("stop", "evil", "--timeout", "20s")
	m.CtlOK("status")
	m.Finish()
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
