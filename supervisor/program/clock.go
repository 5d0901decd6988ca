package program

import (
	"slices"
	"time"
)

// Grace is how much longer a worker is listened to whose deadline was seen too late.
const Grace = time.Second

// Excuse moves the deadlines that have passed by Grace, once each. Call it when the deadlines were not checked in time: what the
// workers said in time may still be on its way.
func (p *Program) Excuse(now time.Time) {
	for w := range p.Workers() {
		if !w.Deadline.IsZero() && !w.Excused && w.Deadline.Before(now) {
			w.Deadline, w.Excused = now.Add(Grace), true
		}
	}
}

// Rebase moves every time of p from a clock that shows then to one that shows now. If now has a monotonic reading, so have they:
// setting the wall clock neither loses nor hurries a deadline.
func (p *Program) Rebase(then, now time.Time) {
	for _, t := range p.times() {
		if !t.IsZero() {
			*t = now.Add(t.Sub(then))
		}
	}
}

func (p *Program) times() []*time.Time {
	all := []*time.Time{&p.AgainAt, &p.TriedAt, &p.RetryAt, &p.ChangedAt, &p.WholeAt, &p.Paused.Since, &p.Paused.Until}
	for _, r := range p.Reloads {
		all = append(all, &r.Began, &r.Spawned, &r.Ready, &r.Decided, &r.Ended, &r.Retired, &r.Gone, &r.Flipped, &r.KeptTill, &r.GapEnded, &r.RolledBack)
	}
	p.Past = slices.Clone(p.Past)
	for i := range p.Past {
		all = append(all, &p.Past[i].Decided)
	}
	if c := p.LastCrash; c != nil {
		all = append(all, &c.At)
	}
	if s := p.LastStop; s != nil {
		all = append(all, &s.Began, &s.Ended)
	}
	for _, g := range p.Generations() {
		all = append(all, &g.HeldTill, &g.Began, &g.Spawned, &g.Served, &g.Retired)
		for i := range g.Slots {
			all = append(all, &g.Slots[i].RetryAt)
		}
		for _, w := range g.Workers {
			all = append(all, &w.Spawned, &w.Since, &w.Deadline, &w.Resend, &w.Quiet)
		}
	}
	return all
}
