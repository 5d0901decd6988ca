package program

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/supervisord/internal/config"
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
	why := fmt.Sprintf("its max_age, %s, give or take a tenth, is over", p.Serving.Config.MaxAge)
	p.replace(now, Replace{Worker: w.Number, Reason: why}, Report{AskedBy: byTimer("max_age")})
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

// Crash is the end of a worker that nobody asked for, or a replacement that did not become ready.
type Crash struct {
	At         time.Time `json:"at"`
	Generation int       `json:"generation"`
	Worker     int       `json:"worker"`
	Slot       int       `json:"slot"`
	Reason     string    `json:"reason"`
	Tail       []string  `json:"tail,omitempty"` // its last lines of stderr
}

// Copy returns a copy that shares nothing mutable with c, which may be nil.
func (c *Crash) Copy() *Crash {
	if c == nil {
		return nil
	}
	d := *c
	d.Tail = slices.Clone(c.Tail)
	return &d
}

// crashes is what the core remembers of workers that ended unexpectedly while their generation served.
type crashes struct {
	// replaced since the serving generation began; one that only replaces them keeps counting
	Restarts  int       `json:",omitempty"`
	LastCrash *Crash    `json:",omitempty"`
	WholeAt   time.Time `json:",omitzero"` // when the crash budget is whole again; in the past: it is
}

// recordCrash remembers the last crash.
func (p *Program) recordCrash(now time.Time, g *Generation, w *Worker, reason string, tail []string) {
	p.LastCrash = &Crash{At: now, Generation: g.Number, Worker: w.Number, Slot: w.Slot, Reason: reason, Tail: tail}
}

// vacate decides when the slot of a worker of the serving generation is filled again.
func (p *Program) vacate(now time.Time, g *Generation, w *Worker, clean bool) {
	if !slices.ContainsFunc(g.Workers, func(v *Worker) bool { return v != w && v.State == Starting }) {
		p.recordGap(now, true)
	}
	s, r := &g.Slots[w.Slot], g.Config.Restart
	if r.When == config.Never || r.When == config.OnFailure && clean {
		s.Finished = true
		return
	}
	p.Restarts++
	wait := p.replacementWait(now, g, w)
	if r.Generation == config.New && g.staying() == 0 {
		p.outage(now, g, wait)
		return
	}
	s.RetryAt = now.Add(wait)
	p.report(Report{Kind: SlotRetry, Generation: g.Number, Slot: w.Slot, After: wait})
}

// outage ends a serving generation whose last worker has died and that is not to be filled again.
func (p *Program) outage(now time.Time, g *Generation, wait time.Duration) {
	p.drain(now, g)
	for _, v := range g.Workers {
		if v.State != Kept && v.State != Finishing {
			p.stop(now, g, v, 0)
		}
	}
	if p.Trial == nil { // which may serve
		p.retry(now, g, wait)
	}
}

// replacementWait counts a failure of a worker of the serving generation, and returns how long its slot waits for the
// next worker. The first failure since a stable worker costs no wait. Nor does a further failure of a worker that was
// ready, as long as there is budget: the budget belongs to the program, so that a thousand slots that fail do not have
// a thousand. Once a slot has waited, only a stable worker ends its backoff: otherwise the budget, which refills
// meanwhile, would bring a program that always fails back to life at once again and again.
func (p *Program) replacementWait(now time.Time, g *Generation, w *Worker) time.Duration {
	s, r := &g.Slots[w.Slot], g.Config.Restart
	if w.wasStable(now, g) {
		s.Failures = 0
	}
	wait := time.Duration(0)
	if s.Failures != 1 || w.State != Ready || !p.spend(now, r) {
		wait = backoff(r, s.Failures, w.Number)
		s.Failures++
	}
	if r.Generation == config.New {
		p.Deaths = s.Failures
	}
	return wait
}

// spend takes one replacement from the crash budget, and reports whether there was one. The budget gets one back in
// each stable_after.
func (p *Program) spend(now time.Time, r config.Restart) bool {
	whole := p.WholeAt
	if whole.Before(now) {
		whole = now
	}
	whole = whole.Add(r.StableAfter)
	if whole.Sub(now) > time.Duration(r.Budget)*r.StableAfter {
		return false
	}
	p.WholeAt = whole
	return true
}

// wasStable reports whether a worker that has failed was ready for long enough to start counting failures anew.
func (w *Worker) wasStable(now time.Time, g *Generation) bool {
	return w.State == Ready && now.Sub(w.Since) >= g.Config.Restart.StableAfter
}

// backoff is the wait before try n (0: none) after failures: exponential from the configured minimum, at most the
// maximum, and up to a fifth shorter, so that many slots do not start in step. The number of the worker or generation
// that failed decides by how much, so the core needs no source of chance.
func backoff(r config.Restart, n, number int) time.Duration {
	if n <= 0 {
		return 0
	}
	wait := r.BackoffMax
	if shift := n - 1; shift < 32 && r.BackoffMin<<shift>>shift == r.BackoffMin {
		wait = min(wait, r.BackoffMin<<shift)
	}
	return wait - Jitter(number, wait/5)
}
