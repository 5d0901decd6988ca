package prove

import (
	"cmp"
	"slices"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/socket"
)

// course places the reloads on the time axis of the load. A reload that was never decided, or never settled, lasts
// until the end of the load.
type course struct {
	results       []ReloadResult
	spans         []span
	kills, deaths []time.Duration // of workers, since the load began
	ready         []time.Duration // when workers were
	stops         []span          // of workers: from the signal until they had exited
	roundTrip     time.Duration   // so late the client may notice that a connection is cut
	steered       bool            // a worker that stops gets no new connections
}

// span is one reload, or the stop of one worker, since the load began.
type span struct{ asked, decided, settled time.Duration }

func (r *proof) course() course {
	c := course{results: []ReloadResult{}, roundTrip: r.RoundTrip, kills: r.since(r.history.kills),
		deaths: r.since(r.history.deaths),
		ready:  r.since(r.history.ready), steered: steered(r.program)}
	for _, s := range r.history.stops {
		c.stops = append(c.stops, span{asked: s.told.Sub(r.began), settled: r.took})
		if !s.gone.IsZero() {
			c.stops[len(c.stops)-1].settled = s.gone.Sub(r.began)
		}
	}
	for i, a := range r.history.reloads {
		outcome, reason, decided := r.history.outcome(a)
		s := span{asked: a.at.Sub(r.began), decided: r.took, settled: r.took}
		x := ReloadResult{Number: i + 1, At: ms(s.asked), Outcome: outcome, Generation: a.generation, Reason: reason}
		x.Decided = between(a.at, decided)
		x.Settled = between(a.at, r.history.settled(a))
		if x.Decided != nil {
			s.decided = decided.Sub(r.began)
		}
		if x.Settled != nil {
			s.settled = r.history.settled(a).Sub(r.began)
		}
		if quiet, busy := r.history.quiet(a); busy || quiet > 0 {
			took := ms(quiet)
			x.Quiet, x.Busy = &took, busy
			x.others = r.history.inHand(a) > r.target.kept(r.Plan)
		}
		c.results, c.spans = append(c.results, x), append(c.spans, s)
	}
	return c
}

// since places moments on the time axis of the load.
func (r *proof) since(moments []time.Time) (all []time.Duration) {
	for _, at := range moments {
		all = append(all, at.Sub(r.began))
	}
	return all
}

// between is the time in milliseconds between two moments; nil: the second one never came.
func between(from, to time.Time) *float64 {
	if to.IsZero() {
		return nil
	}
	took := ms(to.Sub(from))
	return &took
}

// place finds the last reload before a moment, how long before, and how far that reload was.
func (c course) place(at time.Duration) (number int, after time.Duration, stage Stage) {
	number = c.last(at)
	if number == 0 {
		return 0, at, Before
	}
	s := c.spans[number-1]
	switch {
	case at < s.decided:
		stage = Starting
	case c.under(at, at):
		stage = Draining
	default:
		stage = Idle
	}
	return number, at - s.asked, stage
}

// last is the number of the last reload before a moment.
func (c course) last(at time.Duration) int {
	n, _ := slices.BinarySearchFunc(c.spans, at, func(s span, at time.Duration) int {
		if s.asked <= at {
			return -1
		}
		return 1
	})
	return n
}

// under reports whether a reload was under way between two moments.
func (c course) under(from, until time.Duration) bool {
	for _, s := range c.spans[:c.last(until)] {
		if from < s.settled {
			return true
		}
	}
	return false
}

// losses places and explains every lost request; of the requests themselves it returns the first mostLosses.
func (c course) losses(all load.Attempts) ([]LostRequest, []Cause) {
	var lost load.Attempts
	for _, a := range all {
		if a.Lost != nil {
			lost = append(lost, a)
		}
	}
	slices.SortStableFunc(lost, func(a, b load.Attempt) int { return cmp.Compare(a.End(), b.End()) })
	list := []LostRequest{}
	var count tallied
	runs := c.errorRuns(lost)
	for _, a := range lost {
		l := c.loss(a)
		for len(runs) > 0 && runs[0].to < a.End() {
			runs = runs[1:]
		}
		count.add(&l, c.explain(&l, runs))
		if len(list) < mostLosses {
			list = append(list, l)
		}
	}
	return list, count.sorted()
}

// explain finds the cause of a loss; runs[0] is the run that it belongs to if it is an error.
func (c course) explain(l *LostRequest, runs []errorRun) *cause {
	if l.Kind == load.Status5 && l.Stage != Before {
		return c.blame(runs[0])
	}
	i := slices.IndexFunc(causes, func(k *cause) bool { return k.fits(l) }) // the last one fits all
	return causes[i]
}

// slack is how far apart the end of a connection and the report of the event that caused it may be.
const slack = 250 * time.Millisecond

// readySlack is how much later supervisord may learn that a worker is ready than a client.
const readySlack = 20 * time.Millisecond

// race is how long a request may be under way on a keep-alive connection until it is clear that the worker has it.
const race = 2 * time.Millisecond

// loss places a lost request at its end, which a busy client may notice late: so what explains the loss is what
// happened at any time while the request was under way.
func (c course) loss(a load.Attempt) LostRequest {
	at := a.End()
	number, after, stage := c.place(at)
	connection := "new"
	if a.Lost.Reused {
		connection = "reused"
	}
	near := func(moments []time.Duration) bool {
		return slices.ContainsFunc(moments,
			func(m time.Duration) bool { return m-slack <= at && a.At <= m+slack+c.roundTrip })
	}
	return LostRequest{At: ms(at), Kind: a.Lost.Kind, Connection: connection, Reload: number, After: ms(after),
		Stage: stage, Took: ms(a.Latency), Error: a.Lost.Text,
		killed: near(c.kills), died: near(c.deaths),
		alone: stage == Idle && !c.under(a.At-slack-c.roundTrip, at), idle: a.Lost.Reused && a.Latency < race}
}

// errorRun are errors (5xx) that follow each other without a pause: they have one cause.
type errorRun struct {
	from, to    time.Duration // answers
	first, last time.Duration // when the requests were sent
	fresh       bool          // there is one on a new connection
}

// errorPause is the pause that ends a run.
const errorPause = 500 * time.Millisecond

func (c course) errorRuns(lost load.Attempts) (runs []errorRun) {
	for _, a := range lost {
		if a.Lost.Kind != load.Status5 {
			continue
		}
		if n := len(runs); n == 0 || a.End()-runs[n-1].to > errorPause {
			runs = append(runs, errorRun{from: a.End(), first: a.At})
		}
		run := &runs[len(runs)-1]
		run.to, run.fresh = a.End(), run.fresh || !a.Lost.Reused
		run.first, run.last = min(run.first, a.At), max(run.last, a.At)
	}
	return runs
}

// blame finds the cause of a run of errors by its beginning and end. The errors of a worker that stops end with that
// worker, and those of one that was not ready may begin only when the old workers, which end soon, are gone.
func (c course) blame(r errorRun) *cause {
	number, after, stage := c.place(r.from)
	stopping := slices.ContainsFunc(c.stops, func(s span) bool {
		return s.asked <= r.from && r.last <= s.settled+slack
	})
	ready := slices.ContainsFunc(c.ready,
		func(m time.Duration) bool { return r.from-after <= m && m <= r.from+readySlack })
	switch {
	case number == 0, stage == Idle && !c.under(r.first-errorPause, r.from):
		return &ownError
	case stopping && !(c.steered && r.fresh):
		return &stoppingError
	case stage == Starting && !ready:
		return &startingError
	}
	return &earlyReady
}

func (c course) phases(all load.Attempts) Phases {
	var before, during, after []time.Duration
	for _, a := range all {
		switch {
		case a.Lost != nil:
		case c.last(a.End()) == 0:
			before = append(before, a.Latency)
		case c.under(a.At, a.End()):
			during = append(during, a.Latency)
		default:
			after = append(after, a.Latency)
		}
	}
	return Phases{summary(before), summary(during), summary(after)}
}

func summary(latencies []time.Duration) *Latency {
	if len(latencies) == 0 {
		return nil
	}
	all := load.Sort(slices.Values(latencies))
	at := func(q float64) float64 { return ms(all.Quantile(q)) }
	return &Latency{len(latencies), at(0.5), at(0.95), at(0.99), at(1)}
}

// list is the reloads, with how many requests each lost.
func (c course) list(all load.Attempts) []ReloadResult {
	for _, a := range all {
		if n := c.last(a.End()); n > 0 && a.Lost != nil {
			c.results[n-1].Lost++
		}
	}
	return c.results
}

// steered reports whether the old workers of a program get no new connections.
func steered(p *config.Program) bool {
	return len(p.Listen) > 0 && !slices.ContainsFunc(p.Listen,
		func(s socket.Spec) bool { return !s.IsSteered() })
}
