package program

import (
	"fmt"
	"slices"
	"time"
)

// nextRenewal is when reload.every begins the next trial, which may have been already; zero: never. It counts from when the
// workers were ready, or from the last trial, and while an old generation still drains it waits for that, as long again.
func (p *Program) nextRenewal() time.Time {
	every := p.Config.Reload.Every
	if every == 0 || p.Serving == nil || p.Trial != nil || p.Again != nil {
		return time.Time{}
	}
	at := p.Serving.Served.Add(-p.Serving.Config.Reload.Soak)
	if p.TriedAt.After(at) {
		at = p.TriedAt
	}
	if p.drains() {
		every *= 2
	}
	return at.Add(every)
}

// drains reports whether a worker of an old generation lives.
func (p *Program) drains() bool {
	return slices.ContainsFunc(p.Draining, func(g *Generation) bool { return len(g.Workers) > 0 })
}

// Renewal is why a reload begins by itself.
type Renewal string

// The renewals.
const (
	Due     Renewal = "due"     // reload.every has passed
	Overdue Renewal = "overdue" // it has passed twice, and an old generation still drains
	Changed Renewal = "changed" // a watched file has changed
)

// renewal is the reload that begins by itself.
func (p *Program) renewal() Reload {
	every := p.Config.Reload.Every
	if p.drains() {
		return Reload{By: Overdue, Reason: fmt.Sprintf("%s have passed twice, although an old generation still drains", every)}
	}
	return Reload{By: Due, Reason: fmt.Sprintf("%s have passed", every)}
}

// retireOld begins to replace the oldest of the workers that are past their age, and reports whether there was one.
func (p *Program) retireOld(now time.Time) bool {
	at := p.nextExpiry()
	if at.IsZero() || now.Before(at) || !p.calm() {
		return false
	}
	for _, w := range p.Serving.Workers {
		if w.State == Ready && w.expiry(p.Serving).Equal(at) {
			p.replace(now, Replace{Worker: w.Number, Reason: fmt.Sprintf("its max_age, %s, give or take a tenth, is over", p.Serving.Config.MaxAge)})
			return true
		}
	}
	return false // impossible: it is the expiry of one of them
}

// nextExpiry is when the next worker is too old, which may have been already; zero: never.
func (p *Program) nextExpiry() time.Time {
	var next time.Time
	if p.Serving == nil || p.Serving.Config.MaxAge == 0 {
		return next
	}
	for _, w := range p.Serving.Workers {
		if t := w.expiry(p.Serving); w.State == Ready && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	return next
}

// expiry is when the worker is too old: at its generation's max_age, up to a tenth sooner or later, so that workers which were
// started together do not go together.
func (w *Worker) expiry(g *Generation) time.Time {
	began, age := w.Spawned, g.Config.MaxAge
	if began.IsZero() { // it was recorded by a version that did not know its age
		began = w.Since
	}
	return began.Add(age - age/10 + Jitter(w.Number, age/5))
}
