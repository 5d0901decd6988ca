package program

import (
	"slices"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/worker/life"
)

// workerOf is a worker and the number of its generation.
type workerOf struct {
	Worker
	of     int
	served bool // its generation had got connections
}

// memory is what the checks of a history remember of the steps before.
type memory struct {
	retryFrom time.Time // a first start that failed is not repeated before then; zero: it may be
	// the newest generation when the program was rolled back; 0: it was not since one of a person's
	undone   int
	changes  []time.Time     // when reloads for changes of watched files began
	failures map[[2]int]int  // of workers since a stable one, by generation and slot, as far as events said so
	resized  map[int]bool    // generations whose workers may have had other places when they were quiet
	finished map[[2]int]bool // the restart policy wants no other worker, by generation and slot
}

// workersNow copies every worker.
func (h *history) workersNow() map[int]workerOf {
	all := map[int]workerOf{}
	for w, g := range h.p.Workers() {
		all[w.Number] = workerOf{*w, g.Number, h.steered[g.Number]}
	}
	return all
}

// checkStopPlan: a worker goes through its stop plan step by step, each at its time, and is killed only at its end.
func (h *history) checkStopPlan(before map[int]workerOf, e Event) {
	_, kill := e.(Kill)
	_, stop := e.(Stop) // begins the plan anew with another signal
	if kill || stop {
		return
	}
	for w, g := range h.p.Workers() {
		b, known := before[w.Number]
		if !known || b.State != Stopping || w.Step == b.Step && w.Killed == b.Killed {
			continue
		}
		if w.Step != b.Step+1 || b.Deadline.IsZero() || h.now.Before(b.Deadline) ||
			w.Killed != (w.Step >= len(g.Config.Stop.Steps)) {
			h.Fatalf("%T: worker %d goes from step %d of its stop plan, which ends %s, to step %d, killed: %v", e, w.Number,
				b.Step, b.Deadline, w.Step, w.Killed)
		}
	}
}

// checkFinishing: a worker that finishes is told to stop only when it has nothing in hand, at its place in
// drain.spread, or after drain.timeout: then when no request waits for an answer, or at its deadline.
func (h *history) checkFinishing(before map[int]workerOf, e Event) {
	quieted, looked := e.(Looked)
	busy := looked && !quieted.Quiet
	looked = looked && quieted.Quiet
	switch e := e.(type) {
	case Kill, Stop:
		return
	case Scale:
		h.resized[h.p.ServingNumber()] = true
	case Did:
		if e.Event == (life.DrainsItself{}) {
			return
		}
	}
	if h.p.makeRoom() {
		return
	}
	for w, g := range h.p.Workers() {
		b, known := before[w.Number]
		if !known || b.State != Finishing || w.State != Stopping || b.DrainsItself || b.Excused {
			continue
		}
		d := g.Config.Drain
		quiet := b.Quiet
		if quiet.IsZero() && looked {
			quiet = h.now
		}
		mine := looked && quieted.Generation == g.Number && (quieted.Slot < 0 || quieted.Slot == w.Slot)
		place := quiet.Add(g.place(w))
		switch {
		case busy && quieted.unanswered() > 0 && h.now.Before(b.Deadline):
			h.Fatalf("worker %d of generation %d is told to stop with %d unanswered requests, before its deadline %s", w.Number,
				g.Number, quieted.unanswered(), b.Deadline)
		case mine && (quieted.Idle == 0 || h.p.Goal == Halt || !h.now.Before(place)):
		case h.now.Before(b.Since.Add(d.Timeout)) && (b.Quiet.IsZero() || h.now.Before(place)):
			h.Fatalf("%T: worker %d of generation %d is told to stop %s after it began to finish, quiet since %s", e, w.Number,
				g.Number, h.now.Sub(b.Since), b.Quiet)
		case !b.Quiet.IsZero() && h.now.Before(place) && !h.resized[g.Number]:
			h.Fatalf("%T: worker %d of generation %d is told to stop before its place, %s", e, w.Number, g.Number, place)
		}
	}
}

// checkAlone: what must never run beside another generation does not, nor beside its own predecessor in the slot.
func (h *history) checkAlone(actions []Action) {
	for _, s := range of[Spawn](actions) {
		for w, g := range h.p.Workers() {
			if g != s.Generation && (g.StopFirst() || s.Generation.StopFirst()) {
				h.Fatalf("worker %d of generation %d is started while worker %d of generation %d lives", s.Worker.Number,
					s.Generation.Number, w.Number, g.Number)
			}
			if g == s.Generation && g.StopFirst() && w.Slot == s.Worker.Slot && w.Number != s.Worker.Number {
				h.Fatalf("worker %d is started in slot %d while worker %d lives there", s.Worker.Number, w.Slot, w.Number)
			}
		}
	}
}

// checkUnadopted: a worker on trial that was not ready and could not be adopted fails nothing.
func (h *history) checkUnadopted(was *Program, before map[int]workerOf, e Event) {
	d, is := e.(Did)
	x, ended := d.Event.(life.Exited)
	w, known := before[d.Worker]
	if !is || !ended || !x.Unadopted || !known || w.State != Starting || was.Trial == nil || w.of != was.Trial.Number {
		return
	}
	if h.p.Trial != was.Trial || h.p.Failures != was.Failures || h.p.Again != was.Again || h.p.Restarts != was.Restarts {
		h.Fatalf("worker %d on trial could not be adopted: %+v was %+v", d.Worker, h.p, was)
	}
}

// checkBegins: a generation begins by itself only when it may.
func (h *history) checkBegins(was *Program, actions []Action, e Event) {
	t := h.p.Trial
	began := slices.ContainsFunc(of[Report](actions), func(r Report) bool { return r.Kind == TrialBegan })
	// while nothing serves, the start is tried again
	if _, aborted := e.(Abort); aborted && was.Trial != nil && was.Again == nil && h.p.Again != nil &&
		h.p.Again.By == "" && (h.p.Serving != nil || h.p.Again.Reason != start) {
		h.Fatalf("the aborted reload of generation %d begins again: %+v", was.Trial.Number, h.p.Again)
	}
	if _, start := e.(Start); start && was.Goal == Halt {
		h.retryFrom = time.Time{} // a person does not wait for a retry, but perhaps for others
	}
	if began && t != nil {
		h.checkBegan(t, was, e)
	}
	for _, r := range of[Report](actions) {
		switch r.Kind {
		case StartRetry:
			if c := h.p.Config.Restart; r.Serving == 0 && was.Trial != nil && was.Trial.Number == r.Generation &&
				h.p.Serving == nil {
				h.retryFrom = h.now.Add(min(was.Trial.Config.Restart.BackoffMin, c.BackoffMin) * 4 / 5)
			}
		case RolledBack:
			h.undone = was.LastGeneration
		case GenerationServes:
			if r.Generation > h.undone {
				h.undone = 0
			}
		}
	}
}

func (h *history) checkBegan(t *Generation, was *Program, e Event) {
	record := h.p.reloadOf(t.Number)
	draining := 0
	for _, g := range h.p.Draining {
		counts := false
		for _, w := range g.Workers {
			counts = counts || !w.Killed
		}
		if counts && g.count(Leaving)+g.count(Kept) == 0 {
			draining++
		}
	}
	policy := h.p.Config.Reload
	_, asked := e.(Start)
	switch {
	case (was.Unstarted || was.Goal == Halt) && was.Serving == nil && was.Trial == nil && len(h.p.Awaits) > 0:
		h.Fatalf("%T: generation %d begins although %q do not serve", e, t.Number, h.p.Awaits)
	case policy.MaxDraining > 0 && draining >= policy.MaxDraining && h.p.Serves():
		h.Fatalf("%T: generation %d begins while %d drain", e, t.Number, draining)
	case t.Reason == "start" && !asked && h.now.Before(h.retryFrom):
		h.Fatalf("%T: generation %d begins before %s", e, t.Number, h.retryFrom)
	case h.undone > 0 && (record.By == Due || record.By == Overdue):
		h.Fatalf("%T: generation %d begins by itself although generation %d was rolled back: %+v", e, t.Number, h.undone,
			record)
	case record.By == Changed:
		if n := len(h.changes); was.Again == nil && n >= changesAtOnce && h.now.Sub(h.changes[n-1]) <= changeSoon {
			h.Fatalf("%T: the reload for change %d in a row begins at once", e, n+1)
		}
		if n := len(h.changes); n > 0 && h.now.Sub(h.changes[n-1]) > changeSoon {
			h.changes = nil
		}
		h.changes = append(h.changes, h.now)
	}
	h.retryFrom = time.Time{}
}

// checkTimes: no time is over without a consequence, and the durations of a record are those between its times.
func (h *history) checkTimes() {
	if until := h.p.Paused.Until; !until.IsZero() && !h.now.Before(until) {
		h.Fatalf("paused until %s, and it is %s", until, h.now)
	}
	if at := h.p.RetryTime(h.now); h.p.Again == nil && at.Sub(h.now) > testConfig(1, config.All).Restart.BackoffMax {
		h.Fatalf("what has failed is started again only at %s", at)
	}
	for w := range h.p.Workers() {
		if !w.Deadline.IsZero() && !h.now.Before(w.Deadline) {
			h.Fatalf("the deadline of worker %d, which is %s, was %s", w.Number, w.State, w.Deadline)
		}
	}
	for _, r := range h.p.Reloads {
		open := r.Outcome.Open() || r.Began.IsZero()
		if !open && r.Took != r.Decided.Sub(r.Began) ||
			!r.Ended.IsZero() && !r.Decided.IsZero() && r.Drain != r.Ended.Sub(r.Decided) {
			h.Fatalf("the durations of %+v are wrong", r)
		}
	}
}

// checkFinished: a slot whose worker has ended stays empty if the restart policy says so.
func (h *history) checkFinished(before map[int]workerOf, actions []Action, e Event) {
	switch e := e.(type) {
	case Scale:
		clear(h.finished)
	case Did:
		w, lived := before[e.Worker]
		x, ended := e.Event.(life.Exited)
		if g := h.p.Generation(w.of); lived && ended && g != nil && g == h.p.Serving && w.stays() && w.State != Kept {
			when := g.Config.Restart.When
			h.finished[[2]int{w.of, w.Slot}] = when == config.Never || when == config.OnFailure && x.Clean()
		}
	}
	for _, s := range of[Spawn](actions) {
		if h.finished[[2]int{s.Generation.Number, s.Worker.Slot}] {
			h.Fatalf("worker %d fills slot %d of generation %d, although restart.when is %s", s.Worker.Number, s.Worker.Slot,
				s.Generation.Number, s.Generation.Config.Restart.When)
		}
	}
}
