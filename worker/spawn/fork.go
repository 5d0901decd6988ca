package spawn

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Package syscall prepares the runtime for a fork with these, and they are on the list of names that Go keeps for
// others. They block every signal of the thread and keep the goroutine on it.

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

// cloneArgs is struct clone_args, up to the group (Linux 5.7).
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// clones makes a system call that forks. The child calls a function without arguments, whose code is at child, on the
// stack that the arguments of the call name.
func clones(number, a1, a2, a3, child uintptr) (result uintptr)

// forking is the plan of the fork under way. syscall.ForkLock guards it.
var forking *plan

// Fork starts the process, in the control group behind the descriptor group if that is not -1. Where clone3(2) is not
// allowed, as under RestrictNamespaces= of systemd, the process moves itself into the group. pidfd is -1 on kernels
// without pidfds.
//
// The process gets its own memory and does not share ours (CLONE_VM, CLONE_VFORK): an exec from a disk that hangs would
// stop the thread that forked, and with it the garbage collector; and what the process does to its credentials and its
// oom_score_adj would change ours.
func (l *Launch) Fork(group int) (pid, pidfd int, failure *StepError) {
	p, errno := l.plan, syscall.ENOSYS
	own := uintptr(unsafe.Pointer(&p.pidfd))
	stack := l.area.stack()
	leaveMemory()
	if group >= 0 {
		p.clone = cloneArgs{
			flags: unix.CLONE_PIDFD | unix.CLONE_INTO_CGROUP, pidfd: uint64(own), exitSignal: uint64(
				unix.SIGCHLD), cgroup: uint64(group),
			stack: uint64(stack) - 16, stackSize: 16, // the kernel adds them
		}
		pid, errno = p.fork(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&p.clone)), unsafe.Sizeof(p.clone), 0)
	}
	if errno != 0 && group >= 0 {
		if fd, err := unix.Openat(group, "cgroup.procs", unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
			defer unix.Close(fd)
			p.procs = fd
		}
	}
	if errno != 0 {
		pid, errno = p.fork(unix.SYS_CLONE, unix.CLONE_PIDFD|uintptr(unix.SIGCHLD), stack, own)
	}
	if errno == syscall.EINVAL {
		pid, errno = p.fork(unix.SYS_CLONE, uintptr(unix.SIGCHLD), stack, 0)
	}
	if errno != 0 {
		return 0, -1, Failed(stepFork, errno)
	}
	return pid, int(p.pidfd), nil
}

// fork calls clone(2) or clone3(2) with these arguments.
func (p *plan) fork(number, a1, a2, a3 uintptr) (int, syscall.Errno) {
	child := become
	// a call by its name would go by way of the race detector, which needs the heap
	code := **(**uintptr)(unsafe.Pointer(&child))
	syscall.ForkLock.Lock()
	forking = p
	beforeFork()
	result := clones(number, a1, a2, a3, code)
	afterFork()
	forking = nil
	syscall.ForkLock.Unlock()
	if result > ^uintptr(4095) {
		return 0, syscall.Errno(-result)
	}
	return int(result), 0
}
