package control

import (
	"fmt"
	"slices"
	"time"

	"example.org/supervisord/supervisor"
)

// Outcome says how something that was asked for has ended.
type Outcome string

// The outcomes, from the best to the worst: of several programs the worst is that of the whole.
const (
	Pending    Outcome = "pending"    // not at its end
	Serves     Outcome = "serves"     // the new generation serves
	Held       Outcome = "held"       // the canary is well, and waits for promote or abort
	Down       Outcome = "down"       // the program has stopped, as it should
	Killed     Outcome = "killed"     // as wanted, but old workers had to be killed
	Superseded Outcome = "superseded" // a newer generation took the place before this one could show how it does
	Aborted    Outcome = "aborted"    // somebody gave the trial up
	Stopped    Outcome = "stopped"    // the program was stopped meanwhile
	TimedOut   Outcome = "timeout"    // not at its end when the time was over; it goes on
	Unknown    Outcome = "unknown"    // it has ended, but how was not seen
	Late       Outcome = "not_ready"  // a worker was not ready in time
	Preflight  Outcome = "preflight"  // the generation could not be prepared, or its preflight failed
	Worker     Outcome = "worker"     // a worker could not be started, or ended
	NotTaken   Outcome = "refused"    // the configuration was refused
)

var outcomes = []Outcome{Pending, Serves, Held, Down, Killed, Superseded, Aborted, Stopped, TimedOut, Unknown, Late, Preflight, Worker, NotTaken}

// Worse reports whether o is a worse end than p.
func (o Outcome) Worse(p Outcome) bool { return slices.Index(outcomes, o) > slices.Index(outcomes, p) }

// Verdict is how a reload, or whatever else was waited for, has ended.
type Verdict struct {
	Outcome  Outcome          `json:"outcome"` // the worst of the programs'
	Programs []ProgramVerdict `json:"programs"`
}

// ProgramVerdict is how it ended for one program.
type ProgramVerdict struct {
	Program    string        `json:"program"`
	Generation int           `json:"generation"`
	Outcome    Outcome       `json:"outcome"`
	Serving    int           `json:"serving,omitempty"`  // the generation that serves, where this one does not
	Replaced   int           `json:"replaced,omitempty"` // the generation that served before
	Worker     int           `json:"worker,omitempty"`   // that failed
	Slot       int           `json:"slot"`
	PID        int           `json:"pid,omitempty"`
	Step       string        `json:"step,omitempty"` // at which it failed
	Reason     string        `json:"reason,omitempty"`
	Tail       []string      `json:"tail,omitempty"`     // its last lines of stderr
	Took       time.Duration `json:"took_ns,omitempty"`  // from the beginning of the trial to its end
	Drained    bool          `json:"drained"`            // nothing of the generation before is left
	Drain      time.Duration `json:"drain_ns,omitempty"` // how long that took
	Killed     int           `json:"killed,omitempty"`   // workers of the generation before that had to be killed

	Since   *time.Time `json:"since,omitempty"`   // it has served since then, and there was nothing to do
	Already bool       `json:"already,omitempty"` // of Down: it had stopped before, and there was nothing to do

	instance string // of the ticket; "": it does not say
}

// until is what is waited for.
type until string

const (
	untilServes  until = "serves"
	untilDrained until = "drained" // … and the generation before has ended
	untilHeld    until = "held"    // … or is a canary that waits
	untilDown    until = "down"    // the program has stopped
)

// course follows what was asked for to its end: fed with updates, and with a status where updates were missed.
type course struct {
	until until
	goals []*ProgramVerdict
}

func newCourse(tickets []supervisor.Ticket, u until) *course {
	c := &course{until: u}
	for _, t := range tickets {
		c.goals = append(c.goals, &ProgramVerdict{Program: t.Program, Generation: t.Generation, instance: t.Instance, Outcome: Pending})
	}
	return c
}

// ended reports whether nothing is left to wait for.
func (c *course) ended() bool {
	return !slices.ContainsFunc(c.goals, func(g *ProgramVerdict) bool { return g.Outcome == Pending })
}

// concerns reports whether an update is about one of the programs.
func (c *course) concerns(u supervisor.Update) bool {
	return slices.ContainsFunc(c.goals, func(g *ProgramVerdict) bool { return g.Program == u.Program })
}

// close ends what has no end yet.
func (c *course) close(o Outcome, reason string) {
	for _, g := range c.goals {
		if g.Outcome == Pending {
			g.Outcome, g.Reason = o, reason
		}
	}
}

// late ends what has no end yet because the time is over, and says what it still waits for, if that is known.
func (c *course) late(st *supervisor.Status) {
	for _, g := range c.goals {
		if g.Outcome != Pending {
			continue
		}
		g.Outcome, g.Reason = TimedOut, overTime
		for i := range st.Programs {
			if p := &st.Programs[i]; p.Name == g.Program {
				g.Reason += g.waits(p)
			}
		}
	}
}

// waits says what a generation that was asked for waits for; "": for nothing but its workers.
func (g *ProgramVerdict) waits(p *supervisor.ProgramStatus) string {
	if p.Due != nil && g.Generation > p.Newest {
		return "; it waits: " + p.Due.Waits
	}
	for _, s := range p.Generations {
		switch {
		case s.Number == g.Generation && s.Held:
			return "; the canary is held"
		case s.Number == g.Replaced && s.Role == supervisor.RoleDraining:
			return fmt.Sprintf("; generation %d still drains", s.Number)
		}
	}
	return ""
}

func (c *course) verdict() *Verdict {
	v := &Verdict{Outcome: Serves, Programs: []ProgramVerdict{}}
	if c.until == untilDown {
		v.Outcome = Down
	}
	for i, g := range c.goals {
		v.Programs = append(v.Programs, *g)
		if i == 0 || g.Outcome.Worse(v.Outcome) {
			v.Outcome = g.Outcome
		}
	}
	return v
}

// see takes notice of an update.
func (c *course) see(u supervisor.Update) {
	for _, g := range c.goals {
		switch {
		case g.Program != u.Program:
		case g.Outcome == Serves && u.Kind == supervisor.GenerationGone && u.Generation == g.Replaced:
			g.Drained, g.Drain = true, u.Took // others are still waited for
		case g.Outcome != Pending:
		case c.until == untilDown:
			g.seeEnd(u.Report)
		default:
			c.seeTrial(g, u.Report)
		}
	}
}

func (g *ProgramVerdict) seeEnd(r supervisor.Report) {
	switch r.Kind {
	case supervisor.GenerationGone:
		g.Killed += r.Killed
	case supervisor.ProgramStopped:
		g.Outcome, g.Drained = Down, true
		if g.Killed > 0 {
			g.Outcome = Killed
		}
	case supervisor.TrialBegan:
		g.Outcome, g.Reason = Superseded, "it was started again"
	}
}

func (c *course) seeTrial(g *ProgramVerdict, r supervisor.Report) {
	mine, later := r.Generation == g.Generation, r.Generation > g.Generation
	served := g.Took > 0
	switch {
	case r.Kind == supervisor.GenerationServes && mine:
		g.served(r, c.until == untilDrained)
	case r.Kind == supervisor.TrialFailed && mine:
		g.failed(r)
	case r.Kind == supervisor.CanaryHeld && mine && c.until == untilHeld:
		g.Outcome, g.Serving, g.Took = Held, r.Serving, r.Took
	case r.Kind == supervisor.GenerationGone && served && r.Generation == g.Replaced:
		g.drained(r.Took, r.Killed)
	case r.Kind == supervisor.GenerationGone && mine && !served, r.Kind == supervisor.ProgramStopped:
		g.Outcome, g.Reason = Stopped, "the program was stopped"
	case later && !served && (r.Kind == supervisor.TrialBegan || r.Kind == supervisor.GenerationServes):
		g.Outcome, g.Reason = Superseded, "a newer generation took its place"
	}
}

// served notes that the generation serves; the end of the one before may still be waited for.
func (g *ProgramVerdict) served(r supervisor.Report, drain bool) {
	g.Took, g.Replaced = max(r.Took, 1), r.Serving
	if !drain || r.Serving == 0 {
		g.Outcome, g.Drained = Serves, r.Serving == 0 || r.Drained
	}
}

func (g *ProgramVerdict) drained(took time.Duration, killed int) {
	g.Outcome, g.Drained, g.Drain, g.Killed = Serves, true, took, killed
	if killed > 0 {
		g.Outcome = Killed
	}
}

func (g *ProgramVerdict) failed(r supervisor.Report) {
	g.Serving, g.Worker, g.Slot, g.PID = r.Serving, r.Worker, r.Slot, r.PID
	g.Step, g.Reason, g.Tail, g.Took = r.Step, r.Reason, r.Tail, r.Took
	switch r.Step {
	case "prepare", "preflight":
		g.Outcome = Preflight
	case "ready":
		g.Outcome = Late
	case "abort":
		g.Outcome = Aborted
	default:
		g.Outcome = Worker
	}
}

// look takes notice of how things are, where updates may have been missed.
func (c *course) look(st *supervisor.Status) {
	for _, g := range c.goals {
		if g.Outcome != Pending {
			continue
		}
		i := slices.IndexFunc(st.Programs, func(p supervisor.ProgramStatus) bool { return p.Name == g.Program })
		switch {
		case g.instance != "" && g.instance != st.Instance:
			g.Outcome, g.Reason = Unknown, "the supervisord that knew of it is gone; the one that runs now has begun anew"
		case i < 0 && c.until == untilDown:
			g.Outcome, g.Drained = Down, true
		case i < 0:
			g.Outcome, g.Reason = Stopped, "the program is no longer there"
		case c.until == untilDown:
			switch st.Programs[i].State {
			case supervisor.Down:
				g.Outcome, g.Drained = Down, true
			case supervisor.ShuttingOff:
			default:
				g.Outcome, g.Reason = Superseded, "it was started again"
			}
		default:
			c.recall(g, st.Programs[i].Recent)
			if g.Outcome == Pending {
				c.lookAt(g, &st.Programs[i])
			}
		}
	}
}

// recall takes notice of what is remembered of a generation, from its beginning on.
func (c *course) recall(g *ProgramVerdict, recent []supervisor.Report) {
	if g.Replaced > 0 { // that it served was seen
		g.Took = max(g.Took, 1)
		for _, r := range recent {
			if r.Kind == supervisor.GenerationGone && r.Generation == g.Replaced {
				g.drained(r.Took, r.Killed)
			}
		}
		return
	}
	i := slices.IndexFunc(recent, func(r supervisor.Report) bool { return r.Generation >= g.Generation })
	if i < 0 || recent[i].Generation > g.Generation {
		return
	}
	for _, r := range recent[i:] {
		if g.Outcome == Pending {
			c.seeTrial(g, r)
		}
	}
}

func (c *course) lookAt(g *ProgramVerdict, p *supervisor.ProgramStatus) {
	i := slices.IndexFunc(p.Generations, func(s supervisor.GenerationStatus) bool { return s.Number == g.Generation })
	switch {
	case i >= 0 && p.Generations[i].Served != nil:
		c.lookServed(g, p, p.Generations[i])
	case i >= 0 && p.Generations[i].Role == supervisor.RoleTrial:
		if p.Generations[i].Held && c.until == untilHeld {
			g.Outcome = Held
		}
	case p.LastReload != nil && p.LastReload.Generation == g.Generation && p.LastReload.Served:
		g.served(p.LastReload.Report, false)
	case p.LastReload != nil && p.LastReload.Generation == g.Generation:
		g.failed(p.LastReload.Report)
	case p.State == supervisor.Down || p.State == supervisor.ShuttingOff:
		g.Outcome, g.Reason = Stopped, "the program was stopped"
	case g.Generation > p.Newest && (p.Due != nil || p.State == supervisor.Waiting || slices.ContainsFunc(p.Generations, onTrial)): // it follows
	default:
		g.Outcome, g.Reason = Unknown, "it ended while nobody saw; the log says how"
		if now := slices.IndexFunc(p.Generations, serving); now >= 0 {
			g.Serving = p.Generations[now].Number
		}
	}
}

func onTrial(g supervisor.GenerationStatus) bool { return g.Role == supervisor.RoleTrial }
func serving(g supervisor.GenerationStatus) bool { return g.Role == supervisor.RoleServing }

// lookServed is for a generation that serves, or did.
func (c *course) lookServed(g *ProgramVerdict, p *supervisor.ProgramStatus, s supervisor.GenerationStatus) {
	saw := g.Replaced // from the update, if that was seen
	g.served(supervisor.Report{Took: s.Served.Sub(s.Began), Serving: saw}, false)
	old := slices.IndexFunc(p.Generations, func(o supervisor.GenerationStatus) bool {
		return o.Number < s.Number && o.Role == supervisor.RoleDraining && o.Served != nil && (saw == 0 || saw == o.Number)
	})
	g.Drained = old < 0
	switch {
	case c.until != untilDrained:
	case old >= 0:
		g.Outcome, g.Replaced = Pending, p.Generations[old].Number
	case saw > 0 || s.Number > 1:
		g.Outcome, g.Reason = Unknown, "the generation before ended while nobody saw: it is not known whether it had to be killed"
	}
}
