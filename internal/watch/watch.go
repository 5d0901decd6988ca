// Package watch tells when files have really changed.
//
// It watches directories with inotify, never files, because a file that is replaced takes its watch with it. For each path it
// watches every directory that leads there, symlinks followed one by one, and of each only the names that matter. So it sees a
// swapped symlink anywhere in the path, a mounted Kubernetes volume's ..data, a directory that was removed and made again,
// and a path that does not exist yet (from the nearest parent that does).
//
// An event only starts a second look: a group is reported if what its paths lead to differs from before, that is
//
//   - for a path: where it leads when all symlinks are followed, and whether anything is there;
//   - for a file of up to 1 MiB: its content; for a larger one: inode, size and time of modification;
//   - for a directory: the names, sizes and times of modification of what is in it and in its subdirectories, to a depth of 16
//     and up to 10,000 entries and 1,000 directories; symlinks in it by their text; hidden names (one dot at the
//     beginning) not at all.
//
// Events are not to be had on network file systems and for what is written through another hard link.
package watch

import (
	"errors"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A change is reported once nothing has happened for quiet, and at the latest patience after the first event.
const (
	quiet    = 200 * time.Millisecond
	patience = 2 * time.Second
)

// closeTimeout bounds how long Close waits for a look that is under way.
const closeTimeout = 5 * time.Second

// What Set returns after Close, and Close where a look at the files does not end.
var (
	ErrClosed = errors.New("watcher is closed")
	ErrHangs  = errors.New("a look at the watched files has not ended")
)

// Watcher watches groups of paths. Its methods may be called from any goroutine. While nothing happens it does nothing:
// it has no timer, and without groups no inotify instance.
type Watcher struct {
	requests chan request
	changes  chan []string
	errors   chan error
	quit     chan struct{}
	close    sync.Once
	running  sync.WaitGroup
}

type request struct {
	groups map[string][]string
	reply  chan error
}

// New returns a watcher of nothing. Close it. The error is always nil: what can fail, fails in Set.
func New() (*Watcher, error) {
	w := newWatcher()
	w.running.Go(func() { w.run(newLookout()) })
	return w, nil
}

func newWatcher() *Watcher {
	return &Watcher{requests: make(chan request), changes: make(chan []string), errors: make(chan error, 1), quit: make(chan struct{})}
}

// Set replaces what is watched: absolute paths by the name of their group. What its paths lead to now is what a group is compared
// with; a group whose paths are as before keeps its state, so that no change is lost. With nothing different it costs nothing.
//
// The error, if any, says which paths cannot be watched, wholly or in part, and why; the others are. A later Set tries again.
func (w *Watcher) Set(groups map[string][]string) error {
	r := request{groups, make(chan error, 1)}
	select {
	case w.requests <- r:
		return <-r.reply // run answers what it has taken
	case <-w.quit:
		return ErrClosed
	}
}

// Changes delivers the sorted names of the groups that have changed. What is not taken yet is added to.
func (w *Watcher) Changes() <-chan []string { return w.changes }

// Errors delivers what went wrong outside of Set, each new error once; if nobody takes them, only the first is kept.
func (w *Watcher) Errors() <-chan error { return w.errors }

// Close ends the watching and waits until it has ended; but not for a file system that does not answer: ErrHangs.
func (w *Watcher) Close() error {
	w.close.Do(func() { close(w.quit) })
	ended := make(chan struct{})
	go func() {
		w.running.Wait()
		close(ended)
	}()
	late := time.NewTimer(closeTimeout)
	defer late.Stop()
	select {
	case <-ended:
		return nil
	case <-late.C:
		return ErrHangs
	}
}

// run is the one goroutine, to which l belongs.
func (w *Watcher) run(l *lookout) {
	defer l.close()
	for {
		var changes chan []string
		changed := l.changed()
		if len(changed) > 0 {
			changes = w.changes
		}
		var events chan fsnotify.Event
		if l.notify != nil {
			events = l.notify.Events
		}
		select {
		case <-w.quit:
			return
		case r := <-w.requests:
			r.reply <- l.set(r.groups)
		case event := <-events:
			l.seen(event)
		case err := <-l.failures:
			w.report(l.failed(err))
		case <-l.timer.C:
			w.report(l.look())
		case changes <- changed:
			l.told()
		}
	}
}

// report passes an error on, unless the last one is still waiting.
func (w *Watcher) report(err error) {
	if err == nil {
		return
	}
	select {
	case w.errors <- err:
	default:
	}
}
