package supervisor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/proc"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/unixpath"
	"example.org/supervisord/supervisor/program"
)

// FileWatcher reports which groups of files have changed.
type FileWatcher interface {
	Set(groups map[string][]string) error
	Changes() <-chan map[string]string // the names of groups, each with the path that has changed
	Errors() <-chan error
}

// watchConfig names the group of configuration files for the watcher. No program can have this name.
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

// watchFiles makes the watcher watch the files of a configuration, off the loop: there may be many files, on a slow
// disk. Before the loop runs, watchFiles waits for the watcher, so that the watcher misses no change.
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

// lookNext makes the watcher look at the newest configuration that waits, unless it is looking already.
func (s *Supervisor) lookNext() {
	w := &s.watching
	if w.busy || w.next == nil || s.stopping() {
		return
	}
	groups := w.next
	w.busy, w.next = true, nil
	s.later(func() func() {
		_, err := bounded(s.ctx, s.disks, "", "looking at the watched files",
			func() (struct{}, error) { return struct{}{}, s.Watch.Set(groups) })
		return func() {
			w.busy = false
			s.looked(err)
			s.lookNext()
		}
	})
}

// looked logs what keeps the watcher from its files.
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
			s.Log.Info("a configuration file has changed: reading it and replacing the workers of the programs that changed",
				askedBy(by))
			s.reload(request{Reload: program.Reload{Reason: "configuration changed", AskedBy: by}, itself: true})
		} else if p := s.programs[name]; p != nil {
			p.step(program.Reload{Reason: "watched file changed", AskedBy: by, By: program.Changed})
		}
	}
}

// PathWatcher reports when something may have happened to the paths of unix sockets: see unixpath.Guard.
type PathWatcher interface {
	Set([]unixpath.Place) error
	Changes() <-chan struct{}
}

// A path that something damages without end is put back so often within a minute, and then once in each pause.
const (
	restoresOfAMinute = 100
	restorePause      = time.Second
)

// The pauses before the next look at a path that cannot be put back: no event tells when a server dies that has it.
const (
	firstLook = time.Second
	lastLook  = time.Minute
)

// paths is the care for the paths of unix sockets.
type paths struct {
	watched []unixpath.Place
	cares   map[string]*pathCare // by the key of the listener
}

// pathCare is the care for one path. A look at it has one of three results:
//
//	in its place         Problem and pause are cleared; the next event starts the next look
//	put back             counted; after restoresOfAMinute the next look waits for restorePause
//	cannot be put back   Problem says why; the next look comes after pause, which doubles up to lastLook
type pathCare struct {
	PathStatus
	minute time.Time // the minute in which …
	spent  int       // … so many damages were repaired
	pause  time.Duration
	timer  *time.Timer // until the next look; nil: an event starts it
}

// lookAtPaths repairs the paths of unix sockets. happened says that a watch has reported something, so that this watch
// may have ended.
func (s *Supervisor) lookAtPaths(happened bool) {
	for repaired := true; repaired; happened = true {
		s.watchPaths(happened) // before the look: it tells of what happens from now on
		repaired = false
		for p := range s.programs.all() {
			for _, l := range p.listeners {
				repaired = l.Address.OnDisk() && p.lookAtPath(l) || repaired
			}
		}
	}
}

// watchPaths watches the paths that there are now.
func (s *Supervisor) watchPaths(again bool) {
	if s.Paths == nil {
		return
	}
	if places := s.table.Places(); again || !slices.Equal(places, s.paths.watched) {
		s.paths.watched = places
		if err := s.Paths.Set(places); err != nil {
			s.Log.Error("a path that is removed is put back late: when a worker ends, or at a reload", zap.Error(err))
		}
	}
}

// pathChanges returns the channel of the watch over paths; nil: nothing is watched.
func (s *Supervisor) pathChanges() <-chan struct{} {
	if s.Paths == nil {
		return nil
	}
	return s.Paths.Changes()
}

// lookAtPath puts one path back, unless it is too early for another attempt, and reports whether the path was damaged.
func (p *runner) lookAtPath(l socket.Resolved) bool {
	c := p.s.paths.cares[l.Key()]
	if c == nil {
		c = &pathCare{}
		p.s.paths.cares[l.Key()] = c
	}
	now := time.Now()
	if c.timer != nil {
		if c.Problem == "" {
			return false // something damages it without end
		}
		c.timer.Stop()
		c.timer = nil
	}
	damage, err := p.s.table.Repair(l.Key())
	if errors.Is(err, unixpath.ErrGone) {
		damage += ", and its hidden link, too: another socket is bound there"
		err = p.rebind()
	}
	switch {
	case err != nil:
		p.pathTaken(l, c, err)
		return false
	case damage != "":
		p.pathRestored(l, c, damage, now)
		return true
	}
	c.Problem, c.pause = "", 0
	return false
}

// pathRestored reports that a path was put back, and makes the next repairs slower if the damage repeats without end.
func (p *runner) pathRestored(l socket.Resolved, c *pathCare, damage string, now time.Time) {
	c.Restored++
	c.Last, c.Damage, c.Problem, c.pause = now, damage+"; "+p.suspect(), "", 0
	r := program.Report{Kind: program.PathRestored, Particulars: program.Particulars{Listener: l.Name}, Reason: c.Damage}
	if now.Sub(c.minute) >= time.Minute {
		c.minute, c.spent = now, 0
	}
	if c.spent++; c.spent >= restoresOfAMinute {
		r.After = restorePause
		p.lookLater(l, c, restorePause)
	}
	p.report(r)
}

// pathTaken reports why clients do not find the socket, and arranges the next look.
func (p *runner) pathTaken(l socket.Resolved, c *pathCare, err error) {
	why := err.Error()
	if a, is := errors.AsType[*unixpath.Answered](err); is {
		if w := p.workerOf(a.PID); w != nil {
			why = fmt.Sprintf("worker %d (PID %d) of this program listens there with a socket of its own, and does not "+
				"accept from the one that it inherits (LISTEN_FDS): "+
				"let it use that, or give it another path", w.Number, a.PID)
		}
	}
	if why != c.Problem {
		c.Problem = why
		p.report(program.Report{Kind: program.PathTaken, Particulars: program.Particulars{Listener: l.Name}, Reason: why})
	}
	c.pause = min(lastLook, max(firstLook, 2*c.pause))
	p.lookLater(l, c, c.pause)
}

func (p *runner) lookLater(l socket.Resolved, c *pathCare, pause time.Duration) {
	c.timer = p.s.after(pause, func() {
		c.timer = nil
		if p.s.programs[p.core.Name] == p && slices.Contains(p.listeners, l) {
			p.s.lookAtPaths(true)
		}
	})
}

// rebind opens another socket in place of one that no client can reach any more, and replaces the workers that have it.
func (p *runner) rebind() error {
	if err := p.s.table.Update(p.s.programs.wanted(nil, 0)); err != nil {
		return err
	}
	p.s.reach()
	return nil
}

// suspect names the worker of the program that may have changed a path: one that stops, or has just begun. The kernel
// does not say which process it was. What a worker does at its end is looked for before the core forgets the worker.
func (p *runner) suspect() string {
	var starts *program.Worker
	for w := range p.core.Workers() {
		switch w.State {
		case program.Stopping, program.Finishing:
			return fmt.Sprintf("worker %d (PID %d), which is stopping, is suspected", w.Number, w.PID)
		case program.Starting:
			starts = w
		case program.Soaking, program.Ready, program.Leaving, program.Kept:
		}
	}
	if starts != nil {
		return fmt.Sprintf("worker %d (PID %d), which has just started, is suspected", starts.Number, starts.PID)
	}
	return "no worker was starting or stopping, so it was one that serves, or somebody else"
}

// workerOf returns the worker of the program whose process, or whose child, this is; nil: none.
func (p *runner) workerOf(pid int) *program.Worker {
	for w := range p.core.Workers() {
		if w.PID == pid || w.PID != 0 && slices.Contains(proc.Descendants(w.PID), pid) {
			return w
		}
	}
	return nil
}

// pathStatus is what has happened to the path of a listener; nil: nothing.
func (s *Supervisor) pathStatus(l socket.Resolved) *PathStatus {
	if c := s.paths.cares[l.Key()]; c != nil && (c.Restored > 0 || c.Problem != "") {
		st := c.PathStatus
		return &st
	}
	return nil
}
