package receipt

import (
	"slices"
	"time"

	"example.org/supervisord/supervisor"
)

// Resync compares with how things are: where updates were missed, and at the beginning, for what another image has begun.
// It returns the receipts that this ends. What is under way and has no receipt gets one; where something was missed of it, it is
// marked with Gap.
func (r *Recorder) Resync(st *supervisor.Status, now time.Time, missed bool) []Receipt {
	since := st.Started // what has happened since then was or will be seen
	if missed {
		since = now
	}
	var done []Receipt
	there := map[string]bool{}
	for _, p := range st.Programs {
		there[p.Name] = true
		b := r.book(p.Name)
		for _, c := range b.open {
			c.Gap = c.Gap || missed
			c.resync(p, now)
		}
		b.begin(p, since)
		b.relive(p, now)
		done = append(done, b.finish()...)
	}
	for name, b := range r.programs {
		if there[name] {
			continue
		}
		for _, c := range b.open {
			c.Gap = c.Gap || missed
			c.lost(now)
		}
		done = append(done, b.finish()...)
	}
	return done
}

func generation(p supervisor.ProgramStatus, number int) *supervisor.GenerationStatus {
	if i := slices.IndexFunc(p.Generations, func(g supervisor.GenerationStatus) bool { return g.Number == number }); i >= 0 {
		return &p.Generations[i]
	}
	return nil
}

func servingNumber(p supervisor.ProgramStatus) int {
	for _, g := range p.Generations {
		if g.Role == supervisor.RoleServing {
			return g.Number
		}
	}
	return 0
}

// lost ends a receipt about which no more can be learned.
func (c *course) lost(now time.Time) {
	if c.Outcome == UnderWay {
		c.Outcome, c.Decided = Unknown, now
	}
	c.Ended = now
	c.Drain = c.Ended.Sub(c.Decided)
}

func (c *course) resync(p supervisor.ProgramStatus, now time.Time) {
	mine := generation(p, c.Generation)
	last := p.LastReload
	switch {
	case c.Outcome != UnderWay: // it waits for an end
	case mine != nil && mine.Role == supervisor.RoleTrial:
		return
	case mine != nil && mine.Served != nil:
		c.Outcome, c.Decided, c.goes = Served, *mine.Served, c.Replaced
	case last != nil && last.Generation == c.Generation && last.Served:
		c.Outcome, c.Decided, c.Replaced, c.goes = Served, last.At, last.Report.Serving, last.Report.Serving
	case last != nil && last.Generation == c.Generation:
		c.Outcome, c.Decided, c.goes = Failed, last.At, c.Generation
		f := last.Report
		c.Failure = &Failure{f.Step, f.Reason, f.Worker, f.Slot, f.PID, f.Tail}
	default:
		c.lost(now)
		return
	}
	c.Took = c.Decided.Sub(c.Began)
	if c.goes == 0 || generation(p, c.goes) == nil {
		c.lost(now)
	}
}

// begin opens a receipt for what is under way: a trial, or a generation on its way out.
func (b *book) begin(p supervisor.ProgramStatus, since time.Time) {
	serving := servingNumber(p)
	for _, g := range p.Generations {
		switch g.Role {
		case supervisor.RoleTrial:
			if b.find(g.Number) == nil {
				b.open = append(b.open, &course{Receipt: Receipt{
					Program: p.Name, Generation: g.Number, Replaced: serving, Outcome: UnderWay, Reason: g.Reason, AskedBy: g.AskedBy, Began: g.Began,
					Gap: g.Began.Before(since)}})
			}
		case supervisor.RoleDraining:
			b.beginDrain(p.Name, g, generation(p, serving), since)
		}
	}
}

// beginDrain is for a generation that is already told to go. Which one took its place is certain only if that still serves.
func (b *book) beginDrain(program string, g supervisor.GenerationStatus, serving *supervisor.GenerationStatus, since time.Time) {
	if slices.ContainsFunc(b.open, func(c *course) bool { return c.goes == g.Number }) || g.Retired == nil {
		return
	}
	c := &course{goes: g.Number, Receipt: Receipt{Program: program, Reason: g.Reason, AskedBy: g.AskedBy, Began: g.Began, Decided: *g.Retired, Gap: g.Retired.Before(since)}}
	switch {
	case g.Served == nil:
		c.Generation, c.Outcome = g.Number, Failed
	case serving != nil && serving.Served != nil && serving.Served.Equal(*g.Retired):
		c.Generation, c.Replaced, c.Outcome = serving.Number, g.Number, Served
		c.Began, c.Reason, c.AskedBy = serving.Began, serving.Reason, serving.AskedBy
	default:
		return
	}
	c.Took = c.Decided.Sub(c.Began)
	b.open = append(b.open, c)
}

// relive brings the timeline in line with what lives.
func (b *book) relive(p supervisor.ProgramStatus, now time.Time) {
	for i := range b.lives {
		if l := &b.lives[i]; l.Gone.IsZero() && generation(p, l.Generation) == nil {
			l.Gone = now
		}
	}
	for _, g := range p.Generations {
		i := slices.IndexFunc(b.lives, func(l Life) bool { return l.Generation == g.Number })
		if i < 0 {
			b.lives = append(b.lives, Life{Generation: g.Number, Reason: g.Reason, Began: g.Began})
			i = len(b.lives) - 1
		}
		l := &b.lives[i]
		if g.Served != nil {
			l.Served = *g.Served
		}
		if g.Retired != nil {
			l.Retired, l.Failed = *g.Retired, g.Served == nil
		}
	}
	slices.SortFunc(b.lives, func(x, y Life) int { return x.Generation - y.Generation })
}
