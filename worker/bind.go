package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/epoll"
	"example.org/supervisord/internal/proc"
	"example.org/supervisord/worker/bind"
	"example.org/supervisord/worker/life"
)

// filter returns the seccomp filter that reports the worker's bind(2) to us (Linux 5.9); nil: none.
func (w *Worker) filter() []unix.SockFilter {
	if w.helper || len(w.spec.Binds) == 0 {
		return nil
	}
	return bind.Filter()
}

// answerBinds answers the calls that wait at the filter fd, on the thread of w.aside, so a worker delays only itself.
// Calls made before Spawned wait in the kernel. answerBinds closes the filter when no process has it any more. The gate
// is held meanwhile: an answer that Freeze cut off would leave the caller in the kernel.
func (w *Worker) answerBinds(fd int) {
	w.launcher.gate.RLock()
	defer w.launcher.gate.RUnlock()
	if w.answerer(fd).Answer() {
		return
	}
	w.mu.Lock()
	w.drop(FDBind)
	w.mu.Unlock()
	w.launcher.forgetFilter(w)
}

// answerer says what the worker may bind: each of its sockets that is open, at the addresses in its Spec. The sockets
// stay the caller's; the worker gets duplicates.
func (w *Worker) answerer(fd int) bind.Answerer {
	a := bind.Answerer{FD: fd, Looks: &w.launcher.looks, Key: w, Told: w.noteRefused, Adopted: &w.channels.adopted}
	a.Processes = func() []int { return append(proc.Descendants(w.process.PID), w.process.PID) }
	for i, socket := range w.spec.Sockets {
		if socket >= 0 {
			a.Listeners = append(a.Listeners, bind.Offer{
				Name: w.spec.Listeners[i], Binds: w.spec.Binds[i],
				Socket: func() int { return w.duplicate(socket) },
				Alone:  func() bool { return w.aloneAt(socket) },
				Widen:  func() error { return w.widen(w.spec.Listeners[i]) },
			})
		}
	}
	return a
}

// duplicate duplicates one of the worker's sockets, which are open until its end, but not for the processes that it
// leaves. -1: no.
func (w *Worker) duplicate(socket int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.process.ended {
		return -1
	}
	fd, _ := duplicate(socket) //nolint:errcheck // -1
	return fd
}

// widenTimeout bounds how long the supervisor may take for a socket.
const widenTimeout = time.Second

// widen asks the owner of the sockets to make a listener one of IPv6. It gives up after widenTimeout, or when the
// worker ends, because the owner may be waiting for this worker.
func (w *Worker) widen(listener string) error {
	if w.spec.Widen == nil {
		return errors.New("nobody can change it")
	}
	ctx, cancel := context.WithTimeout(w.life, widenTimeout)
	defer cancel()
	return w.spec.Widen(ctx, listener)
}

// aloneAt reports whether no other worker has one of the worker's sockets.
func (w *Worker) aloneAt(socket int) bool {
	alone := true
	w.launcher.pids.Range(func(_, other any) bool {
		alone = other == any(w) || !slices.Contains(other.(*Worker).spec.Sockets, socket)
		return alone
	})
	return alone
}

// noteRefused notes why the worker did not get a listener, and has the supervisor say so.
func (w *Worker) noteRefused(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ready.refused == "" && !w.process.ended {
		w.ready.refused = err.Error()
		w.events.put(life.Strange{})
	}
}

// KeepFilter takes over the descriptor fd, the notifications of a filter that a worker has left behind whose processes
// outlive it, such as a daemon that has left its session. The kernel executes what they call: without anybody to say
// so, every bind(2) of theirs would fail with ENOSYS. name is the name that the previous image gave the filter; it may
// be empty.
func (l *Launcher) KeepFilter(name string, fd int) {
	if name == "" {
		name = rand.Text()[:8]
	}
	unix.CloseOnExec(fd)
	w := &Worker{launcher: l}
	w.process.pidfd, w.channels.open = -1, map[string]*epoll.Source{FDBind: {FD: fd}}
	l.mu.Lock()
	l.filters[name] = w
	l.mu.Unlock()
	w.do(func() { w.attend(FDBind, w.answerBinds) })
}

// forgetFilter forgets what KeepFilter was given.
func (l *Launcher) forgetFilter(w *Worker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.filters)
	maps.DeleteFunc(l.filters, func(_ string, kept *Worker) bool { return kept == w })
	if len(l.filters) < before {
		select {
		case l.fewer <- struct{}{}:
		default:
		}
	}
}

// Filters lists what KeepFilter was given, by name, as long as a process has the filter: each as a Worker without a
// process, whose only descriptor is FDBind.
func (l *Launcher) Filters() map[string]*Worker {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.filters)
}

// FilterEnded gets a value when Filters has become shorter: what the next supervisor needs has changed, and no worker
// says so. Filters becomes longer only during KeepFilter, and before the Exited of a worker.
func (l *Launcher) FilterEnded() <-chan struct{} { return l.fewer }
