package watch

import (
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

// rounds is how often the way to the paths may change while it is being looked at, until the rest is left to the next event.
const rounds = 5

// lookout is the state of a Watcher. It belongs to one goroutine.
type lookout struct {
	notify   *fsnotify.Watcher // nil: nothing is watched
	failures chan error        // what notify reports
	draining sync.WaitGroup    // the goroutine that takes that from it
	groups   map[string]*group
	ways     *trail // the directories that are watched, and why
	timer    *time.Timer
	since    time.Time // the first event that has not been looked into; zero: none
	last     error     // what look found wrong last
	seed     maphash.Seed
}

// group is one group of paths.
type group struct {
	paths   []string
	print   uint64 // of what was there at the last look
	changed bool   // and has not been told
}

func newLookout() *lookout {
	l := &lookout{failures: make(chan error, 1), groups: map[string]*group{}, ways: newTrail(), timer: time.NewTimer(time.Hour), seed: maphash.MakeSeed()}
	l.timer.Stop()
	return l
}

func (l *lookout) close() {
	l.timer.Stop()
	l.since = time.Time{}
	if l.notify != nil {
		l.notify.Close() //nolint:errcheck // the descriptor is gone in any case
		l.notify = nil
	}
	l.draining.Wait()
	l.ways = newTrail()
	l.last = nil
}

// set takes over the groups that are wanted from now on.
func (l *lookout) set(groups map[string][]string) error {
	same := func(old *group, paths []string) bool { return slices.Equal(old.paths, paths) }
	if maps.EqualFunc(l.groups, groups, same) && l.last == nil {
		return nil
	}
	l.last = nil
	next := make(map[string]*group, len(groups))
	for name, paths := range groups {
		next[name] = &group{paths: slices.Clone(paths)}
		if old := l.groups[name]; old != nil && same(old, paths) {
			next[name] = old
		}
	}
	fresh := slices.DeleteFunc(slices.Collect(maps.Keys(next)), func(name string) bool { return next[name] == l.groups[name] })
	l.groups = next
	if len(next) == 0 {
		l.close()
		return nil
	}
	err := l.look()
	for _, name := range fresh {
		next[name].changed = false // this was the first look
	}
	return err
}

// changed returns the groups whose change has not been told yet.
func (l *lookout) changed() []string {
	var names []string
	for name, g := range l.groups {
		if g.changed {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// told forgets the changes, which have been delivered.
func (l *lookout) told() {
	for _, g := range l.groups {
		g.changed = false
	}
}

// seen arms the next look if the event may matter.
func (l *lookout) seen(e fsnotify.Event) {
	if e.Op != 0 && e.Op != fsnotify.Chmod && l.ways.matters(filepath.Clean(e.Name)) {
		l.arm()
	}
}

// open opens an inotify instance. Its errors are taken by a goroutine of their own, because fsnotify (1.10) may report one
// while it holds the lock that Add and Remove need; one of them is enough, since each makes everything be looked at.
func (l *lookout) open() error {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return withRemedy(fmt.Errorf("cannot watch files: %w", err))
	}
	l.notify = notify
	l.draining.Go(func() {
		for err := range notify.Errors {
			select {
			case l.failures <- err:
			default:
			}
		}
	})
	return nil
}

// failed handles what inotify itself reports. Events may have been lost, so everything is looked at. EINVAL is no failure:
// fsnotify reports it for a directory that was moved and then removed.
func (l *lookout) failed(err error) error {
	l.arm()
	if errors.Is(err, fsnotify.ErrEventOverflow) || errors.Is(err, syscall.EINVAL) {
		return nil
	}
	return fmt.Errorf("cannot read file events: %w", err)
}

func (l *lookout) arm() {
	now := time.Now()
	if l.since.IsZero() {
		l.since = now
	}
	l.timer.Reset(min(quiet, max(0, patience-now.Sub(l.since))))
}

// look finds out what the paths lead to now and marks the groups for which that differs. It returns the error of the last look
// only if it is another one.
func (l *lookout) look() error {
	l.since = time.Time{}
	prints, err := l.settle()
	for name, g := range l.groups {
		g.changed = g.changed || g.print != prints[name]
		g.print = prints[name]
	}
	if l.last != nil && err != nil && l.last.Error() == err.Error() {
		return nil
	}
	l.last = err
	return err
}

// settle watches all directories that matter and then looks at the paths, again and again until both saw the same directories:
// what happens after that gives an event.
func (l *lookout) settle() (map[string]uint64, error) {
	_, ways := l.prints()
	for round := 1; ; round++ {
		err := l.follow(ways)
		prints, now := l.prints()
		if now.same(ways) || round == rounds {
			return prints, errors.Join(err, now.err())
		}
		ways = now
	}
}

// prints takes the fingerprints of all groups, and notes what is on the way to their paths.
func (l *lookout) prints() (map[string]uint64, *trail) {
	ways := newTrail()
	prints := make(map[string]uint64, len(l.groups))
	for _, name := range slices.Sorted(maps.Keys(l.groups)) {
		prints[name] = fingerprint(l.seed, ways, l.groups[name].paths)
	}
	return prints, ways
}

// follow makes inotify watch the directories of ways, and no others. Every watch is set anew, because a directory that was
// removed and made again has the same name, and perhaps the same inode, but no watch; for the others that changes nothing.
func (l *lookout) follow(ways *trail) error {
	if l.notify == nil {
		if err := l.open(); err != nil {
			return err
		}
	}
	for id, d := range l.ways.dirs {
		if next := ways.dirs[id]; next == nil || next.path != d.path {
			l.notify.Remove(d.path) //nolint:errcheck // it may have gone by itself
		}
	}
	var failed []error
	for _, d := range ways.sorted() {
		err := l.notify.Add(d.path)
		switch {
		case err == nil, errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR): // gone just now: the next look sees that
		case errors.Is(err, syscall.ENOSPC):
			l.ways = ways
			return withRemedy(fmt.Errorf("cannot watch %s and more: %w", d.path, err))
		default:
			failed = append(failed, fmt.Errorf("cannot watch %s: %w", d.path, err))
		}
	}
	l.ways = ways
	return errors.Join(failed...)
}

// withRemedy names the limit that was hit (inotify(7)).
func withRemedy(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w: raise the sysctl fs.inotify.max_user_watches", err)
	case errors.Is(err, syscall.EMFILE):
		return fmt.Errorf("%w: raise the sysctl fs.inotify.max_user_instances, or the limit of open files", err)
	}
	return err
}
