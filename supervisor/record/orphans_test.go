package record

import (
	"os/exec"
	"slices"
	"strconv"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"example.org/supervisord/worker"
)

func TestStoredProcessWithoutARecordIsStopped(t *testing.T) {
	r := reloading(t)
	h := newInheritance()
	h.Record = r
	adopted, stray := exec.Command("sleep", "1000"), exec.Command("sleep", "1000")
	for number, c := range map[int]*exec.Cmd{1: adopted, 99: stray} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		pidfd, err := unix.PidfdOpen(c.Process.Pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		h.workers[workerFD("web", number, worker.FDProcess)] = pidfd
	}
	name := r.Programs[0].Core.Name
	if name != "web" {
		t.Fatalf("the program is %s", name)
	}
	r.Programs[0].Workers = map[int]WorkerRecord{1: {State: worker.State{PID: adopted.Process.Pid}}}

	l := &Orphans{search: OrphanSearch{Log: zap.NewNop()}}
	l.take(h)
	if len(l.serving) != 1 || l.serving[0].pid != stray.Process.Pid || len(h.workers) != 1 {
		t.Errorf("taken: %v; left: %v", l.serving, h.workers)
	}
	l.Claim(func(string) bool { return false }, func(func(string, int) bool) {})
	free := l.Release(func(string) bool { return true })
	if len(free) != 1 || !slices.Equal(l.Ending(), []int{stray.Process.Pid}) {
		t.Fatalf("released: %v; ending: %v", free, l.Ending())
	}
	go free[0].End(DefaultStop())
	if err := stray.Wait(); err == nil || err.Error() != "signal: terminated" {
		t.Errorf("process %s: %v", strconv.Itoa(stray.Process.Pid), err)
	}
	l.Ended(free[0])
	if len(l.Ending()) > 0 || len(l.serving) > 0 {
		t.Errorf("left are %v and %v", l.Ending(), l.serving)
	}
	unix.Close(h.workers[workerFD("web", 1, worker.FDProcess)])
	if err := adopted.Process.Kill(); err != nil {
		t.Errorf("the known process: %v", err)
	}
	adopted.Wait() //nolint:errcheck // it was killed
}
