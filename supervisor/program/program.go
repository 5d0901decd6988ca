package program

import (
	"iter"
	"time"

	"example.org/supervisord/internal/config"
)

// Program is the state of one program: plain data, which Step changes and nothing else does.
// At most one generation serves, at most one is on trial, any number are draining.
type Program struct {
	Name   string
	Config *config.Program // what the next generation is made from
	Goal   Goal

	// Candidate is the configuration of the last canary, as long as nobody has promoted that or asked for a whole generation
	// since; nil: there is none. What begins by itself, or is scaled, is made from Config.
	Candidate *config.Program `json:",omitempty"`

	Serving  *Generation
	Trial    *Generation
	Draining []*Generation // oldest first; a worker that Leaves still serves, although its generation does not any more

	Again          *Reload   // one more reload is due when the trial has ended, and not too many generations drain; never a canary
	AgainAt        time.Time // and not before then
	TriedAt        time.Time // when the last trial began
	Failures       int       // first starts that failed in a row
	Deaths         int       // generations in a row whose last worker died before stable_after; only where restart.generation is new
	RetryAt        time.Time // when the next first start is due; it counts only while the state is Waiting
	Changes        int       `json:",omitempty"` // changes of watched files in a row, each soon after the generation that the one before began
	ChangedAt      time.Time // when a generation began last because of one
	LastGeneration int       // numbers are never used twice
	LastWorker     int

	Reloads  []*ReloadRecord `json:",omitempty"` // the last ones, oldest first
	LastStop *StopRecord     `json:",omitempty"`

	actions []Action // what the current Step has decided so far
	starter string   // who asked for the start that the current Step is about
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
	Number   int
	Reason   string          // what asked for it
	AskedBy  string          // who; "": nobody
	Config   *config.Program // never changed
	Canary   int             // only this many slots are filled, until Promote; 0: no canary, or not any more
	For      time.Duration   // how long a canary is held before it is promoted by itself; 0: until Promote
	Held     bool            // the canary is ready and waits
	HeldTill time.Time       // when that is; zero: it is not known yet
	Prepared bool            // the snapshot is resolved and the preflight has passed
	Failure  *Failure        // why its trial failed
	Killed   int             // workers that did not go by themselves
	Slots    []Slot
	Workers  []*Worker // those that live, or are about to

	Began   time.Time // when it went on trial
	Spawned time.Time // when its first worker was asked for
	Served  time.Time // when it began to serve
	Retired time.Time // when it was told to go
}

// Slot is one of the places for a worker in a generation: what is remembered from one worker to the next.
type Slot struct {
	Failures int       // ends in a row before stable_after
	RetryAt  time.Time // not before then is the next worker started
	Finished bool      // it ended, and the restart policy says that this was it
}

// Worker is one worker process from the decision to spawn it to its end.
type Worker struct {
	Number   int // never used twice in a program: events name it, so a late one can not mean its successor
	Slot     int
	PID      int // 0: not known yet
	State    WorkerState
	Spawned  time.Time // when it was asked for: its age counts from here, whoever supervises it
	Since    time.Time // when the state began
	Deadline time.Time // Starting: not ready by then has failed; Soaking: then it is ready; Stopping: then the next step; zero: none
	Step     int       // Stopping: the step of the stop plan that was taken last
	Killed   bool      // Stopping: KILL was sent
	Excused  bool      `json:",omitempty"` // the deadline was moved, because the supervisor looked too late; not twice

	Instead config.Signal // Stopping: what the first step of the stop plan sends instead of its own signal; 0: that
}

// WorkerState is where a worker is in its life. Whether it serves is for the role of its generation to say.
type WorkerState string

// The states of a worker, in order.
const (
	Starting WorkerState = "starting"
	Soaking  WorkerState = "soaking" // ready, and being watched for a while
	Ready    WorkerState = "ready"
	Leaving  WorkerState = "leaving" // serves until its successor in the slot is ready
	Stopping WorkerState = "stopping"
)

// State is what a program looks like from outside. It is derived from the roles, so it cannot disagree with them.
type State string

// The states of a program.
const (
	Down        State = "down"      // nothing lives, and nothing will be started unasked
	StartingUp  State = "starting"  // nothing serves yet; workers are on their way
	Up          State = "up"        // a generation serves
	Reloading   State = "reloading" // a generation serves and the next one is on trial
	Waiting     State = "waiting"   // nothing serves; the next attempt has a time
	ShuttingOff State = "stopping"  // told to stop, and not everything is gone
)

// NewProgram returns a program that is down.
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
	}
	return p.servingState()
}

func (p *Program) servingState() State {
	starting, finished := false, true
	for w := range p.Workers() {
		if w.State == Soaking || w.State == Ready || w.State == Leaving {
			return Up
		}
		starting = starting || w.State == Starting
	}
	for _, s := range p.Serving.Slots {
		finished = finished && s.Finished
	}
	switch {
	case starting:
		return StartingUp
	case finished:
		return Down
	}
	return Waiting
}

// Next returns the time of the next deadline after now, or zero if there is none: the one timer that the program needs.
func (p *Program) Next(now time.Time) time.Time {
	var next time.Time
	sooner := func(t time.Time) {
		if t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for w := range p.Workers() {
		sooner(w.Deadline)
	}
	if p.Goal == Halt {
		return next
	}
	if p.Trial != nil {
		sooner(p.Trial.HeldTill)
	}
	if p.Serving == nil && p.Trial == nil {
		sooner(p.RetryAt)
	}
	if p.Again != nil && p.Trial == nil {
		sooner(p.AgainAt)
	}
	sooner(p.nextRenewal())
	if p.Serving != nil {
		for _, s := range p.Serving.Slots {
			sooner(s.RetryAt)
		}
		sooner(p.nextExpiry())
	}
	return next
}

// RetryTime returns when a worker or the program is started next after a failure, or zero.
func (p *Program) RetryTime(now time.Time) time.Time {
	if p.Goal == Halt {
		return time.Time{}
	}
	if p.Serving == nil && p.Trial == nil {
		return p.RetryAt
	}
	var next time.Time
	if p.Again != nil && p.Trial == nil && p.AgainAt.After(now) {
		next = p.AgainAt
	}
	if p.Serving != nil {
		for _, s := range p.Serving.Slots {
			if !s.Finished && s.RetryAt.After(now) && (next.IsZero() || s.RetryAt.Before(next)) {
				next = s.RetryAt
			}
		}
	}
	return next
}

// Horizon returns when the last of the deadlines that are running ends, or zero. It is the time by which what is under way
// has come to an end, one way or the other.
func (p *Program) Horizon() time.Time {
	var end time.Time
	later := func(t time.Time) {
		if t.After(end) {
			end = t
		}
	}
	if g := p.Trial; g != nil && !g.Prepared {
		later(g.Began.Add(g.Config.Reload.PreflightTimeout + g.Config.Ready.Timeout + g.Config.Reload.Soak))
	}
	for w, g := range p.Workers() {
		t := w.Deadline
		switch w.State {
		case Starting:
			t = t.Add(g.Config.Reload.Soak)
		case Stopping:
			for _, s := range g.Config.Stop.Steps[min(w.Step+1, len(g.Config.Stop.Steps)):] {
				t = t.Add(s.Wait)
			}
		case Soaking, Ready, Leaving:
		}
		later(t)
	}
	return end
}

// Awaited returns the number of the newest generation that was asked for: the one that follows the trial, or the wait, if one is due,
// else the trial, else the one that serves.
func (p *Program) Awaited() int {
	if p.Again != nil || p.Serving == nil && p.State() == Waiting {
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

// Role is what a generation is to its program.
type Role string

// The roles.
const (
	RoleTrial    Role = "trial"
	RoleServing  Role = "serving"
	RoleDraining Role = "draining"
)

// Role says what g is to the program now.
func (p *Program) Role(g *Generation) Role {
	switch g {
	case p.Trial:
		return RoleTrial
	case p.Serving:
		return RoleServing
	}
	return RoleDraining
}

// workers yields every worker with its generation. The sequence stays valid while workers change their state.
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

func (p *Program) Find(number int) (*Worker, *Generation) {
	for w, g := range p.Workers() {
		if w.Number == number {
			return w, g
		}
	}
	return nil, nil
}

func (p *Program) Live() int {
	n := 0
	for _, g := range p.Generations() {
		n += len(g.Workers)
	}
	return n
}

// calm reports whether nothing is under way: every slot has its ready worker, and nobody starts or waits for a successor.
// Only then is a worker replaced for a limit, so that the workers of a program, which are often alike, go one after the other.
func (p *Program) calm() bool {
	if p.Goal == Halt || p.Serving == nil || p.Trial != nil {
		return false
	}
	ready, wanted := 0, 0
	for w, g := range p.Workers() {
		switch w.State {
		case Starting, Soaking, Leaving:
			return false
		case Ready:
			if g == p.Serving {
				ready++
			}
		case Stopping: // it has a successor
		}
	}
	for _, s := range p.Serving.Slots {
		if !s.Finished {
			wanted++
		}
	}
	return ready >= wanted
}
