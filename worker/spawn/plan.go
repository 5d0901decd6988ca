package spawn

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// builder fills a plan.
type builder struct {
	c      *Execution
	area   *area
	p      *plan
	report int           // this process's descriptor
	limits []unix.Rlimit // what they become, in the order of names
	step   uint8         // of the next calls
}

// newPlan prepares all steps. What needs the supervisor's privileges comes before the user is set, and what the user
// must be able to do comes after; limits come last, so that they apply to the command and not to the steps.
func newPlan(c *Execution, report int) (*plan, *area, *StepError) {
	if len(c.Command) == 0 {
		return nil, nil, failed(codeExec, errors.New("no command was given"))
	}
	calls, size := c.size()
	a, err := newArea(size)
	if err != nil {
		return nil, nil, failed(codeFork, err)
	}
	b := &builder{c: c, area: a, p: &room[plan](a, 1)[0], report: report}
	b.p.pidfd, b.p.procs = -1, -1
	b.p.calls = room[call](a, calls)[:0]
	for _, step := range []func() *StepError{
		b.command, b.descriptors, b.signals, b.filter, b.raiseHardLimits, b.attributes, b.identity, b.ambient, b.directory,
		b.softLimits, b.trial,
	} {
		if failure := step(); failure != nil {
			a.close()
			return nil, nil, failure
		}
	}
	return b.p, a, nil
}

// size returns at most how many calls and bytes the plan of c needs.
func (c *Execution) size() (calls, bytes int) {
	calls = 32 + 2*len(c.Files) + 2*len(c.Limits.RLimits) + 2*len(c.Limits.AmbientCapabilities)
	bytes = 4096 + len(c.Filter)*int(unsafe.Sizeof(unix.SockFilter{})) + int(unsafe.Sizeof(plan{})) +
		calls*int(unsafe.Sizeof(call{})) + len(c.Limits.RLimits)*int(unsafe.Sizeof(unix.Rlimit{})) +
		len(c.Directory) + len(c.Command[0])
	if c.Credential != nil {
		bytes += 4 * len(c.Credential.Groups)
	}
	files, _ := c.candidates()
	for _, list := range [][]string{c.Command, c.Environment, files} {
		for _, s := range list {
			bytes += len(s) + 2*8 // with its address, and rounded up
		}
	}
	return calls, bytes
}

// call adds a system call to the plan.
func (b *builder) call(number uintptr, args ...uintptr) *call {
	b.p.calls = b.p.calls[:len(b.p.calls)+1]
	c := &b.p.calls[len(b.p.calls)-1]
	c.number, c.step = number, b.step
	copy(c.args[:], args)
	return c
}

// text copies a string for a call, and returns its address.
func (b *builder) text(s string) uintptr { return address(b.area.text(s)) }

// descriptors puts Files, and after them the report, into their places. Nothing else stays open: a later step may hang,
// as on a disk that is dead, and this process must not hold the supervisor's sockets and locks meanwhile.
func (b *builder) descriptors() *StepError {
	b.p.report = b.report
	b.step = codeFork
	b.call(unix.SYS_SETSID)
	b.step = codeDescriptors
	files := append(slices.Clone(b.c.Files), b.report)
	next := max(len(files), slices.Max(files)+1) // above every descriptor that is needed
	for i, fd := range files {                   // what lies where another one comes before it is its turn
		if fd >= 0 && fd < i {
			b.call(unix.SYS_DUP3, uintptr(fd), uintptr(next), unix.O_CLOEXEC)
			files[i] = next
			next++
		}
	}
	b.call(reportAt, uintptr(files[len(b.c.Files)])) // what lay in its place may be replaced now
	for i, fd := range files {
		flags := uintptr(0)
		if i >= len(b.c.Files) {
			flags = unix.FD_CLOEXEC
		}
		switch fd {
		case Closed:
			b.call(unix.SYS_CLOSE, uintptr(i)).may = anyError
		case i: // dup3 refuses that
			b.call(unix.SYS_FCNTL, uintptr(fd), unix.F_SETFD, flags)
		default:
			b.call(unix.SYS_DUP3, uintptr(fd), uintptr(i), flags*unix.O_CLOEXEC)
		}
	}
	b.call(reportAt, uintptr(len(b.c.Files)))
	b.call(unix.SYS_CLOSE_RANGE, uintptr(len(files)), ^uintptr(0)>>33)
	return nil
}

// signals resets what the command would inherit from the supervisor, or from the supervisor's unit.
func (b *builder) signals() *StepError {
	b.p.ignorePipe = b.c.Limits.IgnoreSIGPIPE
	b.step = codeSignals
	b.call(resetSignals)
	b.step = codeCapabilities
	b.call(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL)
	return nil
}

// attributes sets what belongs to the process itself. Without an oom_score_adj, a score that was inherited from the
// supervisor, which its unit may protect, goes back to 0 where that is allowed.
func (b *builder) attributes() *StepError {
	limits := &b.c.Limits
	if limits.Nice != nil {
		b.step = codeNice
		b.call(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0, uintptr(*limits.Nice))
	}
	score := strconv.Itoa(value(limits.OOMScoreAdj))
	b.p.score = b.area.text(score)[:len(score)]
	b.step = codeOOM
	if c := b.call(setScore); limits.OOMScoreAdj == nil {
		c.may = anyError
	}
	if limits.Umask != nil {
		b.step = codeUmask
		b.call(unix.SYS_UMASK, uintptr(*limits.Umask))
	}
	return nil
}

// value returns *n, or 0 without one.
func value(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

// directory comes after the user, who must be allowed to enter it (chdir(2)).
func (b *builder) directory() *StepError {
	if b.c.Limits.NoNewPrivileges {
		b.step = codeNoNewPrivileges
		b.call(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1)
	}
	if b.c.Directory == "" {
		return nil
	}
	if strings.IndexByte(b.c.Directory, 0) >= 0 {
		return failed(codeDirectory, fmt.Errorf("%q contains a NUL byte: %w", b.c.Directory, unix.EINVAL))
	}
	b.step = codeDirectory
	b.call(unix.SYS_CHDIR, b.text(b.c.Directory))
	return nil
}

// command copies argv, the environment and the paths to try.
func (b *builder) command() *StepError {
	c, p := b.c, b.p
	for _, list := range [][]string{c.Command, c.Environment} {
		for _, s := range list {
			if strings.IndexByte(s, 0) >= 0 {
				return failed(codeExec, fmt.Errorf("%q contains a NUL byte: %w", s, unix.EINVAL))
			}
		}
	}
	files, _ := c.candidates()
	p.searches = !strings.Contains(c.Command[0], "/")
	p.argv, p.paths = b.list(c.Command, 1), b.list(files, 0)
	p.envp = b.list(c.Environment, 1+len(p.pids))
	last := len(c.Environment)
	for i, pair := range [...][2]string{{"LISTEN_FDS=", "LISTEN_PID="}, {"WATCHDOG_USEC=", "WATCHDOG_PID="}} {
		if slices.ContainsFunc(c.Environment, func(v string) bool { return strings.HasPrefix(v, pair[0]) }) {
			variable := b.area.text(pair[1] + noPID)
			p.pids[i] = variable[len(pair[1]) : len(variable)-1]
			p.envp[last] = address(variable)
			last++
		}
	}
	// ps(1) is not to show a second supervisord: until the exec, it is what systemd would call it.
	b.call(unix.SYS_PRCTL, unix.PR_SET_NAME, b.text("("+filepath.Base(c.Command[0])+")")).may = anyError
	return nil
}

// list copies strings, and returns their addresses and zeros after these.
func (b *builder) list(strings []string, zeros int) []uintptr {
	list := room[uintptr](b.area, len(strings)+zeros)
	for i, s := range strings {
		list[i] = b.text(s)
	}
	return list
}

// candidates returns the files that may be the command, and the PATH that they come from unless the command has a
// slash.
func (c *Execution) candidates() (files []string, path string) {
	name := c.Command[0]
	if strings.Contains(name, "/") {
		return []string{name}, ""
	}
	path = DefaultPath
	for _, v := range c.Environment {
		if rest, ok := strings.CutPrefix(v, "PATH="); ok {
			path = rest
		}
	}
	for dir := range strings.SplitSeq(path, ":") {
		if dir != "" {
			dir += "/"
		}
		files = append(files, dir+name)
	}
	return files, path
}

// area is memory for the child, which shares it. At its end is the child's stack.
type area struct {
	memory []byte
	used   int
}

const stackSize = 16 << 10 // the child needs less than 1 KiB: its functions are nosplit

// newArea maps memory that the child shares (MAP_SHARED), so that leaveMemory cannot wipe it, and no garbage collector
// moves or frees what lies in it. The caller must close it.
func newArea(size int) (*area, error) {
	memory, err := unix.Mmap(-1, 0, size+stackSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("cannot map %d bytes: %w", size+stackSize, err)
	}
	return &area{memory: memory}, nil
}

// close unmaps the area. A child that has not executed its command yet keeps its own mapping.
func (a *area) close() {
	unix.Munmap(a.memory) //nolint:errcheck // it was mapped
	a.memory = nil
}

// stack returns where the child's stack begins, above some space for the arguments of its first function.
func (a *area) stack() uintptr {
	end := uintptr(unsafe.Pointer(unsafe.SliceData(a.memory))) + uintptr(len(a.memory))
	return end&^15 - 64
}

// room returns zeroed memory for n values, which must not contain pointers out of the area.
func room[T any](a *area, n int) []T {
	size := n * int(unsafe.Sizeof(*new(T)))
	at := a.memory[a.used : a.used+size : len(a.memory)-stackSize]
	a.used += (size + 7) &^ 7
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(at))), n)
}

// text copies a string and ends it with a NUL.
func (a *area) text(s string) []byte {
	text := room[byte](a, len(s)+1)
	copy(text, s)
	return text
}

func address[T any](s []T) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(s))) }
