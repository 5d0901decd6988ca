package watch

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// groups is the state of a Watcher. It belongs to one goroutine.
type groups struct {
	dirs     *dirs          // those that are watched; nil: none
	failures chan error     // what inotify reports
	draining sync.WaitGroup // the goroutines that read from fsnotify's Errors
	byName   map[string]*pathGroup
	changed  map[string]string // the changes that were not delivered: the first path of each group
	timer    *time.Timer
	since    time.Time // the first event after the last look; zero: none
	last     error     // of the last look
	seed     maphash.Seed
	most     int // entries of a directory that are looked at
}

// pathGroup is one group of paths.
type pathGroup struct {
	paths  []string
	prints map[string]uint64 // of what each path led to at the last look, if it was looked at
}

func newGroups() *groups {
	s := &groups{failures: make(chan error, 1), changed: map[string]string{}, timer: time.NewTimer(time.Hour),
		seed: maphash.MakeSeed(), most: maxEntries}
	s.timer.Stop()
	return s
}

// close forgets what was seen, and closes the inotify instance.
func (s *groups) close() {
	s.timer.Stop()
	s.since = time.Time{}
	if s.dirs != nil {
		s.dirs.notify.Close() //nolint:errcheck // the descriptor is gone in any case
		s.draining.Wait()
		s.dirs = nil
	}
}

// events is where inotify's events come from; nil: nothing is watched.
func (s *groups) events() <-chan fsnotify.Event {
	if s.dirs == nil {
		return nil
	}
	return s.dirs.notify.Events
}

// set replaces the groups. A path that its group had before keeps its fingerprint: what has changed since a
// configuration was read, which may have added other paths, is not lost.
func (s *groups) set(groups map[string][]string) error {
	same := func(old *pathGroup, paths []string) bool { return slices.Equal(old.paths, paths) }
	if maps.EqualFunc(s.byName, groups, same) && s.last == nil {
		return nil
	}
	s.last = nil
	next := make(map[string]*pathGroup, len(groups))
	for name, paths := range groups {
		if old := s.byName[name]; old != nil && same(old, paths) {
			next[name] = old
			continue
		}
		next[name] = &pathGroup{paths: slices.Clone(paths)}
		if old := s.byName[name]; old != nil {
			next[name].prints = old.prints
		}
	}
	maps.DeleteFunc(s.changed, func(name, path string) bool {
		return next[name] == nil || !slices.Contains(next[name].paths, path)
	})
	s.byName = next
	return s.look()
}

// seen arms the next look if the event may matter.
func (s *groups) seen(e fsnotify.Event) {
	if e.Op != fsnotify.Chmod && s.dirs.matters(filepath.Clean(e.Name)) {
		s.arm()
	}
}

// open opens an inotify instance. A goroutine of its own reads the errors, because fsnotify (1.10) may report one while
// it holds the lock that Add and Close need. One error is enough: each makes everything be looked at.
func (s *groups) open() error {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("cannot watch files: %w: raise the sysctl fs.inotify.max_user_instances, or the limit of open "+
			"files", err)
	}
	s.dirs = newDirs(notify, s.most)
	s.draining.Go(func() {
		for err := range notify.Errors {
			select {
			case s.failures <- err:
			default:
			}
		}
	})
	return nil
}

// failed handles what inotify itself reports. Events may have been lost, so everything is looked at. EINVAL is not a
// failure: fsnotify reports it for a directory that was moved and then removed.
func (s *groups) failed(err error) error {
	s.arm()
	if errors.Is(err, fsnotify.ErrEventOverflow) || errors.Is(err, syscall.EINVAL) {
		return nil
	}
	return fmt.Errorf("cannot read file events: %w", err)
}

func (s *groups) arm() {
	now := time.Now()
	if s.since.IsZero() {
		s.since = now
	}
	s.timer.Reset(min(quiet, max(0, patience-now.Sub(s.since))))
}

// look finds out what the paths lead to now, and marks the groups for which that has changed. It begins with a new
// inotify instance, which watches each directory before look reads it: what happens before that is seen, and what
// happens after gives an event. look returns an error only if the last one did not have the same.
func (s *groups) look() error {
	s.close()
	last := s.last
	if s.last = nil; len(s.byName) == 0 {
		return nil
	}
	if s.last = s.open(); s.last == nil {
		for _, name := range slices.Sorted(maps.Keys(s.byName)) {
			if path := s.byName[name].look(s.seed, s.dirs); path != "" {
				s.changed[name] = cmp.Or(s.changed[name], path)
			}
		}
		s.last = errors.Join(s.dirs.problems...)
	}
	if last != nil && s.last != nil && last.Error() == s.last.Error() {
		return nil
	}
	return s.last
}

// look takes the fingerprints of the paths, and returns the first path whose fingerprint is another than before; "":
// none.
func (g *pathGroup) look(seed maphash.Seed, dirs *dirs) (changed string) {
	before := g.prints
	g.prints = make(map[string]uint64, len(g.paths))
	for _, path := range g.paths {
		now := takeFingerprint(seed, dirs, path)
		if was, known := before[path]; known && was != now {
			changed = cmp.Or(changed, path)
		}
		g.prints[path] = now
	}
	return changed
}
