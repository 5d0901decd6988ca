package spawn

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/cgroup"
	"example.org/supervisord/internal/proc"
)

// shimName is argv[0] of a shim. No other program has this name by accident, and the sealed parameters must be there too.
const shimName = "supervisord: starting"

// aboutToExec is the byte with which the shim reports that all steps but the exec were taken.
const aboutToExec = '+'

// shim is the process between fork and exec. It works on one thread, by raw system calls where libc and Go would change all threads:
// credentials, capabilities and niceness belong to a thread, and the exec keeps those of its caller.
type shim struct {
	parameters
	status int
}

// minFiles are the standard streams, the parameters and the report.
const minFiles = 5

// RunShim must be the first statement of main, and of TestMain in tests that start processes by this package. It returns at once unless
// this process is a shim; then it never returns.
func RunShim() {
	if os.Args[0] != shimName || len(os.Args) != 3 {
		return
	}
	end, err := strconv.Atoi(os.Args[2])
	if err != nil || end < minFiles {
		return
	}
	memfd := end - 2
	if have, err := unix.FcntlInt(uintptr(memfd), unix.F_GET_SEALS, 0); err != nil || have&seals != seals {
		return
	}
	runtime.LockOSThread()
	s := &shim{status: end - 1}
	if err := s.read(memfd); err != nil {
		s.fail(stepParameters, err)
	}
	s.become()
}

func (s *shim) read(memfd int) error {
	var stat unix.Stat_t
	if err := unix.Fstat(memfd, &stat); err != nil {
		return err
	}
	data := make([]byte, stat.Size)
	if n, err := unix.Pread(memfd, data, 0); err != nil || n != len(data) {
		return fmt.Errorf("read %d of %d bytes: %w", n, len(data), err)
	}
	return json.Unmarshal(data, &s.parameters)
}

// become takes the steps. What needs the supervisor's privileges comes before the user is set, and what the user must be able to do comes
// after; limits come last, so that they apply to the command and not to the shim.
func (s *shim) become() {
	steps := []struct {
		name string
		take func() error
	}{
		{stepControlGroup, s.enterGroup},
		{stepSignals, s.signals},
		{stepCapabilities, clearAmbient},
		{stepLimits, s.raiseHardLimits},
		{stepNice, s.nice},
		{stepOOM, s.oomScoreAdj},
		{stepUmask, s.umask},
		{stepGroups, s.groups},
		{stepGroup, s.group},
		{stepUser, s.user},
		{stepAmbient, s.ambient},
		{stepNoNewPrivileges, s.noNewPrivileges},
		{stepDirectory, s.directory},
		{stepDescriptors, s.closeRest},
		{stepLimits, s.softLimits},
		{StepExec, s.exec},
	}
	for _, step := range steps {
		if err := step.take(); err != nil {
			s.fail(step.name, err)
		}
	}
}

// fail reports and ends the process, without the hooks of a normal exit.
func (s *shim) fail(step string, err error) {
	report, _ := json.Marshal(Failed(step, err))
	unix.Write(s.status, report)
	syscall.Exit(127)
}

// signals resets every disposition, also of signals that the supervisor inherited as ignored, and empties the mask. It ignores SIGPIPE where
// the limits say so.
func (s *shim) signals() error {
	var byDefault [8]uint64 // struct sigaction: all zero is SIG_DFL, whatever the order of its fields
	for sig := uintptr(1); sig <= 64; sig++ {
		if sig == uintptr(unix.SIGPIPE) && s.Limits.IgnoreSIGPIPE {
			signal.Ignore(unix.SIGPIPE)
			continue
		}
		_, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
		if e != 0 && e != unix.EINVAL { // EINVAL: KILL and STOP
			return fmt.Errorf("signal %d: %w", sig, e)
		}
	}
	return unix.PthreadSigmask(unix.SIG_SETMASK, &unix.Sigset_t{}, nil)
}

// enterGroup moves this process into its control group, if it was not born there. If that fails, it stays where it is.
func (s *shim) enterGroup() error {
	if s.Group == "" {
		return nil
	}
	if own := proc.OwnGroups(); len(own) == 0 || filepath.Base(own[0]) != filepath.Base(s.Group) {
		cgroup.Enter(s.Group) //nolint:errcheck // the worker can do without it
	}
	return nil
}

func (s *shim) nice() error {
	if s.Limits.Nice == nil {
		return nil
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, *s.Limits.Nice); err != nil {
		return fmt.Errorf("%d: %w", *s.Limits.Nice, err)
	}
	return nil
}

// oomScoreAdj sets the score. Without one, a score that was inherited from the supervisor, which its unit may protect, goes back to 0 where
// that is allowed.
func (s *shim) oomScoreAdj() error {
	want, asked := 0, s.Limits.OOMScoreAdj != nil
	if asked {
		want = *s.Limits.OOMScoreAdj
	}
	fd, err := unix.Open("/proc/self/oom_score_adj", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(fd)
		err = writeScore(fd, want)
	}
	if err != nil && asked {
		return fmt.Errorf("%d: %w", want, err)
	}
	return nil
}

func writeScore(fd, want int) error {
	var buf [16]byte
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return err
	}
	text := strconv.Itoa(want)
	if strings.TrimSpace(string(buf[:n])) == text {
		return nil
	}
	_, err = unix.Pwrite(fd, []byte(text), 0)
	return err
}

func (s *shim) umask() error {
	if s.Limits.Umask != nil {
		unix.Umask(*s.Limits.Umask)
	}
	return nil
}

func (s *shim) noNewPrivileges() error {
	if !s.Limits.NoNewPrivileges {
		return nil
	}
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

func (s *shim) directory() error {
	if len(s.Directory) == 0 {
		return nil
	}
	if err := unix.Chdir(string(s.Directory)); err != nil {
		return fmt.Errorf("%s: %w", s.Directory, err)
	}
	return nil
}

// closeRest closes everything but Execution.Files at the exec.
func (s *shim) closeRest() error {
	return unix.CloseRange(uint(s.Keep), ^uint(0)>>33, unix.CLOSE_RANGE_CLOEXEC)
}

// exec becomes the command. On success it does not return.
func (s *shim) exec() error {
	command, environment := unpack(s.Command), unpack(s.Environment)
	path := DefaultPath
	sockets, watchdog := false, false
	for _, v := range environment {
		if rest, ok := strings.CutPrefix(v, "PATH="); ok {
			path = rest
		}
		sockets = sockets || strings.HasPrefix(v, "LISTEN_FDS=")
		watchdog = watchdog || strings.HasPrefix(v, "WATCHDOG_USEC=")
	}
	if sockets {
		environment = append(environment, "LISTEN_PID="+strconv.Itoa(os.Getpid()))
	}
	if watchdog {
		environment = append(environment, "WATCHDOG_PID="+strconv.Itoa(os.Getpid()))
	}
	if _, err := unix.Write(s.status, []byte{aboutToExec}); err != nil {
		return fmt.Errorf("cannot report: %w", err)
	}
	if strings.Contains(command[0], "/") {
		return explain(command[0], syscall.Exec(command[0], command, environment))
	}
	return search(path, command, environment)
}

// search tries the directories of PATH as execvp(3) does: a file that may not be executed does not end the search.
func search(path string, command, environment []string) error {
	found := error(unix.ENOENT)
	for _, dir := range strings.Split(path, ":") {
		file := dir + "/" + command[0]
		if dir == "" {
			file = command[0]
		}
		err := syscall.Exec(file, command, environment)
		switch {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		case errors.Is(err, unix.EACCES):
			found = err
		default:
			return explain(file, err)
		}
	}
	if errors.Is(found, unix.ENOENT) {
		return fmt.Errorf("%s: not found in PATH %q: %w", command[0], path, found)
	}
	return fmt.Errorf("%s: found in PATH %q but may not be executed: %w", command[0], path, found)
}

// explain adds what the errno of an exec leaves out.
func explain(file string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT) && unix.Access(file, unix.F_OK) == nil:
		return fmt.Errorf("%s: its interpreter (the #! line, or the dynamic loader): %w", file, err)
	case errors.Is(err, unix.ENOEXEC):
		return fmt.Errorf("%s: %w (a script needs a #! line)", file, err)
	}
	return fmt.Errorf("%s: %w", file, err)
}
