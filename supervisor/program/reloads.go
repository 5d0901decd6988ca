package program

import (
	"cmp"
	"slices"
	"strings"
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

// ReloadRecord says how one reload goes, first starts included. The core writes it; all other code reads copies. Once
// the reload is decided, the outcome never changes; once Ended is set, only Retired, Gone, Reset, a Gap that is open
// and what is said of a rollback change. Fields for what has not happened are zero; durations are in nanoseconds.
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

	Failure *Failure `json:"failure,omitempty"` // of Failed, and Aborted
	Killed  int      `json:"killed"`            // workers of the replaced generation that had to be killed
	// the first of them; only replaced, so that records can be compared with ==
	Kills *Kills `json:"kills,omitempty"`
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

// Kills are workers that did not go by themselves.
type Kills []KilledWorker

// List returns them; nil has none.
func (k *Kills) List() []KilledWorker {
	if k == nil {
		return nil
	}
	return *k
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
	keptReloads = 20
	keptKills   = 20
)

// Goes returns the number of the generation that has to go before the reload has ended; 0: none, or it is not decided.
func (r *ReloadRecord) Goes() int {
	switch {
	case r.Outcome.Open():
		return 0
	case r.Outcome == Serves && r.RolledBack.IsZero():
		return r.Replaced
	}
	return r.Generation
}

// Copy returns a copy that shares nothing mutable with r.
func (r *ReloadRecord) Copy() *ReloadRecord {
	c := *r
	return &c
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

// record adds the record of a reload.
func (p *Program) record(r *ReloadRecord) {
	p.Reloads = append(p.Reloads, r)
	surplus := len(p.Reloads) - keptReloads
	p.Reloads = slices.DeleteFunc(p.Reloads, func(r *ReloadRecord) bool {
		surplus--
		forgotten := surplus >= 0 && !r.Ended.IsZero()
		if forgotten {
			p.summarize(r)
		}
		return forgotten
	})
}

// recordTrial adds the record of a trial that begins, and returns a copy.
func (p *Program) recordTrial(g *Generation, by Renewal) *ReloadRecord {
	r := &ReloadRecord{Generation: g.Number, Replaced: p.ServingNumber(), Outcome: Pending, Reason: g.Reason,
		AskedBy: g.AskedBy,
		By:      by, Canary: g.Canary, Config: g.Config.Fingerprint(), Instants: Instants{Began: g.Began},
		Passage: Passage{Share: g.Share}}
	p.record(r)
	return r.Copy()
}

// drop records a reload that will never begin: a client may wait for a generation with its number.
func (p *Program) drop(now time.Time, asked Reload, o Outcome, told Report) {
	p.LastGeneration++
	r := &ReloadRecord{Generation: p.LastGeneration, Replaced: p.ServingNumber(), Outcome: o, Reason: asked.Reason,
		AskedBy: asked.AskedBy, Instants: Instants{Decided: now, Ended: now}}
	p.record(r)
	told.Generation, told.Serving, told.AskedBy, told.Reload = r.Generation, r.Replaced, r.AskedBy, r.Copy()
	p.report(told)
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
		if r.Gap = GapLasts; serves {
			r.Gap, r.GapEnded, r.Replaced = GapClosed, now, p.ServingNumber()
			ended.Kind, ended.Generation = ServesAgain, r.Replaced
		}
		ended.Reload = r.Copy()
		p.report(ended)
	}
}

// setOutcome changes the outcome of a reload that is not decided, and returns a copy of its record; nil: it is
// forgotten.
func (p *Program) setOutcome(g *Generation, o Outcome) *ReloadRecord {
	r := p.reloadOf(g.Number)
	if r == nil {
		return nil
	}
	r.Outcome = o
	return r.Copy()
}

// setShare records the share of a canary, and returns a copy of the record; nil: it is forgotten.
func (p *Program) setShare(g *Generation) *ReloadRecord {
	r := p.reloadOf(g.Number)
	if r == nil {
		return nil
	}
	r.Share = g.Share
	return r.Copy()
}

// decide ends the record of a trial. A record that is decided already stays as it is.
func (p *Program) decide(now time.Time, g *Generation, o Outcome) *ReloadRecord {
	r := p.reloadOf(g.Number)
	if r == nil || !r.Outcome.Open() {
		return nil
	}
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
	return r.Copy()
}

// recordGone records that a generation is gone, and ends the record that waits for that.
func (p *Program) recordGone(now time.Time, generation int) *ReloadRecord {
	if r := p.reloadOf(generation); r != nil {
		r.Gone = now
	}
	for _, r := range p.Reloads {
		if r.Ended.IsZero() && r.Goes() == generation {
			r.Ended, r.Drain = now, now.Sub(r.Decided)
			return r.Copy()
		}
	}
	return nil
}

// recordFlip records that all new connections go to t from now on, and that the workers of old are kept.
func (p *Program) recordFlip(now time.Time, t, old *Generation, keep time.Duration) {
	r := p.reloadOf(t.Number)
	if r == nil || old == nil || !t.Steered && !old.Steered {
		return
	}
	r.Flipped = now
	if keep > 0 && old.count(Ready)+old.count(Kept) > 0 {
		r.KeptTill = now.Add(keep)
	}
}

// recordKept forgets until when a generation is kept that is not kept any more.
func (p *Program) recordKept() {
	for _, r := range p.Reloads {
		if !r.KeptTill.IsZero() {
			if g := p.Generation(r.Replaced); g == nil || g == p.Serving || g.count(Kept) == 0 {
				r.KeptTill = time.Time{}
			}
		}
	}
}

// sends returns the record of the reload because of which a generation goes, or nil.
func (p *Program) sends(generation int) *ReloadRecord {
	for _, r := range slices.Backward(p.Reloads) {
		if r.Goes() == generation || r.Outcome.Open() && r.Replaced == generation {
			return r
		}
	}
	return nil
}

// recordQuiet records that a finishing worker has nothing in hand, and reports it.
func (p *Program) recordQuiet(now time.Time, g *Generation, w *Worker, report bool) {
	r := p.sends(g.Number)
	if r == nil {
		return
	}
	r.Quiet = max(r.Quiet, now.Sub(w.Since))
	if report {
		p.report(Report{Kind: GenerationQuiet, Generation: g.Number, Slot: w.Slot, Serving: p.ServingNumber(),
			Took: now.Sub(w.Since), Reload: r.Copy()})
	}
}

// recordLeft records what a finishing worker has in hand at its deadline.
func (p *Program) recordLeft(now time.Time, g *Generation, w *Worker) {
	r := p.sends(g.Number)
	if r == nil {
		return
	}
	if w.Quiet.IsZero() {
		r.Quiet = max(r.Quiet, now.Sub(w.Since))
	}
	left := Look{}
	for _, slot := range []int{-1, w.Slot} {
		left = left.Plus(g.Looks[slot])
		delete(g.Looks, slot) // it counts once
	}
	if left.Busy() == 0 {
		return
	}
	if r.Left != nil {
		left = left.Plus(*r.Left)
	}
	r.Left = &left
	p.report(Report{Kind: GenerationBusy, Generation: g.Number, Serving: p.ServingNumber(), Took: now.Sub(w.Since),
		Reload: r.Copy(),
		Reason: left.String()})
}

// recordReset records that connections were reset with the reload because of which their generation goes, if there is
// one.
func (p *Program) recordReset(e Refused) {
	told := Report{Kind: ConnectionsReset, Generation: e.Generation, Serving: p.ServingNumber(),
		Particulars: Particulars{Reset: e.Connections}}
	if r := p.sends(e.Generation); r != nil {
		r.Reset += e.Connections
		told.Reload = r.Copy()
	}
	p.report(told)
}

// recordRollback records that old, which may be nil, has given way to back, and ends what waits for the end of back.
func (p *Program) recordRollback(now time.Time, back, old *Generation, by string) {
	if r := p.reloadOf(back.Number); r != nil {
		r.Retired = time.Time{}
	}
	back.Retired = time.Time{}
	for _, r := range p.Reloads {
		waits := r.Ended.IsZero() && r.Goes() == back.Number
		if !waits && (old == nil || r.Generation != old.Number) {
			continue
		}
		r.RolledBack, r.RolledBackBy = now, by
		if waits && p.Generation(r.Generation) == nil {
			r.Ended, r.Drain = now, now.Sub(r.Decided)
		}
		p.report(Report{Kind: RolledBack, Generation: back.Number, Serving: r.Generation, AskedBy: by, Reload: r.Copy()})
	}
}

// recordEnd records how long workers of two generations lived side by side, when a worker of g has ended.
func (p *Program) recordEnd(now time.Time, g *Generation) {
	for _, r := range p.Reloads {
		if !r.Ended.IsZero() || r.Spawned.IsZero() || r.Replaced == 0 {
			continue
		}
		replaced := g.Number == r.Replaced && (r.Outcome.Open() || r.Outcome == Serves)
		if replaced || g.Number == r.Goes() && !g.StopFirst() {
			r.Overlap = now.Sub(r.Spawned)
		}
	}
}

// recordKill records a worker that has to be killed.
func (p *Program) recordKill(g *Generation, w *Worker, reason string) {
	if s := p.LastStop; s != nil && s.Ended.IsZero() && p.Goal == Halt {
		s.Killed++
	}
	for _, r := range p.Reloads {
		goes := r.Goes()
		if r.Outcome.Open() {
			goes = r.Replaced
		}
		if !r.Ended.IsZero() || goes != g.Number {
			continue
		}
		if r.Killed++; len(r.Kills.List()) < keptKills {
			kills := append(slices.Clone(r.Kills.List()), KilledWorker{g.Number, w.Number, w.Slot, w.PID, reason})
			r.Kills = (*Kills)(&kills)
		}
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

// PastReload is what is left of a ReloadRecord after many more reloads.
type PastReload struct {
	Generation int           `json:"generation"`
	Replaced   int           `json:"replaced,omitempty"`
	Outcome    Outcome       `json:"outcome"`
	AskedBy    string        `json:"asked_by,omitempty"` // who asked for it, or what
	Decided    time.Time     `json:"decided"`
	Took       time.Duration `json:"took_ns"`
	Failure    string        `json:"failure,omitempty"` // step and reason
	RolledBack bool          `json:"rolled_back,omitempty"`
}

// The bounds of what is left: with 80 of them, and the reloads that are remembered whole, the last 100 reloads of a
// program are known.
const (
	keptPast = 80
	pastText = 100 // bytes of each text
)

// Summary returns what is left of r in the end.
func (r *ReloadRecord) Summary() PastReload {
	s := PastReload{Generation: r.Generation, Replaced: r.Replaced, Outcome: r.Outcome,
		AskedBy: shortened(cmp.Or(r.AskedBy, r.Reason)),
		Decided: r.Decided, Took: r.Took, RolledBack: !r.RolledBack.IsZero()}
	if f := r.Failure; f != nil {
		s.Failure = shortened(f.Step + ": " + f.Reason)
	}
	return s
}

func shortened(text string) string {
	if len(text) <= pastText {
		return text
	}
	return strings.ToValidUTF8(text[:pastText-len("…")], "") + "…"
}

// summarize keeps the summary of a reload whose record is forgotten, and forgets the oldest one. Readers may have the
// old list.
func (p *Program) summarize(r *ReloadRecord) {
	all := append(slices.Clone(p.Past), r.Summary())
	slices.SortFunc(all, func(a, b PastReload) int { return cmp.Compare(a.Generation, b.Generation) })
	p.Past = all[max(0, len(all)-keptPast):]
}
