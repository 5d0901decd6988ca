package program

import (
	"math/bits"
	"slices"
	"strings"
	"time"

	"example.org/supervisord/internal/config"
)

// reconcile applies the rules that follow every event: replaced workers go, a trial that has passed serves, a reload
// that is due begins, an empty slot is filled. Every rule depends on the state alone, whatever the event was.
func (p *Program) reconcile(now time.Time) {
	p.hold(now) // before takeOver: the old workers make room for the rest of a canary that time has promoted
	p.takeOver(now)
	p.promote(now)
	p.reclaim(now)
	p.recordKept()
	p.recordGap(now, false)
	// before next: the next generation may have the sockets of one that is gone, with what waits in their queues
	p.forget(now)
	p.next(now)
	p.fill(now)
}

// takeOver stops every worker whose successor is ready and, where the program must not run twice, every worker that is
// in the way.
func (p *Program) takeOver(now time.Time) {
	makeRoom := p.makeRoom()
	rolling := p.Trial != nil && p.Trial.Config.Reload.Strategy == config.Rolling
	if !makeRoom && !rolling && !p.any(Leaving) {
		return // most events of a thousand workers that start or stop end here
	}
	if p.Trial != nil && p.Trial.passes() {
		return // promote releases them all
	}
	slots := p.slots()
	alone := p.exclusive()
	for w, g := range p.Workers() {
		switch {
		case g == p.Trial:
		case makeRoom:
			p.stop(now, g, w, 0)
		case w.State == Kept:
		case slots[w.Slot].taken && g == p.Serving:
			p.release(now, g, w, keepFor(p.Trial, g))
		case slots[w.Slot].taken:
			p.release(now, g, w, 0)
		case w.State == Leaving && (alone || slots[w.Slot].served || p.Serving == nil || w.Slot >= len(p.Serving.Slots)):
			p.release(now, g, w, 0)
		}
	}
}

// promote makes a trial serve once all its workers are ready. What served before begins to drain.
func (p *Program) promote(now time.Time) {
	t := p.Trial
	if t == nil || !t.passes() {
		return
	}
	old, keep := p.Serving, keepFor(t, p.Serving)
	p.bequeath(now, old, t)
	p.recordFlip(now, t, old, keep)
	record := p.decide(now, t, Serves)
	p.Serving, p.Trial = t, nil
	p.Failures = 0
	if r := p.reloadOf(t.Number); r == nil || r.By != Crashed {
		p.Restarts, p.Deaths = 0, 0
	}
	t.Served = now
	serves := Report{Kind: GenerationServes, Generation: t.Number, Reason: t.Reason, AskedBy: t.AskedBy,
		Took: now.Sub(t.Began), Reload: record}
	if old != nil {
		serves.Serving = old.Number
		p.drain(now, old)
		if where := p.Lent[old.Number]; where != "" {
			p.report(Report{Kind: GenerationLent, Generation: old.Number, Serving: t.Number, Reason: where})
		}
	}
	p.report(serves)
	for w, g := range p.Workers() {
		switch {
		case g == t, w.State == Kept && old == nil: // nothing else could be rolled back to
		case g == old:
			p.release(now, g, w, keep)
		default:
			p.release(now, g, w, 0)
		}
	}
	if g := p.kept(); g != nil && g == old && keep > 0 {
		p.report(Report{Kind: GenerationKept, Generation: g.Number, Serving: t.Number, After: keep})
	}
}

// reclaim lets workers go that were kept until their generation is not lent any more.
func (p *Program) reclaim(now time.Time) {
	for _, g := range p.Draining {
		for _, w := range g.Workers {
			if w.State == Kept && w.Deadline.IsZero() && p.Lent[g.Number] == "" {
				p.finish(now, g, w, g.Config.Stop.ReloadSignal)
			}
		}
	}
}

// next begins the reload that is due: the one that had to wait, or the next attempt of a first start.
func (p *Program) next(now time.Time) {
	if p.Goal == Halt || p.Trial != nil || p.AwaitsOthers() {
		return
	}
	switch at := p.nextRenewal(); {
	case p.Again != nil && !now.Before(p.AgainAt) && !p.full():
		p.begin(now, *p.Again)
	case !at.IsZero() && !now.Before(at):
		p.want(now, p.renewal())
	}
}

// begin puts a whole generation on trial.
func (p *Program) begin(now time.Time, r Reload) { p.try(now, r, p.Config) }

func (p *Program) try(now time.Time, r Reload, c *config.Program) {
	p.LastGeneration++
	p.Again, p.Unstarted, p.TriedAt = nil, false, now
	if r.By == Changed {
		p.ChangedAt = now
	}
	g := &Generation{
		Number: p.LastGeneration, Reason: r.Reason, AskedBy: r.AskedBy, Config: c,
		hold:  hold{Canary: r.Canary, Share: r.Share, For: r.For},
		Slots: make([]Slot, c.Workers), GenerationTimes: GenerationTimes{Began: now},
	}
	for i := range g.Slots {
		if r.By == Crashed {
			g.Slots[i].Failures = p.Deaths
		}
	}
	p.Trial = g
	record := p.record(ReloadRecord{Generation: g.Number, Replaced: p.ServingNumber(), Outcome: Pending,
		Reason: g.Reason, AskedBy: g.AskedBy, By: r.By, Canary: g.Canary, Config: c.Fingerprint(),
		Instants: Instants{Began: now}, Passage: Passage{Share: g.Share}})
	p.report(Report{Kind: TrialBegan, Generation: g.Number, Reason: r.Reason, AskedBy: r.AskedBy,
		Particulars: Particulars{By: r.By, Repeats: p.Serving == nil && p.Failures > 0 && r.AskedBy == ""},
		Serving:     record.Replaced, Reload: record})
	p.do(Prepare{g})
}

// occupants says which workers are in a slot.
type occupants struct {
	any     bool // any worker, even one on its way out
	current bool // a worker of the serving generation that is to stay
	served  bool // … and it is ready
	onTrial bool // a worker of the trial
	taken   bool // … that has taken over the slot
	leaving bool // a worker that waits for its successor
}

// slots says which workers are in which slot.
func (p *Program) slots() []occupants {
	n := 0
	for _, g := range p.Generations() {
		n = max(n, len(g.Slots))
	}
	for w := range p.Workers() { // in a slot that was scaled away, too
		n = max(n, w.Slot+1)
	}
	slots := make([]occupants, n)
	for w, g := range p.Workers() {
		in := &slots[w.Slot]
		in.any = true
		if g == p.Trial {
			in.onTrial = true
			in.taken = w.State == Ready && g.Config.Reload.Strategy == config.Rolling && !g.IsCanary()
		}
		if g == p.Serving && w.stays() {
			in.current = true
			in.served = in.served || w.State == Ready
		}
		in.leaving = in.leaving || w.State == Leaving
	}
	return slots
}

// exclusive reports whether a worker that lives, or is about to, must not run beside those of another generation.
func (p *Program) exclusive() bool {
	return slices.ContainsFunc(p.Generations(), func(g *Generation) bool {
		return g.StopFirst() && (len(g.Workers) > 0 || g == p.Serving && g.unfinished() || g == p.Trial && g.Prepared)
	})
}

// makeRoom reports whether the serving generation has to go before the trial may start.
func (p *Program) makeRoom() bool {
	return p.Trial != nil && p.Trial.Prepared && (p.Trial.StopFirst() || p.GivesWay(p.Trial) != nil)
}

// GivesWay returns the generation that has to go before g may start; nil: none has to.
func (p *Program) GivesWay(g *Generation) *Generation {
	if p.Serving != nil && (g.StopFirst() || p.Serving.StopFirst()) {
		return p.Serving
	}
	return nil
}

// fill spawns a worker for every slot that should have one and may.
func (p *Program) fill(now time.Time) {
	if p.Goal == Halt {
		return
	}
	serving := p.Serving != nil && !p.makeRoom() && p.Serving.staying() < len(p.Serving.Slots)
	trial := p.Trial != nil && p.Trial.Prepared && len(p.Trial.Workers) < p.Trial.wanted()
	if !serving && !trial {
		return
	}
	slots := p.slots()
	alone := p.exclusive()
	if serving {
		p.fillServing(now, slots, alone)
	}
	if trial {
		p.fillTrial(now, slots, alone)
	}
}

func (p *Program) fillServing(now time.Time, slots []occupants, alone bool) {
	g := p.Serving
	for slot, s := range g.Slots {
		in := slots[slot]
		switch {
		case in.current, in.taken:
		case p.unkeep(now, g, slot): // the worker of the trial that had taken over the slot is gone
		case s.Finished, now.Before(s.RetryAt):
		case alone && (in.any || p.others(g)):
		case in.leaving && !p.room(g):
		case !in.leaving && g.Config.Restart.Generation == config.New:
			if p.Trial == nil && p.Again == nil { // otherwise these may bring the worker
				p.want(now, Reload{Reason: "a worker is missing", By: Crashed})
			}
		default:
			p.spawn(now, g, slot)
		}
	}
}

func (p *Program) fillTrial(now time.Time, slots []occupants, alone bool) {
	g := p.Trial
	if alone && p.others(g) {
		return
	}
	for slot := range g.wanted() {
		if slots[slot].onTrial {
			continue
		}
		if p.Serving != nil && !p.room(g) {
			return
		}
		p.spawn(now, g, slot)
	}
}

// others reports whether a worker of another generation lives.
func (p *Program) others(g *Generation) bool { return p.Live() > len(g.Workers) }

// room reports whether one more worker than usual may live.
func (p *Program) room(g *Generation) bool {
	if g.Config.Reload.Strategy != config.Rolling {
		return true
	}
	usual := len(g.Slots)
	if p.Serving != nil {
		usual = max(usual, len(p.Serving.Slots))
	}
	kept := 0
	for _, g := range p.Generations() {
		kept += g.count(Kept)
	}
	return p.Live()-kept < usual+g.Config.Reload.MaxSurge
}

func (p *Program) spawn(now time.Time, g *Generation, slot int) *Worker {
	p.LastWorker++
	w := &Worker{Standing: Standing{Number: p.LastWorker, Slot: slot}, Spawned: now}
	p.enter(w, Starting, now, g.Config.Ready.Timeout)
	if g.Spawned.IsZero() {
		g.Spawned = now
		p.edit(g.Number, func(r *ReloadRecord) { r.Spawned = now })
	}
	g.Workers = append(g.Workers, w)
	p.do(Spawn{Generation: g, Worker: w})
	return w
}

// counted lists the generations that max_draining counts, oldest first. It leaves out generations with workers that
// still serve or are kept, and generations whose workers were all killed and only have to vanish.
func (p *Program) counted() []*Generation {
	var drain []*Generation
	for _, g := range p.Draining {
		alive := slices.ContainsFunc(g.Workers, func(w *Worker) bool { return !w.Killed })
		if alive && g.count(Leaving)+g.count(Kept) == 0 {
			drain = append(drain, g)
		}
	}
	return drain
}

// full reports whether the next generation has to wait until a draining one has gone. While nothing serves, it never
// has to.
func (p *Program) full() bool {
	policy := p.Config.Reload
	return policy.MaxDraining > 0 && len(p.counted()) >= policy.MaxDraining &&
		p.Serves()
}

// forget drops the draining generations that have no worker left.
func (p *Program) forget(now time.Time) {
	before := len(p.Draining)
	p.Draining = slices.DeleteFunc(p.Draining, func(g *Generation) bool {
		if len(g.Workers) > 0 {
			return false
		}
		p.report(Report{Kind: GenerationGone, Generation: g.Number, Took: now.Sub(g.Retired),
			Particulars: Particulars{Killed: g.Killed,
				Repeats: p.Serving == nil && g.Failure != nil && g.Served.IsZero()},
			Reload: p.recordGone(now, g.Number)})
		p.do(Forget{g.Number})
		return true
	})
	if before > 0 && len(p.Draining) == 0 && p.Goal == Halt {
		p.recordDown(now)
	}
}

// Jitter returns a part of d, at least 0 and less than d. It differs from number to number, and is always the same for
// one number.
func Jitter(number int, d time.Duration) time.Duration {
	x := uint64(number) * 0x9E3779B97F4A7C15 // Fibonacci hashing: the high bits of the product are well spread
	high, low := bits.Mul64(x>>40, uint64(d))
	return time.Duration(high<<40 | low>>24)
}

// order is what a first start waits for.
type order struct {
	Unstarted bool `json:",omitempty"` // the program was told to start, and no generation has begun since

	// Awaits are the programs of Config.After that are to run and do not serve. It is set before each Step.
	Awaits []string `json:"-"`
}

// AwaitsOthers reports whether the first start waits until other programs serve. It is the reload that is due meanwhile
// (Again). A reload does not end the wait: it comes while a machine boots, too.
func (p *Program) AwaitsOthers() bool {
	return p.Goal == Run && p.Unstarted && p.Serving == nil && p.Trial == nil && len(p.Awaits) > 0
}

// list names several for people: "db, cache and queue".
func list(names []string) string {
	if last := len(names) - 1; last > 0 {
		names = []string{strings.Join(names[:last], ", "), names[last]}
	}
	return strings.Join(names, " and ")
}
