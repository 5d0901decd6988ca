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
	p      *plan
	report int   // this process's descriptor
	step   uint8 // of the next calls
}

// newPlan prepares all steps. What needs the supervisor's privileges comes before the user is set, and what the user must be able to do comes
// after; limits come last, so that they apply to the command and not to the steps.
func newPlan(c *Execution, report int) (*plan, *StepError) {
	b := &builder{c: c, p: &plan{pidfd: -1, procs: -1}, report: report}
	b.p.calls = make([]call, 0, 24+2*len(c.Files))
	for _, step := range []func() *StepError{
		b.command, b.descriptors, b.signals, b.raiseHardLimits, b.attributes, b.identity, b.ambient, b.directory, b.softLimits,
	} {
		if failure := step(); failure != nil {
			return nil, failure
		}
	}
	return b.p, nil
}

// call adds a system call to the plan.
func (b *builder) call(number uintptr, args ...uintptr) *call {
	c := call{number: number, step: b.step}
	copy(c.args[:], args)
	b.p.calls = append(b.p.calls, c)
	return &b.p.calls[len(b.p.calls)-1]
}

// paper keeps a string for a call, and returns its address.
func (b *builder) paper(s string) uintptr {
	text := append([]byte(s), 0)
	b.p.paper = append(b.p.paper, text)
	return uintptr(unsafe.Pointer(unsafe.SliceData(text)))
}

// descriptors puts Files, and the report after them, into their places. Nothing else stays open: a later step may hang, as on a disk that is
// dead, and this process must not hold the supervisor's sockets and locks meanwhile.
func (b *builder) descriptors() *StepError {
	b.step = codeFork
	b.call(unix.SYS_SETPGID, 0, 0)
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
	for i, fd := range files {
		flags := uintptr(0)
		if i == len(files)-1 {
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
	b.p.report = len(files) - 1
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

// attributes sets what belongs to the process itself. Without an oom_score_adj, a score that was inherited from the supervisor, which its unit
// may protect, goes back to 0 where that is allowed.
func (b *builder) attributes() *StepError {
	limits := &b.c.Limits
	if limits.Nice != nil {
		b.step = codeNice
		b.call(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0, uintptr(*limits.Nice))
	}
	b.p.score = strconv.AppendInt(nil, int64(value(limits.OOMScoreAdj)), 10)
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

func (b *builder) directory() *StepError {
	if b.c.Limits.NoNewPrivileges {
		b.step = codeNoNewPrivileges
		b.call(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1)
	}
	if b.c.Directory == "" {
		return nil
	}
	if strings.IndexByte(b.c.Directory, 0) >= 0 {
		return Failed(stepDirectory, fmt.Errorf("%q contains a NUL byte: %w", b.c.Directory, unix.EINVAL))
	}
	b.step = codeDirectory
	b.call(unix.SYS_CHDIR, b.paper(b.c.Directory))
	return nil
}

// command lays out argv, the environment and the paths to try, in one piece of text.
func (b *builder) command() *StepError {
	c, p := b.c, b.p
	if len(c.Argv) == 0 {
		return Failed(StepExec, errors.New("no command was given"))
	}
	for _, list := range [][]string{c.Argv, c.Environment} {
		for _, s := range list {
			if strings.IndexByte(s, 0) >= 0 {
				return Failed(StepExec, fmt.Errorf("%q contains a NUL byte: %w", s, unix.EINVAL))
			}
		}
	}
	files, _ := c.candidates()
	p.searches = !strings.Contains(c.Argv[0], "/")
	environment := c.Environment
	var pids []int // in environment
	for _, pair := range [][2]string{{"LISTEN_FDS=", "LISTEN_PID="}, {"WATCHDOG_USEC=", "WATCHDOG_PID="}} {
		if slices.ContainsFunc(c.Environment, func(v string) bool { return strings.HasPrefix(v, pair[0]) }) {
			pids = append(pids, len(environment))
			environment = append(environment[:len(environment):len(environment)], pair[1]+noPID)
		}
	}
	b.lay(c.Argv, environment, files)
	for i, at := range pids {
		p.pids[i] = int(p.envp[at]-p.argv[0]) + strings.IndexByte(environment[at], '=') + 1
	}
	// ps(1) is not to show a second supervisord: until the exec, it is what systemd would call it.
	b.call(unix.SYS_PRCTL, unix.PR_SET_NAME, b.paper("("+filepath.Base(c.Argv[0])+")")).may = anyError
	return nil
}

// lay copies the lists into text. argv comes first.
func (b *builder) lay(argv, environment, files []string) {
	size := 0
	lists := [][]string{argv, environment, files}
	for _, list := range lists {
		for _, s := range list {
			size += len(s) + 1
		}
	}
	p := b.p
	p.text = make([]byte, 0, size)
	base := uintptr(unsafe.Pointer(unsafe.SliceData(p.text)))
	for i, into := range []*[]uintptr{&p.argv, &p.envp, &p.paths} {
		*into = make([]uintptr, 0, len(lists[i])+1)
		for _, s := range lists[i] {
			*into = append(*into, base+uintptr(len(p.text)))
			p.text = append(append(p.text, s...), 0)
		}
	}
	p.argv, p.envp = append(p.argv, 0), append(p.envp, 0)
}

// candidates returns the files that may be the command, and the PATH that they come from unless the command has a slash.
func (c *Execution) candidates() (files []string, path string) {
	name := c.Argv[0]
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
