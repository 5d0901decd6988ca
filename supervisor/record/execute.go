package record

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/siginfo"
)

// The environment of an image that was executed in the place of another one.
const (
	handoverVariable = "SUPERVISORD_HANDOVER"       // the number of a memfd with the record
	fallbackVariable = "SUPERVISORD_FALLBACK"       // the number of a descriptor of the image before
	failedVariable   = "SUPERVISORD_UPGRADE_FAILED" // why that image is back
	signalsVariable  = "SUPERVISORD_SIGNALS"        // the signals that an image before this one caught and did not obey
)

// LeaveSignal tells a supervisord to leave its workers to the next one: SIGRTMIN+1 as kill(1) and systemctl count.
// Nothing sends it by default, and its default action, to kill the process, has the same effect on a supervisord that
// does not know it.
const LeaveSignal = syscall.Signal(35)

// Image is what takes the place of this one.
type Image struct {
	Path string
	Args []string

	// Keep are descriptors besides those of the supervisor, by name: Inheritance.Extra returns them.
	Keep map[string]int

	// Caught takes the signals that this image has caught and not obeyed; nil: there are none.
	Caught func() []siginfo.Caught

	Exec func(path string, args, env []string) error // syscall.Exec
}

// Execute executes a new image in this process, with the record of src, whose launcher must be frozen, and with reload
// to begin with. Execute returns only if that fails; then every descriptor is close-on-exec again, and this image
// continues. What workers do meanwhile waits in the kernel. The new image gets
//
//	SUPERVISORD_HANDOVER   a memfd with the record, which has the numbers and names of all descriptors
//	SUPERVISORD_FALLBACK   this binary, by its open file: GoBack executes it if the new one cannot continue
//	SUPERVISORD_SIGNALS    the signals that this image has caught and not obeyed
//
// Until the new image calls Stay, both can continue with the same descriptors; afterwards only the new one can.
func Execute(src Predecessor, store *Store, reload *PendingReload, image Image) error {
	self, err := unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot keep hold of this binary: %w", err)
	}
	defer unix.Close(self)
	r, sequence := headOf(src), uint64(0)
	r.Reload, r.Descriptors, r.Stored = reload, map[string][]int{}, map[string]int{}
	for _, e := range entriesOf(src) {
		fds, err := e.own()
		if err != nil {
			return err
		}
		if len(fds) > 0 {
			r.Descriptors[e.name] = fds
		}
	}
	for name, fd := range image.Keep {
		r.Descriptors[extraPrefix+name] = []int{fd}
	}
	if store != nil {
		for name, fd := range store.written.files() {
			r.Descriptors[name] = []int{fd}
		}
		r.Stored, sequence = store.ledger.counts, store.written.sequence
	}
	list, err := memfd("record")
	if err != nil {
		return err
	}
	defer unix.Close(list)
	if err := newLog(list, sequence).putWhole(r, programsOf(src)); err != nil {
		return err
	}
	fds := append(r.descriptors(), self, list)
	env := append(without(os.Environ(), handoverVariable, fallbackVariable, failedVariable, signalsVariable,
		"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID"),
		handoverVariable+"="+strconv.Itoa(list), fallbackVariable+"="+strconv.Itoa(self))
	return execute(image, env, fds)
}

// GoBack executes the previous image, because this one cannot continue with what it was given. It returns only if there
// is no previous image, or if the execve fails. caught is that of an Image.
func GoBack(environ []string, reason error, caught func() []siginfo.Caught) error {
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
		fds = append(fds, r.descriptors()...)
	}
	if err := closeOnExec(fd, true); err != nil { // the image before this one opens itself again when it needs that
		return err
	}
	why := strings.ReplaceAll(reason.Error(), "\n", "; ")
	env := append(without(environ, fallbackVariable, failedVariable), failedVariable+"="+why)
	before := Image{Path: "/proc/self/fd/" + strconv.Itoa(fd), Args: os.Args, Caught: caught, Exec: syscall.Exec}
	return execute(before, env, fds)
}

// Caught returns the signals that the images before this one caught and did not obey, oldest first.
func Caught(environ []string) (signals []siginfo.Caught) {
	for text := range strings.SplitSeq(getenv(environ, signalsVariable), ",") {
		if s, err := siginfo.Parse(text); err == nil {
			signals = append(signals, s)
		}
	}
	return signals
}

// CanGoBack reports whether the image before this one was kept.
func CanGoBack(environ []string) bool { return getenv(environ, fallbackVariable) != "" }

// Stay drops the previous image and its record: from then on GoBack is impossible.
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

// exec executes the image on the main thread: the workers are its children, and the end of another thread is not their
// business. Signals that were caught and not obeyed go to the new image, or come again if there is none. HUP, USR1,
// USR2, TTIN and TTOU are ignored from here until the new image catches them, because their defaults would end or stop
// it; a signal that comes in these milliseconds is lost. The others end supervisord: Go unblocks them at its start, so
// they cannot be held back, and a supervisor that misses TERM would be worse.
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
	foreign.OnMain(func() { err = i.Exec(i.Path, i.Args, env) })
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

// CheckFD is the number of the descriptor with the record in the process that tries a new binary.
const CheckFD = 3

// Rehearsal is what a new binary is tried with: the record, and duplicates of every descriptor that the binary would
// take over.
type Rehearsal struct {
	fds []int // as the record numbers them, from CheckFD on
}

// Rehearse makes a Rehearsal, which the caller must Close. If this process may not have that many more descriptors, the
// Rehearsal has only the record.
func Rehearse(src Predecessor) (*Rehearsal, error) {
	r := headOf(src)
	list, err := memfd("record")
	if err != nil {
		return nil, err
	}
	rehearsal := &Rehearsal{[]int{list}}
	r.Descriptors = map[string][]int{}
	for _, e := range entriesOf(src) {
		fds, err := e.duplicates()
		for i := range fds {
			r.Descriptors[e.name] = append(r.Descriptors[e.name], CheckFD+len(rehearsal.fds)+i)
		}
		if rehearsal.fds = append(rehearsal.fds, fds...); err != nil {
			closeAll(rehearsal.fds[1:])
			rehearsal.fds, r.Descriptors = rehearsal.fds[:1], nil
			break
		}
	}
	if err := newLog(list, 0).putWhole(r, programsOf(src)); err != nil {
		rehearsal.Close()
		return nil, err
	}
	return rehearsal, nil
}

// Descriptors are those that the command must get, from CheckFD on.
func (r *Rehearsal) Descriptors() []int { return r.fds }

// Close closes the duplicates.
func (r *Rehearsal) Close() { closeAll(r.fds) }

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// descriptors lists those that an execve leaves open.
func (r *Record) descriptors() []int {
	return slices.Concat(slices.Collect(maps.Values(r.Descriptors))...)
}

// CanEncode returns an error if this binary cannot write the record that it has read.
func (r *Record) CanEncode() error {
	fd, err := memfd("record")
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return newLog(fd, 0).putWhole(r, r.programs)
}

func (r *Record) programs(yield func(*ProgramRecord) bool) {
	for i := range r.Programs {
		if !yield(&r.Programs[i]) {
			return
		}
	}
}

// How long execve(2) is held back while a thread is in a system call that no signal ends, and how often that is looked
// at.
const (
	hungTimeout = 500 * time.Millisecond
	hungLook    = 20 * time.Millisecond
)

// AwaitDisks returns an error while a thread of this process waits for a disk that hangs, or while writing reports
// that a file is being written. execve(2) would wait with them, and nothing could end that, not even KILL. AwaitDisks
// waits for as long as any busy disk may take.
func AwaitDisks(writing func() error) error {
	timeout, again := time.NewTimer(hungTimeout), time.NewTicker(hungLook)
	defer timeout.Stop()
	defer again.Stop()
	for {
		err := writing()
		if where := hungThread(); where != "" {
			err = fmt.Errorf("a thread waits for a disk or a file system that does not answer (in the kernel: %s)", where)
		}
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-timeout.C:
			return err
		}
	}
}

// hungThread returns where in the kernel a thread waits that no signal wakes; "": there is none (proc_pid_stat(5)).
func hungThread() string {
	const tasks = "/proc/self/task/"
	entries, _ := os.ReadDir(tasks)
	for _, e := range entries {
		stat, err := os.ReadFile(tasks + e.Name() + "/stat")
		if err != nil {
			continue
		}
		if end := bytes.LastIndexByte(stat, ')'); end < 0 || !bytes.HasPrefix(stat[end+1:], []byte(" D")) {
			continue
		}
		if where, err := os.ReadFile(tasks + e.Name() + "/wchan"); err == nil && len(where) > 1 {
			return string(where)
		}
		return "unknown"
	}
	return ""
}
