package worker

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/ready"
	"example.org/supervisord/worker/spawn"
)

func TestProcessThatLeftTheGroupDoesNotOutliveTheWorker(t *testing.T) {
	f := tempFile(t)
	s := start(t, launcher(t), Spec{
		Execution: spawn.Execution{Command: []string{"/bin/sh", "-c", `setsid sh -c 'setsid sleep 100 & echo $! $$ >&3; exec sleep 100' &
			while [ ! -s /proc/self/fd/3 ]; do sleep 0.01; done; exit 0`}, Environment: []string{"PATH=" + os.Getenv("PATH")}},
		Sockets: []int{int(f.Fd())},
		Ready:   ready.Check{Method: ready.Notify},
	})
	must[life.Spawned](s)
	must[life.Exited](s)
	data, _ := os.ReadFile(f.Name())
	var below, above int
	if _, err := fmt.Sscan(strings.TrimSpace(string(data)), &below, &above); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{below, above} {
		if !eventually(func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH }) {
			t.Errorf("process %d is still there", pid)
		}
	}
}
