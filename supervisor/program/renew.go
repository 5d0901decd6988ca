package program

import (
	"fmt"
	"strings"
	"time"
)

// Renewal is why a reload begins by itself.
type Renewal string

// The renewals.
const (
	Due     Renewal = "due"     // reload.every has passed
	Overdue Renewal = "overdue" // it has passed twice, and an old generation still drains
	Changed Renewal = "changed" // a watched file has changed
	Crashed Renewal = "crashed" // a worker has ended, and compat.generation is new
)

// nextRenewal is when reload.every begins the next trial; it may be in the past; zero: never. The time counts from when
// the workers were ready, or from the last trial. While an old generation drains, it is twice as long. After a rollback
// there is no renewal: it could start what was rolled back.
func (p *Program) nextRenewal() time.Time {
	every := p.Config.Reload.Every
	if every == 0 || p.Serving == nil || p.Trial != nil || p.Again != nil || p.rolledBack() > 0 {
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

// drains reports whether a worker of an old generation lives that is not kept.
func (p *Program) drains() bool {
	for _, g := range p.Draining {
		if len(g.Workers) > g.count(Kept) {
			return true
		}
	}
	return false
}

// renewal is the reload that begins by itself.
func (p *Program) renewal() Reload {
	every := p.Config.Reload.Every
	if p.drains() {
		return Reload{By: Overdue, AskedBy: byTimer("reload.every"),
			Reason: fmt.Sprintf("%s have passed twice, although an old generation still drains", every)}
	}
	return Reload{By: Due, AskedBy: byTimer("reload.every"), Reason: fmt.Sprintf("%s have passed", every)}
}

// replaceOldest begins to replace the worker that has been past its max_age for longest, and reports whether there was
// one. It does so only in a calm program, so that its workers go one after the other.
func (p *Program) replaceOldest(now time.Time) bool {
	w := p.oldest()
	if w == nil || now.Before(w.expiry(p.Serving)) || !p.calm() {
		return false
	}
	p.replace(now, Replace{w.Number,
		fmt.Sprintf("its max_age, %s, give or take a tenth, is over",
			p.Serving.Config.MaxAge)}, Report{AskedBy: byTimer("max_age")})
	return true
}

// oldest returns the serving worker whose max_age is over first; nil: none has one.
func (p *Program) oldest() (first *Worker) {
	if p.Serving == nil || p.Serving.Config.MaxAge == 0 {
		return nil
	}
	for _, w := range p.Serving.Workers {
		if w.State == Ready && (first == nil || w.expiry(p.Serving).Before(first.expiry(p.Serving))) {
			first = w
		}
	}
	return first
}

// expiry is when the worker is too old: at its generation's max_age, up to a tenth sooner or later, so that workers
// that were started together are not replaced together.
func (w *Worker) expiry(g *Generation) time.Time {
	began, age := w.Spawned, g.Config.MaxAge
	return began.Add(age - age/10 + Jitter(w.Number, age/5))
}

// A worker that writes into its own watched folder would cause new generations forever, one after the other. So reloads
// for changes that follow within changeSoon of one another are damped: changesAtOnce begin at once, then each waits
// twice as long as the one before, from changeDelay to changeDelayMax.
const (
	changeSoon     = 5 * time.Second
	changesAtOnce  = 3
	changeDelay    = time.Second
	changeDelayMax = 30 * time.Second
)

// changed answers a change of a watched file. A reload that is requested meanwhile is not delayed.
func (p *Program) changed(now time.Time, e Reload) {
	if p.Again != nil && (p.Again.By == Changed || !p.AgainAt.After(now)) {
		return // the reload that is due will see the change
	}
	if now.Sub(p.ChangedAt) > changeSoon {
		p.Changes = 0
	}
	p.Changes++
	wait := changeWait(p.Changes)
	if wait == 0 {
		p.want(now, e)
		return
	}
	if p.Changes == changesAtOnce+1 {
		p.report(Report{Kind: ReloadDamped,
			Reason: "the workers may write there themselves: " + strings.Join(p.Config.Watch, ", "), After: wait})
	}
	p.again(e, now.Add(wait))
}

// changeWait is how long the reload for the nth change in a row waits.
func changeWait(n int) time.Duration {
	switch n -= changesAtOnce + 1; {
	case n < 0:
		return 0
	case n > 10:
		return changeDelayMax
	}
	return min(changeDelay<<n, changeDelayMax)
}
