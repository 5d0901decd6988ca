package program

import (
	"fmt"
	"slices"
	"time"

	"example.org/supervisord/internal/config"
)

// steer emits Steer if new connections are to go elsewhere than before.
func (p *Program) steer() {
	if to := p.steering(); !slices.EqualFunc(to, p.Steering, Share.equal) {
		p.Steering = to
		for _, share := range to {
			if g := p.Generation(share.Generation); g != nil {
				g.Reached = true
			}
		}
		p.actions = slices.Insert(p.actions, 0, Action(Steer{to}))
	}
}

// steering says where new connections go. It depends on the state alone, and nothing else decides where they go. Where
// generations share a socket it has no effect.
func (p *Program) steering() []Share {
	s, t := p.Serving, p.Trial
	switch {
	case p.Handed: // to another program
		return nil
	case p.Goal == Halt, s == nil && (t == nil || !t.Prepared || p.Orphaned):
		return p.resting()
	case s == nil, p.makeRoom():
		return []Share{{Generation: t.Number, Weight: Whole}} // they wait for the first worker that is ready
	case t != nil && t.Steered && t.Held && (t.IsCanary() || t.Config.Reload.Strategy == config.All || !s.perSlot()):
		old, now := len(s.Slots), t.count(Ready)
		if t.Share > 0 {
			old, now = Whole-t.Share, t.Share
		}
		return []Share{{Generation: s.Number, Slots: s.accepting(), Weight: old},
			{Generation: t.Number, Slots: t.accepting(), Weight: now}}
	case s.perSlot(), t != nil && t.perSlot():
		return p.slotShares()
	}
	return s.whole()
}

// whole gives a generation everything.
func (g *Generation) whole() []Share {
	return []Share{{Generation: g.Number, Slots: g.all(), Weight: Whole}}
}

// all lists the slots of a generation; nil: each socket is of one. After a scaling there can be fewer slots than
// sockets.
func (g *Generation) all() (slots []int) {
	if len(g.Slots) >= g.Sockets {
		return nil
	}
	for slot := range g.Slots {
		slots = append(slots, slot)
	}
	return slots
}

// resting says where new connections wait while nothing serves, or where orphans answer them: in the lane of the
// generation that served last, because the next generation takes one lane over. When the program is told to stop,
// supervisord closes that lane at its end, so a socket of a socket unit takes its place.
func (p *Program) resting() []Share {
	if len(p.Steering) == 0 {
		return nil
	}
	rest := p.Steering[0]
	rest.Slots, rest.Weight = nil, Whole
	if g := p.Generation(rest.Generation); g != nil && p.Goal == Halt {
		rest.Unit = g.BesideUnit
	}
	return []Share{rest}
}

// slotShares gives each slot to the generation whose worker accepts there.
func (p *Program) slotShares() (shares []Share) {
	slots := p.slots()
	of := make([]*Generation, len(slots))
	for w, g := range p.Workers() { // a failed trial's worker that waits for its successor yields to the other two
		in := slots[w.Slot]
		switch {
		case w.State != Ready && w.State != Leaving:
		case g == p.Trial && in.taken:
			of[w.Slot] = g
		case in.taken, w.Slot >= len(p.Serving.Slots): // scaled away
		case g == p.Serving, g.Failure != nil && of[w.Slot] == nil:
			of[w.Slot] = g
		}
	}
	for _, g := range p.Generations() {
		var own []int
		for slot := range slots {
			if of[slot] == g {
				own = append(own, slot)
			}
		}
		if len(own) > 0 {
			shares = append(shares, Share{Generation: g.Number, Slots: own, Weight: len(own)})
		}
	}
	s := p.Serving
	if len(shares) == 0 || len(shares) == 1 && shares[0].Generation == s.Number && len(shares[0].Slots) == len(s.Slots) {
		return s.whole()
	}
	return shares
}

// accepting lists the slots of a generation with several sockets whose worker accepts; nil: all of them, or none.
func (g *Generation) accepting() (slots []int) {
	if !g.perSlot() {
		return nil
	}
	for _, w := range g.Workers {
		if w.State == Ready || w.State == Leaving {
			slots = append(slots, w.Slot)
		}
	}
	slices.Sort(slots)
	if slots = slices.Compact(slots); len(slots) == len(g.Slots) {
		return g.all()
	}
	return slots
}

// perSlot reports whether new connections can be steered to some slots of g.
func (g *Generation) perSlot() bool {
	for _, l := range g.Config.Listen {
		if g.Steered && (l.PerSlot || g.Sockets > 1) {
			return true
		}
	}
	return false
}

func (s Share) equal(t Share) bool {
	return s.Generation == t.Generation && s.Unit == t.Unit && s.Weight == t.Weight && slices.Equal(s.Slots, t.Slots)
}

// covers reports whether a worker of g in this slot gets new connections.
func covers(shares []Share, g *Generation, slot int) bool {
	return slices.ContainsFunc(shares, func(s Share) bool {
		return s.Generation == g.Number && !s.Unit && (s.Slots == nil || slices.Contains(s.Slots, slot))
	})
}

// lingers reports whether a worker finishes what it has in hand before it is told to stop: it may have something, and
// gets nothing new. Ready or not, each worker of a generation that gets connections has its sockets, and may accept as
// soon as it runs. A worker that goes alone, while others of its generation serve, accepts from the same lane as the
// others; it waits for a moment in which it has nothing in hand.
func (p *Program) lingers(g *Generation, w *Worker) bool {
	return w.State != Finishing && w.State != Stopping && p.mayFinish(g, w)
}

// mayFinish is lingers for a worker in any state.
func (p *Program) mayFinish(g *Generation, w *Worker) bool {
	if !g.Reached || g.Config.Drain.Timeout == 0 || p.makeRoom() {
		return false
	}
	if p.Handed {
		return g.Sockets > 0
	}
	if p.Goal == Halt { // what waits in its lane would wait for nobody
		return g.Steered && covers(p.Steering, g, w.Slot) && !covers(p.steering(), g, w.Slot)
	}
	if p.Serving == nil {
		return w.State == Kept // it has got nothing new since another generation served
	}
	steered := g.Steered || p.Serving.Steered || p.Trial != nil && p.Trial.Steered
	if !steered && (g.Sockets == 0 || g.Failure != nil || p.exclusive()) { // it would get new connections meanwhile
		return false
	}
	named := g == p.Serving || g == p.Trial || w.State == Leaving // nothing else is ever steered to
	return !(named && w.Failing && covers(p.steering(), g, w.Slot))
}

// finish lets a worker finish what it has, and then stops it. instead replaces the signal of the first step of the stop
// plan; 0: it does not.
func (p *Program) finish(now time.Time, g *Generation, w *Worker, instead config.Signal) {
	switch {
	case w.State == Finishing || w.State == Stopping:
	case p.lingers(g, w):
		delete(g.Looks, w.Slot) // of another worker
		w.WasReady = w.State == Ready || w.State == Leaving
		p.enter(w, Finishing, now, g.Config.Drain.Timeout)
		w.Instead = instead
	default:
		p.stop(now, g, w, instead)
	}
}

// MayHaveHeir reports whether a worker that ends now has a successor if connections wait in its socket. From then on
// the socket gets nothing new, and no other worker of its generation accepts there: the worker was kept or finishing,
// or was told to stop then, because drain.timeout was over; or its version had a part of the new connections, and loses
// that with it, such as a canary. The heir accepts what waits, and has none itself. It is a worker of the version that
// serves, if that can stand in for the one of g, which may have died of a fault of its own.
func (p *Program) MayHaveHeir(g *Generation, w *Worker) bool {
	reached := covers(p.Steering, g, w.Slot)
	ends := false
	switch w.State {
	case Finishing, Kept:
		ends = !reached
	case Stopping:
		ends = !reached && p.mayFinish(g, w)
	case Soaking, Ready, Leaving:
		ends = reached && g != p.Serving && p.Serving != nil && p.mayFinish(g, w) && !p.exclusive()
	case Starting:
	}
	if !ends || p.Goal == Halt || g.Config.Restart.When == config.Never || w.Version != 0 {
		return false
	}
	if g == p.Serving && !p.slots()[w.Slot].taken {
		return false // the slot gets another worker, or is to have none
	}
	sockets := max(g.Sockets, 1)
	return !slices.ContainsFunc(g.Workers, func(v *Worker) bool {
		return v != w && v.State != Stopping && v.Slot%sockets == w.Slot%sockets
	})
}

// startHeir starts the heir of a worker of g: one of the version that serves, or is about to, or one of g.
func (p *Program) startHeir(now time.Time, g *Generation, slot int, instead config.Signal, serves *Generation) {
	p.recordHeir(g)
	version := g
	if serves != nil && serves.Config.StandsInFor(g.Config) {
		version = serves
	}
	heir := p.spawn(now, g, slot)
	heir.Version, heir.Instead = version.Number, instead
	told := Report{Kind: WorkerInherits}.about(g, heir)
	if version != g {
		told.Reason = fmt.Sprintf("its version is that of generation %d", version.Number)
	}
	p.report(told)
	p.enter(heir, Finishing, now, g.Config.Ready.Timeout)
}

// Deserted lists a slot for each socket of the generation that serves at which no worker is: the last one has crashed,
// and the next one has to wait.
func (p *Program) Deserted() (slots []int) {
	g := p.Serving
	if g == nil || !g.Steered || !g.Reached {
		return nil
	}
	sockets := max(g.Sockets, 1)
	served := make([]bool, sockets)
	for _, w := range g.Workers {
		served[w.Slot%sockets] = served[w.Slot%sockets] || w.State != Stopping
	}
	for slot := range min(sockets, len(g.Slots)) {
		if !g.Slots[slot].Finished && !served[slot] {
			slots = append(slots, slot)
		}
	}
	return slots
}

// bequeath starts heirs at the deserted sockets of old, where connections wait, before another generation serves.
func (p *Program) bequeath(now time.Time, old, next *Generation) {
	for _, slot := range p.Unaccepted { // none if old is nil
		if old.Config.Drain.Timeout > 0 && !old.StopFirst() && !p.exclusive() {
			p.startHeir(now, old, slot, old.Config.Stop.ReloadSignal, next)
		}
	}
}

// takeBack has workers of the serving generation serve again that were about to go because of a trial that has failed:
// they only finish what they have in hand, or were kept.
func (p *Program) takeBack(now time.Time, g *Generation) {
	p.unkeep(now, g, EverySlot)
	for _, w := range g.Workers {
		if w.State == Finishing && w.WasReady && !w.Failing && w.Slot < len(g.Slots) && !g.fills(w.Slot) {
			p.enter(w, Ready, now, 0)
		}
	}
}

// looked remembers what finishing workers have in hand, and stops those that have nothing: at once if no connection is
// left, else at their places in drain.spread. After drain.timeout it stops a worker between two requests: see overtime.
func (p *Program) looked(now time.Time, e Looked) {
	g := p.Generation(e.Generation)
	if g == nil {
		return
	}
	if g.Looks == nil {
		g.Looks = map[int]Look{}
	}
	g.Looks[e.Slot] = e.Look
	var seen []*Worker
	for _, w := range g.Workers {
		if w.State != Finishing || e.Slot >= 0 && e.Slot != w.Slot {
			continue
		}
		if seen = append(seen, w); e.Quiet && w.Quiet.IsZero() && !e.Unseen {
			w.Quiet = now
			p.recordQuiet(now, g, w)
		}
	}
	for _, w := range seen {
		at := w.Quiet.Add(g.place(w))
		switch {
		case !e.Quiet:
			if e.Look.unanswered() == 0 && !now.Before(w.Since.Add(g.Config.Drain.Timeout)) && !now.Before(at) {
				p.recordLeft(now, g, w)
				p.stop(now, g, w, w.Instead)
			}
		case e.Idle == 0, p.Goal == Halt, !now.Before(at):
			p.stop(now, g, w, w.Instead)
		case at.After(w.Deadline):
			w.Deadline, w.Excused = at, false
		}
	}
}

// overtime is until when a worker that had something in hand when drain.timeout was over, by the last look, or at which
// no look was made in time, may be told to stop in the first moment in which no request waits for an answer. A
// connection that its client uses again and again is never silent for long, but mostly has such a moment soon.
func (p *Program) overtime(g *Generation, w *Worker) time.Time {
	_, together := g.Looks[-1]
	_, alone := g.Looks[w.Slot]
	if p.Drops() || (together || alone) && g.lastLook(w).Busy() == 0 {
		return time.Time{}
	}
	return w.Since.Add(g.Config.Drain.Timeout + g.Config.Drain.Silence)
}

// lastLook is what was seen last of a finishing worker, by itself or with the others of g.
func (g *Generation) lastLook(w *Worker) Look { return g.Looks[-1].Plus(g.Looks[w.Slot]) }

// place is how long after a finishing worker was quiet it is told to stop, so that drain.spread separates the workers
// of a generation. A worker whose slot is gone, because the program was scaled down, is told with those of the last
// slot.
func (g *Generation) place(w *Worker) time.Duration {
	slots := max(len(g.Slots), 1)
	return g.Config.Drain.Spread * time.Duration(min(w.Slot, slots-1)) / time.Duration(slots)
}

// InHand adds up what was seen last at the finishing workers of g; nil: nothing was.
func (g *Generation) InHand() (all *Look) {
	for slot, look := range g.Looks {
		if !slices.ContainsFunc(g.Workers, func(w *Worker) bool {
			return w.State == Finishing && (slot < 0 || slot == w.Slot)
		}) {
			continue
		}
		if all != nil {
			look = look.Plus(*all)
		}
		all = &look
	}
	return all
}

// Plus adds up two looks.
func (l Look) Plus(m Look) Look {
	return Look{l.Queued + m.Queued, l.Handshakes + m.Handshakes, l.Unread + m.Unread, l.Answering + m.Answering,
		l.Active + m.Active,
		l.Idle + m.Idle, max(l.Within, m.Within)}
}

// Busy counts what is in hand.
func (l Look) Busy() int { return l.unanswered() + l.Active }

// unanswered counts what a client waits for: it loses that if the worker drops it.
func (l Look) unanswered() int { return l.Queued + l.Handshakes + l.Unread + l.Answering }

// keepFor is how long old is kept for a rollback when next serves; 0: old is not kept.
func keepFor(next, old *Generation) time.Duration {
	if old == nil || !next.Steered || !old.Steered {
		return 0
	}
	return next.Config.Reload.Keep
}

// kept returns the newest generation that can be rolled back to, or nil.
func (p *Program) kept() *Generation {
	for _, g := range slices.Backward(p.Draining) {
		if !p.KeptTill(g).IsZero() {
			return g
		}
	}
	return nil
}

// KeptTill returns until when a generation is kept for a rollback; zero: it is not, or only because it is lent.
func (p *Program) KeptTill(g *Generation) (t time.Time) {
	if g == nil {
		return t
	}
	for _, w := range g.Workers {
		if w.State == Kept {
			t = w.Deadline
		}
	}
	return t
}

// refusesRollback is Refuses for a rollback.
func (p *Program) refusesRollback() string {
	switch {
	case p.Goal == Halt:
		return "it is stopped: start it first"
	case p.Trial != nil && p.Serving != nil && p.kept() != nil:
		return fmt.Sprintf("generation %d does not serve yet: abort it first", p.Trial.Number)
	case p.Trial != nil && p.Serving != nil:
		return fmt.Sprintf("generation %d does not serve yet, and generation %d still does: abort the reload", p.Trial.Number,
			p.Serving.Number)
	case p.kept() != nil:
		return ""
	}
	text := p.whyNoneIsKept() + "; reload with the old version"
	if p.Config.Reload.Keep == 0 {
		text += ", and set reload.keep for the next time"
	}
	return text
}

// whyNoneIsKept says what became of the generation before the serving one.
func (p *Program) whyNoneIsKept() string {
	for _, r := range slices.Backward(p.Reloads) {
		if r.Generation > p.ServingNumber() && !r.RolledBack.IsZero() {
			return fmt.Sprintf("generation %d was rolled back already, at %s, and none before generation %d is kept",
				r.Generation,
				r.RolledBack.Format(time.DateTime), p.ServingNumber())
		}
	}
	r := p.reloadOf(p.ServingNumber())
	if r == nil || r.Replaced == 0 {
		return "no generation before it is kept"
	}
	text := fmt.Sprintf("generation %d ", r.Replaced)
	if g := p.Generation(r.Replaced); g != nil {
		return text + "has been on its way out since " + g.Retired.Format(time.DateTime)
	}
	if old := p.reloadOf(r.Replaced); old != nil {
		return text + "has been gone since " + old.Gone.Format(time.DateTime)
	}
	return text + "is gone"
}

// rollBack makes the kept generation serve again. It starts no process; a kept worker that has ended meanwhile is
// replaced like any other.
func (p *Program) rollBack(now time.Time, by string) {
	due, old, back := p.Again, p.Serving, p.kept()
	p.bequeath(now, old, back)
	if old != nil {
		p.drain(now, old)
	}
	p.Draining = slices.DeleteFunc(p.Draining, func(g *Generation) bool { return g == back })
	p.Serving, p.Config, p.Candidate, p.Again = back, back.Config, p.Config, nil
	p.Failures, p.Deaths, p.Restarts = 0, 0, 0
	p.recordRollback(now, back, old, by)
	p.unkeep(now, back, EverySlot)
	if p.Trial != nil { // nothing served
		p.fail(now, Failure{Step: stepAbort, Reason: "rolled back", AskedBy: by})
	}
	if due != nil {
		p.drop(now, *due, Superseded)
	}
	if old != nil {
		for _, w := range old.Workers {
			p.finish(now, old, w, old.Config.Stop.ReloadSignal)
		}
	}
}

// rolledBack returns the number of the newest generation from which a rollback led to the serving one, or 0.
func (p *Program) rolledBack() int {
	for _, r := range slices.Backward(p.Reloads) {
		if !r.RolledBack.IsZero() && r.Generation > p.ServingNumber() {
			return r.Generation
		}
	}
	return 0
}

// unkeep makes the kept workers of a generation serve again, in this slot or in EverySlot, and reports whether there
// were any.
func (p *Program) unkeep(now time.Time, g *Generation, slot int) (any bool) {
	for _, w := range g.Workers {
		if w.State == Kept && (slot == EverySlot || w.Slot == slot) {
			p.enter(w, Ready, now, 0)
			any = true
		}
	}
	return any
}

// EverySlot stands for all slots of a generation.
const EverySlot = -1

// pause makes new connections wait.
func (p *Program) pause(now time.Time, e Pause) {
	since := now
	if p.Paused.Until.IsZero() {
		p.do(SetPaused{true})
	} else {
		since = p.Paused.Since
	}
	p.Paused = PauseTime{Since: since, Until: now.Add(e.For), AskedBy: e.AskedBy}
	p.report(Report{Kind: Paused, After: e.For, AskedBy: e.AskedBy})
}

// unpause ends a pause.
func (p *Program) unpause(now time.Time, by string) {
	p.do(SetPaused{false})
	p.report(Report{Kind: Resumed, Took: now.Sub(p.Paused.Since), AskedBy: by})
	p.Paused = PauseTime{}
}
