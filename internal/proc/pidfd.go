package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// PIDOf returns the PID of the process that a pidfd refers to, or -1 if that process was reaped. Before Linux 6.13, which has
// PIDFD_GET_INFO, it needs a descriptor to read proc_pid_fdinfo(5); an error of that is a *fs.PathError.
func PIDOf(pidfd int) (int, error) {
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_PID}
	if unix.IoctlPidfdInfo(pidfd, &info) == nil && info.Mask&unix.PIDFD_INFO_PID != 0 {
		return int(info.Pid), nil
	}
	if unix.PidfdSendSignal(pidfd, 0, nil, 0) == unix.ESRCH {
		return -1, nil
	}
	text, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(pidfd))
	if err != nil {
		return 0, err
	}
	pid, err := pidIn(string(text))
	if err != nil {
		return 0, fmt.Errorf("descriptor %d is not a pidfd", pidfd)
	}
	return pid, nil
}

func pidIn(fdinfo string) (int, error) {
	_, rest, _ := strings.Cut(fdinfo, "\nPid:\t")
	number, _, _ := strings.Cut(rest, "\n")
	return strconv.Atoi(number)
}

// Exists reports whether the process of a pidfd exists, if only as a zombie, so that its PID belongs to no other process.
func Exists(pidfd int) bool { return unix.PidfdSendSignal(pidfd, 0, nil, 0) == nil }

// ExitStatus returns the exit status of the process of a pidfd. It works for any process, but only after its parent has reaped it, and
// from Linux 6.15 on.
func ExitStatus(pidfd int) (status syscall.WaitStatus, known bool) {
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	if err := unix.IoctlPidfdInfo(pidfd, &info); err != nil || info.Mask&unix.PIDFD_INFO_EXIT == 0 {
		return 0, false
	}
	return syscall.WaitStatus(info.Exit_code), true
}
