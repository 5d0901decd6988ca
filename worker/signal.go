package worker

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Signal sends sig to the worker process alone (group false) or to its whole process group. After the end it does nothing and
// returns nil. A signal that comes before the command runs waits until it does, because what stands in its place until then
// would take it otherwise than the command; KILL does not wait for the exec, only for the fork.
func (w *Worker) Signal(sig syscall.Signal, group bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := Pending{sig, group}
	switch {
	case w.process.ended:
		return nil
	case w.process.pid == 0, !w.process.running && sig != syscall.SIGKILL:
		w.process.early = append(w.process.early, d)
		return nil
	}
	w.endsProbe(sig)
	return w.deliver(d)
}

// forked makes up for a KILL that came before there was a process. w.mu is held.
func (w *Worker) forked(pid, pidfd int) {
	w.process.pid, w.process.pidfd, w.process.child = pid, pidfd, true
	for _, d := range w.process.early {
		if d.Signal == syscall.SIGKILL {
			w.deliver(d)
		}
	}
}

// deliver sends a signal to a process that has not been reaped. w.mu is held, so that it cannot be meanwhile.
func (w *Worker) deliver(d Pending) error {
	var err error
	if d.Signal == syscall.SIGKILL {
		w.process.killed = true
	}
	if d.Signal == syscall.SIGKILL && d.Group {
		w.launcher.groups.kill(w.process.group)
	}
	switch {
	case d.Group && (w.process.child || w.pinned()):
		err = unix.Kill(-w.process.pid, d.Signal)
	case w.process.pidfd >= 0:
		err = unix.PidfdSendSignal(w.process.pidfd, d.Signal, nil, 0)
		if errors.Is(err, unix.ENOSYS) && w.process.child {
			err = unix.Kill(w.process.pid, d.Signal)
		}
	case w.process.child:
		err = unix.Kill(w.process.pid, d.Signal)
	}
	if err == nil || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return fmt.Errorf("cannot send %s to process %d: %w", unix.SignalName(d.Signal), w.process.pid, err)
}

// pinned tells whether the process is there, if only as a zombie, so that its number means nobody else.
func (w *Worker) pinned() bool {
	return w.process.pidfd >= 0 && unix.PidfdSendSignal(w.process.pidfd, 0, nil, 0) == nil
}
