package control

import (
	"fmt"
	"slices"
	"time"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// Outcome says how something that was asked for has ended: that of a reload, or one that comes from waiting.
type Outcome = program.Outcome

// The outcomes that no reload has by itself.
const (
	Down     Outcome = "down"    // the program has stopped, as it should
	Killed   Outcome = "killed"  // as wanted, but old workers had to be killed
	TimedOut Outcome = "timeout" // not at its end when the time was over; it goes on
	Unknown  Outcome = "unknown" // nobody has its record any more
)

// outcomes are all of them, from the best to the worst: of several programs the worst is that of the whole.
var outcomes = []Outcome{
	program.Pending, program.Serves, program.Held, Down, Killed, program.Superseded, program.Aborted, program.Stopped,
	TimedOut, Unknown, program.NotReady, program.Preflight, program.WorkerDown,
}

// worse reports whether o is a worse end than p.
func worse(o, p Outcome) bool { return slices.Index(outcomes, o) > slices.Index(outcomes, p) }

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
	Drained    bool          `json:"drained"`            // nothing of the generation that had to go is left
	Drain      time.Duration `json:"drain_ns,omitempty"` // how long that took
	Killed     int           `json:"killed,omitempty"`   // its workers that had to be killed

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

// wait waits for what tickets were given for. It reads the records that the core writes, as they come with the updates or stand in
// a status, and decides nothing itself.
type wait struct {
	until until
	goals []*ProgramVerdict
}

func newWait(tickets []supervisor.Ticket, u until) *wait {
	w := &wait{until: u}
	for _, t := range tickets {
		w.goals = append(w.goals, &ProgramVerdict{Program: t.Program, Generation: t.Generation, instance: t.Instance, Outcome: program.Pending})
	}
	return w
}

// ended reports whether nothing is left to wait for.
func (w *wait) ended() bool {
	return !slices.ContainsFunc(w.goals, func(g *ProgramVerdict) bool { return g.Outcome == program.Pending })
}

// concerns reports whether an update is about one of the programs.
func (w *wait) concerns(u supervisor.Update) bool {
	return slices.ContainsFunc(w.goals, func(g *ProgramVerdict) bool { return g.Program == u.Program })
}

// close ends what has no end yet.
func (w *wait) close(o Outcome, reason string) {
	for _, g := range w.goals {
		if g.Outcome == program.Pending {
			g.Outcome, g.Reason = o, reason
		}
	}
}

// late ends what has no end yet because the time is over, and says what it still waits for, if that is known.
func (w *wait) late(st *supervisor.Status) {
	for _, g := range w.goals {
		if g.Outcome != program.Pending {
			continue
		}
		g.Outcome, g.Reason = TimedOut, w.until.overTime()
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
		case s.Number == g.Replaced && s.Role == program.RoleDraining:
			return fmt.Sprintf("; generation %d still drains", s.Number)
		}
	}
	return ""
}

func (w *wait) verdict() *Verdict {
	v := &Verdict{Outcome: program.Serves, Programs: []ProgramVerdict{}}
	if w.until == untilDown {
		v.Outcome = Down
	}
	for i, g := range w.goals {
		v.Programs = append(v.Programs, *g)
		if i == 0 || worse(g.Outcome, v.Outcome) {
			v.Outcome = g.Outcome
		}
	}
	return v
}

// see reads the records that an update brings.
func (w *wait) see(u supervisor.Update) {
	for _, g := range w.goals {
		switch {
		case g.Program != u.Program:
		case w.until == untilDown:
			g.readStop(u.Stop, u.Kind == program.TrialBegan && u.Generation > g.Generation)
		case u.Reload != nil && u.Reload.Generation == g.Generation:
			g.read(u.Reload, w.until)
		}
	}
}

// look reads the records in a status.
func (w *wait) look(st *supervisor.Status) {
	for _, g := range w.goals {
		i := slices.IndexFunc(st.Programs, func(p supervisor.ProgramStatus) bool { return p.Name == g.Program })
		switch {
		case g.Outcome != program.Pending:
		case g.instance != "" && g.instance != st.Instance:
			g.Outcome, g.Reason = Unknown, "the supervisord that knew of it is gone, and the one that runs now has begun anew"
		case i < 0 && w.until == untilDown:
			g.Outcome, g.Drained = Down, true
		case i < 0:
			g.Outcome, g.Reason = program.Stopped, "the program is no longer configured"
		case w.until == untilDown:
			g.lookStop(&st.Programs[i])
		default:
			g.look(&st.Programs[i], w.until)
		}
	}
}

func (g *ProgramVerdict) lookStop(p *supervisor.ProgramStatus) {
	if p.State == program.Down && p.Stop == nil { // it has never run
		g.Outcome, g.Drained = Down, true
		return
	}
	g.readStop(p.Stop, p.Newest > g.Generation || p.State != program.ShuttingOff)
}

// readStop reads the record of a stop. Without one, or with that of another stop, the program may have been started again.
func (g *ProgramVerdict) readStop(s *program.StopRecord, startedAgain bool) {
	switch {
	case g.Outcome != program.Pending:
	case s != nil && s.Generation == g.Generation && !s.Ended.IsZero():
		g.Outcome, g.Drained, g.Killed, g.Took = Down, true, s.Killed, s.Ended.Sub(s.Began)
		if s.Killed > 0 {
			g.Outcome = Killed
		}
	case startedAgain:
		g.Outcome, g.Reason = program.Superseded, "it was started again"
	}
}

func (g *ProgramVerdict) look(p *supervisor.ProgramStatus, u until) {
	switch r := p.FindReload(g.Generation); {
	case r != nil:
		g.read(r, u)
	case g.Generation > p.Newest:
		g.Outcome, g.Reason = program.Stopped, "the program was removed from the configuration"
	default:
		g.Outcome, g.Reason = Unknown, "too many reloads ago: its record is gone, the log says how it went"
		for _, s := range p.Generations {
			if s.Role == program.RoleServing {
				g.Serving = s.Number
			}
		}
	}
}

// read reads the record of the reload that is waited for. What has come to its end stays, but the drain of what serves goes on.
func (g *ProgramVerdict) read(r *program.ReloadRecord, u until) {
	if g.Outcome != program.Pending && g.Outcome != program.Serves {
		return
	}
	g.Outcome, g.Took, g.Drained, g.Drain, g.Killed = r.Outcome, r.Took, !r.Ended.IsZero(), r.Drain, r.Killed
	if r.Outcome == program.Serves {
		g.Replaced = r.Replaced
	} else {
		g.Serving = r.Replaced
	}
	if f := r.Failure; f != nil {
		g.Worker, g.Slot, g.PID, g.Step, g.Reason, g.Tail = f.Worker, f.Slot, f.PID, f.Step, f.Reason, f.Tail
	}
	switch {
	case r.Outcome == program.Held && u != untilHeld, r.Outcome == program.Serves && u == untilDrained && !g.Drained:
		g.Outcome = program.Pending
	case r.Outcome == program.Serves && u == untilDrained && r.Killed > 0:
		g.Outcome = Killed
	case r.Outcome == program.Stopped:
		g.Serving, g.Reason = 0, "the program was stopped"
	case r.Outcome == program.Superseded:
		g.Reason = "something newer took its place"
	}
}
