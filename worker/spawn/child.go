package spawn

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This file is what the child does between fork and exec. The child has one thread, the area with its stack and its
// plan, which Prepare filled, and a copy of the program's variables. It has neither Go's heap nor the goroutine that
// forked. So nothing here allocates, grows the stack, takes a lock, stores a pointer or calls the Go runtime: only raw
// system calls. Every signal is blocked until the signals are reset.

// plan is what the child does. It lies in an area with everything that it refers to. Addresses in it are numbers, as
// system calls want them.
type plan struct {
	clone   cloneArgs
	pidfd   int32
	procs   int // the opened cgroup.procs of the group to enter; -1: none
	report  int // the number of the report in the child, now
	calls   []call
	message message

	image
	filter filterPlan
	capabilitySets
	ignorePipe bool
	score      []byte // oom_score_adj
	readScore  [16]byte
}

// image is what the child executes.
type image struct {
	argv, envp, paths []uintptr // argv and envp end with a zero
	searches          bool      // paths come from PATH
	pids              [2][]byte // where in envp the child writes its PID; nil: nowhere
}

// capabilitySets are for capget(2) and capset(2).
type capabilitySets struct {
	header      unix.CapUserHeader
	caps        [2]unix.CapUserData
	inheritable [2]uint32 // to be
}

// call is a system call. If it fails otherwise than with may, that is reported as step, hint and index.
type call struct {
	number uintptr
	args   [4]uintptr
	step   uint8
	hint   uint8
	index  uint16
	may    syscall.Errno
}

// here is unix.AT_FDCWD as an argument.
const here = ^uintptr(-unix.AT_FDCWD - 1)

// anyError as call.may: the result does not matter.
const anyError = ^syscall.Errno(0)

// Calls that are more than a system call.
const (
	resetSignals   = ^uintptr(iota)
	reportAt       // from now on the report is the descriptor args[0]
	setScore       // oom_score_adj
	checkPermitted // the capability args[0]
	setInheritable // what capset is to change in the result of capget
	installFilter  // of system calls, and its descriptor goes to the reader of the report
)

// message reports a failure. It is written as it lies in memory.
type message struct {
	Step, Hint uint8
	Index      uint16
	Errno      uint32
}

const messageSize = unsafe.Sizeof(message{})

// Messages about more than an errno.
const (
	hintNone     = iota
	hintHard     // the hard limit
	hintLacks    // the supervisor does not have the capability
	hintLoader   // the file exists
	hintNotFound // in PATH
)

var (
	// struct sigaction: zero is SIG_DFL, whatever the order of its other fields; ignored[0] is 1, SIG_IGN
	byDefault, ignored [8]uint64
	noSignals          uint64 // an empty mask
	ownGroup           = [1]byte{'0'}
	scorePath          = [...]byte{'/', 'p', 'r', 'o', 'c', '/', 's', 'e', 'l', 'f', '/', 'o', 'o', 'm', '_', 's', 'c',
		'o', 'r', 'e', '_', 'a', 'd', 'j', 0}
	started = [1]byte{aboutToExec}
)

func init() { ignored[0] = 1 }

// become takes all steps of the plan forking, and executes the command.
//
//go:norace
//go:nosplit
//go:noinline
func become() {
	p := forking
	if p.procs >= 0 { // the worker can do without its group
		syscall.RawSyscall6(unix.SYS_WRITE, uintptr(p.procs), uintptr(unsafe.Pointer(&ownGroup)), 1, 0, 0, 0)
	}
	for i := range p.calls {
		c := &p.calls[i]
		var errno syscall.Errno
		switch c.number {
		case resetSignals:
			errno = p.resetSignals()
		case reportAt:
			p.report = int(c.args[0])
		case setScore:
			errno = p.setScore()
		case checkPermitted:
			if p.caps[c.args[0]>>5&1].Permitted&(1<<(c.args[0]&31)) == 0 {
				errno = unix.EPERM
			}
		case setInheritable:
			p.caps[0].Inheritable, p.caps[1].Inheritable = p.inheritable[0], p.inheritable[1]
		case installFilter:
			errno = p.installFilter()
		default:
			_, _, errno = syscall.RawSyscall6(c.number, c.args[0], c.args[1], c.args[2], c.args[3], 0, 0)
		}
		if errno != 0 && errno != c.may && c.may != anyError {
			p.fail(c.step, c.hint, c.index, errno)
		}
	}
	p.execute()
}

// fail reports and ends the process.
//
//go:norace
//go:nosplit
//go:noinline
func (p *plan) fail(step, hint uint8, index uint16, errno syscall.Errno) {
	p.message.Step, p.message.Hint, p.message.Index, p.message.Errno = step, hint, index, uint32(errno)
	syscall.RawSyscall6(unix.SYS_WRITE, uintptr(p.report), uintptr(unsafe.Pointer(&p.message)), messageSize, 0, 0, 0)
	for {
		syscall.RawSyscall6(unix.SYS_EXIT_GROUP, 127, 0, 0, 0, 0, 0)
	}
}

// resetSignals resets every disposition, also of signals that the supervisor inherited as ignored, and then empties the
// mask.
//
//go:norace
//go:nosplit
//go:noinline
func (p *plan) resetSignals() syscall.Errno {
	for sig := uintptr(1); sig <= 64; sig++ {
		action := uintptr(unsafe.Pointer(&byDefault))
		if sig == uintptr(unix.SIGPIPE) && p.ignorePipe {
			action = uintptr(unsafe.Pointer(&ignored))
		}
		_, _, errno := syscall.RawSyscall6(unix.SYS_RT_SIGACTION, sig, action, 0, 8, 0, 0)
		if errno != 0 && errno != unix.EINVAL { // EINVAL: KILL and STOP
			return errno
		}
	}
	_, _, errno := syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&noSignals)), 0,
		8, 0, 0)
	return errno
}

// installFilter installs the filter of system calls with the best flags that this kernel knows, and sends the
// descriptor of its notifications with a byte of the report.
//
//go:norace
//go:nosplit
//go:noinline
func (p *plan) installFilter() syscall.Errno {
	f := &p.filter
	fd, errno := uintptr(0), syscall.EINVAL
	for i := 0; i < len(f.flags) && errno == syscall.EINVAL; i++ {
		fd, _, errno = syscall.RawSyscall6(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, f.flags[i],
			uintptr(unsafe.Pointer(&f.program)), 0, 0, 0)
	}
	if errno != 0 {
		return errno
	}
	f.rights.fd = int32(fd)
	_, _, errno = syscall.RawSyscall6(unix.SYS_SENDMSG, uintptr(p.report), uintptr(unsafe.Pointer(&f.message)),
		unix.MSG_NOSIGNAL, 0, 0, 0)
	syscall.RawSyscall6(unix.SYS_CLOSE, fd, 0, 0, 0, 0, 0)
	return errno
}

// setScore sets oom_score_adj, unless it is right already: lowering it needs a privilege.
//
//go:norace
//go:nosplit
//go:noinline
func (p *plan) setScore() syscall.Errno {
	fd, _, errno := syscall.RawSyscall6(unix.SYS_OPENAT, here, uintptr(unsafe.Pointer(&scorePath)),
		unix.O_RDWR|unix.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	n, _, errno := syscall.RawSyscall6(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&p.readScore)), uintptr(len(p.readScore)),
		0, 0, 0)
	if errno == 0 && !p.isScore(int(n)) {
		_, _, errno = syscall.RawSyscall6(unix.SYS_PWRITE64, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p.score))),
			uintptr(len(p.score)), 0, 0, 0)
	}
	syscall.RawSyscall6(unix.SYS_CLOSE, fd, 0, 0, 0, 0, 0)
	return errno
}

// isScore reports whether the n bytes that were read are the score and a line feed.
//
//go:norace
//go:nosplit
//go:noinline
func (p *plan) isScore(n int) bool {
	if n != len(p.score)+1 {
		return false
	}
	for i, c := range p.score {
		if i >= len(p.readScore) || p.readScore[i] != c {
			return false
		}
	}
	return true
}

// execute reports that the exec comes, and executes the first of the paths that can be executed, as execvp(3) does: a
// file that may not be executed does not end the search.
//
//go:norace
//go:nosplit
//go:noinline
func (p *plan) execute() {
	pid, _, _ := syscall.RawSyscall6(unix.SYS_GETPID, 0, 0, 0, 0, 0, 0)
	for i := range p.pids {
		writePID(p.pids[i], pid)
	}
	syscall.RawSyscall6(unix.SYS_WRITE, uintptr(p.report), uintptr(unsafe.Pointer(&started)), 1, 0, 0, 0)
	argv, envp := uintptr(unsafe.Pointer(unsafe.SliceData(p.argv))), uintptr(unsafe.Pointer(unsafe.SliceData(p.envp)))
	found := unix.ENOENT
	for i, path := range p.paths {
		_, _, errno := syscall.RawSyscall6(unix.SYS_EXECVE, path, argv, envp, 0, 0, 0)
		switch {
		case !p.searches:
			hint := uint8(hintNone)
			if errno == unix.ENOENT && exists(path) {
				hint = hintLoader
			}
			p.fail(codeExec, hint, uint16(i), errno)
		case errno == unix.ENOENT, errno == unix.ENOTDIR:
		case errno == unix.EACCES:
			found = errno
		default:
			p.fail(codeExec, hintNone, uint16(i), errno)
		}
	}
	p.fail(codeExec, hintNotFound, 0, found)
}

//go:norace
//go:nosplit
//go:noinline
func exists(path uintptr) bool {
	_, _, errno := syscall.RawSyscall6(unix.SYS_FACCESSAT, here, path, unix.F_OK, 0, 0, 0)
	return errno == 0
}

// noPID is where a PID is written.
const noPID = "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// writePID writes a PID in digits in the place of noPID.
//
//go:norace
//go:nosplit
//go:noinline
func writePID(to []byte, pid uintptr) {
	digits := 1
	for rest := pid; rest >= 10; rest /= 10 {
		digits++
	}
	for i := digits - 1; i >= 0 && i < len(to); i-- {
		to[i] = byte('0' + pid%10)
		pid /= 10
	}
}
