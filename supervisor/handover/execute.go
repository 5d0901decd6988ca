package handover

import (
	"errors"
	"fmt"
	"maps"
	"os"
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
)

// Image is what takes the place of this one.
type Image struct {
	Path string
	Args []string
	Keep map[string]int                              // descriptors besides those of the supervisor, by name: Handover.Extra returns them
	Exec func(path string, args, env []string) error // syscall.Exec
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
	env := append(without(os.Environ(), handoverVariable, fallbackVariable, failedVariable, "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID"),
		handoverVariable+"="+strconv.Itoa(list), fallbackVariable+"="+strconv.Itoa(self))
	return execute(image, env, fds)
}

// GoBack executes the image before this one, because this one cannot continue with what was handed over. It returns only if
// there is none, or if it fails.
func GoBack(environ []string, reason error) error {
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
	return execute(Image{Path: "/proc/self/fd/" + strconv.Itoa(fd), Args: os.Args, Exec: syscall.Exec}, env, fds)
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

// execute is execve(2) with these descriptors left open. HUP, USR1, USR2, TTIN and TTOU are ignored from here until the new image
// catches them, because their defaults would end or stop it; a signal that comes in these milliseconds is lost. TERM cannot be held
// back: Go unblocks it at its start, and a supervisor that misses it would be worse.
func execute(image Image, env []string, fds []int) error {
	for _, fd := range fds {
		if err := closeOnExec(fd, false); err != nil {
			return fmt.Errorf("cannot hand descriptor %d over: %w", fd, err)
		}
	}
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTTIN, syscall.SIGTTOU} {
		defer ignore(sig).restore()
	}
	err := image.Exec(image.Path, image.Args, env)
	for _, fd := range fds {
		closeOnExec(fd, true) //nolint:errcheck // it was just changed
	}
	return fmt.Errorf("cannot execute %s: %w", image.Path, err)
}

func closeOnExec(fd int, on bool) error {
	flags := 0
	if on {
		flags = unix.FD_CLOEXEC
	}
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, flags)
	return err
}

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

// ignore makes the kernel drop a signal, behind the back of Go's runtime: signal.Ignore leaves a moment in which it kills.
func ignore(sig syscall.Signal) disposition {
	d := disposition{sig: sig}
	ignored := sigaction{handler: 1} // SIG_IGN
	rtSigaction(sig, &ignored, &d.old)
	return d
}

func (d disposition) restore() { rtSigaction(d.sig, &d.old, nil) }

func rtSigaction(sig syscall.Signal, action, old *sigaction) {
	const setSize = 8 // of the kernel's sigset_t, in bytes
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(action)), uintptr(unsafe.Pointer(old)), setSize, 0, 0)
}
