package worker

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// What a step is about, for "cannot …".
var deeds = map[string]string{
	stepSockets:   "pass",
	stepNotify:    "start:",
	stepOutput:    "set up",
	stepFork:      "start a process:",
	stepWatch:     "watch the process:",
	stepAdopt:     "adopt",
	stepOrders:    "read its orders:",
	stepSignals:   "reset signals:",
	stepCaps:      "drop capabilities:",
	stepLimits:    "set limit",
	stepNice:      "set nice",
	stepOOM:       "set oom_score_adj",
	stepUmask:     "set umask",
	stepGroups:    "set groups",
	stepGroup:     "set group",
	stepUser:      "set user",
	stepAmbient:   "set ambient capability",
	stepNoNewPriv: "set no_new_privileges:",
	stepDirectory: "enter directory",
	stepLeaks:     "close descriptors:",
	stepExec:      "exec",
}

// String says the end as a person would: "exited with status 3", "killed by SIGSEGV (core dumped)",
// "cannot exec ./web: no such file or directory".
func (e Exited) String() string {
	deed, known := deeds[e.Step]
	switch {
	case e.OOM:
		return "killed by the kernel for memory (OOM)"
	case e.Step == "" || e.Err == nil:
		return describe(e.Status, e.Known)
	case !known: // Err is a whole sentence
		return e.Err.Error()
	}
	return "cannot " + deed + " " + e.Err.Error()
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
