package program

import (
	"math/bits"
	"slices"
	"time"

	"example.org/supervisord/internal/config"
)

// settle draws the consequences of an event. Every rule looks only at the state, so none can be missed by an event:
// what is replaced goes, a trial that has passed serves, a reload that is due begins, an empty slot is filled.
func (p *Program) settle(now time.Time) {
	p.hold(now) // before takeOver: the old workers make room for the rest of a canary that time has promoted
	p.takeOver(now)
	p.promote(now)
	p.next(now)
	p.fill(now)
	p.capDraining(now)
	p.forget(now)
}

// takeOver stops every worker whose successor is ready, and, where the program must not run twice, whoever stands in the way.
func (p *Program) takeOver(now time.Time) {
	makeRoom := p.makeRoom()
	if !makeRoom && !p.overlapping() {
		return
	}
	places := p.places()
	alone := p.exclusive()
	for w, g := range p.Workers() {
		switch {
		case g == p.Trial || w.State == Stopping:
		case makeRoom:
			p.stop(now, g, w)
		case places[w.Slot].taken:
			p.release(now, g, w)
		case w.State == Leaving && (alone || places[w.Slot].served || p.Serving == nil || w.Slot >= len(p.Serving.Slots)):
			p.release(now, g, w)
		}
	}
}

// overlapping reports whether somebody could have taken a slot over from somebody: most events of a thousand workers
// that start or stop have nothing to do with that.
func (p *Program) overlapping() bool {
	if p.Trial != nil && p.Trial.Config.Reload.Strategy == config.Rolling {
		return true
	}
	for w := range p.Workers() {
		if w.State == Leaving {
			return true
		}
	}
	return false
}

// promote makes a trial serve once all its workers are ready; what served before begins to drain.
func (p *Program) promote(now time.Time) {
	t := p.Trial
	if t == nil || len(t.Workers) < len(t.Slots) || slices.ContainsFunc(t.Workers, func(w *Worker) bool { return w.State != Ready }) {
		return
	}
	old, record := p.Serving, p.decide(now, t, Serves)
	p.Serving, p.Trial = t, nil
	p.Failures, p.RetryAt = 0, time.Time{}
	t.Served = now
	p.do(Serve{t.Number})
	serves := Report{Kind: GenerationServes, Generation: t.Number, Reason: t.Reason, AskedBy: t.AskedBy, Took: now.Sub(t.Began), Reload: record}
	if old != nil {
		serves.Serving = old.Number
		p.retire(now, old)
	}
	p.report(serves)
	for w, g := range p.Workers() {
		if g != t {
			p.release(now, g, w)
		}
	}
}

// hold keeps a canary whose workers are all ready until it is promoted, by somebody or by time.
func (p *Program) hold(now time.Time) {
	t := p.Trial
	if t == nil || t.Canary == 0 || len(t.Workers) < t.wanted() || slices.ContainsFunc(t.Workers, func(w *Worker) bool { return w.State != Ready }) {
		return
	}
	if t.Held {
		if !t.HeldTill.IsZero() && !now.Before(t.HeldTill) {
			p.promoteCanary("")
		}
		return
	}
	t.Held = true
	kind := CanaryHeld
	if t.For > 0 {
		kind, t.HeldTill = CanaryWatched, now.Add(t.For)
	}
	held := Report{Kind: kind, Generation: t.Number, Serving: p.ServingNumber(), After: t.For}
	if r := p.reloadOf(t.Number); r != nil {
		r.Outcome = Held
		held.Reload = r.Copy()
	}
	p.report(held)
}

// next begins the reload that is due: the one that had to wait, or the next try of a first start.
func (p *Program) next(now time.Time) {
	if p.Goal == Halt || p.Trial != nil {
		return
	}
	switch at := p.nextRenewal(); {
	case p.Again != nil && p.Again.Canary > 0: // in the record of a version that let a canary wait
		due := *p.Again
		p.Again = nil
		p.drop(now, due, Superseded, Report{Kind: CanaryRefused, Reason: "another generation was on trial as it was asked for"})
	case p.Again != nil && !now.Before(p.AgainAt):
		if !p.full() {
			p.begin(now, *p.Again)
		}
	case p.Serving == nil && !now.Before(p.RetryAt):
		p.begin(now, Reload{Reason: "start", AskedBy: p.starter})
	case !at.IsZero() && !now.Before(at):
		p.want(now, p.renewal())
	}
}

// begin puts a whole generation on trial.
func (p *Program) begin(now time.Time, r Reload) { p.try(now, r, p.Config) }

func (p *Program) try(now time.Time, r Reload, c *config.Program) {
	p.LastGeneration++
	p.Again, p.TriedAt = nil, now
	if r.By == Changed {
		p.ChangedAt = now
	}
	p.Trial = &Generation{
		Number: p.LastGeneration, Reason: r.Reason, AskedBy: r.AskedBy, Config: c, Began: now, Canary: r.Canary, For: r.For,
		Slots: make([]Slot, c.Workers),
	}
	p.report(Report{Kind: TrialBegan, Generation: p.Trial.Number, Reason: r.Reason, AskedBy: r.AskedBy, By: r.By, Serving: p.ServingNumber(),
		Reload: p.recordTrial(p.Trial, r.By)})
	p.do(Prepare{p.Trial})
}

// place is who is in a slot.
type place struct {
	current  bool // a worker of the serving generation that is to stay
	served   bool // … and it is ready
	onTrial  bool // a worker of the trial
	taken    bool // … which has taken the slot over
	leaving  bool // a worker that waits for its successor
	occupied bool // anybody, on the way out too
}

func (p *Program) places() []place {
	n := 0
	for _, g := range p.Generations() {
		n = max(n, len(g.Slots))
	}
	for w := range p.Workers() { // of a slot that was scaled away, too
		n = max(n, w.Slot+1)
	}
	places := make([]place, n)
	for w, g := range p.Workers() {
		s := &places[w.Slot]
		s.occupied = true
		if g == p.Trial {
			s.onTrial = true
			s.taken = w.State == Ready && g.Config.Reload.Strategy == config.Rolling && g.Canary == 0
		}
		if g == p.Serving && w.State != Leaving && w.State != Stopping {
			s.current = true
			s.served = s.served || w.State == Ready
		}
		s.leaving = s.leaving || w.State == Leaving
	}
	return places
}

// exclusive reports whether a worker that lives, or is about to, must not run beside those of another generation.
func (p *Program) exclusive() bool {
	return slices.ContainsFunc(p.Generations(), func(g *Generation) bool {
		return g.StopFirst() && (len(g.Workers) > 0 || g == p.Serving && g.unfinished() || g == p.Trial && g.Prepared)
	})
}

// unfinished reports whether a slot of g is to have a worker, now or later.
func (g *Generation) unfinished() bool {
	return slices.ContainsFunc(g.Slots, func(s Slot) bool { return !s.Finished })
}

// makeRoom reports whether the serving generation has to go before the trial may start.
func (p *Program) makeRoom() bool {
	return p.Trial != nil && p.Trial.Prepared && (p.Trial.StopFirst() || p.Serving != nil && p.Serving.StopFirst())
}

func (g *Generation) StopFirst() bool { return g.Config.Reload.Strategy == config.StopFirst }

// fill spawns a worker for every slot that should have one and may.
func (p *Program) fill(now time.Time) {
	if p.Goal == Halt {
		return
	}
	serving := p.Serving != nil && !p.makeRoom() && p.Serving.vacant()
	trial := p.Trial != nil && p.Trial.Prepared && len(p.Trial.Workers) < p.Trial.wanted()
	if !serving && !trial {
		return
	}
	places := p.places()
	alone := p.exclusive()
	if serving {
		p.fillServing(now, places, alone)
	}
	if trial {
		p.fillTrial(now, places, alone)
	}
}

// vacant reports whether a slot has no worker that is to stay.
func (g *Generation) vacant() bool {
	staying := 0
	for _, w := range g.Workers {
		if w.State != Leaving && w.State != Stopping {
			staying++
		}
	}
	return staying < len(g.Slots)
}

// wanted is how many slots of a trial are filled now.
func (g *Generation) wanted() int {
	if g.Canary > 0 {
		return g.Canary
	}
	return len(g.Slots)
}

func (p *Program) fillServing(now time.Time, places []place, alone bool) {
	g := p.Serving
	for slot, s := range g.Slots {
		at := places[slot]
		switch {
		case at.current, at.taken, s.Finished, now.Before(s.RetryAt):
		case alone && (at.occupied || p.others(g)):
		case at.leaving && !p.room(g):
		case !at.leaving && g.Config.Restart.Generation == config.New:
			p.renew(now)
		default:
			p.spawn(now, g, slot)
		}
	}
}

// renew asks for a new generation in the place of one that has an empty slot, unless a trial or a reload may bring it already.
func (p *Program) renew(now time.Time) {
	if p.Trial == nil && p.Again == nil {
		p.want(now, Reload{Reason: "a worker is missing"})
	}
}

func (p *Program) fillTrial(now time.Time, places []place, alone bool) {
	g := p.Trial
	if alone && p.others(g) {
		return
	}
	for slot := range g.wanted() {
		if !places[slot].onTrial && (p.Serving == nil || p.room(g)) {
			p.spawn(now, g, slot)
		}
	}
}

// others reports whether a worker of another generation lives.
func (p *Program) others(g *Generation) bool { return p.Live() > len(g.Workers) }

// room reports whether one more worker than usual may live beside those that do.
func (p *Program) room(g *Generation) bool {
	if g.Config.Reload.Strategy != config.Rolling {
		return true
	}
	usual := len(g.Slots)
	if p.Serving != nil {
		usual = max(usual, len(p.Serving.Slots))
	}
	return p.Live() < usual+g.Config.Reload.MaxSurge
}

func (p *Program) spawn(now time.Time, g *Generation, slot int) {
	p.LastWorker++
	w := &Worker{Number: p.LastWorker, Slot: slot, Spawned: now}
	w.enter(Starting, now, g.Config.Ready.Timeout)
	if g.Spawned.IsZero() {
		g.Spawned = now
		if r := p.reloadOf(g.Number); r != nil {
			r.Spawned = now
		}
	}
	g.Workers = append(g.Workers, w)
	p.do(Spawn{Generation: g, Worker: w})
}

// counted lists the generations that max_draining counts, oldest first: not one that has workers which still serve, nor one
// whose workers were all killed and only have to vanish.
func (p *Program) counted() []*Generation {
	var drain []*Generation
	for _, g := range p.Draining {
		leaving := slices.ContainsFunc(g.Workers, func(w *Worker) bool { return w.State == Leaving })
		alive := slices.ContainsFunc(g.Workers, func(w *Worker) bool { return !w.Killed })
		if alive && !leaving {
			drain = append(drain, g)
		}
	}
	return drain
}

// full reports whether the next generation has to wait until one that drains has gone. It never does while nothing serves.
func (p *Program) full() bool {
	stop := p.Config.Stop
	return stop.DrainingFull != config.Kill && stop.MaxDraining > 0 && len(p.counted()) >= stop.MaxDraining && p.Serves()
}

// serves reports whether a worker answers clients.
func (p *Program) Serves() bool {
	for w, g := range p.Workers() {
		if w.State == Leaving || g == p.Serving && w.State == Ready {
			return true
		}
	}
	return false
}

// capDraining kills the oldest draining generations when there are more than may be, where the configuration wants that.
func (p *Program) capDraining(now time.Time) {
	if p.Config.Stop.DrainingFull != config.Kill {
		return
	}
	drain := p.counted()
	for most := p.Config.Stop.MaxDraining; most > 0 && len(drain) > most; {
		for _, w := range drain[0].Workers {
			p.kill(now, drain[0], w, "more draining generations than max_draining")
		}
		drain = drain[1:]
	}
}

// forget drops the draining generations that have no worker left.
func (p *Program) forget(now time.Time) {
	before := len(p.Draining)
	p.Draining = slices.DeleteFunc(p.Draining, func(g *Generation) bool {
		if len(g.Workers) > 0 {
			return false
		}
		p.report(Report{Kind: GenerationGone, Generation: g.Number, Took: now.Sub(g.Retired), Killed: g.Killed, Reload: p.recordGone(now, g.Number)})
		p.do(Forget{g.Number})
		return true
	})
	if before > 0 && len(p.Draining) == 0 && p.Goal == Halt {
		p.down(now)
	}
}

// backoff is the wait before try n (0: none) after failures: exponential from the configured minimum, at most the maximum,
// and jittered by up to a fifth so that many slots do not start in step. The jitter comes from the number of
// the one that failed, so that the core needs no source of chance.
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

// share is a part of d, at least 0 and less than d, that differs from number to number and is always the same for one.
func Jitter(number int, d time.Duration) time.Duration {
	x := uint64(number) * 0x9E3779B97F4A7C15 // Fibonacci hashing: the high bits of the product are well spread
	high, low := bits.Mul64(x>>40, uint64(d))
	return time.Duration(high<<40 | low>>24)
}
