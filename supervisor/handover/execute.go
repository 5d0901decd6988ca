package handover

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The environment of an image that was executed in the place of another one.
const (
	handoverVariable = "SUPERVISORD_HANDOVER"       // the number of a memfd with the record
	fallbackVariable = "SUPERVISORD_FALLBACK"       // the number of a descriptor of the image before
	failedVariable   = "SUPERVISORD_UPGRADE_FAILED" // why that image is back
	signalsVariable  = "SUPERVISORD_SIGNALS"        // numbers of the signals that an image before this one caught and did not obey
)

// LeaveSignal tells a supervisord to leave its workers to the next one: SIGRTMIN+1 as kill(1) and systemctl count. Nothing sends it by
// default, and its default action, to kill the process, has the same effect on a supervisord that does not know it.
const LeaveSignal = syscall.Signal(35)

// Image is what takes the place of this one.
type Image struct {
	Path   string
	Args   []string
	Keep   map[string]int                              // descriptors besides those of the supervisor, by name: Handover.Extra returns them
	Caught func() []syscall.Signal                     // takes the signals that this image has caught and not obeyed; nil: there are none
	Exec   func(path string, args, env []string) error // syscall.Exec
}

// Execute executes a new image in this process, with the record of src, whose launcher must be frozen, and with reload to begin
// with. Execute returns only if that fails. What workers do meanwhile waits in the kernel.
func Execute(src Predecessor, store *Store, reload *PendingReload, image Image) error {
	self, err := unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot keep hold of this binary: %w", err)
	}
	defer unix.Close(self)
	r, sequence := recordOf(src), uint64(0)
	r.Reload, r.Descriptors, r.Stored = reload, map[string]int{}, map[string]int{}
	for _, d := range descriptorsOf(src) {
		r.Descriptors[d.name] = d.fd
	}
	for name, fd := range image.Keep {
		r.Descriptors[extraPrefix+name] = fd
	}
	if store != nil {
		maps.Copy(r.Descriptors, store.written.files())
		r.Stored, sequence = store.ledger.counts, store.written.sequence
	}
	list, err := memfd("record")
	if err != nil {
		return err
	}
	defer unix.Close(list)
	if err := writeRecord(list, sequence, r, src); err != nil {
		return err
	}
	fds := append(slices.Collect(maps.Values(r.Descriptors)), self, list)
	env := append(without(os.Environ(), handoverVariable, fallbackVariable, failedVariable, signalsVariable, "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID"),
		handoverVariable+"="+strconv.Itoa(list), fallbackVariable+"="+strconv.Itoa(self))
	return execute(image, env, fds)
}

// GoBack executes the image before this one, because this one cannot continue with what was handed over. It returns only if
// there is none, or if it fails. caught is that of an Image.
func GoBack(environ []string, reason error, caught func() []syscall.Signal) error {
	fd, err := strconv.Atoi(getenv(environ, fallbackVariable))
	if err != nil {
		return errors.New("there is no supervisord to go back to")
	}
	list, err := strconv.Atoi(getenv(environ, handoverVariable))
	if err != nil {
		return err
	}
	fds := []int{list}
	if r, _, err := readRecord(list); err == nil {
		fds = slices.AppendSeq(fds, maps.Values(r.Descriptors))
	}
	if err := closeOnExec(fd, true); err != nil { // the image before this one opens itself again when it needs that
		return err
	}
	env := append(without(environ, fallbackVariable, failedVariable), failedVariable+"="+strings.ReplaceAll(reason.Error(), "\n", "; "))
	return execute(Image{Path: "/proc/self/fd/" + strconv.Itoa(fd), Args: os.Args, Caught: caught, Exec: syscall.Exec}, env, fds)
}

// Caught returns the signals that the images before this one caught and did not obey, oldest first.
func Caught(environ []string) (signals []syscall.Signal) {
	for number := range strings.SplitSeq(getenv(environ, signalsVariable), ",") {
		if n, err := strconv.Atoi(number); err == nil && n > 0 {
			signals = append(signals, syscall.Signal(n))
		}
	}
	return signals
}

// CanGoBack reports whether the image before this one was kept.
func CanGoBack(environ []string) bool { return getenv(environ, fallbackVariable) != "" }

// Stay gives up the image before this one and its record: from here on there is no way back.
func Stay(environ []string) {
	for _, name := range []string{fallbackVariable, handoverVariable} {
		if fd, err := strconv.Atoi(getenv(environ, name)); err == nil {
			unix.Close(fd)
		}
	}
}

func without(environ []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(names, name)
	})
}

// What happens to signals from execute until the new image catches them.
var (
	lost    = []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTTIN, syscall.SIGTTOU}
	endings = []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, LeaveSignal}
)

// execute is execve(2) with these descriptors left open. Signals that were caught and not obeyed go to the new image, or come again
// if there is none. HUP, USR1, USR2, TTIN and TTOU are ignored from here until the new image catches them, because their defaults
// would end or stop it; a signal that comes in these milliseconds is lost. The others end supervisord: Go unblocks them at its start,
// so they cannot be held back, and a supervisor that misses TERM would be worse.
func execute(image Image, env []string, fds []int) error {
	for _, fd := range fds {
		if err := closeOnExec(fd, false); err != nil {
			return fmt.Errorf("cannot hand descriptor %d over: %w", fd, err)
		}
	}
	caught := append(Caught(env), unhandled(slices.Concat(lost, endings))...)
	defer func() { // when their handlers are back
		for _, sig := range caught {
			unix.Kill(os.Getpid(), sig) //nolint:errcheck // to itself
		}
	}()
	for _, sig := range lost {
		defer dispose(sig, sigIgnore).restore()
	}
	for _, sig := range endings {
		defer dispose(sig, sigDefault).restore()
	}
	if image.Caught != nil {
		caught = append(caught, image.Caught()...)
	}
	if len(caught) > 0 {
		numbers := make([]string, len(caught))
		for i, sig := range caught {
			numbers[i] = strconv.Itoa(int(sig))
		}
		env = append(without(env, signalsVariable), signalsVariable+"="+strings.Join(numbers, ","))
	}
	err := image.Exec(image.Path, image.Args, env)
	for _, fd := range fds {
		closeOnExec(fd, true) //nolint:errcheck // it was just changed
	}
	return fmt.Errorf("cannot execute %s: %w", image.Path, err)
}

// unhandled takes those of the signals for which the kernel has not called a handler yet. It drops them when their handler is changed.
func unhandled(signals []syscall.Signal) (taken []syscall.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var set, before unix.Sigset_t
	for _, sig := range signals {
		set.Val[0] |= 1 << (sig - 1)
	}
	if unix.PthreadSigmask(unix.SIG_BLOCK, &set, &before) != nil { // sigtimedwait(2) may take only what is blocked
		return nil
	}
	defer unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) //nolint:errcheck // its arguments are right
	for {
		var now unix.Timespec
		sig, _, err := unix.RawSyscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&set)), 0, uintptr(unsafe.Pointer(&now)), sigsetSize, 0, 0)
		if err == unix.EINTR {
			continue
		}
		if err != 0 {
			return taken
		}
		taken = append(taken, syscall.Signal(sig))
	}
}

func closeOnExec(fd int, on bool) error {
	flags := 0
	if on {
		flags = unix.FD_CLOEXEC
	}
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, flags)
	return err
}

// sigsetSize is that of the kernel's sigset_t, in bytes.
const sigsetSize = 8

// sigaction is the kernel's struct of rt_sigaction(2), with room for any architecture's.
type sigaction struct {
	handler uintptr
	rest    [15]uint64
}

// disposition is what was to be done about a signal.
type disposition struct {
	sig syscall.Signal
	old sigaction
}

// The kernel's handlers.
const (
	sigDefault = 0 // SIG_DFL
	sigIgnore  = 1 // SIG_IGN
)

// dispose changes what the kernel does about a signal, behind the back of Go's runtime: signal.Ignore leaves a moment in which it kills.
func dispose(sig syscall.Signal, handler uintptr) disposition {
	d, action := disposition{sig: sig}, sigaction{handler: handler}
	rtSigaction(sig, &action, &d.old)
	return d
}

func (d disposition) restore() { rtSigaction(d.sig, &d.old, nil) }

func rtSigaction(sig syscall.Signal, action, old *sigaction) {
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(action)), uintptr(unsafe.Pointer(old)), sigsetSize, 0, 0)
}
