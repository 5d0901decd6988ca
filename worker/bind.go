package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/epoll"
	"example.org/supervisord/internal/foreign"
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

// answerBinds begins to answer bind(2) of the worker's processes. It answers on the thread of w.aside, so a worker
// delays only itself. Calls made earlier wait in the kernel. w.mu is held.
func (w *Worker) answerBinds() {
	w.watchOnce(&w.channels.bind, func() {
		s := w.channels.bind
		w.aside.Do(func() { w.answerAt(s) })
	})
}

// answerAt answers what waits at the filter, on the thread of w.aside, and watches for more. It closes the filter when
// no process has it any more. The gate is held meanwhile: an answer that Freeze cut off would leave the caller in the
// kernel.
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

// answerer says what the worker may bind: each of its sockets that is open, at the addresses in its Spec. The sockets
// stay the caller's; the worker gets duplicates.
func (w *Worker) answerer(fd int) bind.Answerer {
	a := bind.Answerer{FD: fd, Looks: &w.launcher.looks, Key: w, Told: w.noteRefused, Adopted: &w.channels.adopted}
	a.Processes = func() []int { return append(proc.Descendants(w.process.pid), w.process.pid) }
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
	fd, err := unix.FcntlInt(uintptr(socket), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1
	}
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

// filter is what a worker leaves behind whose processes outlive it, such as a daemon that has left its session: the
// notifications of the filter that they still have. The kernel executes what they call. Without anybody to say so,
// every bind(2) of theirs would fail with ENOSYS.
type filter struct {
	launcher *Launcher
	name     string
	line     foreign.Line

	mu      sync.Mutex
	source  *epoll.Source // nil: no process has the filter any more
	watched bool
}

// KeepFilter takes over the descriptor fd and continues to answer on the notifications of a filter whose worker has
// ended. name is the name that the previous image gave the filter; it may be empty.
func (l *Launcher) KeepFilter(name string, fd int) {
	if name == "" {
		name = rand.Text()[:8]
	}
	unix.CloseOnExec(fd)
	f := &filter{launcher: l, name: name, source: idle(fd)}
	l.filters.Store(name, f)
	f.line.Do(f.answer)
}

// Filters lists the descriptors that KeepFilter was given, as long as a process has the filter. They stay the
// Launcher's. Between Freeze and Thaw the numbers stay right.
func (l *Launcher) Filters() map[string]int {
	fds := map[string]int{}
	l.filters.Range(func(name, f any) bool {
		f.(*filter).use(func(fd int) { fds[name.(string)] = fd })
		return true
	})
	return fds
}

// DuplicateFilter duplicates one of Filters, for the caller to close, or returns -1 if no process has the filter any
// more.
func (l *Launcher) DuplicateFilter(name string) (fd int, err error) {
	fd = -1
	if f, has := l.filters.Load(name); has {
		f.(*filter).use(func(own int) { fd, err = duplicate(own) })
	}
	return fd, err
}

// use calls take with the descriptor, unless it is closed already. f.mu is held during the call, so that the number
// cannot become another file.
func (f *filter) use(take func(fd int)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.source != nil {
		take(f.source.FD)
	}
}

// answer answers what waits, and then watches for more. It closes the descriptor when no process has the filter any
// more.
func (f *filter) answer() {
	f.launcher.gate.RLock()
	defer f.launcher.gate.RUnlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.source == nil {
		return
	}
	if (bind.Answerer{FD: f.source.FD}).Answer() {
		f.watch()
		return
	}
	f.end()
}

// watch watches for one more call, or tries again later if the kernel has no memory for that. f.mu is held.
func (f *filter) watch() {
	again := func() { f.line.Do(f.answer) }
	if f.watched {
		f.launcher.poll.Again(f.source)
	} else if s, err := f.launcher.poll.Add(f.source.FD, true, func(uint32) { again() }); err == nil {
		f.source, f.watched = s, true
	} else {
		time.AfterFunc(watchPause, again)
	}
}

// end closes the descriptor. f.mu is held.
func (f *filter) end() {
	f.launcher.poll.Remove(f.source)
	unix.Close(f.source.FD)
	f.source = nil
	f.launcher.filters.Delete(f.name)
	select {
	case f.launcher.fewer <- struct{}{}:
	default:
	}
}

// FilterEnded gets a value when Filters has become shorter: what the next supervisor needs has changed, and no worker
// says so. Filters becomes longer only during KeepFilter, and before the Exited of a worker.
func (l *Launcher) FilterEnded() <-chan struct{} { return l.fewer }

// endFilters closes all descriptors.
func (l *Launcher) endFilters() {
	l.filters.Range(func(_, kept any) bool {
		f := kept.(*filter)
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.source != nil {
			f.end()
		}
		return true
	})
}
