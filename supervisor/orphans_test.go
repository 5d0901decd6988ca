package supervisor

import (
	"os/exec"
	"strconv"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"example.org/supervisord/worker"
)

func TestAProcessThatTheStoreHasAndTheRecordDoesNotKnowIsEnded(t *testing.T) {
	r := recordOf(t)
	h := &Handover{record: r, workers: map[string]int{}}
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
	r.Programs[0].Generations[0].Workers = []WorkerRecord{{Number: 1, State: worker.State{PID: adopted.Process.Pid}}}

	l := &Orphans{}
	l.Take(h)
	if len(l.processes) != 1 || l.processes[0].pid != stray.Process.Pid || len(h.workers) != 1 {
		t.Errorf("taken: %v; left: %v", l.processes, h.workers)
	}
	s := &Supervisor{Options: Options{Orphans: l, Log: zap.NewNop()}, queue: &queue{notes: make(chan note, 1), done: make(chan struct{})}}
	s.claimOrphans()
	s.releaseOrphans()
	if err := stray.Wait(); err == nil || err.Error() != "signal: terminated" {
		t.Errorf("process %s: %v", strconv.Itoa(stray.Process.Pid), err)
	}
	s.handle(<-s.notes)
	s.running.Wait()
	if len(s.ending) > 0 || len(l.processes) > 0 {
		t.Errorf("left are %v and %v", s.ending, l.processes)
	}
	unix.Close(h.workers[workerFD("web", 1, worker.FDProcess)])
	if err := adopted.Process.Kill(); err != nil {
		t.Errorf("the process that is known: %v", err)
	}
	adopted.Wait() //nolint:errcheck // it was killed
}
