package worker

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
)

// Signal sends sig to the worker process alone (group false) or to its whole process group. After the end it does nothing and returns nil.
// A signal that comes before the command runs waits until it does, because the process would react otherwise before the exec; KILL waits
// only for the fork. What a process leaves behind that has ended while it was stopped gets it in its place: see Stop.
func (w *Worker) Signal(sig syscall.Signal, group bool) error {
	return w.send(Pending{Signal: sig, Group: group})
}

// Stop is Signal for a step of the stop plan. When the process has ended, what it has started gets the last step, unless it had that
// already, and the steps that follow; the worker has ended when nothing is left. Without a Stop, or after KILL, that is killed at once.
func (w *Worker) Stop(sig syscall.Signal, group bool) error {
	return w.send(Pending{Signal: sig, Group: group, Stops: true})
}

func (w *Worker) send(d Pending) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	sig := d.Signal
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

// forked takes over the process, and delivers a KILL that came before there was one. w.mu is held.
func (w *Worker) forked(pid, pidfd int) {
	w.process.pid, w.process.pidfd, w.process.child = pid, pidfd, true
	w.watchChild()
	for _, d := range w.process.early {
		if d.Signal == syscall.SIGKILL {
			w.deliver(d) //nolint:errcheck // no caller waits for the answer any more
		}
	}
}

// deliver sends a signal to a process that was not reaped. w.mu is held, so that it is not reaped meanwhile.
func (w *Worker) deliver(d Pending) error {
	kill := d.Signal == syscall.SIGKILL
	if kill {
		w.process.killed = true
	}
	if kill && d.Group {
		w.launcher.groups.Kill(w.process.group)
	}
	if kill {
		w.killAgain(d)
	} else if d.Stops {
		w.process.stop = d
	}
	if w.process.rest != nil {
		w.deliverRest(d)
		return nil
	}
	var errGroup, errAlone error
	grouped := d.Group && (w.process.child || w.pinned())
	if grouped {
		errGroup = unix.Kill(-w.process.pid, d.Signal)
	}
	if !grouped || kill { // right after the fork there is no group yet
		errAlone = w.deliverAlone(d.Signal)
	}
	for _, err := range []error{errGroup, errAlone} {
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("cannot send %s to process %d: %w", unix.SignalName(d.Signal), w.process.pid, err)
		}
	}
	return nil
}

// killAgainAfter is when KILL is sent once more to a worker that is still there: the first one may have been refused, as while the worker
// executed a setuid program.
const killAgainAfter = time.Second

// killAgain repeats d until the worker has ended. w.mu is held.
func (w *Worker) killAgain(d Pending) {
	if w.process.again != nil {
		w.process.again.Stop()
	}
	w.process.again = time.AfterFunc(killAgainAfter, func() {
		w.locked(func() {
			if !w.process.ended {
				w.deliver(d) //nolint:errcheck // the first error was returned
			}
		})(0)
	})
}

// deliverAlone sends a signal to the worker process, whatever group it is in. w.mu is held.
func (w *Worker) deliverAlone(sig syscall.Signal) error {
	err := error(unix.ENOSYS)
	if w.process.pidfd >= 0 {
		err = unix.PidfdSendSignal(w.process.pidfd, sig, nil, 0)
	}
	if errors.Is(err, unix.ENOSYS) && w.process.child {
		return unix.Kill(w.process.pid, sig)
	}
	return err
}

// pinned reports whether the process exists, if only as a zombie, so that its PID belongs to no other process.
func (w *Worker) pinned() bool {
	return w.process.pidfd >= 0 && proc.Exists(w.process.pidfd)
}
