package program

import (
	"slices"
	"time"
)

// Outcome says how a reload went, or anything else that a client waits for. The core decides those of reloads, each
// once; the client's side adds those that come from waiting.
type Outcome string

// The outcomes of reloads.
const (
	Pending     Outcome = "pending"      // not decided yet
	Held        Outcome = "held"         // not decided yet: the canary is well and waits
	Serves      Outcome = "serves"       // the new generation serves, or did
	NotPrepared Outcome = "not_prepared" // it failed: the generation could not be prepared, or its preflight failed
	NotReady    Outcome = "not_ready"    // it failed: a worker was not ready in time
	WorkerDown  Outcome = "worker"       // it failed: a worker could not be started, or ended
	Aborted     Outcome = "aborted"      // it was aborted
	Superseded  Outcome = "superseded"   // something newer took its place
	Stopped     Outcome = "stopped"      // the program was stopped first
)

// ReloadOutcomes lists the outcomes that a reload can end with.
func ReloadOutcomes() []Outcome {
	return []Outcome{Serves, NotPrepared, NotReady, WorkerDown, Aborted, Superseded, Stopped}
}

// Text is the outcome in the words of people, which the page has, too: static/dom.js.
func (o Outcome) Text() string {
	switch o {
	case NotReady:
		return "not ready"
	case WorkerDown:
		return "worker failed"
	case NotPrepared:
		return "could not be prepared"
	}
	return string(o)
}

// Open reports whether a reload with this outcome is still under way.
func (o Outcome) Open() bool { return o == Pending || o == Held }

// Failed reports whether the new generation failed.
func (o Outcome) Failed() bool { return o == NotPrepared || o == NotReady || o == WorkerDown }

// failedAt is the outcome of a trial that failed at this step.
func failedAt(step string) Outcome {
	switch step {
	case StepPrepare, StepPreflight:
		return NotPrepared
	case stepReady:
		return NotReady
	case stepAbort:
		return Aborted
	}
	return WorkerDown
}

// ReloadRecord says how one reload goes, first starts included. A record is replaced, and never changed, so every
// reader may keep it. Once the reload is decided, the outcome stays; once Ended is set, only Retired, Gone, Reset, a
// Gap that is open and what is said of a rollback differ in later records. Fields for what has not happened are zero;
// durations are in nanoseconds.
type ReloadRecord struct {
	Generation int     `json:"generation"`         // the new one
	Replaced   int     `json:"replaced,omitempty"` // the one that serves until it is decided; 0: none
	Outcome    Outcome `json:"outcome"`
	Reason     string  `json:"reason,omitempty"`   // what asked for it
	AskedBy    string  `json:"asked_by,omitempty"` // who asked for it; not there: nobody
	By         Renewal `json:"by,omitempty"`       // why it began by itself
	Canary     int     `json:"canary,omitempty"`   // workers that were tried first
	Config     string  `json:"config,omitempty"`   // identifies the configuration of the generation

	Instants
	Durations
	Passage

	Failure *Failure       `json:"failure,omitempty"` // of Failed, and Aborted
	Killed  int            `json:"killed"`            // workers of the replaced generation that had to be killed
	Kills   []KilledWorker `json:"kills,omitempty"`   // the first of them
}

// Instants are when the steps of a reload happened. Those that have not are zero.
type Instants struct {
	Began   time.Time `json:"began,omitzero"` // zero: it never did
	Spawned time.Time `json:"spawned,omitzero"`
	Ready   time.Time `json:"ready,omitzero"`   // when the last worker so far was ready
	Decided time.Time `json:"decided,omitzero"` // when Outcome became final
	Ended   time.Time `json:"ended,omitzero"`   // when the generation that had to go was gone
	Retired time.Time `json:"retired,omitzero"` // when the new generation was told to stop itself
	Gone    time.Time `json:"gone,omitzero"`    // when it was gone
}

// Durations are how long the parts of a reload took that are over.
type Durations struct {
	Took         time.Duration `json:"took_ns"`           // from Began to Decided
	SpawnToReady time.Duration `json:"spawn_to_ready_ns"` // from Spawned to Ready
	Overlap      time.Duration `json:"overlap_ns"`        // while workers of both generations lived
	Drain        time.Duration `json:"drain_ns"`          // from Decided to Ended
}

// Passage is how the new connections went over, and how the generation that had to go finished.
type Passage struct {
	// in parts of Whole: what a canary got of the new connections in the end
	Share    int       `json:"share,omitempty"`
	Flipped  time.Time `json:"flipped,omitzero"`    // when all of them went to the new generation
	KeptTill time.Time `json:"kept_until,omitzero"` // the replaced generation is kept until then; zero: it is not
	// how long the longest of its workers had something in hand, or its deadline
	Quiet time.Duration `json:"quiet_ns,omitempty"`
	Left  *Look         `json:"left,omitempty"` // what they had in hand at the deadline
	// connections that waited when none of them was left: supervisord reset these
	Reset int `json:"reset,omitempty"`

	Gap      Gap       `json:"gap,omitempty"`      // of a reload that failed after the generation before had to go
	GapEnded time.Time `json:"gap_ended,omitzero"` // when that served again

	RolledBack   time.Time `json:"rolled_back,omitzero"` // when the replaced generation served again
	RolledBackBy string    `json:"rolled_back_by,omitempty"`
}

// Gap is a time in which nothing serves after a reload has failed, because the generation before had made room for the
// new one. "" means that there is none.
type Gap string

// The gaps.
const (
	GapOpen   Gap = "open"   // the generation before is started again
	GapClosed Gap = "closed" // it serves again
	GapLasts  Gap = "lasts"  // it was not ready at the first attempt
)

// KilledWorker is a worker that did not go by itself.
type KilledWorker struct {
	Generation int    `json:"generation"`
	Worker     int    `json:"worker"`
	Slot       int    `json:"slot"`
	PID        int    `json:"pid,omitempty"`
	Reason     string `json:"reason"`
}

// StopRecord says how the last stop of a program went.
type StopRecord struct {
	// the newest number at that time: a newer one means that the program was started again
	Generation int       `json:"generation"`
	Reason     string    `json:"reason,omitempty"`
	AskedBy    string    `json:"asked_by,omitempty"`
	Began      time.Time `json:"began"`
	Ended      time.Time `json:"ended,omitzero"`
	Killed     int       `json:"killed"` // workers that did not go by themselves
}

// The bounds of what is remembered. Reloads that have not ended do not count.
const (
	keptReloads = 100
	keptKills   = 20
)

// goes returns the number of the generation that has to go before the reload has ended; while it is not decided, of the
// one that will have to if the new one serves; 0: none.
func (r *ReloadRecord) goes() int {
	if r.Outcome.Open() || r.Outcome == Serves && r.RolledBack.IsZero() {
		return r.Replaced
	}
	return r.Generation
}

// waitsFor reports whether the reload is decided, and ends with this generation.
func (r *ReloadRecord) waitsFor(generation int) bool {
	return r.Ended.IsZero() && !r.Outcome.Open() && r.goes() == generation
}

// reloadOf returns the record of the reload that a generation is from; nil: it is forgotten.
func (p *Program) reloadOf(generation int) *ReloadRecord {
	for _, r := range slices.Backward(p.Reloads) {
		if r.Generation == generation {
			return r
		}
	}
	return nil
}

// record adds the record of a reload, and returns it.
func (p *Program) record(r ReloadRecord) *ReloadRecord {
	p.Reloads = append(p.Reloads, &r)
	surplus := len(p.Reloads) - keptReloads
	p.Reloads = slices.DeleteFunc(p.Reloads, func(r *ReloadRecord) bool {
		surplus--
		return surplus >= 0 && !r.Ended.IsZero()
	})
	return &r
}

// edit replaces the record of the reload that a generation is from, and returns the new one; nil: it is forgotten.
func (p *Program) edit(generation int, change func(*ReloadRecord)) *ReloadRecord {
	i := slices.IndexFunc(p.Reloads, func(r *ReloadRecord) bool { return r.Generation == generation })
	if i < 0 {
		return nil
	}
	r := *p.Reloads[i]
	change(&r)
	p.Reloads[i] = &r
	return &r
}

// drop records a reload that will never begin: a client may wait for a generation with its number.
func (p *Program) drop(now time.Time, asked Reload, o Outcome) {
	p.LastGeneration++
	r := p.record(ReloadRecord{Generation: p.LastGeneration, Replaced: p.ServingNumber(), Outcome: o,
		Reason: asked.Reason, AskedBy: asked.AskedBy, Instants: Instants{Decided: now, Ended: now}})
	p.report(Report{Kind: ReloadDropped, Generation: r.Generation, Serving: r.Replaced, Reason: r.Reason,
		AskedBy: r.AskedBy, Reload: r})
}

// makesGap reports whether nothing serves once a trial has failed, until the generation before has workers again.
func (p *Program) makesGap(trial *Generation) bool {
	stay := trial.count(Ready) > 0 && (!trial.Steered || trial.perSlot())
	return p.Serving != nil && !p.Serves() && !stay
}

// recordGap ends the gaps after reloads that failed, if a worker serves again. failed says that those that should have
// do not.
func (p *Program) recordGap(now time.Time, failed bool) {
	serves := p.Serves()
	for _, r := range p.Reloads {
		if r.Gap != GapOpen || !failed && !serves {
			continue
		}
		ended := Report{Kind: NothingServes, Generation: r.Replaced, Took: now.Sub(r.Decided)}
		ended.Reload = p.edit(r.Generation, func(r *ReloadRecord) {
			if r.Gap = GapLasts; serves {
				r.Gap, r.GapEnded, r.Replaced = GapClosed, now, p.ServingNumber()
				ended.Kind, ended.Generation = ServesAgain, r.Replaced
			}
		})
		p.report(ended)
	}
}

// decide ends the record of a trial, and returns it. A record that is decided already stays as it is.
func (p *Program) decide(now time.Time, g *Generation, o Outcome) *ReloadRecord {
	if r := p.reloadOf(g.Number); r == nil || !r.Outcome.Open() {
		return nil
	}
	return p.edit(g.Number, func(r *ReloadRecord) {
		r.Outcome, r.Decided, r.Took, r.Failure, r.Replaced = o, now, now.Sub(r.Began), g.Failure, p.ServingNumber()
		if !r.Spawned.IsZero() && !r.Ready.IsZero() {
			r.SpawnToReady = r.Ready.Sub(r.Spawned)
		}
		if (o.Failed() || o == Aborted) && p.makesGap(g) {
			r.Gap = GapOpen
		}
		if nobodyGoes := o == Serves && (p.Serving == nil || len(p.Serving.Workers) == 0); nobodyGoes {
			r.Ended = now // at once: a client that sees the generation serve must also see that nothing drains
		}
	})
}

// recordGone records that a generation is gone, and ends the record that waits for that.
func (p *Program) recordGone(now time.Time, generation int) *ReloadRecord {
	p.edit(generation, func(r *ReloadRecord) { r.Gone = now })
	for _, r := range p.Reloads {
		if r.waitsFor(generation) {
			return p.edit(r.Generation, func(r *ReloadRecord) { r.Ended, r.Drain = now, now.Sub(r.Decided) })
		}
	}
	return nil
}

// recordFlip records that all new connections go to t from now on, and that the workers of old are kept.
func (p *Program) recordFlip(now time.Time, t, old *Generation, keep time.Duration) {
	if old == nil || !t.Steered && !old.Steered {
		return
	}
	p.edit(t.Number, func(r *ReloadRecord) {
		r.Flipped = now
		if keep > 0 && old.count(Ready)+old.count(Kept) > 0 {
			r.KeptTill = now.Add(keep)
		}
	})
}

// recordKept forgets until when a generation is kept that is not kept any more.
func (p *Program) recordKept() {
	for _, r := range p.Reloads {
		if !r.KeptTill.IsZero() {
			if g := p.Generation(r.Replaced); g == nil || g == p.Serving || g.count(Kept) == 0 {
				p.edit(r.Generation, func(r *ReloadRecord) { r.KeptTill = time.Time{} })
			}
		}
	}
}

// sends returns the record of the reload because of which a generation goes, or nil.
func (p *Program) sends(generation int) *ReloadRecord {
	for _, r := range slices.Backward(p.Reloads) {
		if r.goes() == generation {
			return r
		}
	}
	return nil
}

// recordQuiet records that a finishing worker has nothing in hand, and reports it when that holds for its generation.
func (p *Program) recordQuiet(now time.Time, g *Generation, w *Worker) {
	r := p.sends(g.Number)
	if r == nil {
		return
	}
	took := now.Sub(w.Since)
	r = p.edit(r.Generation, func(r *ReloadRecord) { r.Quiet = max(r.Quiet, took) })
	if !slices.ContainsFunc(g.Workers, func(v *Worker) bool { return v.State != Stopping && v.Quiet.IsZero() }) {
		p.report(Report{Kind: GenerationQuiet, Generation: g.Number, Slot: w.Slot, Serving: p.ServingNumber(), Took: took,
			Reload: r})
	}
}

// recordLeft records what a finishing worker has in hand at its deadline.
func (p *Program) recordLeft(now time.Time, g *Generation, w *Worker) {
	r := p.sends(g.Number)
	if r == nil {
		return
	}
	took, left := now.Sub(w.Since), g.lastLook(w)
	for _, slot := range []int{-1, w.Slot} {
		delete(g.Looks, slot) // it counts once
	}
	r = p.edit(r.Generation, func(r *ReloadRecord) {
		if w.Quiet.IsZero() {
			r.Quiet = max(r.Quiet, took)
		}
		if left.Busy() == 0 {
			return
		}
		if r.Left != nil {
			left = left.Plus(*r.Left)
		}
		r.Left = &left
	})
	if left.Busy() > 0 {
		p.report(Report{Kind: GenerationBusy, Generation: g.Number, Serving: p.ServingNumber(), Took: took, Reload: r,
			Reason: left.String()})
	}
}

// recordHeir records that another worker accepts what was left in the queues of g: that was not lost.
func (p *Program) recordHeir(g *Generation) {
	r := p.sends(g.Number)
	if r == nil || r.Left == nil {
		return
	}
	p.edit(r.Generation, func(r *ReloadRecord) {
		left := *r.Left
		left.Queued = 0
		if r.Left = &left; left.Busy() == 0 {
			r.Left = nil
		}
	})
}

// recordReset records that connections were reset with the reload because of which their generation goes, if there is
// one.
func (p *Program) recordReset(e Refused) {
	told := Report{Kind: ConnectionsReset, Generation: e.Generation, Serving: p.ServingNumber(),
		Particulars: Particulars{Reset: e.Connections}}
	if r := p.sends(e.Generation); r != nil {
		told.Reload = p.edit(r.Generation, func(r *ReloadRecord) { r.Reset += e.Connections })
	}
	p.report(told)
}

// recordRollback records that old, which may be nil, has given way to back, and ends what waits for the end of back.
func (p *Program) recordRollback(now time.Time, back, old *Generation, by string) {
	back.Retired = time.Time{}
	p.edit(back.Number, func(r *ReloadRecord) { r.Retired = time.Time{} })
	for _, r := range p.Reloads {
		waits := r.waitsFor(back.Number)
		if !waits && (old == nil || r.Generation != old.Number) {
			continue
		}
		r = p.edit(r.Generation, func(r *ReloadRecord) {
			r.RolledBack, r.RolledBackBy = now, by
			if waits && p.Generation(r.Generation) == nil {
				r.Ended, r.Drain = now, now.Sub(r.Decided)
			}
		})
		p.report(Report{Kind: RolledBack, Generation: back.Number, Serving: r.Generation, AskedBy: by, Reload: r})
	}
}

// recordEnd records how long workers of two generations lived side by side, when a worker of g has ended.
func (p *Program) recordEnd(now time.Time, g *Generation) {
	for _, r := range p.Reloads {
		if !r.Ended.IsZero() || r.Spawned.IsZero() || r.Replaced == 0 {
			continue
		}
		if g.Number == r.goes() && (g.Number == r.Replaced || !g.StopFirst()) {
			p.edit(r.Generation, func(r *ReloadRecord) { r.Overlap = now.Sub(r.Spawned) })
		}
	}
}

// recordKill records a worker that has to be killed.
func (p *Program) recordKill(g *Generation, w *Worker, reason string) {
	if s := p.LastStop; s != nil && s.Ended.IsZero() && p.Goal == Halt {
		s.Killed++
	}
	for _, r := range p.Reloads {
		if !r.Ended.IsZero() || r.goes() != g.Number {
			continue
		}
		p.edit(r.Generation, func(r *ReloadRecord) {
			if r.Killed++; len(r.Kills) < keptKills {
				r.Kills = append(slices.Clip(r.Kills), KilledWorker{g.Number, w.Number, w.Slot, w.PID, reason})
			}
		})
	}
}

// recordStop begins the record of a stop. Workers that were killed and are not gone yet are part of it.
func (p *Program) recordStop(now time.Time, e Stop) {
	p.LastStop = &StopRecord{Generation: p.LastGeneration, Reason: e.Reason, AskedBy: e.AskedBy, Began: now}
	for w := range p.Workers() {
		if w.Killed {
			p.LastStop.Killed++
		}
	}
}

// recordDown ends the record of a stop.
func (p *Program) recordDown(now time.Time) {
	r := Report{Kind: StopEnded}
	if s := p.LastStop; s != nil {
		s.Ended = now
		stop := *s
		r.AskedBy, r.Stop = s.AskedBy, &stop
	}
	p.report(r)
}
