package spawn

import (
	"os"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
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
		return 0, -1, failed(codeFork, errno)
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

// left is what forks leave out.
var left = struct {
	sync.Mutex
	mapped []metrics.Sample // how much memory the Go runtime has mapped
	last   uint64           // when leaveMemory looked
}{mapped: []metrics.Sample{{Name: "/memory/classes/total:bytes"}}}

// leaveMemory makes forks leave out the heap and everything else that the Go runtime has mapped. To copy its page
// tables, and then every page that this process writes, costs more than all the rest of a fork. The child needs the
// program, its variables and the area only.
func leaveMemory() {
	left.Lock()
	defer left.Unlock()
	metrics.Read(left.mapped)
	mapped := left.mapped[0].Value.Uint64()
	if mapped == left.last {
		return
	}
	left.last = mapped
	maps, _ := os.ReadFile("/proc/self/maps") // without it, the kernel copies them
	for _, m := range unneeded(string(maps)) {
		unix.Syscall(unix.SYS_MADVISE, m.begin, m.end-m.begin, unix.MADV_WIPEONFORK) //nolint:errcheck // then it is copied
	}
}

// region is a range of addresses, as madvise(2) takes it.
type region struct{ begin, end uintptr }

// unneeded returns the mappings in /proc/self/maps of private memory without a file, but for the one after a file: it
// has the rest of the file's variables, those that are zero at first. "[anon:…]" is a name that the Go runtime has
// given (CONFIG_ANON_VMA_NAME of the kernel); other names in brackets are the kernel's, such as that of the stack.
func unneeded(maps string) (list []region) {
	variables := uintptr(0) // where they begin, after a file
	for line := range strings.Lines(maps) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		begin, end, _ := strings.Cut(fields[0], "-")
		from, err1 := strconv.ParseUint(begin, 16, 64)
		to, err2 := strconv.ParseUint(end, 16, 64)
		m := region{uintptr(from), uintptr(to)}
		switch {
		case err1 != nil || err2 != nil || from >= to:
		case len(fields) > 5 && !strings.HasPrefix(fields[5], "[anon:"):
			variables = m.end
		case m.begin != variables && strings.HasSuffix(fields[1], "p"):
			list = append(list, m)
		}
	}
	return list
}
