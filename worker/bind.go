package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/epoll"
	"example.org/supervisord/internal/proc"
	"example.org/supervisord/worker/bind"
)

// filter is the filter that tells us of the worker's bind(2); nil: none.
func (w *Worker) filter() []unix.SockFilter {
	if w.helper || len(w.spec.Binds) == 0 {
		return nil
	}
	return bind.Filter()
}

// answerBinds begins to answer bind(2) of the worker's processes: on the thread of w.aside, so that a worker delays only itself.
// Calls that came before this wait in the kernel. w.mu is held.
func (w *Worker) answerBinds() {
	w.watchOnce(&w.channels.bind, func() {
		s := w.channels.bind
		w.aside.Do(func() { w.answerAt(s) })
	})
}

func (w *Worker) answerAt(s *epoll.Source) {
	w.mu.Lock()
	there := s != nil && w.channels.bind == s
	w.mu.Unlock()
	if !there {
		return
	}
	w.launcher.gate.RLock() // an image that is replaced by another one leaves no call without its answer
	used := w.answerer(s.FD).Answer()
	w.launcher.gate.RUnlock()
	if used {
		w.launcher.poll.Again(s)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.channels.bind == s {
		w.drop(&w.channels.bind)
	}
}

func (w *Worker) answerer(fd int) bind.Answerer {
	a := bind.Answerer{FD: fd, Looks: &w.launcher.looks, Key: w, Told: w.noteRefused, Adopted: &w.channels.adopted}
	a.Processes = func() []int { return append(proc.Descendants(w.process.pid), w.process.pid) }
	for i, socket := range w.spec.Sockets {
		if socket >= 0 {
			a.Listeners = append(a.Listeners, bind.Listener{
				Name: w.spec.Listeners[i], Binds: w.spec.Binds[i],
				Socket: func() int { return w.duplicate(socket) },
				Alone:  func() bool { return w.aloneAt(socket) },
				Widen:  func() error { return w.widen(w.spec.Listeners[i]) },
			})
		}
	}
	return a
}

// duplicate duplicates one of the worker's sockets, which are open until its end, but not for the processes that it leaves. -1: no.
func (w *Worker) duplicate(socket int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.process.ended {
		return -1
	}
	fd, err := unix.FcntlInt(uintptr(socket), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}

// widenTimeout is how long the supervisor may take for a socket.
const widenTimeout = time.Second

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
		w.events.put(Strange{})
	}
}
