package worker

import (
	"crypto/rand"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/epoll"
	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/worker/bind"
)

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

// KeepFilter continues to answer on the notifications of a filter whose worker has ended. It takes fd over. name, which
// may be empty, is what the image before this one called it.
func (l *Launcher) KeepFilter(name string, fd int) {
	if name == "" {
		name = rand.Text()[:8]
	}
	unix.CloseOnExec(fd)
	f := &filter{launcher: l, name: name, source: idle(fd)}
	l.filters.Store(name, f)
	f.line.Do(f.answer)
}

// Filters lists what KeepFilter was given, as long as a process has the filter. Between Freeze and Thaw the numbers
// stay right.
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
}

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
