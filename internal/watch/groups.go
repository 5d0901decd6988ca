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

// rounds is how often the directories may change while they are being looked at, before the rest is left to the next
// event.
const rounds = 5

// groups is the state of a Watcher. It belongs to one goroutine.
type groups struct {
	notify   *fsnotify.Watcher // nil: nothing is watched
	failures chan error        // what notify reports
	draining sync.WaitGroup    // the goroutine that reads notify.Errors
	byName   map[string]*pathGroup
	dirs     *dirs // those that are watched
	timer    *time.Timer
	since    time.Time // the first event after the last look; zero: none
	last     error     // of the last look
	seed     maphash.Seed
}

// pathGroup is one group of paths.
type pathGroup struct {
	paths   []string
	prints  []uint64 // of what each path led to at the last look; nil: there was none
	changed string   // the first path that has changed since, which has not been delivered; "": none
}

func newGroups() *groups {
	s := &groups{failures: make(chan error, 1), byName: map[string]*pathGroup{}, dirs: newDirs(),
		timer: time.NewTimer(time.Hour), seed: maphash.MakeSeed()}
	s.timer.Stop()
	return s
}

func (s *groups) close() {
	s.timer.Stop()
	s.since = time.Time{}
	if s.notify != nil {
		s.notify.Close() //nolint:errcheck // the descriptor is gone in any case
		s.notify = nil
	}
	s.draining.Wait()
	s.dirs, s.last = newDirs(), nil
}

// set replaces the groups.
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
	}
	s.byName = next
	if len(next) == 0 {
		s.close()
		return nil
	}
	return s.look()
}

// changed returns the groups with changes that have not been delivered, and what has changed.
func (s *groups) changed() map[string]string {
	changes := map[string]string{}
	for name, g := range s.byName {
		if g.changed != "" {
			changes[name] = g.changed
		}
	}
	return changes
}

func (s *groups) delivered() {
	for _, g := range s.byName {
		g.changed = ""
	}
}

// seen arms the next look if the event may matter.
func (s *groups) seen(e fsnotify.Event) {
	if e.Op != 0 && e.Op != fsnotify.Chmod && s.dirs.matters(filepath.Clean(e.Name)) {
		s.arm()
	}
}

// open opens an inotify instance. A goroutine of its own reads the errors, because fsnotify (1.10) may report one while
// it holds the lock that Add and Remove need. One error is enough: each makes everything be looked at.
func (s *groups) open() error {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return withRemedy(fmt.Errorf("cannot watch files: %w", err))
	}
	s.notify = notify
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

// look finds out what the paths lead to now, and marks the groups for which that has changed. It returns an error only
// if the last look did not have the same.
func (s *groups) look() error {
	s.since = time.Time{}
	prints, err := s.follow()
	for name, g := range s.byName {
		for i, before := range g.prints {
			if before != prints[name][i] {
				g.changed = cmp.Or(g.changed, g.paths[i])
			}
		}
		g.prints = prints[name]
	}
	if s.last != nil && err != nil && s.last.Error() == err.Error() {
		return nil
	}
	s.last = err
	return err
}

// follow watches all directories that matter and then looks at the paths, until both saw the same directories: whatever
// happens after that gives an event.
func (s *groups) follow() (map[string][]uint64, error) {
	_, dirs := s.fingerprints()
	for round := 1; ; round++ {
		err := s.watch(dirs)
		prints, now := s.fingerprints()
		if now.same(dirs) || round == rounds {
			return prints, errors.Join(err, errors.Join(now.problems...))
		}
		dirs = now
	}
}

// fingerprints takes the fingerprints of all paths of all groups, and notes the directories on the way.
func (s *groups) fingerprints() (map[string][]uint64, *dirs) {
	dirs := newDirs()
	prints := make(map[string][]uint64, len(s.byName))
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		for _, path := range s.byName[name].paths {
			prints[name] = append(prints[name], takeFingerprint(s.seed, dirs, path))
		}
	}
	return prints, dirs
}

// watch makes inotify watch these directories, and no others. It sets every watch anew: a directory that was removed
// and made again has the same name, and perhaps the same inode, but no watch; for the others that changes nothing.
func (s *groups) watch(next *dirs) error {
	if s.notify == nil {
		if err := s.open(); err != nil {
			return err
		}
	}
	for id, d := range s.dirs.byID {
		if n := next.byID[id]; n == nil || n.path != d.path {
			s.notify.Remove(d.path) //nolint:errcheck // it may have gone by itself
		}
	}
	s.dirs = next
	var failed []error
	for _, d := range next.sorted() {
		err := s.notify.Add(d.path)
		switch {
		case err == nil, errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
			// just gone: the next look sees that
		case errors.Is(err, syscall.ENOSPC):
			return withRemedy(fmt.Errorf("cannot watch %s and more: %w", d.path, err))
		default:
			failed = append(failed, fmt.Errorf("cannot watch %s: %w", d.path, err))
		}
	}
	return errors.Join(failed...)
}

// withRemedy names the limit that was reached (inotify(7)).
func withRemedy(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w: raise the sysctl fs.inotify.max_user_watches", err)
	case errors.Is(err, syscall.EMFILE):
		return fmt.Errorf("%w: raise the sysctl fs.inotify.max_user_instances, or the limit of open files", err)
	}
	return err
}
