package attack

import (
	"fmt"
	"hash/crc32"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab"
)

// leaveSignal is RTMIN+1 in the numbering of kill(1).
const leaveSignal = syscall.Signal(35)

func TestLeavingWhileSystemdIsBusyLosesNoWorker(t *testing.T) {
	t.Parallel()
	const workers = 12 // more than its socket has room for messages
	m := lab.Prepare(t)
	sd := openSystemd(m)
	m.Write(strings.Replace(lab.Web, "\n[[", fmt.Sprintf("\nworkers = %d\n[[", workers), 1))
	sd.Start()
	sd.Lock()
	resume := sync.OnceFunc(sd.Unlock)
	defer resume() // so that a failing test ends, too
	m.Serves(1)
	living := m.Living()
	m.Signal(leaveSignal)
	m.Await(lab.Says("leaving as soon as systemd has the descriptors of the workers"))
	lab.Ask(t, m.Address(), "/")
	resume()
	m.Await(lab.Says("leaving; the workers keep running for the next supervisord"))
	m.Wait()
	sd.Start()
	m.AwaitN(workers, lab.Says(lab.Adopted))
	for _, pid := range living {
		if !lab.Alive(pid) {
			t.Errorf("worker %d is gone", pid)
		}
	}
	m.Never(lab.Says(lab.WorkerTold))
	m.Never(lab.Contains("orphaned worker"))
	lab.Ask(t, m.Address(), "/")
}

func TestRecordOfAnotherVersionCostsNoRequest(t *testing.T) {
	t.Parallel()
	sd, m := underSystemd(t, strings.Replace(lab.Web, "{worker}", "{hello}", 1))
	old := m.WorkerPID(1)
	sd.Stored(".1", 1)
	load := lab.PressNew(t, m.Address(), 4, 5*time.Millisecond)
	m.Die()
	other := `{"Version":1000}`
	text := fmt.Sprintf("supervisord-record %d %08x 1\n%s", len(other), crc32.ChecksumIEEE([]byte(other)), other)
	for _, name := range []string{"state.a", "state.b"} {
		fd := sd.Stored(name, 1)
		lab.Must(t, unix.Ftruncate(fd, 0))
		_, err := unix.Pwrite(fd, []byte(text), 0)
		lab.Must(t, err)
	}
	sd.Start()
	m.Await(lab.Contains("the record has version 1000"))
	m.Serves(1)
	m.Until("the old worker has exited", func() bool { return !lab.Alive(old) })
	load.Lossless(t)
}
