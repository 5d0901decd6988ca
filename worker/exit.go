package worker

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"example.org/supervisord/worker/spawn"
)

// String says how the worker ended: "exited with status 3", "killed by SIGSEGV (core dumped)",
// "cannot exec ./web: no such file or directory".
func (e Exited) String() string {
	switch {
	case e.OOM:
		return "killed by the kernel for memory (OOM)"
	case e.Step == "" || e.Err == nil:
		return describe(e.Status, e.Known)
	}
	return spawn.Describe(e.Step, e.Err)
}

func describe(status syscall.WaitStatus, known bool) string {
	switch {
	case !known:
		return "ended, with a status that is not known"
	case status.Signaled():
		core := ""
		if status.CoreDump() {
			core = " (core dumped)"
		}
		return "killed by " + signalName(status.Signal()) + core
	}
	return fmt.Sprintf("exited with status %d", status.ExitStatus())
}

func signalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(sig))
}
