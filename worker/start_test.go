package worker

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/spawn"
)

// The exec closes the pipe with the report. While another process has a copy of the pipe, it stays open, and the worker
// may be dead before the pipe is read.
func TestReportWithoutAnEndIsUnderstoodAtTheEndOfTheWorker(t *testing.T) {
	l := launcher(t)
	s := &subject{t: t, events: make(chan life.Event, 10)}
	s.w = newWorker(l, shell("exit 87"), s.post)
	freeze(t, l) // the launcher reads and reaps nothing
	if failure := s.w.spawnNow(); failure != nil {
		t.Fatal(failure)
	}
	pid := s.w.State().PID
	must.Become(t, "ended", func() bool { return strings.HasPrefix(status(t, pid, "State"), "Z") })
	s.w.mu.Lock()
	read, write, err := spawn.Pipe()
	if err == nil {
		_, err = unix.Write(write, []byte{'+'})
	}
	if err == nil {
		err = unix.Dup3(read, s.w.channels.open[FDReport].FD, unix.O_CLOEXEC)
	}
	s.w.mu.Unlock()
	must.Do(t, err)
	l.workers.Go(s.w.postAll)
	l.Thaw()
	next[life.Spawned](s)
	exits(s, 87)
	closeAll([]int{read, write})
}
