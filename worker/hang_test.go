package worker

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
	"example.org/supervisord/worker/life"
)

// An executable on a disk that is dead hangs the exec. That holds up neither other workers nor this process, and the
// process that hangs holds nothing of the supervisor's: no socket whose port stays taken, no lock that keeps out the
// next supervisord.
func TestExecThatHangsHoldsUpNothing(t *testing.T) {
	l := launcher(t)
	path := slowFile(t, l)
	rawSocket(t, unix.SOCK_STREAM)
	s := start(t, l, command(path))
	var pid int
	await(t, "it does not hang", func() bool {
		pid = s.w.State().PID
		return pid != 0 && strings.HasPrefix(status(t, pid, "State"), "D")
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
	must(t, unix.Unmount(strings.TrimSuffix(path, "/file"), unix.MNT_FORCE|unix.MNT_DETACH))
	if e := next[life.Exited](s); e.Step != "exec" || !strings.HasPrefix(e.String(), "cannot exec "+path) {
		t.Error(e)
	}
}
