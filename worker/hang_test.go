package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/proc"
	"example.org/supervisord/worker/life"
)

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
	must.Become(t, "hanging", func() bool { return lease(unix.F_GETLEASE, 0) != unix.F_WRLCK })
	pid := s.w.State().PID
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
