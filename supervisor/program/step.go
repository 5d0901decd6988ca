package program

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"example.org/supervisord/internal/config"
)

// Step answers an event: it changes the program and returns what has to be done, in order.
// It is pure: time comes as an argument, and an event for a worker or a generation that is gone does nothing.
func (p *Program) Step(now time.Time, e Event) []Action {
	p.actions, p.starter = nil, ""
	switch e := e.(type) {
	case Start:
		p.start(e)
	case Reload:
		p.reload(now, e)
	case Promote:
		p.promoteCanary(e.AskedBy)
	case Abort:
		if p.Trial != nil {
			p.fail(now, Failure{Step: stepAbort, Reason: e.Reason, AskedBy: e.AskedBy})
		}
	case Scale:
		p.scale(now, e)
	case Stop:
		p.halt(now, e)
	case Kill:
		p.killAll(now)
		p.halt(now, Stop{Reason: e.Reason, AskedBy: e.AskedBy})
	case Prepared:
		p.prepared(now, e)
	case Spawned:
		p.spawned(e)
		return p.actions // it changes nothing that a rule looks at
	case ReadySaid:
		p.ready(now, e)
	case NeverReady:
		if w, g := p.Find(e.Worker); w != nil && w.State == Starting {
			p.notReady(now, g, w, e.Reason)
		}
	case Replace:
		p.replace(now, e)
	case OverLimit:
		p.overLimit(now, e)
	case Extend:
		p.extend(now, e)
	case Exited:
		p.exited(now, e)
	case Tick:
	}
	p.expire(now)
	p.settle(now)
	if p.retireOld(now) {
		p.settle(now)
	}
	return p.actions
}

func (p *Program) start(e Start) {
	p.Config = e.Config
	switch p.State() {
	case Down, ShuttingOff: // what still drains goes on draining
		p.Goal, p.Failures, p.RetryAt = Run, 0, time.Time{}
		p.starter = e.AskedBy
	case StartingUp, Up, Reloading, Waiting:
	}
}

func (p *Program) reload(now time.Time, e Reload) {
	if e.Canary > 0 {
		p.canary(now, e)
		return
	}
	if e.Config != nil {
		p.Config, p.Candidate = e.Config, nil
	}
	switch {
	case p.Goal == Halt:
	case e.By == Changed:
		p.changed(now, e)
	default:
		p.want(now, e)
	}
}

// want begins a whole generation, or has it wait for the trial, or until fewer generations drain.
func (p *Program) want(now time.Time, r Reload) {
	switch t := p.Trial; {
	case t == nil && !p.full():
		p.begin(now, r)
		return
	case t == nil:
		p.report(Report{Kind: ReloadFull, Serving: p.ServingNumber(), Reason: r.Reason, AskedBy: r.AskedBy})
	case t.waitsForPerson():
		p.report(Report{Kind: ReloadHeld, Generation: t.Number, Reason: r.Reason, AskedBy: r.AskedBy})
	default:
		p.report(Report{Kind: ReloadQueued, Generation: t.Number, Reason: r.Reason, AskedBy: r.AskedBy})
	}
	p.again(r, now)
}

// scale changes the number of slots in place, of a canary too. Another trial is not changed: one more reload follows it.
func (p *Program) scale(now time.Time, e Scale) {
	if t := p.Trial; t != nil && t.Canary > 0 {
		if e.Workers <= t.Canary {
			return // the canary would be everything
		}
		if p.Candidate != nil {
			p.Candidate = WithWorkers(p.Candidate, e.Workers)
		}
		t.resize(e.Workers)
	} else if t != nil {
		p.again(Reload{Reason: "scaled during a trial", AskedBy: e.AskedBy}, now)
	}
	p.Config = WithWorkers(p.Config, e.Workers)
	g := p.Serving
	if g == nil || p.Goal == Halt || p.Trial != nil && p.Trial.Canary == 0 {
		return
	}
	g.resize(e.Workers)
	for _, w := range g.Workers {
		if w.Slot >= e.Workers {
			p.stop(now, g, w)
		}
	}
}

func (g *Generation) resize(slots int) {
	g.Config = WithWorkers(g.Config, slots)
	g.Slots = append(g.Slots[:min(len(g.Slots), slots)], make([]Slot, max(0, slots-len(g.Slots)))...)
}

func WithWorkers(c *config.Program, n int) *config.Program {
	scaled := *c
	scaled.Workers = n
	return &scaled
}

// again remembers a reload that is due at this time, or when the one that was due already would have been, and when the
// trial has ended. What is remembered is always a whole generation, so that the newest stands for all of them.
func (p *Program) again(r Reload, at time.Time) {
	if p.Again != nil && p.AgainAt.Before(at) {
		at = p.AgainAt
	}
	p.Again, p.AgainAt = &r, at
}

// halt sends every generation away. A worker that was told to go with another signal than that of a stop is told again.
func (p *Program) halt(now time.Time, e Stop) {
	if p.Goal == Halt {
		return
	}
	promised, due := p.Awaited() > p.LastGeneration, Reload{Reason: "start"}
	if p.Again != nil {
		due = *p.Again
	}
	p.Goal, p.Again, p.RetryAt = Halt, nil, time.Time{}
	stopping := Report{Kind: StopBegan, Reason: e.Reason, AskedBy: e.AskedBy}
	if g := p.Trial; g != nil {
		p.Trial = nil
		p.retire(now, g)
		stopping.Reload = p.decide(now, g, Stopped)
	}
	p.report(stopping)
	if promised {
		p.drop(now, due, Stopped, Report{Kind: ReloadDropped, Reason: due.Reason})
	}
	p.recordStop(now, e)
	if g := p.Serving; g != nil {
		p.Serving = nil
		p.retire(now, g)
	}
	for w, g := range p.Workers() {
		var instead config.Signal
		if e.Interrupted {
			instead = g.Config.Stop.IntSignal
		}
		if w.State != Stopping || !w.Killed && w.Instead != instead {
			p.tell(now, g, w, instead)
		}
	}
	if len(p.Draining) == 0 { // otherwise the last of them to go is the end
		p.down(now)
	}
}

func (p *Program) killAll(now time.Time) {
	for w, g := range p.Workers() {
		p.kill(now, g, w, "told to stop now")
	}
}

// retire makes g one of the draining generations. What becomes of its workers is for the caller to say.
func (p *Program) retire(now time.Time, g *Generation) {
	if !g.Prepared {
		p.do(Abandon{g.Number})
	}
	g.Retired = now
	if r := p.reloadOf(g.Number); r != nil {
		r.Retired = now
	}
	p.Draining = append(p.Draining, g)
}

func (p *Program) prepared(now time.Time, e Prepared) {
	if p.Trial == nil || p.Trial.Number != e.Generation {
		return
	}
	p.Trial.Prepared = true
	if e.Failure != nil {
		p.fail(now, *e.Failure)
	}
}

func (p *Program) spawned(e Spawned) {
	if w, g := p.Find(e.Worker); w != nil {
		w.PID = e.PID
		p.report(Report{Kind: WorkerSpawned, Generation: g.Number, Worker: w.Number, Slot: w.Slot, PID: w.PID})
	}
}

func (p *Program) ready(now time.Time, e ReadySaid) {
	w, g := p.Find(e.Worker)
	if w == nil {
		return
	}
	switch w.State {
	case Starting:
		p.report(Report{Kind: WorkerReady, Generation: g.Number, Worker: w.Number, Slot: w.Slot, PID: w.PID, Took: now.Sub(w.Since)})
		w.enter(Ready, now, 0)
		if r := p.reloadOf(g.Number); g == p.Trial && r != nil {
			r.Ready = now
		}
		if soak := g.Config.Reload.Soak; g == p.Trial && p.Serving != nil && soak > 0 { // without an old one there is nothing to keep
			w.enter(Soaking, now, soak)
		}
	case Soaking, Ready, Leaving: // said twice
	case Stopping: // too late
	}
}

func (p *Program) replace(now time.Time, e Replace) {
	w, g := p.Find(e.Worker)
	if w == nil {
		return
	}
	switch w.State {
	case Soaking, Ready:
		if g == p.Trial {
			p.fail(now, w.failure("serve", e.Reason, nil))
			return
		}
		p.report(Report{Kind: WorkerLeaving, Generation: g.Number, Worker: w.Number, Slot: w.Slot, PID: w.PID, Reason: e.Reason})
		w.enter(Leaving, now, 0)
	case Starting: // its deadline decides
	case Leaving, Stopping: // it is on its way
	}
}

func (p *Program) overLimit(now time.Time, e OverLimit) {
	if w, g := p.Find(e.Worker); w != nil && g == p.Serving && w.State == Ready && p.calm() {
		p.replace(now, Replace(e))
	}
}

func (p *Program) extend(now time.Time, e Extend) {
	w, _ := p.Find(e.Worker)
	if w == nil {
		return
	}
	switch w.State {
	case Starting:
		if t := now.Add(e.By); t.After(w.Deadline) {
			w.Deadline = t
		}
	case Soaking, Ready, Leaving: // no deadline that it could mean
	case Stopping: // the kill deadline is the operator's
	}
}

func (p *Program) exited(now time.Time, e Exited) {
	w, g := p.Find(e.Worker)
	if w == nil {
		return
	}
	g.Workers = slices.DeleteFunc(g.Workers, func(v *Worker) bool { return v == w })
	p.recordEnd(now, g)
	gone := Report{Generation: g.Number, Worker: w.Number, Slot: w.Slot, PID: w.PID, Reason: e.Exit.Reason,
		Step: e.Exit.Step, Tail: e.Exit.Tail, Clean: e.Exit.Clean, Wait: e.Exit.Wait}
	switch w.State {
	case Stopping:
		gone.Kind, gone.Took = WorkerStopped, now.Sub(w.Since)
		p.report(gone)
	case Starting, Soaking, Ready, Leaving:
		if g == p.Trial {
			f := w.failure(e.Exit.failedStep(w.State), e.Exit.Reason, e.Exit.Tail)
			f.Wait = e.Exit.Wait
			p.fail(now, f)
			return
		}
		gone.Kind = WorkerDied
		p.report(gone)
		if g == p.Serving && w.State != Leaving {
			p.ended(now, g, w, e.Exit.Clean)
		}
	}
}

// failedStep names what a worker was about when it ended before its time.
func (x Exit) failedStep(s WorkerState) string {
	switch {
	case x.Step != "":
		return x.Step
	case s == Starting:
		return "start"
	case s == Soaking:
		return "soak"
	}
	return "serve"
}

// ended decides when the slot of a worker of the serving generation is filled again.
func (p *Program) ended(now time.Time, g *Generation, w *Worker, clean bool) {
	s, r := &g.Slots[w.Slot], g.Config.Restart
	if r.When == config.Never || r.When == config.OnFailure && clean {
		s.Finished = true
		return
	}
	if w.State == Ready && now.Sub(w.Since) >= r.StableAfter {
		s.Failures = 0
	}
	if r.Generation == config.New && !g.stays() {
		p.lost(now, g, w)
		return
	}
	wait := backoff(r, s.Failures, w.Number)
	s.Failures++
	s.RetryAt = now.Add(wait)
	p.report(Report{Kind: SlotRetry, Generation: g.Number, Slot: w.Slot, After: wait})
}

// stays reports whether a worker of g lives that is to stay.
func (g *Generation) stays() bool {
	return slices.ContainsFunc(g.Workers, func(w *Worker) bool { return w.State != Leaving && w.State != Stopping })
}

// lost is for a serving generation whose last worker w has died and that is not to be filled again: nothing serves any more.
func (p *Program) lost(now time.Time, g *Generation, w *Worker) {
	if w.State == Ready && now.Sub(w.Since) >= g.Config.Restart.StableAfter {
		p.Deaths = 0
	}
	wait := backoff(g.Config.Restart, p.Deaths, w.Number)
	p.Deaths++
	p.Serving = nil
	p.retire(now, g)
	for _, leaving := range g.Workers {
		p.stop(now, g, leaving)
	}
	p.RetryAt = now.Add(wait)
	p.report(Report{Kind: StartRetry, Generation: g.Number, After: wait})
}

// fail ends the trial. The serving generation was never touched, or (rolling, stop-first) gets its slots filled again:
// until then a worker of the trial that is ready goes on serving where nobody else does.
func (p *Program) fail(now time.Time, f Failure) {
	g := p.Trial
	p.Trial = nil
	g.Failure = &f
	p.retire(now, g)
	p.report(Report{Kind: TrialFailed, Generation: g.Number, Worker: f.Worker, Slot: f.Slot, PID: f.PID,
		Step: f.Step, Reason: f.Reason, AskedBy: cmp.Or(f.AskedBy, g.AskedBy), Tail: f.Tail, Wait: f.Wait, Took: now.Sub(g.Began), Serving: p.ServingNumber(),
		Reload: p.decide(now, g, failedAt(f.Step))})
	if p.Serving != nil {
		p.do(Serve{p.Serving.Number})
	}
	places := p.places()
	for _, w := range g.Workers {
		if at := places[w.Slot]; w.State == Ready && p.Serving != nil && !at.served && !at.leaving {
			w.enter(Leaving, now, 0)
			continue
		}
		p.stop(now, g, w)
	}
	p.tryAgain(now, g, f)
	if p.Serving == nil && p.Again == nil {
		wait := backoff(g.Config.Restart, p.Failures+1, g.Number)
		p.Failures++
		p.RetryAt = now.Add(wait)
		p.report(Report{Kind: StartRetry, Generation: g.Number, After: wait})
	}
}

// tryAgain arms what follows a reload that has failed, while the generation before serves on.
func (p *Program) tryAgain(now time.Time, g *Generation, f Failure) {
	if p.Serving == nil {
		return
	}
	r := p.Serving.Config.Restart
	for i := range p.Serving.Slots {
		if s := &p.Serving.Slots[i]; r.Generation == config.New && !s.Finished && !p.Serving.fills(i) {
			s.RetryAt = now.Add(backoff(r, s.Failures+1, g.Number))
			s.Failures++
		}
	}
	if retry := g.Config.Reload.Retry; retry > 0 && p.Again == nil && f.Step != stepAbort && g.Canary == 0 {
		p.again(Reload{Reason: g.Reason, AskedBy: g.AskedBy}, now.Add(retry))
		p.report(Report{Kind: ReloadRetry, Generation: g.Number, Serving: p.ServingNumber(), After: retry})
	}
}

// fills reports whether a worker that is to stay is in this slot.
func (g *Generation) fills(slot int) bool {
	return slices.ContainsFunc(g.Workers, func(w *Worker) bool { return w.Slot == slot && w.State != Leaving && w.State != Stopping })
}

func (p *Program) ServingNumber() int {
	if p.Serving == nil {
		return 0
	}
	return p.Serving.Number
}

// expire does what the workers' deadlines ask for.
func (p *Program) expire(now time.Time) {
	for w, g := range p.Workers() {
		if w.Deadline.IsZero() || now.Before(w.Deadline) {
			continue
		}
		switch w.State {
		case Starting:
			p.notReady(now, g, w, fmt.Sprintf("not ready within %s", w.Deadline.Sub(w.Since).Round(time.Millisecond)))
		case Soaking:
			w.enter(Ready, now, 0)
		case Stopping:
			w.Step++
			p.stopStep(now, g, w)
		case Ready, Leaving: // impossible: these have no deadline
		}
	}
}

func (p *Program) notReady(now time.Time, g *Generation, w *Worker, reason string) {
	if g == p.Trial {
		p.fail(now, w.failure(stepReady, reason, nil))
		return
	}
	p.report(Report{Kind: WorkerLate, Generation: g.Number, Worker: w.Number, Slot: w.Slot, PID: w.PID, Reason: reason})
	p.ended(now, g, w, false)
	p.stop(now, g, w)
}

// stop starts the stop plan of a worker. One that is on its way already is left alone.
func (p *Program) stop(now time.Time, g *Generation, w *Worker) {
	if w.State != Stopping {
		p.tell(now, g, w, 0)
	}
}

// release is stop for a worker in whose place another one is ready.
func (p *Program) release(now time.Time, g *Generation, w *Worker) {
	if w.State != Stopping {
		p.tell(now, g, w, g.Config.Stop.ReloadSignal)
	}
}

// tell begins the stop plan of a worker. Its first step may send another signal than its own.
func (p *Program) tell(now time.Time, g *Generation, w *Worker, instead config.Signal) {
	w.enter(Stopping, now, 0)
	w.Step, w.Instead = 0, instead
	p.stopStep(now, g, w)
}

func (p *Program) stopStep(now time.Time, g *Generation, w *Worker) {
	steps := g.Config.Stop.Steps
	if w.Step >= len(steps) {
		p.kill(now, g, w, fmt.Sprintf("still there %s after it was told to stop", now.Sub(w.Since).Round(time.Millisecond)))
		return
	}
	wait, sig := steps[w.Step].Wait, w.StopSignal(steps)
	w.Deadline, w.Excused = time.Time{}, false
	if wait != config.Forever {
		w.Deadline = now.Add(wait)
	}
	p.do(Signal{Worker: w.Number, Signal: sig, Group: g.Config.Stop.Group})
	p.report(Report{Kind: WorkerStopping, Generation: g.Number, Worker: w.Number, Slot: w.Slot, PID: w.PID, Signal: config.SignalName(sig), After: wait})
}

// stopSignal is the signal of the step of the stop plan that w is at.
func (w *Worker) StopSignal(steps []config.StopStep) config.Signal {
	if w.Step == 0 && w.Instead != 0 {
		return w.Instead
	}
	return steps[w.Step].Signal
}

func (p *Program) kill(now time.Time, g *Generation, w *Worker, reason string) {
	if w.Killed {
		return
	}
	if w.State != Stopping {
		w.enter(Stopping, now, 0)
	}
	w.Deadline, w.Killed = time.Time{}, true
	g.Killed++
	p.recordKill(g, w, reason)
	p.do(Signal{Worker: w.Number, Signal: config.SIGKILL, Group: true})
	p.report(Report{Kind: WorkerKilled, Generation: g.Number, Worker: w.Number, Slot: w.Slot, PID: w.PID, Reason: reason})
}

func (w *Worker) enter(s WorkerState, now time.Time, deadline time.Duration) {
	w.State, w.Since, w.Deadline, w.Excused = s, now, time.Time{}, false
	if deadline > 0 {
		w.Deadline = now.Add(deadline)
	}
}

func (w *Worker) failure(step, reason string, tail []string) Failure {
	return Failure{Worker: w.Number, Slot: w.Slot, PID: w.PID, Step: step, Reason: reason, Tail: tail}
}

func (p *Program) do(a Action) { p.actions = append(p.actions, a) }

func (p *Program) report(r Report) { p.do(r) }
