package prove

import (
	"fmt"
	"time"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// The outcomes of a reload, as words in JSON.
const (
	served     = "served"     // its generation serves
	superseded = "superseded" // a newer reload took its place: another client reloads, too
	failed     = "failed"     // its generation failed; the one before continued to serve
	undecided  = "undecided"  // nothing came of it in time
)

// asked is one reload that prove has asked for.
type asked struct {
	at         time.Time
	generation int       // 0: it has none, or not yet
	refused    error     // it will have none
	refusedAt  time.Time // when that was known
}

// history is what happened to the program. It is plain data.
type history struct {
	program string
	reloads []*asked
	records map[int]*program.ReloadRecord // by generation
	serving int                           // the newest generation that served
	workers map[int]bool                  // PIDs of all workers so far
	ready   []time.Time                   // when workers were
	stops   []*stopping                   // of workers that were told to
	kills   []time.Time                   // one for each worker that had to be killed
	deaths  []time.Time                   // of workers that were not told to stop
	died    []string                      // about them
}

// stopping is how a worker stopped.
type stopping struct {
	worker     int
	told, gone time.Time // gone: zero if it still is there
}

func newHistory(name string) *history {
	return &history{program: name, records: map[int]*program.ReloadRecord{}, workers: map[int]bool{}}
}

// begin records the state at the beginning.
func (h *history) begin(st *supervisor.Status) {
	for _, p := range st.Programs {
		for _, g := range p.Generations {
			if p.Name == h.program && g.Role == program.RoleServing {
				h.serving = max(h.serving, g.Number)
			}
			for _, w := range g.Workers {
				h.workers[w.PID] = true
			}
		}
	}
	delete(h.workers, 0) // of a worker that is being started
}

// add records what the control socket reports.
func (h *history) add(u *supervisor.Update) {
	if u.Program != h.program {
		return
	}
	if r := u.Reload; r != nil {
		h.records[r.Generation] = r
		if r.Outcome == program.Serves {
			h.serving = max(h.serving, r.Generation)
		}
	}
	switch u.Kind {
	case program.WorkerSpawned:
		h.workers[u.PID] = true
	case program.WorkerReady:
		h.ready = append(h.ready, u.Time)
	case program.WorkerStopping:
		h.stops = append(h.stops, &stopping{worker: u.Worker, told: u.Time})
	case program.WorkerStopped:
		for _, s := range h.stops {
			if s.worker == u.Worker && s.gone.IsZero() {
				s.gone = u.Time
			}
		}
	case program.WorkerKilled:
		h.kills = append(h.kills, u.Time)
	case program.WorkerDied:
		h.deaths = append(h.deaths, u.Time)
		h.died = append(h.died, fmt.Sprintf("pid %d of generation %d: %s", u.PID, u.Generation, u.Reason))
	}
}

// answer records supervisord's answer to the last reload.
func (h *history) answer(r reloaded) {
	last := h.reloads[len(h.reloads)-1]
	last.generation, last.refused = r.generation, r.err
	if r.err != nil {
		last.refusedAt = time.Now()
	}
}

// outcome returns how a reload went and why, and when that was decided; the zero time: it is undecided.
func (h *history) outcome(a *asked) (outcome, reason string, decided time.Time) {
	if a.refused != nil {
		return failed, a.refused.Error(), a.refusedAt
	}
	r := h.records[a.generation]
	if r == nil || r.Decided.IsZero() {
		return undecided, "", time.Time{}
	}
	switch r.Outcome {
	case program.Serves:
		return served, "", r.Decided
	case program.Superseded:
		return superseded, "", r.Decided
	}
	return failed, reasonOf(r), r.Decided
}

// reasonOf says why a reload failed.
func reasonOf(r *program.ReloadRecord) string {
	if r.Failure == nil {
		return string(r.Outcome)
	}
	return r.Failure.Step + ": " + r.Failure.Reason
}

// settled returns when nothing of a reload was under way any more: everything older was gone or, if it failed, its own
// generation; the zero time: something still is.
func (h *history) settled(a *asked) time.Time {
	outcome, _, decided := h.outcome(a)
	if outcome == undecided || a.refused != nil {
		return decided
	}
	if own := h.records[a.generation]; outcome != served {
		return own.Ended
	}
	last := decided
	for generation, r := range h.records {
		switch {
		case generation > a.generation:
		case r.Ended.IsZero() && !r.KeptTill.IsZero(): // the generation before waits for a rollback, or for the next reload
		case r.Ended.IsZero():
			return time.Time{}
		case r.Ended.After(last):
			last = r.Ended
		}
	}
	return last
}

// quiet returns how long after the switch the old workers of a reload had nothing in hand any more, and whether they
// still had something when the time for that was over; 0: it is not known.
func (h *history) quiet(a *asked) (took time.Duration, busy bool) {
	r := h.records[a.generation]
	if r == nil || a.refused != nil {
		return 0, false
	}
	return r.Quiet, r.Left != nil
}

// inHand returns how many connections the old workers of a reload still had in hand when the time for that was over.
func (h *history) inHand(a *asked) int {
	r := h.records[a.generation]
	if r == nil || r.Left == nil {
		return 0
	}
	return r.Left.Queued + r.Left.Handshakes + r.Left.Unread + r.Left.Answering + r.Left.Active
}

// idle reports whether the last reload is decided, so that the next one gets a generation of its own.
func (h *history) idle() bool {
	if len(h.reloads) == 0 {
		return true
	}
	_, _, decided := h.outcome(h.reloads[len(h.reloads)-1])
	return !decided.IsZero()
}

// allSettled reports whether nothing is under way.
func (h *history) allSettled() bool {
	for _, a := range h.reloads {
		if h.settled(a).IsZero() {
			return false
		}
	}
	return true
}

// startFailed returns why the program does not start, with the last lines of its worker, if its last generation failed
// and none has served.
func (h *history) startFailed() string {
	last := 0
	for generation, r := range h.records {
		if r.Outcome.Failed() && generation > last {
			last = generation
		}
	}
	if last == 0 || h.serving > 0 {
		return ""
	}
	return reasonOf(h.records[last]) + h.records[last].Failure.LastLines()
}

// longestStop returns the longest time, in milliseconds, that a worker took from its signal to its end.
func (h *history) longestStop() float64 {
	longest := time.Duration(0)
	for _, s := range h.stops {
		longest = max(longest, s.gone.Sub(s.told)) // negative: it still is there
	}
	return ms(longest)
}
