package program

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/worker/life"
)

// What goes away, and how, from small to large:
//
//	release      a worker whose successor is ready: it is kept for a rollback, or finishes
//	finish       a worker: it finishes what it has in hand, if it gets nothing new, and stops
//	stop         a worker: its stop plan begins, unless it runs already
//	stopStep     a worker: the step of its plan that is due; after the last one kill
//	kill         a worker: KILL, now
//	signal       a worker: the signal of the step that it is at, again until the loop has sent it
//	vacate       a slot whose worker has ended: when it is filled again
//	drain        a generation: it neither serves nor is on trial from now on; the caller says what its workers do
//	fail         the trial: it drains, and its workers stop; those that got connections finish first
//	rollBack     the serving generation: it drains, its workers finish, and the kept one serves again
//	outage       the serving generation, whose last worker has died: it drains
//	forget       a draining generation without workers: it is gone
//	shutDown     the program: every generation drains, and every worker stops

// Step answers an event: it changes the program and returns what the loop must do, in order. It is pure: time is an
// argument, and an event for a worker or a generation that is gone does nothing. Only the loop calls it.
func (p *Program) Step(now time.Time, e Event) []Action {
	p.actions = nil
	if why := p.Refuses(e); why == "" {
		p.answer(now, e)
	} else if r, is := e.(Reload); is {
		p.report(Report{Kind: CanaryRefused, Serving: p.ServingNumber(), Reason: why, AskedBy: r.AskedBy})
	}
	if !Ruled(e) {
		return p.actions
	}
	p.expire(now)
	p.reconcile(now)
	if p.replaceOldest(now) {
		p.reconcile(now)
	}
	p.idle(now)
	p.steer()
	return p.actions
}

// Ruled reports whether Step applies its rules after this event. The other events change nothing on which a rule
// depends.
func Ruled(e Event) bool {
	switch e := e.(type) {
	case Signalled, Refused:
		return false
	case Looked:
		return e.Quiet
	case Did:
		_, spawned := e.Event.(life.Spawned)
		return !spawned
	}
	return true
}

// Limits of what Refuses lets pass.
const (
	MaxWorkers = 10_000          // of a program
	MaxPause   = 2 * time.Minute // after it the kernels of clients stop retrying to connect (tcp_syn_retries in tcp(7))
)

// Refuses says why Step would do nothing of what this event asks for, and what to do about it; "": Step does it. A
// caller that asks for a person asks before Step, because Step itself reports only a canary that it refuses.
func (p *Program) Refuses(e Event) string {
	switch e := e.(type) {
	case Reload:
		if e.IsCanary() {
			return p.refusesCanary(e)
		}
	case Promote:
		return p.refusesPromotion(e)
	case Abort:
		if p.Trial == nil {
			return noTrial
		}
	case Rollback:
		return p.refusesRollback()
	case Pause:
		return p.refusesPause(e)
	case Unpause:
		if p.Paused.Until.IsZero() {
			return "it is not paused"
		}
	case Scale:
		return p.refusesScale(e)
	}
	return ""
}

const noTrial = "it has no canary or reload in progress"

func (p *Program) refusesPause(e Pause) string {
	switch {
	case e.For <= 0 || e.For > MaxPause:
		return fmt.Sprintf("it cannot be paused for %s: use a time of at most %s", e.For, MaxPause)
	case p.Goal == Halt:
		return "it is stopped: start it first"
	case len(p.Config.Listen) == 0:
		return "it has no listener, so there are no connections to pause"
	}
	return ""
}

func (p *Program) refusesScale(e Scale) string {
	switch t := p.Trial; {
	case e.Workers < 1:
		return fmt.Sprintf("it cannot be scaled to %d: use `supervisord stop %s`", e.Workers, p.Name)
	case e.Workers > MaxWorkers:
		return fmt.Sprintf("it cannot be scaled to %d: at most %d workers", e.Workers, MaxWorkers)
	case t != nil && (t.Share > 0 || t.Canary > 0 && (p.Outgrows() || e.Workers <= t.Canary)):
		return fmt.Sprintf("generation %d is a canary: promote or abort it first", t.Number)
	}
	return ""
}

// answer does what an event asks for. The rules follow.
func (p *Program) answer(now time.Time, e Event) {
	switch e := e.(type) {
	case Start:
		p.start(now, e)
	case Reload:
		p.reload(now, e)
	case Promote:
		p.promoteCanary(now, e)
	case Abort:
		p.abort(now, e)
	case Rollback:
		p.rollBack(now, e.AskedBy)
	case Pause:
		p.pause(now, e)
	case Unpause:
		p.unpause(now, e.AskedBy)
	case Scale:
		p.scale(now, e)
	case Stop:
		p.shutDown(now, e)
	case Kill:
		p.killAll(now, e)
	case Prepared:
		p.prepared(now, e)
	case Looked:
		p.looked(now, e)
	case Refused:
		p.recordReset(e)
	case Signalled:
		p.signalled(e)
	case Replace:
		p.failing(now, e)
	case Did:
		if w, g := p.Find(e.Worker); w != nil {
			p.did(now, g, w, e.Event)
		}
	case Tick:
	}
}

// did answers what happened to a worker.
func (p *Program) did(now time.Time, g *Generation, w *Worker, e life.Event) {
	switch e := e.(type) {
	case life.Spawned:
		w.PID = e.PID
		p.report(Report{Kind: WorkerSpawned}.about(g, w))
	case life.ReadySaid:
		p.ready(now, g, w)
	case life.NeverReady:
		if w.State == Starting {
			p.notReady(now, g, w, e.Err.Error())
		}
	case life.DrainsItself:
		if w.DrainsItself = true; w.State == Finishing {
			p.stop(now, g, w, w.Instead)
		}
	case life.Leaving:
		p.failing(now, Replace{Worker: w.Number, Reason: "it said that it is stopping"})
	case life.Extend:
		p.extend(now, w, e.Duration)
	case life.Exited:
		p.exited(now, g, w, e)
	}
}

func (p *Program) start(now time.Time, e Start) {
	p.Config = cmp.Or(e.Config, p.Config)
	switch p.State() {
	case Down, ShuttingOff: // generations that still drain keep draining
		p.Goal, p.Failures, p.Deaths, p.Unstarted, p.Handed = Run, 0, 0, true, false
		p.want(now, Reload{Reason: start, AskedBy: e.AskedBy})
	case StartingUp, Up, Reloading, Waiting:
	}
}

func (p *Program) reload(now time.Time, e Reload) {
	if e.IsCanary() {
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

// want begins a whole generation, or makes it wait until the trial has ended, fewer generations drain, or others serve.
func (p *Program) want(now time.Time, r Reload) {
	waits := Report{Kind: ReloadQueued, Reason: r.Reason, AskedBy: r.AskedBy}
	switch t := p.Trial; {
	case p.AwaitsOthers():
		waits.Kind, waits.Awaits = StartWaits, p.Awaits
	case t == nil && !p.full():
		p.begin(now, r)
		return
	case t == nil:
		waits.Kind, waits.Serving = ReloadFull, p.ServingNumber()
	case t.waitsForPerson():
		waits.Kind, waits.Generation = ReloadHeld, t.Number
	default:
		waits.Generation = t.Number
	}
	p.report(waits)
	p.again(r, now)
}

// again remembers a reload that is due at this time, or at the time of an earlier one that is due sooner, and never
// before the trial has ended. Such a reload is always of a whole generation, so the newest replaces all earlier ones.
func (p *Program) again(r Reload, at time.Time) {
	if p.Again != nil && p.AgainAt.Before(at) {
		at = p.AgainAt
	}
	p.Again, p.AgainAt = &r, at
}

// Outgrows reports whether another number of workers needs a generation with other sockets: each worker is to have its
// own. Otherwise additional workers share the sockets that are there, and what has no worker gets no connections.
func (p *Program) Outgrows() bool {
	for _, l := range p.Config.Listen {
		if l.PerSlot {
			return true
		}
	}
	return false
}

// scale changes the number of slots in place, also that of a canary by a number of workers. It does not change any
// other trial: one more reload follows such a trial. Sockets for slots come and go with generations, so a program that
// outgrows its sockets is reloaded.
func (p *Program) scale(now time.Time, e Scale) {
	p.report(Report{Kind: Scaled, AskedBy: e.AskedBy,
		Reason: fmt.Sprintf("%s instead of %d", count(e.Workers, "worker"), p.Config.Workers)})
	if p.Outgrows() {
		p.reload(now, Reload{Config: withWorkers(p.Config, e.Workers), AskedBy: e.AskedBy,
			Reason: fmt.Sprintf("scaled to %d workers", e.Workers)})
		return
	}
	if t := p.Trial; t != nil && t.IsCanary() {
		if p.Candidate != nil {
			p.Candidate = withWorkers(p.Candidate, e.Workers)
		}
		p.resize(t, e.Workers)
	} else if t != nil {
		p.again(Reload{Reason: "scaled during a reload", AskedBy: e.AskedBy}, now)
	}
	p.Config = withWorkers(p.Config, e.Workers)
	g := p.Serving
	if g == nil || p.Goal == Halt || p.Trial != nil && !p.Trial.IsCanary() {
		return
	}
	p.resize(g, e.Workers)
	for _, w := range g.Workers {
		if w.Slot >= e.Workers {
			p.finish(now, g, w, 0)
		}
	}
}

func (p *Program) resize(g *Generation, slots int) {
	g.Config = withWorkers(g.Config, slots)
	g.Slots = append(g.Slots[:min(len(g.Slots), slots)], make([]Slot, max(0, slots-len(g.Slots)))...)
}

// withWorkers returns a copy of c with this number of workers.
func withWorkers(c *config.Program, n int) *config.Program {
	scaled := *c
	scaled.Workers = n
	return &scaled
}

// shutDown stops every generation. A worker that gets no new connections because of that first accepts those that wait.
// A worker that is already stopping by another signal than this stop uses gets this signal, too.
func (p *Program) shutDown(now time.Time, e Stop) {
	if p.Goal == Halt {
		p.hurry(now, e)
		return
	}
	p.recordGap(now, true)
	due := p.Again
	p.Goal, p.Again, p.Unstarted, p.Handed = Halt, nil, false, e.Handed
	e.Reason = cmp.Or(e.Reason, "requested")
	began := Report{Kind: StopBegan, Reason: e.Reason, AskedBy: e.AskedBy}
	if g := p.Trial; g != nil {
		p.drain(now, g)
		began.Reload = p.decide(now, g, Stopped)
	}
	p.report(began)
	if due != nil {
		p.drop(now, *due, Stopped)
	}
	p.recordStop(now, e)
	if p.Serving != nil {
		p.drain(now, p.Serving)
	}
	for w, g := range p.Workers() {
		var instead config.Signal
		if e.Interrupted {
			instead = g.Config.Stop.IntSignal
		}
		switch {
		case p.Handed && w.State == Finishing: // as it does
		case p.lingers(g, w):
			p.finish(now, g, w, instead)
		case w.State != Stopping || !w.Killed && w.Instead != instead:
			p.beginStop(now, g, w, instead)
		}
	}
	if len(p.Draining) == 0 { // otherwise the program is down when the last of them has gone
		p.recordDown(now)
	}
}

// hurry ends what a stop with Handed left to finish, if this one has not Handed.
func (p *Program) hurry(now time.Time, e Stop) {
	if !p.Handed || e.Handed {
		return
	}
	p.Handed = false
	for w, g := range p.Workers() {
		p.stop(now, g, w, w.Instead)
	}
}

// drain makes g one of the draining generations.
func (p *Program) drain(now time.Time, g *Generation) {
	switch g {
	case p.Trial:
		p.Trial = nil
	case p.Serving:
		p.Serving = nil
	}
	if !g.Prepared {
		p.do(Abandon{g.Number})
	}
	g.Retired = now
	p.edit(g.Number, func(r *ReloadRecord) { r.Retired = now })
	p.Draining = append(p.Draining, g)
}

func (p *Program) prepared(now time.Time, e Prepared) {
	if p.Trial == nil || p.Trial.Number != e.Generation {
		return
	}
	p.Trial.Prepared, p.Trial.Steered, p.Trial.Sockets, p.Trial.BesideUnit = true, e.Steered, e.Sockets, e.BesideUnit
	switch {
	case e.Failure != nil:
		p.fail(now, *e.Failure)
	case p.Trial.Share > 0 && !e.Steered:
		p.fail(now, Failure{Step: StepPrepare,
			Reason: "its listeners are shared with the generation that serves: a canary can have a number of workers, but no " +
				"share"})
	}
}

func (p *Program) ready(now time.Time, g *Generation, w *Worker) {
	switch w.State {
	case Starting:
		p.report(Report{Kind: WorkerReady, Took: now.Sub(w.Since)}.about(g, w))
		p.enter(w, Ready, now, 0)
		if g == p.Trial {
			p.edit(g.Number, func(r *ReloadRecord) { r.Ready = now })
		}
		if soak := g.Config.Reload.Soak; g == p.Trial && p.Serving != nil && soak > 0 {
			// without an old generation there is nothing to fall back to
			p.enter(w, Soaking, now, soak)
		}
	case Finishing:
		if w.Version != 0 && !w.WasReady { // it begins
			w.WasReady = true
			p.enter(w, Finishing, now, g.Config.Drain.Timeout)
		}
	case Soaking, Ready, Leaving, Kept: // said twice
	case Stopping: // too late
	}
}

// failing replaces a worker that says, or shows, that it cannot continue. That counts like the end of a worker, unless
// the worker is only over a limit.
func (p *Program) failing(now time.Time, e Replace) {
	wait := time.Duration(0)
	w, g := p.Find(e.Worker)
	serves := w != nil && w.State == Ready && g == p.Serving
	switch {
	case e.OverLimit && !(serves && p.calm()):
		return
	case serves && !e.OverLimit:
		wait = p.replacementWait(now, g, w)
		w.Failing = true
		g.Slots[w.Slot].RetryAt = now.Add(wait)
	}
	p.replace(now, e, Report{After: wait})
}

// replace begins to replace a worker. The report told says who asked for that, and how long the successor waits.
func (p *Program) replace(now time.Time, e Replace, told Report) {
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
		told.Kind, told.Reason = WorkerLeaving, e.Reason
		p.report(told.about(g, w))
		p.enter(w, Leaving, now, 0)
	case Kept: // it cannot be rolled back to any more
		p.report(Report{Kind: WorkerLeaving, Reason: e.Reason}.about(g, w))
		w.Failing = true
		p.finish(now, g, w, g.Config.Stop.ReloadSignal)
	case Starting: // the deadline decides
	case Finishing: // it is going, and does not come back: see takeBack
		w.Failing = true
	case Leaving, Stopping: // it is already going
	}
}

func (p *Program) extend(now time.Time, w *Worker, by time.Duration) {
	switch w.State {
	case Starting:
		if t := now.Add(by); t.After(w.Deadline) {
			w.Deadline = t
		}
	case Soaking, Ready, Leaving, Kept, Finishing: // no deadline to extend
	case Stopping: // the kill deadline belongs to the operator
	}
}

func (p *Program) exited(now time.Time, g *Generation, w *Worker, x life.Exited) {
	inherits := x.Unaccepted > 0 && p.MayHaveHeir(g, w)
	g.Workers = slices.DeleteFunc(g.Workers, func(v *Worker) bool { return v == w })
	p.recordEnd(now, g)
	gone := Report{Kind: WorkerDied, Reason: x.String(), End: End{Step: x.Step, Tail: x.Tail, Clean: g.succeeded(x),
		Wait: int(x.Status), Expected: w.State == Leaving || w.State == Finishing},
	}.about(g, w)
	switch {
	case w.State == Stopping:
		gone.Kind, gone.Took = WorkerStopped, now.Sub(w.Since)
		p.report(gone)
	case g == p.Trial && x.Unadopted && (w.State == Starting || w.stays() && !g.Reached):
		// it says nothing about the version: fill starts another one
		gone.Expected = true
		p.report(gone)
	case g == p.Trial:
		f := w.failure(failedStep(x, w.State), gone.Reason, x.Tail)
		if x.Clean() && w.State == Starting {
			f.Reason += " before it was ready"
		}
		f.Wait = gone.Wait
		p.fail(now, f)
	default:
		p.report(gone)
		if !gone.Clean && !gone.Expected {
			p.recordCrash(now, g, w, gone.Reason, x.Tail)
		}
		if g == p.Serving && w.stays() {
			p.vacate(now, g, w, gone.Clean)
		}
	}
	if inherits {
		p.startHeir(now, g, w.Slot, w.Instead, p.Serving)
	}
}

// succeeded reports whether the end of a worker counts as a success: it exited with 0 or with one of
// success_exit_codes, in which 128+N stands for a death by signal N as well, as in a shell. A server that should always
// run ends with a success only where success_exit_codes says so.
func (g *Generation) succeeded(x life.Exited) bool {
	code := x.Status.ExitStatus()
	if x.Status.Signaled() {
		code = 128 + int(x.Status.Signal())
	}
	c := g.Config
	return x.Clean() && (len(c.Listen) == 0 || c.Restart.When != config.Always) ||
		x.Known && x.Err == nil && !x.OOM && slices.Contains(c.SuccessCodes, code)
}

// failedStep names what a worker was doing when it ended unexpectedly.
func failedStep(x life.Exited, s WorkerState) string {
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

// fail ends the trial. The serving generation was never touched, or (rolling, stop-first) gets its slots back: workers
// that still finish what they have serve again, and the other slots are filled. Until then a worker of the trial that
// is ready keeps serving if nothing else does.
func (p *Program) fail(now time.Time, f Failure) {
	g := p.Trial
	g.Failure = &f
	p.drain(now, g)
	if p.Serving != nil {
		p.takeBack(now, p.Serving)
	}
	p.recordGap(now, true) // of the reload before
	r := failed(g.Number, &f)
	r.AskedBy, r.Took, r.Serving = cmp.Or(f.AskedBy, g.AskedBy), now.Sub(g.Began), p.ServingNumber()
	if r.Reload = p.decide(now, g, failedAt(f.Step)); r.Reload != nil && r.Reload.Gap == GapOpen {
		r.Serving = 0
	}
	p.report(r)
	slots := p.slots()
	for _, w := range g.Workers {
		switch in := slots[w.Slot]; {
		case w.State == Ready && p.Serving != nil && !in.served && !in.leaving && p.tookOver(g, w):
			p.enter(w, Leaving, now, 0)
		case g.Reached:
			p.finish(now, g, w, 0)
		default:
			p.stop(now, g, w, 0)
		}
	}
	p.tryAgain(now, g, f)
	if p.Serving == nil && p.Again == nil {
		p.Failures++
		p.retry(now, g, backoff(g.Config.Restart, p.Failures, g.Number))
	}
}

// tookOver reports whether a worker of a trial may be all that serves in its slot: where generations share a socket, or
// if it has got the connections of the slot, which only a trial takes that replaces one worker after the other.
func (p *Program) tookOver(g *Generation, w *Worker) bool {
	replaces := g.Config.Reload.Strategy != config.All && !g.IsCanary()
	return !g.Steered || replaces && g.perSlot() && covers(p.Steering, g, w.Slot)
}

// start is the reason of a generation that begins while nothing serves, unless something else asks for it.
const start = "start"

// retry starts the program again after this time, or earlier if a reload is due: nothing serves, and nothing starts.
func (p *Program) retry(now time.Time, g *Generation, wait time.Duration) {
	r := Reload{Reason: start}
	if p.Deaths > 0 {
		r.By = Crashed
	}
	p.again(*cmp.Or(p.Again, &r), now.Add(wait))
	p.report(Report{Kind: StartRetry, Generation: g.Number, After: wait})
}

// tryAgain arms what follows a reload that has failed, while the generation before keeps serving.
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
	if retry := g.Config.Reload.Retry; retry > 0 && p.Again == nil && f.Step != stepAbort && !g.IsCanary() {
		p.again(Reload{Reason: g.Reason, AskedBy: g.AskedBy}, now.Add(retry))
		p.report(Report{Kind: ReloadRetry, Generation: g.Number, Serving: p.ServingNumber(), After: retry})
	}
}

// fills reports whether this slot has a worker that stays.
func (g *Generation) fills(slot int) bool {
	return slices.ContainsFunc(g.Workers, func(w *Worker) bool { return w.Slot == slot && w.stays() })
}

// expire acts on the deadlines that have passed.
func (p *Program) expire(now time.Time) {
	if until := p.Paused.Until; !until.IsZero() && !now.Before(until) {
		p.unpause(now, byTimer("pause"))
	}
	for w, g := range p.Workers() {
		if w.Deadline.IsZero() || now.Before(w.Deadline) {
			if !w.Resend.IsZero() && !now.Before(w.Resend) {
				p.signal(now, g, w)
			}
			continue
		}
		switch w.State {
		case Starting:
			p.notReady(now, g, w, p.late(w))
		case Soaking:
			p.enter(w, Ready, now, 0)
		case Stopping:
			if w.Resend.IsZero() { // otherwise it may not have been told, and the step begins anew
				w.Step++
			}
			p.stopStep(now, g, w)
		case Kept:
			if g == p.Serving { // and stays it until the trial is decided
				w.Deadline = now.Add(p.Trial.Config.Reload.Keep)
				continue
			}
			p.release(now, g, w, 0)
		case Finishing:
			if until := p.overtime(g, w); now.Before(until) {
				w.Deadline = until
				continue
			}
			p.recordLeft(now, g, w)
			p.stop(now, g, w, w.Instead)
		case Ready, Leaving: // impossible: these have no deadline
		}
	}
}

// late is why a worker counts as failed whose time to get ready is over.
func (p *Program) late(w *Worker) string {
	text := fmt.Sprintf("not ready within %s", w.Deadline.Sub(w.Since).Round(time.Millisecond))
	if seen := p.Seen[w.Number]; seen != "" {
		text += ": " + seen
	}
	return text
}

func (p *Program) notReady(now time.Time, g *Generation, w *Worker, reason string) {
	if g == p.Trial {
		p.fail(now, w.failure(stepReady, reason, nil))
		return
	}
	p.report(Report{Kind: WorkerLate, Reason: reason}.about(g, w))
	p.recordCrash(now, g, w, reason, nil)
	p.vacate(now, g, w, false)
	p.stop(now, g, w, 0)
}

// stop begins the stop plan of a worker, unless it runs already. The first step sends instead, unless that is 0, in
// place of its own signal.
func (p *Program) stop(now time.Time, g *Generation, w *Worker, instead config.Signal) {
	if w.State != Stopping {
		p.beginStop(now, g, w, instead)
	}
}

// release lets a worker go whose successor is ready, or keeps it for this time, or until its generation is not lent any
// more.
func (p *Program) release(now time.Time, g *Generation, w *Worker, keep time.Duration) {
	if (keep > 0 || p.Lent[g.Number] != "") && (w.State == Ready || w.State == Kept) {
		p.enter(w, Kept, now, keep)
		return
	}
	p.finish(now, g, w, g.Config.Stop.ReloadSignal)
}

func (p *Program) beginStop(now time.Time, g *Generation, w *Worker, instead config.Signal) {
	p.enter(w, Stopping, now, 0)
	w.Step, w.Instead = 0, instead
	p.stopStep(now, g, w)
}

func (p *Program) stopStep(now time.Time, g *Generation, w *Worker) {
	steps := g.Config.Stop.Steps
	if w.Step >= len(steps) {
		p.kill(now, g, w, fmt.Sprintf("still there %s after it was told to stop", now.Sub(w.Since).Round(time.Millisecond)))
		return
	}
	w.Deadline, w.Excused = time.Time{}, false
	wait := steps[w.Step].Wait
	if wait != config.Forever {
		w.Deadline = now.Add(wait)
	}
	a := p.signal(now, g, w)
	p.report(Report{Kind: WorkerStopping, Particulars: Particulars{Signal: config.SignalName(a.Signal)},
		After: wait}.about(g, w))
}

func (p *Program) kill(now time.Time, g *Generation, w *Worker, reason string) {
	if w.Killed {
		return
	}
	if w.State != Stopping {
		p.enter(w, Stopping, now, 0)
	}
	w.Deadline, w.Killed = time.Time{}, true
	g.Killed++
	p.recordKill(g, w, reason)
	p.signal(now, g, w)
	p.report(Report{Kind: WorkerKilled, Reason: reason}.about(g, w))
}

func (p *Program) killAll(now time.Time, e Kill) {
	for w, g := range p.Workers() {
		p.kill(now, g, w, "told to stop now")
	}
	p.shutDown(now, Stop{Reason: e.Reason, AskedBy: e.AskedBy})
}

const (
	// resendAfter is when a signal is sent again that the loop does not say it has sent.
	resendAfter = time.Second
	// doubtAfter is when a signal is sent again of which a supervisor that died has not said whether it has sent it: see
	// Inherit.
	doubtAfter = 30 * time.Second
)

// signal sends a worker the signal of the step that its stop plan is at, and again until Signalled says that it was
// sent: whether the loop could not send it, or the supervisor died between the record of the decision and the signal.
func (p *Program) signal(now time.Time, g *Generation, w *Worker) SendSignal {
	w.Resend = now.Add(resendAfter)
	a := w.stopSignal(g)
	p.do(a)
	return a
}

func (p *Program) signalled(e Signalled) {
	if w, g := p.Find(e.Worker); w != nil && w.State == Stopping && w.stopSignal(g) == e.SendSignal {
		w.Resend = time.Time{}
	}
}

// stopSignal is what a stopping worker is sent at the step that its stop plan is at.
func (w *Worker) stopSignal(g *Generation) SendSignal {
	stop := g.Config.Stop
	switch {
	case w.Killed || w.Step >= len(stop.Steps):
		return SendSignal{Worker: w.Number, Signal: config.SIGKILL, Group: true}
	case w.Step == 0 && w.Instead != 0:
		return SendSignal{Worker: w.Number, Signal: w.Instead, Group: stop.Group}
	}
	return SendSignal{Worker: w.Number, Signal: stop.Steps[w.Step].Signal, Group: stop.Group}
}

func (p *Program) do(a Action) { p.actions = append(p.actions, a) }

func (p *Program) report(r Report) { p.do(r) }
