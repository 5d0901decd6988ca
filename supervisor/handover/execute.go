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

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/apart"
	"example.org/supervisord/internal/siginfo"
)

// The environment of an image that was executed in the place of another one.
const (
	handoverVariable = "SUPERVISORD_HANDOVER"       // the number of a memfd with the record
	fallbackVariable = "SUPERVISORD_FALLBACK"       // the number of a descriptor of the image before
	failedVariable   = "SUPERVISORD_UPGRADE_FAILED" // why that image is back
	signalsVariable  = "SUPERVISORD_SIGNALS"        // the signals that an image before this one caught and did not obey
)

// LeaveSignal tells a supervisord to leave its workers to the next one: SIGRTMIN+1 as kill(1) and systemctl count. Nothing sends it by
// default, and its default action, to kill the process, has the same effect on a supervisord that does not know it.
const LeaveSignal = syscall.Signal(35)

// Image is what takes the place of this one.
type Image struct {
	Path   string
	Args   []string
	Keep   map[string]int                              // descriptors besides those of the supervisor, by name: Handover.Extra returns them
	Caught func() []siginfo.Signal                     // takes the signals that this image has caught and not obeyed; nil: there are none
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
func GoBack(environ []string, reason error, caught func() []siginfo.Signal) error {
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
func Caught(environ []string) (signals []siginfo.Signal) {
	for text := range strings.SplitSeq(getenv(environ, signalsVariable), ",") {
		if s, err := siginfo.Parse(text); err == nil {
			signals = append(signals, s)
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

// execute is execve(2) with these descriptors left open.
func execute(image Image, env []string, fds []int) error {
	for _, fd := range fds {
		if err := closeOnExec(fd, false); err != nil {
			return fmt.Errorf("cannot hand descriptor %d over: %w", fd, err)
		}
	}
	err := image.exec(env)
	for _, fd := range fds {
		closeOnExec(fd, true) //nolint:errcheck // it was just changed
	}
	return fmt.Errorf("cannot execute %s: %w", image.Path, err)
}

// exec executes the image on the main thread: the workers are its children, and the end of another thread is not their business. Signals
// that were caught and not obeyed go to the new image, or come again if there is none. HUP, USR1, USR2, TTIN and TTOU are ignored from
// here until the new image catches them, because their defaults would end or stop it; a signal that comes in these milliseconds is lost.
// The others end supervisord: Go unblocks them at its start, so they cannot be held back, and a supervisor that misses TERM would be worse.
func (i Image) exec(env []string) (err error) {
	caught := append(Caught(env), siginfo.Pending(slices.Concat(lost, endings))...)
	defer func() { siginfo.Again(caught) }() // when their handlers are back
	for _, sig := range lost {
		before := siginfo.Ignore.Set(sig)
		defer before.Set(sig)
	}
	for _, sig := range endings {
		before := siginfo.Default.Set(sig)
		defer before.Set(sig)
	}
	if i.Caught != nil {
		caught = append(caught, i.Caught()...)
	}
	if len(caught) > 0 {
		texts := make([]string, len(caught))
		for i, s := range caught {
			texts[i] = s.String()
		}
		env = append(without(env, signalsVariable), signalsVariable+"="+strings.Join(texts, ","))
	}
	apart.OnMain(func() { err = i.Exec(i.Path, i.Args, env) })
	return err
}

func closeOnExec(fd int, on bool) error {
	flags := 0
	if on {
		flags = unix.FD_CLOEXEC
	}
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, flags)
	return err
}
