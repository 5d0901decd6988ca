package supervisor

import (
	"maps"
	"slices"

	"go.uber.org/zap"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/supervisor/program"
)

// FileWatcher reports which groups of files have changed.
type FileWatcher interface {
	Set(groups map[string][]string) error
	Changes() <-chan map[string]string // the names of groups, each with the path that has changed
	Errors() <-chan error
}

// watchConfig is the watcher's name of the group of configuration files. No program can have it.
const watchConfig = ""

// watching is what the loop asks of the watcher.
type watching struct {
	runs bool                // the loop runs
	busy bool                // the watcher is looking at the files
	next map[string][]string // what it has to look at next; nil: nothing else
}

// watchGroups lists the files that a configuration wants to be watched, by program.
func watchGroups(c *config.Config) map[string][]string {
	groups := map[string][]string{}
	if c.Supervisor.Watch {
		groups[watchConfig] = c.WatchPaths()
	}
	for _, p := range c.Programs {
		if len(p.Watch) > 0 {
			groups[p.Name] = p.Watch
		}
	}
	return groups
}

// watchFiles has the watcher look at the files of a configuration, off the loop: there may be many, on a slow disk. Before the loop runs
// it waits for the watcher, so that no change is missed.
func (s *Supervisor) watchFiles(c *config.Config) {
	switch {
	case s.Watch == nil:
	case !s.watching.runs:
		s.looked(s.Watch.Set(watchGroups(c)))
	default:
		s.watching.next = watchGroups(c)
		s.lookNext()
	}
}

func (s *Supervisor) lookNext() {
	w := &s.watching
	if w.busy || w.next == nil || s.stopping() {
		return
	}
	groups := w.next
	w.busy, w.next = true, nil
	s.later(func() func() {
		_, err := bounded(s.ctx, s.disks, "", "looking at the watched files", func() (struct{}, error) { return struct{}{}, s.Watch.Set(groups) })
		return func() {
			w.busy = false
			s.looked(err)
			s.lookNext()
		}
	})
}

func (s *Supervisor) looked(err error) {
	if err != nil {
		s.Log.Error("cannot watch files; reload with HUP", zap.Error(err))
	}
}

// watched returns the channels of a watcher, which may be nil.
func watched(w FileWatcher) (changes <-chan map[string]string, errors <-chan error) {
	if w == nil {
		return nil, nil
	}
	return w.Changes(), w.Errors()
}

// changed reloads the programs whose watched files have changed.
func (s *Supervisor) changed(paths map[string]string) {
	if s.stopping() {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		by := program.ByWatch(paths[name])
		if name == watchConfig {
			s.Log.Info("a configuration file has changed: reading it and replacing the workers of the programs that changed", askedBy(by))
			s.reload(request{reason: "configuration changed", askedBy: by, itself: true})
		} else if p := s.programs[name]; p != nil {
			p.step(program.Reload{Reason: "watched file changed", AskedBy: by, By: program.Changed})
		}
	}
}
