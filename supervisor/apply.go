package supervisor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"supervisord/internal/config"
	"supervisord/socket"
)

// watchConfig is the name of the group of configuration files at the watcher. It can not be a program's name.
const watchConfig = ""

// resolveTimeout bounds the look-up of the names in a configuration. It runs off the loop.
const resolveTimeout = 30 * time.Second

// request asks for a reload of the configuration.
type request struct {
	reason  string
	all     bool     // replace the workers of every program, not only of those that changed
	only    []string // or of these
	canary  int
	hold    time.Duration
	replies []chan answer
}

// wider returns a request that does what both ask for. A canary that meets another request is none: who asked for that
// wants the whole.
func (r request) wider(with *request) request {
	if with == nil {
		return r
	}
	w := request{reason: r.reason, all: r.all || with.all, only: slices.Concat(r.only, with.only), replies: slices.Concat(with.replies, r.replies)}
	if w.all {
		w.only = nil
	}
	return w
}

// end answers everyone who waits for the request.
func (r request) end(tickets []Ticket, err error) {
	for _, reply := range r.replies {
		reply <- answer{tickets, err}
	}
}

// loaded is a configuration with every name in its listeners looked up.
type loaded struct {
	config    *config.Config
	listeners map[string][]socket.Resolved // by program
	want      []socket.Want
}

// resolve looks up what the listeners name. Those in known keep what they have: a listener stays where it is, and a reload
// never waits for a resolver on account of what did not change.
func resolve(ctx context.Context, c *config.Config, known map[socket.Spec]socket.Resolved) (*loaded, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	l := &loaded{config: c, listeners: map[string][]socket.Resolved{}}
	for _, p := range c.Programs {
		for _, spec := range p.Listen {
			r, has := known[spec]
			if !has {
				var err error
				if r, err = spec.Resolve(ctx); err != nil {
					return nil, fmt.Errorf("%s:%d: program.%s.listen: %w", p.File, p.Line, p.Name, err)
				}
			}
			l.listeners[p.Name] = append(l.listeners[p.Name], r)
			l.want = append(l.want, socket.Want{Resolved: r, Slots: p.Workers})
		}
	}
	return l, nil
}

// reload reads the configuration off the loop. While one is being read at most one more request is remembered, which is as
// wide as all of those that came: whatever changed meanwhile is seen by it.
func (s *Supervisor) reload(r request) {
	if s.stopping {
		r.end(nil, ErrStopping)
		return
	}
	if s.loading {
		due := r.wider(s.due)
		s.due = &due
		return
	}
	s.loading = true
	known := s.known()
	s.running.Go(func() {
		var l *loaded
		c, err := s.Load()
		if err == nil {
			l, err = resolve(s.ctx, c, known)
		}
		s.post(loadedNote{r, l, err})
	})
}

// known lists the listeners of the configuration that is in force.
func (s *Supervisor) known() map[socket.Spec]socket.Resolved {
	known := map[socket.Spec]socket.Resolved{}
	for _, p := range s.programs {
		for _, l := range p.listeners {
			known[l.Spec] = l
		}
	}
	return known
}

func (s *Supervisor) loaded(n loadedNote) {
	s.loading = false
	due := s.due
	s.due = nil
	if s.stopping {
		n.request.end(nil, ErrStopping)
		if due != nil {
			due.end(nil, ErrStopping)
		}
		return
	}
	err := n.err
	if err == nil {
		err = s.apply(n.loaded, n.request)
	}
	if err != nil {
		s.Log.Error("configuration refused; nothing has changed", zap.String("reason", n.request.reason), zap.Error(err))
		n.request.end(nil, fmt.Errorf("%w: %w", ErrRefused, err))
	} else {
		n.request.end(s.tickets(n.request))
	}
	if due != nil {
		s.reload(*due)
	}
}

// apply makes the programs follow a configuration. It is all or nothing: every new listener is open before a program is touched.
func (s *Supervisor) apply(l *loaded, r request) error {
	if err := s.table.Update(l.want); err != nil {
		return err
	}
	s.keeper.changed()
	s.settings(l.config)
	named := map[string]bool{}
	for i := range l.config.Programs {
		c := &l.config.Programs[i]
		named[c.Name] = true
		s.applyProgram(c, l.listeners[c.Name], r)
	}
	for _, name := range slices.Sorted(maps.Keys(s.programs)) {
		if p := s.programs[name]; !named[name] && !p.removed {
			p.removed = true
			s.Log.Info("program is no longer configured", zap.String("program", name))
			s.step(p, Stop{})
		}
	}
	return nil
}

func (s *Supervisor) applyProgram(c *config.Program, listeners []socket.Resolved, r request) {
	p := s.programs[c.Name]
	if p == nil {
		p = newProgram(NewProgram(c))
		s.programs[c.Name] = p
		p.listeners = listeners
		s.step(p, Start{Config: c})
		return
	}
	asked := r.all || slices.Contains(r.only, c.Name)
	changed := !p.core.Config.Equal(*c) || !slices.Equal(p.listeners, listeners)
	p.listeners = listeners
	switch {
	case p.removed:
		p.removed = false
		s.step(p, Start{Config: c})
	case asked:
		s.step(p, Reload{Config: c, Reason: r.reason, Canary: r.canary, For: r.hold})
	case changed:
		s.step(p, Reload{Config: c, Reason: "configuration of the program changed"})
	}
}

// settings follows the [supervisor] table, as far as that goes without a restart.
func (s *Supervisor) settings(c *config.Config) {
	old := s.config
	s.config, s.files = c.Supervisor, c.Files
	if level, err := zapcore.ParseLevel(c.Supervisor.LogLevel); err == nil && s.Level != nil {
		s.Level.SetLevel(level)
	}
	if old.RuntimeDir != "" && lasting(old) != lasting(c.Supervisor) {
		s.Log.Warn("pid_file, runtime_dir, log_format, and all of control and http keep their old values until supervisord itself is started again")
	}
	for _, w := range c.Warnings {
		s.Log.Warn(w.String())
	}
	s.watch(c)
}

// lasting is the settings that hold until the end.
func lasting(c config.Supervisor) [9]string {
	return [...]string{c.PIDFile, c.RuntimeDir, c.LogFormat, c.Control, c.ControlMode.String(), c.ControlGroup, c.ControlRead, c.HTTP, c.HTTPTokenFile}
}

// watch tells the watcher what to look at.
func (s *Supervisor) watch(c *config.Config) {
	if s.Watch == nil {
		return
	}
	groups := map[string][]string{}
	if c.Supervisor.Watch {
		groups[watchConfig] = c.WatchPaths()
	}
	for _, p := range c.Programs {
		if len(p.Watch) > 0 {
			groups[p.Name] = p.Watch
		}
	}
	if err := s.Watch.Set(groups); err != nil {
		s.Log.Error("cannot watch files; reload with HUP", zap.Error(err))
	}
}

// wanted lists the listeners of every program as they are, but with another number of workers for one of them.
func (s *Supervisor) wanted(scaled *program, workers int) []socket.Want {
	var want []socket.Want
	for _, p := range s.programs {
		slots := p.core.Config.Workers
		if p == scaled {
			slots = workers
		}
		for _, l := range p.listeners {
			if !p.removed {
				want = append(want, socket.Want{Resolved: l, Slots: slots})
			}
		}
	}
	return want
}
