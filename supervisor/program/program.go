package program

import (
	"iter"
	"slices"
	"time"

	"example.org/supervisord/internal/config"
)

// Program is the state of one program: plain data, which only Step changes. At most one generation serves, at most one
// is on trial, any number drain. Generations stand under their roles and workers under their generations, not in maps
// by number: a role without a generation is nil, so no number can name a generation that is gone. The record has the
// same shape.
type Program struct {
	Name   string
	Config *config.Program `json:"-"` // what the next generation is made from
	Goal   Goal

	// Candidate is the configuration of the last canary until somebody promotes the canary, or the configuration that
	// was rolled back; in both cases until somebody requests a whole generation; nil: none. Generations that begin
	// without a request, and scaled ones, are made from Config.
	Candidate *config.Program `json:"-"`

	generations
	upcoming
	order
	retries
	changing
	crashes
	past
	routing

	numbers
	decision
}

// generations are the generations that live, by their roles.
type generations struct {
	Serving  *Generation
	Trial    *Generation
	Draining []*Generation // oldest first; a worker that is Leaving still serves, although its generation does not
}

// numbers are the numbers given last. No number is given twice, so an event that comes late finds nothing.
type numbers struct {
	LastGeneration, LastWorker int
}

// decision is what the current Step has decided so far.
type decision struct {
	actions []Action
}

// upcoming is the reload that is due when the trial has ended and not too many generations drain. While nothing serves
// and nothing starts, there always is one: the next attempt to start.
type upcoming struct {
	Again   *Reload   // never a canary; nil: none is due
	AgainAt time.Time // and not before then
	TriedAt time.Time // when the last trial began
}

// retries counts failures in a row.
type retries struct {
	Failures int // first starts
	// failures in a row of the slot that failed last; the next generation keeps counting; only if compat.generation is new
	Deaths int
}

// changing is what the core remembers of watched files that change.
type changing struct {
	Changes   int       `json:",omitempty"` // in a row, each soon after the generation that the one before began
	ChangedAt time.Time // when a generation began last because of a change
}

// routing says where new connections go, or that they wait.
type routing struct {
	Steering []Share   `json:",omitempty"` // what the last Steer said
	Paused   PauseTime `json:",omitzero"`

	// IdleSince says since when no worker serves; zero: one does. See ClosesAt.
	IdleSince time.Time `json:",omitzero"`

	// Handed says that the program was stopped because another one serves in its place. See Stop.
	Handed bool `json:",omitempty"`

	// Orphaned says that others serve while the program does not: workers of a supervisor that died, or a program that it
	// replaces. It is set before each Step.
	Orphaned bool `json:"-"`

	// Lent says of generations that another one is to serve, or another program, at a listener of theirs that the one
	// which serves does not have: where, and until when. Their workers are kept until then. It is set before each Step.
	Lent map[int]string `json:"-"`

	// Unaccepted lists slots of Deserted in whose sockets connections wait. It is set before each Step.
	Unaccepted []int `json:"-"`

	// Seen says why workers are not ready whose time is over, by number. It is set before each Step.
	Seen map[int]string `json:"-"`
}

// PauseTime is the time in which new connections wait. The zero PauseTime means that they do not.
type PauseTime struct {
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until"`
	AskedBy string    `json:"asked_by,omitempty"`
}

// past is what has happened.
type past struct {
	Reloads  []*ReloadRecord `json:"-"` // the last ones, oldest first
	LastStop *StopRecord     `json:",omitempty"`
}

// Goal is what a program is meant to do.
type Goal string

// The goals.
const (
	Run  Goal = "run"
	Halt Goal = "stop"
)

// Generation is the workers that were started from one snapshot of the configuration.
type Generation struct {
	Number  int
	Reason  string          // what asked for it
	AskedBy string          // who; "": nobody
	Config  *config.Program `json:"-"` // never changed, only replaced
	hold
	ownSockets
	Prepared bool      // the snapshot is resolved and the preflight has passed
	Failure  *Failure  // why its trial failed
	Killed   int       // workers that did not go by themselves
	Slots    []Slot    `json:"-"`
	Workers  []*Worker `json:"-"` // those that live, or are about to

	GenerationTimes
	Spawned time.Time // when its first worker was asked for
}

// GenerationTimes is when a generation went on trial, began to serve, and was told to stop. A status shows them, too.
type GenerationTimes struct {
	Began   time.Time `json:"began"`
	Served  time.Time `json:"served,omitzero"`
	Retired time.Time `json:"retired,omitzero"`
}

// hold is what makes a generation a canary.
type hold struct {
	// only this many slots are filled, until Promote; 0: no canary by a number of workers, or not any more
	Canary int
	// in parts of Whole: what it gets of the new connections until Promote; 0: no canary by a share, or not any more
	Share    int           `json:",omitempty"`
	For      time.Duration // how long the canary is held before it is promoted by itself; 0: until Promote
	Held     bool          // the canary is ready and waits
	HeldTill time.Time     // when it is promoted by itself; zero: not known yet, or never
}

// ownSockets is what the core knows of the sockets of a generation.
type ownSockets struct {
	Steered bool `json:",omitempty"` // it has sockets of its own
	Sockets int  `json:",omitempty"` // how many of one listener: slot s has number s modulo Sockets; 0: not known
	Reached bool `json:",omitempty"` // it has got connections

	BesideUnit bool `json:",omitempty"` // a socket of a socket unit has the address of one of them, too

	// the last one at its finishing workers, by slot; -1: all; another supervisor looks itself
	Looks map[int]Look `json:"-"`
}

// Slot is one of the places for a worker in a generation: what the core remembers from one worker to the next.
type Slot struct {
	Failures int       `json:",omitempty"` // in a row, before stable_after; what the crash budget pays for does not count
	RetryAt  time.Time `json:",omitzero"`  // the next worker is not started before then
	Finished bool      `json:",omitempty"` // its worker ended, and the restart policy wants no other
}

// Worker is one worker process, from the decision to spawn it to its end.
type Worker struct {
	Standing
	Spawned time.Time // when it was asked for: its age counts from here, across supervisors
	Step    int       // Stopping: the step of the stop plan that was taken last
	Killed  bool      // Stopping: KILL was decided
	Resend  time.Time `json:",omitzero"`  // Stopping: when the signal of this step is sent again; zero: it was sent
	Excused bool      `json:",omitempty"` // the deadline was moved once, because it was seen too late

	DrainsItself bool      `json:",omitempty"` // see the event
	Failing      bool      `json:",omitempty"` // it has said, or shown, that it cannot continue
	WasReady     bool      `json:",omitempty"` // Finishing: it was ready, and could serve again
	Version      int       `json:",omitempty"` // of an heir: the generation whose version it is; see MayHaveHeir
	Quiet        time.Time `json:",omitzero"`  // Finishing: when it had nothing in hand first

	// Finishing, Stopping: what the first step of the stop plan sends instead of its own signal; 0: its own
	Instead config.Signal
}

// Standing is which worker it is, and where in its life it stands: what a status shows of a Worker.
type Standing struct {
	Number int         `json:"number"` // never reused in a program, so a late event is not taken for its successor's
	Slot   int         `json:"slot"`
	PID    int         `json:"pid"` // 0: not known yet
	State  WorkerState `json:"state"`
	Since  time.Time   `json:"since"` // when the state began
	// Starting: not ready by then has failed; Soaking: then it is ready; Kept, Finishing: at the latest then it goes;
	// Stopping: then the next step; zero: none
	Deadline time.Time `json:"deadline,omitzero"`
}

// WorkerState is where a worker is in its life. The role of its generation says whether it serves.
//
//	Starting ─► Soaking ─► Ready ─► Leaving ─► Finishing ─► Stopping ─► gone
//	                         ▲ └──► Kept ─────────▲            ▲
//	                         └────────┘ rollback               └── from every state
//
// A worker skips Soaking without reload.soak, Kept without reload.keep, and Finishing if it has no sockets of its own
// or drain.timeout is 0. Exited ends it in every state.
type WorkerState string

// The states of a worker, in order.
const (
	Starting WorkerState = "starting"
	Soaking  WorkerState = "soaking" // ready, and being watched for a while
	Ready    WorkerState = "ready"
	Leaving  WorkerState = "leaving" // serves until its successor in the slot is ready

	Kept      WorkerState = "kept"      // gets no new connections, and stands by for a rollback
	Finishing WorkerState = "finishing" // gets no new connections, and finishes what it has
	Stopping  WorkerState = "stopping"
)

// State is what a program looks like from outside. It is derived from the roles, so it cannot disagree with them.
//
//	          a trial begins      it serves       a reload       the trial serves, or fails
//	Down ───────────────► StartingUp ───► Up ───────────► Reloading ────────────► Up
//	  ▲                    │      ▲       │ its last worker dies
//	  │         it fails   ▼      │ retry ▼
//	  └── ShuttingOff ◄── Waiting ┴───────┘
//
// Every state goes to ShuttingOff when the program is told to stop, and from there to Down with the last worker.
type State string

// The states of a program.
const (
	Down        State = "down"      // nothing lives, and nothing starts unasked
	StartingUp  State = "starting"  // nothing serves yet; workers are on their way
	Up          State = "up"        // a generation serves
	Reloading   State = "reloading" // a generation serves and the next one is on trial
	Waiting     State = "waiting"   // nothing serves; the next attempt has a time
	ShuttingOff State = "stopping"  // told to stop, and not everything is gone
)

// Role is what a generation is to its program. At most one has each of the first two, and at most one is kept.
//
//	RoleTrial ─► RoleServing ─► RoleKept ─► RoleDraining ─► forgotten
//	   │             ▲  └───────────│───────────▲
//	   │             └── rollback ──┘           │
//	   └── it fails ────────────────────────────┘
type Role string

// The roles.
const (
	RoleTrial    Role = "trial"
	RoleServing  Role = "serving"
	RoleDraining Role = "draining"
	RoleKept     Role = "kept" // it can be rolled back to
)

// New returns a program that is down.
func New(c *config.Program) *Program {
	return &Program{Name: c.Name, Config: c, Goal: Halt}
}

// State derives the visible state.
func (p *Program) State() State {
	switch {
	case p.Goal == Halt && p.Live() > 0:
		return ShuttingOff
	case p.Goal == Halt:
		return Down
	case p.Trial != nil && p.Serving != nil:
		return Reloading
	case p.Trial != nil:
		return StartingUp
	case p.Serving == nil:
		return Waiting
	case p.Serves():
		return Up
	case p.any(Starting):
		return StartingUp
	case p.Serving.unfinished():
		return Waiting
	}
	return Down
}

// Next returns the first deadline after now, or zero if there is none: the one timer that the program needs.
func (p *Program) Next(now time.Time) time.Time {
	next := earliest{after: now}
	next.or(p.Paused.Until)
	for _, l := range p.Config.Listen {
		if l.WhenDown.Refuse {
			next.or(p.ClosesAt(l.WhenDown.After))
		}
	}
	for _, g := range p.Generations() {
		for _, w := range g.Workers {
			next.or(w.Deadline)
			next.or(w.Resend)
		}
	}
	if p.Goal == Run {
		next.or(p.RetryTime(now))
		next.or(p.nextRenewal())
		if p.Trial != nil {
			next.or(p.Trial.HeldTill)
		}
		if w := p.oldest(); w != nil {
			next.or(w.expiry(p.Serving))
		}
	}
	return next.Time
}

// Drops reports whether a stop cuts off what the workers have in hand: no other program serves in place of this one.
// Only connections that wait to be accepted are waited for.
func (p *Program) Drops() bool { return p.Goal == Halt && !p.Handed }

// RetryTime returns when a worker or the program is started next after a failure, or zero.
func (p *Program) RetryTime(now time.Time) time.Time {
	next := earliest{after: now}
	if p.Goal == Halt {
		return time.Time{}
	}
	if p.Again != nil && p.Trial == nil && !p.AwaitsOthers() {
		next.or(p.AgainAt)
	}
	if p.Serving != nil {
		for i := range p.Serving.Slots {
			if s := &p.Serving.Slots[i]; !s.Finished {
				next.or(s.RetryAt)
			}
		}
	}
	return next.Time
}

// earliest is the first of several times after another one; zero: there was none.
type earliest struct {
	time.Time
	after time.Time
}

func (e *earliest) or(t time.Time) {
	if t.After(e.after) && (e.IsZero() || t.Before(e.Time)) {
		e.Time = t
	}
}

// Horizon returns when the last of the running deadlines ends, or zero: everything under way has ended by then, well or
// badly.
func (p *Program) Horizon() (end time.Time) {
	later := func(t time.Time) {
		if t.After(end) {
			end = t
		}
	}
	if g := p.Trial; g != nil && !g.Prepared {
		later(g.Began.Add(2*g.Config.Ready.Timeout + g.Config.Reload.Soak))
	}
	for w, g := range p.Workers() {
		t := w.Deadline
		switch w.State {
		case Starting:
			t = t.Add(g.Config.Reload.Soak)
		case Finishing, Stopping:
			steps := g.Config.Stop.Steps
			if w.State == Stopping {
				steps = steps[min(w.Step+1, len(steps)):]
			} else {
				t = t.Add(g.Config.Drain.Silence + g.Config.Drain.Spread)
			}
			for _, s := range steps {
				t = t.Add(s.Wait)
			}
		case Kept: // nobody waits for its end
			continue
		case Soaking, Ready, Leaving:
		}
		later(t)
	}
	return end
}

// Awaited returns the number of the newest generation that a client was promised: the next one if a reload or a start
// is due, else the last one.
func (p *Program) Awaited() int {
	if p.Again != nil {
		return p.LastGeneration + 1
	}
	return p.LastGeneration
}

// Generations returns every generation that lives: the trial, the serving one, then the draining ones, oldest first.
func (p *Program) Generations() []*Generation {
	all := make([]*Generation, 0, 2+len(p.Draining))
	for _, g := range []*Generation{p.Trial, p.Serving} {
		if g != nil {
			all = append(all, g)
		}
	}
	return append(all, p.Draining...)
}

// Role says what g is to the program now.
func (p *Program) Role(g *Generation) Role {
	switch g {
	case p.Trial:
		return RoleTrial
	case p.Serving:
		return RoleServing
	}
	if g.count(Kept) > 0 {
		return RoleKept
	}
	return RoleDraining
}

// Workers yields every worker with its generation. The sequence stays valid while workers change their state.
func (p *Program) Workers() iter.Seq2[*Worker, *Generation] {
	return func(yield func(*Worker, *Generation) bool) {
		for _, g := range p.Generations() {
			for _, w := range g.Workers {
				if !yield(w, g) {
					return
				}
			}
		}
	}
}

// Find returns the worker with this number and its generation, or nil.
func (p *Program) Find(number int) (*Worker, *Generation) {
	for w, g := range p.Workers() {
		if w.Number == number {
			return w, g
		}
	}
	return nil, nil
}

// Generation returns the generation with this number, or nil if it does not live.
func (p *Program) Generation(number int) *Generation {
	for _, g := range p.Generations() {
		if g.Number == number {
			return g
		}
	}
	return nil
}

// Live counts the workers.
func (p *Program) Live() int {
	n := 0
	for _, g := range p.Generations() {
		n += len(g.Workers)
	}
	return n
}

// Serves reports whether a worker answers clients.
func (p *Program) Serves() bool {
	for w, g := range p.Workers() {
		if w.State == Leaving || g == p.Serving && w.State == Ready {
			return true
		}
	}
	return false
}

// ClosesAt returns when a listener begins to refuse connections that does so after this time without a worker that
// serves or is on its way; zero: it accepts them. What waits while new connections are paused is not refused either.
func (p *Program) ClosesAt(after time.Duration) time.Time {
	comes := p.Trial != nil && p.Trial.Prepared || p.any(Starting, Soaking, Ready, Leaving)
	if p.IdleSince.IsZero() || !p.Paused.Until.IsZero() || comes {
		return time.Time{}
	}
	return p.IdleSince.Add(after)
}

// idle notes since when no worker serves, nor anybody in place of the program.
func (p *Program) idle(now time.Time) {
	switch serves := p.Serves() || p.Orphaned; {
	case serves:
		p.IdleSince = time.Time{}
	case p.IdleSince.IsZero():
		p.IdleSince = now
	}
}

// ServingNumber returns the number of the serving generation, or 0.
func (p *Program) ServingNumber() int {
	if p.Serving == nil {
		return 0
	}
	return p.Serving.Number
}

// any reports whether a worker is in one of these states.
func (p *Program) any(states ...WorkerState) bool {
	for w := range p.Workers() {
		if slices.Contains(states, w.State) {
			return true
		}
	}
	return false
}

// calm reports whether nothing is under way: every slot has its ready worker, and no worker starts or waits for a
// successor. A worker is replaced for a limit only in a calm program, so that the workers of a program, which are often
// alike, go one after the other.
func (p *Program) calm() bool {
	if p.Goal == Halt || p.Serving == nil || p.Trial != nil || p.any(Starting, Soaking, Leaving) {
		return false
	}
	missing := 0
	for _, s := range p.Serving.Slots {
		if !s.Finished {
			missing++
		}
	}
	for _, w := range p.Serving.Workers {
		if w.State == Ready {
			missing--
		}
	}
	return missing <= 0
}

// The questions below are about one generation.

// StopFirst reports whether the generation must never run beside another.
func (g *Generation) StopFirst() bool { return g.Config.Reload.Strategy == config.StopFirst }

// IsCanary reports whether g waits for its promotion beside the serving generation once its workers are ready.
func (g *Generation) IsCanary() bool { return g.Canary > 0 || g.Share > 0 }

// wanted is how many slots of a trial are filled now.
func (g *Generation) wanted() int {
	if g.Canary > 0 {
		return g.Canary
	}
	return len(g.Slots)
}

// allReady reports whether every worker that is wanted now is ready.
func (g *Generation) allReady() bool {
	return len(g.Workers) >= g.wanted() &&
		!slices.ContainsFunc(g.Workers, func(w *Worker) bool { return w.State != Ready })
}

// passes reports whether a trial is to serve now.
func (g *Generation) passes() bool { return !g.IsCanary() && g.allReady() }

// staying counts the workers that are to stay.
func (g *Generation) staying() (n int) {
	for _, w := range g.Workers {
		if w.stays() {
			n++
		}
	}
	return n
}

// count counts the workers in a state.
func (g *Generation) count(s WorkerState) (n int) {
	for _, w := range g.Workers {
		if w.State == s {
			n++
		}
	}
	return n
}

// unfinished reports whether a slot of g is to have a worker, now or later.
func (g *Generation) unfinished() bool {
	return slices.ContainsFunc(g.Slots, func(s Slot) bool { return !s.Finished })
}

// stays reports whether a worker keeps its slot.
func (w *Worker) stays() bool { return w.State == Starting || w.State == Soaking || w.State == Ready }

func (p *Program) enter(w *Worker, s WorkerState, now time.Time, deadline time.Duration) {
	w.State, w.Since, w.Deadline, w.Excused, w.Quiet = s, now, time.Time{}, false, time.Time{}
	if deadline > 0 {
		w.Deadline = now.Add(deadline)
	}
}

func (w *Worker) failure(step, reason string, tail []string) Failure {
	return Failure{Worker: w.Number, Slot: w.Slot, PID: w.PID, Step: step, Reason: reason, Tail: tail}
}

// Grace is how much more time a worker gets whose deadline was seen too late.
const Grace = time.Second

// Excuse moves each deadline that has passed by Grace, once. The loop calls it when it could not check the deadlines in
// time: messages that the workers sent in time may still be on their way.
func (p *Program) Excuse(now time.Time) { p.excuse(now, now) }

// excuse is Excuse for the deadlines before the time end.
func (p *Program) excuse(now, end time.Time) {
	for w := range p.Workers() {
		if !w.Deadline.IsZero() && !w.Excused && w.Deadline.Before(end) {
			w.Deadline, w.Excused = now.Add(Grace), true
		}
	}
}

// Inherit takes p over from another supervisor, after a while in which nobody has checked the deadlines, or heard what
// the workers said and how they ended: no deadline passes before that is known. That supervisor may have died between
// sending a signal and recording it. Many servers drop what they have in hand at a second TERM, so Inherit puts the
// repetition off until most servers would have ended after the first.
func (p *Program) Inherit(now time.Time) {
	p.excuse(now, now.Add(Grace))
	for w := range p.Workers() {
		if !w.Resend.IsZero() && !w.Killed {
			w.Resend = now.Add(doubtAfter)
		}
	}
}

// Rebase moves every time of p from a clock that shows then to a clock that shows now. If now has a monotonic reading,
// the times have one afterwards: setting the wall clock then neither loses nor hurries a deadline.
func (p *Program) Rebase(then, now time.Time) {
	for _, t := range p.times() {
		if !t.IsZero() {
			*t = now.Add(t.Sub(then))
		}
	}
}

func (p *Program) times() []*time.Time {
	all := []*time.Time{&p.AgainAt, &p.TriedAt, &p.ChangedAt, &p.WholeAt, &p.Paused.Since, &p.Paused.Until,
		&p.IdleSince}
	for i := range p.Reloads {
		r := *p.Reloads[i]
		p.Reloads[i] = &r
		all = append(all, &r.Began, &r.Spawned, &r.Ready, &r.Decided, &r.Ended, &r.Retired, &r.Gone, &r.Flipped, &r.KeptTill,
			&r.GapEnded, &r.RolledBack)
	}
	if c := p.LastCrash; c != nil {
		all = append(all, &c.At)
	}
	if s := p.LastStop; s != nil {
		all = append(all, &s.Began, &s.Ended)
	}
	for _, g := range p.Generations() {
		all = append(all, &g.HeldTill, &g.Began, &g.Spawned, &g.Served, &g.Retired)
		for i := range g.Slots {
			all = append(all, &g.Slots[i].RetryAt)
		}
		for _, w := range g.Workers {
			all = append(all, &w.Spawned, &w.Since, &w.Deadline, &w.Resend, &w.Quiet)
		}
	}
	return all
}
