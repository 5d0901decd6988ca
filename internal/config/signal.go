package config

import (
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Signal is a signal of kill(2), for packages that make no system calls themselves.
type Signal = syscall.Signal

// SIGKILL ends a process that cannot prevent it.
const SIGKILL = syscall.SIGKILL

// SignalName is the name of a signal as a configuration has it, "TERM", or its number if it has no name.
func SignalName(s Signal) string {
	if name := unix.SignalName(s); name != "" {
		return strings.TrimPrefix(name, "SIG")
	}
	return strconv.Itoa(int(s))
}
