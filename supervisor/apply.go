package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/supervisor/record"
)

// request asks for a reload of the configuration, by itself (HUP, a changed file) or because a client asked.
type request struct {
	program.Reload // what each program gets, with its Config; of several requests the last
	itself         bool
	all            bool // replace the workers of every program, not only of those that changed
	askers         []asker
}

// asker waits for the reply to a request.
type asker struct {
	programs []string // replace the workers of these; none: of all
	reply    func([]Ticket, error)
}

// wider returns a request that does what both requests ask for. Neither may be a canary.
func (r request) wider(with request) request {
	return request{Reload: r.Reload, itself: r.itself || with.itself, all: r.all || with.all,
		askers: slices.Concat(with.askers, r.askers)}
}

// replaces reports whether the workers of a program are to be replaced, changed or not.
func (r request) replaces(name string) bool {
	return r.all || slices.ContainsFunc(r.askers,
		func(a asker) bool { return len(a.programs) == 0 || slices.Contains(a.programs, name) })
}

// end replies with an error to everyone who waits for the request.
func (r request) end(err error) {
	for _, a := range r.askers {
		a.reply(nil, err)
	}
}

// refuse rejects the askers that name a program which c does not have, and returns the request of the other askers;
// false: there are none.
func (r request) refuse(c *config.Config) (request, bool) {
	asked := r.askers
	r.askers = nil
	for _, a := range asked {
		if err := missing(c, a.programs); err != nil {
			a.reply(nil, err)
			continue
		}
		r.askers = append(r.askers, a)
	}
	return r, r.itself || len(r.askers) > 0
}

// missing returns an error that names a program which is not in the configuration, and those that are.
func missing(c *config.Config, programs []string) error {
	var names []string
	for _, p := range c.Programs {
		names = append(names, p.Name)
	}
	for _, name := range programs {
		if !slices.Contains(names, name) {
			return noProgram(name, names)
		}
	}
	return nil
}

// maxDue is how many requests may wait for the configuration; a canary beyond that is refused.
const maxDue = 100

// configReader reads the configuration off the loop, for one request after the other:
//
//	reload ─► add ─► next ─► read, on a goroutine ─► loaded ─► follow ─► apply, or refuse
//	                  ▲                                │
//	                  └──────── the next request ──────┘
//
// A request that comes while another one is being read may see older files than it asks for, so it waits for its own
// reading.
type configReader struct {
	now *request  // whose configuration is being read; nil: none
	due []request // asked for meanwhile, in order
}

// add queues a request. It merges the request with the last one that waits, unless one of the two is a canary: the
// reader sees every change made before it reads.
func (q *configReader) add(r request) error {
	last := len(q.due) - 1
	switch {
	case last >= 0 && !r.IsCanary() && !q.due[last].IsCanary():
		q.due[last] = r.wider(q.due[last])
	case r.IsCanary() && len(q.due) >= maxDue:
		return fmt.Errorf("%w: %d requests already wait for the configuration", ErrState, maxDue)
	default:
		q.due = append(q.due, r)
	}
	return nil
}

// next makes the oldest request the one that is read; false: one is being read, or none waits.
func (q *configReader) next() (request, bool) {
	if q.now != nil || len(q.due) == 0 {
		return request{}, false
	}
	r := q.due[0]
	q.now, q.due = &r, q.due[1:]
	return r, true
}

// all lists the requests that are not applied yet, oldest first.
func (q *configReader) all() []request {
	if q.now == nil {
		return q.due
	}
	return slices.Concat([]request{*q.now}, q.due)
}

// end drops the requests that wait.
func (q *configReader) end(err error) {
	for _, r := range q.due {
		r.end(err)
	}
	q.due = nil
}

// pending returns the reload that the next image must begin; nil: no reload of supervisord's own waits.
func (q *configReader) pending() *record.PendingReload {
	var p *record.PendingReload
	for _, r := range q.all() {
		if r.itself {
			p = &record.PendingReload{Reason: r.Reason, AskedBy: r.AskedBy, All: r.all || p != nil && p.All}
		}
	}
	return p
}

// reload reads the configuration and applies it, when the requests before r are done.
func (s *Supervisor) reload(r request) {
	err := ErrStopping
	if !s.stopping() {
		err = s.reader.add(r)
	}
	if err != nil {
		r.end(err)
		return
	}
	s.read()
}

// read begins the next request, if none is being read.
func (s *Supervisor) read() {
	r, begins := s.reader.next()
	if !begins {
		return
	}
	known, open := s.programs.known(), s.programs.endpoints()
	s.later(func() func() {
		l, err := bounded(s.ctx, s.disks, "", "reading the configuration", func() (*loaded, error) {
			c, err := s.Load()
			if err != nil {
				return nil, err
			}
			if err := c.CheckProbes(open); err != nil {
				return nil, err
			}
			return resolve(s.ctx, c, known)
		})
		return func() { s.loaded(r, l, err) }
	})
}

// loaded applies what was read, and continues with the next request.
func (s *Supervisor) loaded(r request, l *loaded, err error) {
	s.reader.now = nil
	if s.stopping() {
		r.end(ErrStopping)
		s.reader.end(ErrStopping)
		return
	}
	s.follow(r, l, err)
	s.read()
}

// resolveTimeout bounds the look-up of the host names in a configuration, which runs off the loop.
const resolveTimeout = 30 * time.Second

// loaded is a configuration with every name in its listeners looked up. Nothing changes it after resolve, so the loop
// takes it over as it is.
type loaded struct {
	config    *config.Config
	listeners map[string][]socket.Resolved // by program
}

// resolve looks up the host names of listeners. A listener in known keeps its address, so that a reload never waits for
// a resolver because of a listener that did not change.
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
					if wrong, is := errors.AsType[*socket.SpecError](err); is {
						return nil, c.Refusal(spec, wrong)
					}
					return nil, fmt.Errorf("%s:%d: program.%s.listen: %w", p.File, p.Line, p.Name, err)
				}
			}
			l.listeners[p.Name] = append(l.listeners[p.Name], r)
		}
	}
	if err := c.Overlaps(l.listeners); err != nil {
		return nil, err
	}
	return l, nil
}

// follow applies a configuration and replies. If it refuses the configuration or the request, nothing changes.
func (s *Supervisor) follow(r request, l *loaded, err error) {
	if err == nil {
		var wanted bool
		if r, wanted = r.refuse(l.config); !wanted {
			s.Log.Warn("reload of a program that is not configured; nothing has changed", zap.String("reason", r.Reason))
			return
		}
		if err = s.mayCanary(l, r); err != nil {
			s.Log.Warn(program.CanaryRefused.Sentence(), zap.String("reason", r.Reason), askedBy(r.AskedBy), zap.Error(err))
			r.end(fmt.Errorf("%w: %w", ErrCanary, err))
			return
		}
		err = s.apply(l, r)
	}
	if err != nil {
		s.Log.Error("configuration refused; nothing has changed", zap.String("reason", r.Reason), zap.Error(err))
		r.end(fmt.Errorf("%w:\n%w", ErrRefused, err))
		return
	}
	for p := range s.programs.all() {
		p.tend()
	}
	for _, a := range r.askers {
		a.reply(s.programs.tickets(a.programs), nil)
	}
}

// mayCanary says why a canary cannot begin with this configuration. A canary allows no other change in the
// configuration, because that change would apply to the whole of another program.
func (s *Supervisor) mayCanary(l *loaded, r request) error {
	if !r.IsCanary() {
		return nil
	}
	named := map[string]bool{}
	for i := range l.config.Programs {
		c := &l.config.Programs[i]
		named[c.Name] = true
		if why := s.programs[c.Name].refusesCanary(c, l.listeners[c.Name], r); why != "" {
			return fmt.Errorf("program %s: %s", c.Name, why)
		}
	}
	for p := range s.programs.all() {
		if !named[p.core.Name] && !p.removed && p.core.Goal == program.Run {
			return fmt.Errorf("program %s: it is no longer configured, and would be stopped: reload it without --canary first",
				p.core.Name)
		}
	}
	return nil
}

// refusesCanary says why the program cannot have this canary; "": it can. p is nil if the program is new.
func (p *runner) refusesCanary(c *config.Program, listeners []socket.Resolved, r request) string {
	all := len(r.askers[0].programs) == 0 // a canary is never made one with another request
	switch {
	case p == nil || p.removed:
		return "it is new in the configuration, and would start whole: reload without --canary first"
	case p.core.Goal == program.Halt && (all || !r.replaces(c.Name)): // it stays stopped
	case r.replaces(c.Name) && !slices.Equal(p.listeners, listeners):
		return "its listeners have changed, which a canary shares with the generation that serves: reload without --canary"
	case r.replaces(c.Name) && r.Share > 0 && len(c.Listen) == 0:
		return "it has no listener, and so no connections to share: name only programs that have one"
	case r.replaces(c.Name):
		return p.core.Refuses(program.Reload{Config: c, Canary: r.Canary, Share: r.Share, Unsteered: p.unsteered()})
	case !p.core.Knows(c) || !slices.Equal(p.listeners, listeners):
		return "its configuration has changed, too, and it would be replaced whole: name it as well, or take the change back"
	}
	return ""
}

// notConfigured is the reason of a stop because a reload has removed the program.
const notConfigured = "no longer configured"

// apply makes the programs follow a configuration, all or nothing: it opens every new listener before it changes any
// program. From then on nothing can fail: first those that are configured no more, because others may replace them;
// then the programs in the order of their names in after, so that one that waits for another finds it; then what
// depends on the listeners of all. The caller tends them.
func (s *Supervisor) apply(l *loaded, r request) error {
	s.lookAtPaths(false) // what is put back is told
	if err := s.listen(l); err != nil {
		return err
	}
	s.configure(l.config)
	gone := s.remove(l.config, r)
	for _, c := range l.config.InOrder() { // who comes after another one must find it
		s.applyProgram(c, l.listeners[c.Name], r)
	}
	for _, p := range gone {
		if names := p.successors(); len(names) > 0 {
			p.log.Info("the program serves until these serve, which have its listeners", zap.Strings("programs", names))
		}
	}
	s.shareOrphans()
	s.keepOrder()
	s.reach()
	s.lookAtPaths(false)
	for p := range s.programs.all() {
		for _, l := range p.listeners {
			if l.WhenDown.Refuse && l.WhenDown != config.DefaultWhenDown && !s.table.CanClose(l.Key()) {
				p.log.Warn("when_down has no effect: the socket is from a socket unit, which others may use",
					zap.String("listener", l.Name))
			}
		}
	}
	return nil
}

// remove has the programs stop that are not configured any more, as soon as nothing needs them, and returns them.
func (s *Supervisor) remove(c *config.Config, r request) (gone []*runner) {
	named := map[string]bool{}
	for i := range c.Programs {
		named[c.Programs[i].Name] = true
	}
	for p := range s.programs.all() {
		if !named[p.core.Name] && !p.removed {
			p.removed = true
			p.log.Info("program is no longer configured")
			p.end(program.Stop{Reason: notConfigured, AskedBy: r.AskedBy})
			p.turned() // it may serve for long before it steps
			gone = append(gone, p)
		}
	}
	return gone
}

// applyProgram gives one program its new configuration: a new program starts, one that has changed reloads, and one
// that has not reloads if the request is for it. A program that was removed, and is back before it was told to stop, is
// reloaded like one that was there all the time.
func (s *Supervisor) applyProgram(c *config.Program, listeners []socket.Resolved, r request) {
	p := s.programs[c.Name]
	isNew := p == nil
	if isNew {
		p = s.newRunner(program.New(c))
		s.programs[c.Name] = p
	}
	changed := !p.core.Knows(c) || !slices.Equal(p.listeners, listeners)
	p.listeners = listeners
	if isNew || changed {
		p.tellShared()
	}
	if !p.core.Paused.Until.IsZero() {
		p.pause(true) // a new listener, too
	}
	r.Config, r.Unsteered = c, p.unsteered()
	whole := program.Reload{Config: c, Reason: r.Reason, AskedBy: r.AskedBy}
	stays := p.ending != nil // it was removed, and had not been told to stop
	switch p.removed, p.ending = p.removed && !stays, nil; {
	case isNew, p.removed:
		p.removed = false
		p.step(program.Start{Config: c, AskedBy: r.AskedBy})
	case r.replaces(c.Name) && p.core.Goal == program.Run:
		p.step(r.Reload)
	case r.replaces(c.Name): // it stays stopped
		p.step(whole)
	case changed:
		whole.Reason = "configuration of the program changed"
		p.step(whole)
	}
}

// settings is the [supervisor] table that is in force.
type settings struct {
	config.Settings
	files []string // of the configuration
}

// configure applies the [supervisor] table, as far as that goes without a restart.
func (s *Supervisor) configure(c *config.Config) {
	old := s.settings.Settings
	s.settings = settings{c.Supervisor, c.Files}
	if level, err := zapcore.ParseLevel(c.Supervisor.LogLevel); err == nil && s.Level != nil {
		s.Level.SetLevel(level)
	}
	if old.RuntimeDir != "" && permanent(old) != permanent(c.Supervisor) {
		s.Log.Warn("pid_file, runtime_dir, log_format, and all of control and http keep their old values until " +
			"supervisord itself is started again")
	}
	for _, w := range c.Warnings {
		s.Log.Warn(w.String())
	}
	s.watchFiles(c)
}

// permanent is the settings that keep their values until supervisord itself is started again.
func permanent(c config.Settings) [9]string {
	return [...]string{c.PIDFile, c.RuntimeDir, c.LogFormat, c.Control, c.ControlGroup, c.ControlRead, c.HTTP.String(),
		strings.Join(c.HTTPHosts, " "), c.HTTPTokenFile}
}
