package supervisor

import (
	"time"

	"go.uber.org/zap"

	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor/program"
)

// tendAll is tend for every program, after a configuration was applied.
func (s *Supervisor) tendAll() {
	for _, p := range s.programs {
		s.tend(p)
		for _, l := range p.listeners {
			if l.WhenDown.Refuse && !s.table.CanClose(l.Key()) {
				s.Log.Warn("when_down has no effect: the socket is from a socket unit, which others may use",
					zap.String("program", p.core.Name), zap.String("listener", l.Name))
			}
		}
	}
}

// tend closes the listeners of a program that has been down for as long as they allow, and opens them when it starts.
func (s *Supervisor) tend(p *runner) {
	p.stopTending()
	now := time.Now()
	switch {
	case p.serves():
		p.downSince = time.Time{}
	case p.downSince.IsZero():
		p.downSince = now
	}
	if p.removed {
		return
	}
	var next time.Time
	for _, l := range p.listeners {
		closes, till := p.closes(l.WhenDown, now)
		s.setOpen(p, l, !closes)
		if next.IsZero() || !till.IsZero() && till.Before(next) {
			next = till
		}
	}
	if !next.IsZero() {
		p.downTimer = time.AfterFunc(next.Sub(now), func() { s.post(func() { s.tend(p) }) })
	}
}

func (p *runner) stopTending() {
	if p.downTimer != nil {
		p.downTimer.Stop()
		p.downTimer = nil
	}
}

// closes reports whether a listener is to be closed now, or when it will be: zero if that depends on more than time.
func (p *runner) closes(w socket.WhenDown, now time.Time) (closed bool, at time.Time) {
	if !w.Refuse || p.downSince.IsZero() || p.starts() {
		return false, time.Time{}
	}
	if at = p.downSince.Add(w.After); at.After(now) {
		return false, at
	}
	return true, time.Time{}
}

// serves reports whether a worker serves.
func (p *runner) serves() bool {
	for w, g := range p.core.Workers() {
		if g != p.core.Trial && (w.State == program.Soaking || w.State == program.Ready || w.State == program.Leaving) {
			return true
		}
	}
	return false
}

// starts reports whether a worker lives that does not stop, or is about to be started.
func (p *runner) starts() bool {
	if t := p.core.Trial; t != nil && t.Prepared {
		return true
	}
	for w := range p.core.Workers() {
		if w.State != program.Stopping {
			return true
		}
	}
	return false
}

// open opens the listeners of a program: a worker can accept only from a socket that listens.
func (s *Supervisor) open(p *runner) {
	for _, l := range p.listeners {
		s.setOpen(p, l, true)
	}
}

func (s *Supervisor) setOpen(p *runner, l socket.Resolved, open bool) {
	was := s.table.Closed(l.Key())
	changed, err := s.table.SetOpen(l.Key(), open)
	if changed {
		s.keeper.changed()
	}
	fields := []zap.Field{zap.String("program", p.core.Name), zap.String("listener", l.Name)}
	switch now := s.table.Closed(l.Key()); {
	case err != nil:
		s.Log.Error("cannot open or close a listener", append(fields, zap.Error(err))...)
	case now && !was:
		level := zap.WarnLevel
		if p.core.Goal == program.Halt { // somebody has stopped it
			level = zap.InfoLevel
		}
		s.Log.Log(level, "nothing serves: connections are refused from now on", fields...)
	case was && !now:
		s.Log.Info("connections are accepted again", fields...)
	}
}
