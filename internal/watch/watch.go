// Package watch reports when files have really changed.
//
// It watches directories with inotify, never files, because a file that is replaced takes its watch with it. For each
// path it watches every directory on the way, following symlinks one by one, and in each only the names that matter. So
// it sees a swapped symlink anywhere in the path, the ..data of a mounted Kubernetes volume, a directory that was
// removed and made again, and a path that does not exist yet (from the nearest parent that does).
//
// An event only starts another look. A group is reported if what its paths lead to differs from before:
//
//   - for a path: where it leads when all symlinks are followed, and whether anything is there;
//   - for a file of up to 1 MiB: its content; for a larger file: inode, size and modification time;
//   - for a directory: the names, sizes and modification times in it and in its subdirectories, up to 10,000 entries;
//     for symlinks their targets; hidden names (one leading dot) are left out.
//
// inotify reports nothing about network file systems, nor about writes through another hard link.
package watch

import (
	"errors"
	"sync"
	"time"
)

// A change is reported once nothing has happened for quiet, and at the latest patience after the first event.
const (
	quiet    = 200 * time.Millisecond
	patience = 2 * time.Second
)

// closeTimeout is how long Close waits for a look that is under way.
const closeTimeout = 5 * time.Second

// Set returns errClosed after Close; Close returns errHangs if a look at the files does not end.
var (
	errClosed = errors.New("watcher is closed")
	errHangs  = errors.New("a look at the watched files has not ended")
)

// Watcher watches groups of paths. Its methods may be called from any goroutine. It is idle while nothing happens: it
// has no timer, and without groups no inotify instance.
type Watcher struct {
	requests chan setRequest
	changes  chan map[string]string
	errors   chan error
	quit     chan struct{}
	close    sync.Once
	ended    chan struct{}
}

// setRequest is a call of Set.
type setRequest struct {
	groups map[string][]string
	reply  chan error
}

// New returns a watcher of nothing. Close it.
func New() *Watcher {
	return watcher(newGroups())
}

func watcher(s *groups) *Watcher {
	w := &Watcher{requests: make(chan setRequest), changes: make(chan map[string]string), errors: make(chan error, 1),
		quit: make(chan struct{}), ended: make(chan struct{})}
	go w.run(s)
	return w
}

// Set replaces what is watched: absolute paths by the name of their group. A path is compared with what it leads to
// now; one that its group had before keeps its state, so that no change is lost. Setting the same groups again costs
// nothing.
//
// The error, if any, says which paths cannot be watched, wholly or in part, and why; the others are watched. A later
// Set tries again.
func (w *Watcher) Set(groups map[string][]string) error {
	u := setRequest{groups, make(chan error, 1)}
	select {
	case w.requests <- u:
		return <-u.reply // run answers what it has taken
	case <-w.quit:
		return errClosed
	}
}

// Changes delivers the names of the groups that have changed, each with the path, as it was given to Set, whose change
// was seen first. Until they are taken, more are added.
func (w *Watcher) Changes() <-chan map[string]string { return w.changes }

// Errors delivers errors outside of Set, each new error once; if none is received, only the first is kept.
func (w *Watcher) Errors() <-chan error { return w.errors }

// Close ends the watching and waits until it has ended, but not for a file system that does not answer: errHangs.
func (w *Watcher) Close() error {
	w.close.Do(func() { close(w.quit) })
	late := time.NewTimer(closeTimeout)
	defer late.Stop()
	select {
	case <-w.ended:
		return nil
	case <-late.C:
		return errHangs
	}
}

// run is the one goroutine, to which s belongs.
func (w *Watcher) run(s *groups) {
	defer close(w.ended)
	defer s.close()
	for {
		var changes chan map[string]string
		if len(s.changed) > 0 {
			changes = w.changes
		}
		select {
		case <-w.quit:
			return
		case u := <-w.requests:
			u.reply <- s.set(u.groups)
		case event := <-s.events():
			s.seen(event)
		case err := <-s.failures:
			w.report(s.failed(err))
		case <-s.timer.C:
			w.report(s.look())
		case changes <- s.changed:
			s.changed = map[string]string{}
		}
	}
}

// report passes an error on, unless one is still waiting.
func (w *Watcher) report(err error) {
	if err == nil {
		return
	}
	select {
	case w.errors <- err:
	default:
	}
}
