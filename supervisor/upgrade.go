package supervisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"example.org/supervisord/worker"
	"example.org/supervisord/worker/output"
)

// The environment of an image that was executed in the place of another one, beside handoverVariable.
const (
	fallbackVariable = "SUPERVISORD_FALLBACK"       // the number of a descriptor of the image before
	failedVariable   = "SUPERVISORD_UPGRADE_FAILED" // why that image is back
)

// CheckFD is the number of the descriptor with the state in the process that tries a new binary.
const CheckFD = 3

// tryTimeout bounds the trial of a new binary.
const tryTimeout = 30 * time.Second

// freezeTimeout is how long an upgrade waits for what the launcher is doing. The loop waits with it.
const freezeTimeout = 2 * time.Second

// Upgrader replaces the image of this process by a new one.
type Upgrader interface {
	// Check is the command that tries the new binary: it must Rehearse with CheckFD, and read the configuration.
	Check() []string
	// Args returns the path of the new binary and its arguments.
	Args() (path string, argv []string)
	// Keep lists what else has to be handed over, by name: Handover.Extra returns it.
	Keep() map[string]int
}

// upgrade tries the new binary as a child, with the state as it is now. The loop goes on meanwhile. With reply it is for an
// Upgrade, otherwise for USR2.
func (s *Supervisor) upgrade(reply func(error), by string) {
	if err := s.mayUpgrade(); err != nil {
		if reply == nil {
			s.Log.Warn("USR2: nothing happens", zap.Error(err))
			return
		}
		reply(err)
		return
	}
	s.Log.Info("upgrade: trying the new binary", askedBy(by), zap.Strings("command", s.Upgrader.Check()))
	s.upgrading, s.passed, s.stumbled = true, false, ""
	r, err := s.rehearsal()
	if err != nil {
		s.tried(upgradeNote{err, reply})
		return
	}
	s.running.Go(func() {
		err := s.try(r)
		r.close()
		s.put(upgradeNote{err, reply})
	})
}

func (s *Supervisor) mayUpgrade() error {
	switch {
	case s.stopping, s.leaving:
		return ErrStopping
	case s.Upgrader == nil:
		return fmt.Errorf("%w: this supervisord cannot be upgraded", ErrState)
	case s.upgrading:
		return fmt.Errorf("%w: an upgrade is under way", ErrState)
	}
	return nil
}

func (s *Supervisor) try(r *rehearsal) error {
	fd, err := memfd("state", r.record)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ctx, cancel := context.WithTimeoutCause(s.ctx, tryTimeout, fmt.Errorf("not finished within %s", tryTimeout))
	defer cancel()
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	err = s.Launcher.Run(ctx, worker.Spec{
		Command: s.Upgrader.Check(), Directory: dir, Environment: worker.Inheritable(os.Environ()),
		Sockets: append([]int{fd}, r.fds...), Stdout: output.Destination{Kind: output.Null}, Stderr: output.Destination{Kind: output.Null},
	})
	if err == nil && s.Systemd != nil {
		// A new image that dies at once leaves to the next one what systemd has. What is not sent by then, the new image sends.
		flushStore(s.ctx, s.Systemd, upgradeFlushTimeout) //nolint:errcheck // see Record.Stored
	}
	return err
}

// tried goes on with the upgrade when the new binary has passed: for USR2 at once, otherwise at the Switch.
func (s *Supervisor) tried(n upgradeNote) {
	err := n.err
	s.upgrading, s.passed = false, err == nil
	switch {
	case s.stopping:
		err = ErrStopping
	case err != nil:
		err = s.stumble(err)
	case n.reply == nil:
		s.switchImage() //nolint:errcheck // it was logged
	}
	if n.reply != nil {
		n.reply(err)
	}
}

// switchImage has the new binary take over. It returns only if that failed.
func (s *Supervisor) switchImage() error {
	switch {
	case s.stopping, s.leaving:
		return ErrStopping
	case !s.passed:
		return fmt.Errorf("%w: no binary was tried", ErrState)
	}
	s.passed = false
	return s.stumble(s.replaceImage())
}

// stumble ends an upgrade that has failed.
func (s *Supervisor) stumble(err error) error {
	s.stumbled = err.Error()
	s.Log.Error(ErrUpgrade.Error(), zap.Error(err))
	return fmt.Errorf("%w: %w", ErrUpgrade, err)
}

// replaceImage executes the new binary in this process. What workers do meanwhile waits in the kernel.
func (s *Supervisor) replaceImage() error {
	path, argv := s.Upgrader.Args()
	s.Log.Info("executing the new binary", zap.String("path", path))
	if err := s.Launcher.Freeze(freezeTimeout); err != nil {
		return err
	}
	defer s.Launcher.Thaw()
	self, err := unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot keep hold of this binary: %w", err)
	}
	defer unix.Close(self)
	st := s.record()
	st.Reload = s.reader.pending()
	st.Descriptors = s.descriptors()
	if s.Systemd != nil {
		st.Stored = s.Systemd.Freeze()
		defer s.Systemd.Thaw()
	}
	for name, fd := range s.Upgrader.Keep() {
		st.Descriptors[extraPrefix+name] = fd
	}
	for name, fd := range s.keeper.files() {
		st.Descriptors[name] = fd
	}
	if err := s.restLogs(); err != nil {
		return err
	}
	if err := s.Log.Sync(); err != nil {
		return err
	}
	if err := s.hung(); err != nil {
		return err
	}
	text, err := encodeRecord(st, s.keeper.last())
	if err != nil {
		return err
	}
	paper, err := memfd("state", text)
	if err != nil {
		return err
	}
	defer unix.Close(paper)
	fds := append(slices.Collect(maps.Values(st.Descriptors)), self, paper)
	env := append(without(os.Environ(), handoverVariable, fallbackVariable, failedVariable, "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID"),
		handoverVariable+"="+strconv.Itoa(paper), fallbackVariable+"="+strconv.Itoa(self))
	return execute(path, argv, env, fds)
}

// GoBack executes the image before this one, because this one cannot go on with what was handed over. It returns only if
// there is none, or if it fails.
func GoBack(environ []string, reason error) error {
	fd, err := strconv.Atoi(getenv(environ, fallbackVariable))
	if err != nil {
		return errors.New("there is no supervisord to go back to")
	}
	paper, err := strconv.Atoi(getenv(environ, handoverVariable))
	if err != nil {
		return err
	}
	text, err := readAll(paper)
	if err != nil {
		return err
	}
	fds := []int{paper}
	if st, _, err := decodeRecord(text); err == nil {
		fds = slices.AppendSeq(fds, maps.Values(st.Descriptors))
	}
	env := append(without(environ, fallbackVariable, failedVariable), failedVariable+"="+strings.ReplaceAll(reason.Error(), "\n", "; "))
	return execute("/proc/self/fd/"+strconv.Itoa(fd), os.Args, env, fds)
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

// GoneBack returns why a newer image gave this one its place back, or "".
func GoneBack(environ []string) string { return getenv(environ, failedVariable) }

func without(environ []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(names, name)
	})
}

// execute is execve(2) with these descriptors left open. HUP, USR1, USR2, TTIN and TTOU are ignored from here until the new image
// catches them, for their default would end or freeze it; one that comes in these milliseconds is lost. TERM cannot be held back: Go unblocks it
// at its start, and a supervisor that misses it would be worse.
func execute(path string, argv, env []string, fds []int) error {
	for _, fd := range fds {
		if err := closeOnExec(fd, false); err != nil {
			return fmt.Errorf("cannot hand descriptor %d over: %w", fd, err)
		}
	}
	var before []disposition
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTTIN, syscall.SIGTTOU} {
		before = append(before, ignore(sig))
	}
	err := syscall.Exec(path, argv, env)
	for _, d := range before {
		d.restore()
	}
	for _, fd := range fds {
		closeOnExec(fd, true) //nolint:errcheck // it was just changed
	}
	return fmt.Errorf("cannot execute %s: %w", path, err)
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
