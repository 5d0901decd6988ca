package worker

import (
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/spawn"
)

func TestCommandRunsAndItsStatusArrives(t *testing.T) {
	s := start(t, launcher(t), shell("exit 3"))
	spawned := must[life.Spawned](s)
	exited := must[life.Exited](s)
	if exited.PID != spawned.PID || !exited.Known || exited.Status.ExitStatus() != 3 ||
		exited.String() != "exited with status 3" {
		t.Errorf("%+v: %s", exited, exited)
	}
}

func TestCommandThatIsMissingFailsAtExec(t *testing.T) {
	s := start(t, launcher(t), Spec{Execution: spawn.Execution{Command: []string{"./no-such"}, Directory: "/"}})
	e := must[life.Exited](s)
	if e.Step != "exec" || e.String() != "cannot exec ./no-such: no such file or directory" {
		t.Errorf("%+v: %s", e, e)
	}
}

func TestSignalReachesTheWorker(t *testing.T) {
	s := start(t, launcher(t), shell("sleep 100"))
	must[life.Spawned](s)
	s.signal(15)
	if e := must[life.Exited](s); e.Status.Signal() != syscall.SIGTERM || !strings.Contains(e.String(), "SIGTERM") {
		t.Errorf("%s", e)
	}
}

// The exec closes the pipe with the report. While another process has a copy of the pipe, it stays open, and the worker
// may be dead before the pipe is read.
func TestReportWithoutAnEndIsUnderstoodAtTheEndOfTheWorker(t *testing.T) {
	l := launcher(t)
	s := &subject{t: t, events: make(chan life.Event, 10)}
	s.w = newWorker(l, shell("exit 87"), s.post)
	freeze(t, l) // the launcher reads and reaps nothing
	l.spawning.Unlock()
	if err := s.w.spawn(); err != nil {
		t.Fatal(err)
	}
	pid := s.w.State().PID
	if !eventually(func() bool { return strings.HasPrefix(status(t, pid, "State"), "Z") }) {
		t.Error("it does not end")
	}
	s.w.mu.Lock()
	read, write, err := spawn.Pipe()
	if err == nil {
		_, err = unix.Write(write, []byte{'+'})
	}
	if err == nil {
		err = unix.Dup3(read, s.w.channels.report.FD, unix.O_CLOEXEC)
	}
	s.w.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	l.workers.Go(s.w.postAll)
	l.spawning.Lock()
	l.Thaw()
	must[life.Spawned](s)
	if e := must[life.Exited](s); e.Step != "" || e.Status.ExitStatus() != 87 {
		t.Errorf("%s", e)
	}
	closeAll([]int{read, write})
}
