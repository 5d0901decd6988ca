package supervisor

import (
	"time"

	"go.uber.org/zap"

	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor/program"
)

// outage is the time in which nothing of a program serves: its listeners may close then (when_down).
type outage struct {
	since time.Time   // zero: something serves
	timer *time.Timer // until a listener is to be closed; nil: none is
}

func (o *outage) stop() {
	if o.timer != nil {
		o.timer.Stop()
		o.timer = nil
	}
}

// tend closes the listeners of a program that has been down for as long as they allow, and opens them when it starts.
func (p *runner) tend() {
	p.outage.stop()
	now := time.Now()
	switch serves := p.core.Serves(); {
	case serves && !p.outage.since.IsZero():
		p.outage.since = time.Time{}
	case !serves && p.outage.since.IsZero():
		p.outage.since = now
	}
	if p.removed {
		return
	}
	var next time.Time
	for _, l := range p.listeners {
		closes, at := p.closes(l.WhenDown, now)
		p.setOpen(l, !closes)
		if next.IsZero() || !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	if !next.IsZero() {
		p.outage.timer = p.s.after(next.Sub(now), p.tend)
	}
}

// closes reports whether a listener is to be closed now, or when it will be: zero if that depends on more than time.
func (p *runner) closes(w socket.WhenDown, now time.Time) (closed bool, at time.Time) {
	if !w.Refuse || p.outage.since.IsZero() {
		return false, time.Time{}
	}
	starts := p.core.Trial != nil && p.core.Trial.Prepared
	for w := range p.core.Workers() {
		switch w.State {
		case program.Starting, program.Soaking, program.Ready, program.Leaving:
			starts = true
		case program.Kept, program.Finishing, program.Stopping: // they get nothing new
		}
	}
	if starts {
		return false, time.Time{}
	}
	if at = p.outage.since.Add(w.After); at.After(now) {
		return false, at
	}
	return true, time.Time{}
}

func (p *runner) setOpen(l socket.Resolved, open bool) {
	table := p.s.table
	was := table.Closed(l.Key())
	changed, err := table.SetOpen(l.Key(), open)
	if changed {
		p.s.watchPaths(false)
	}
	name := zap.String("listener", l.Name)
	switch now := table.Closed(l.Key()); {
	case err != nil:
		p.log.Error("cannot open or close a listener", name, zap.Error(err))
	case now && !was && p.core.Goal == program.Halt: // it was stopped
		p.log.Info("nothing serves: connections are refused from now on", name)
	case now && !was:
		p.log.Warn("nothing serves: connections are refused from now on", name)
	case was && !now:
		p.log.Info("connections are accepted again", name)
	}
}
