package prove

import (
	"cmp"
	"slices"
	"time"

	"example.org/supervisord/internal/lab/load"
)

// course places the reloads on the time axis of the load. A reload that was never decided, or never settled, lasts until the end of the
// load.
type course struct {
	results   []ReloadResult
	spans     []span
	kills     []time.Duration // of workers, since the load began; sorted
	roundTrip time.Duration   // so late the client may notice that a connection is cut
}

// span is one reload, since the load began.
type span struct{ asked, decided, settled time.Duration }

func (r *proof) course() course {
	c := course{results: []ReloadResult{}, roundTrip: r.RoundTrip}
	for _, at := range r.history.kills {
		c.kills = append(c.kills, at.Sub(r.began))
	}
	slices.Sort(c.kills)
	for i, a := range r.history.reloads {
		outcome, reason, decided := r.history.outcome(a)
		s := span{asked: a.at.Sub(r.began), decided: r.took, settled: r.took}
		x := ReloadResult{Number: i + 1, At: ms(s.asked), Outcome: outcome, Generation: a.generation, Reason: reason}
		x.Decided = since(a.at, decided)
		x.Settled = since(a.at, r.history.settled(a))
		if x.Decided != nil {
			s.decided = decided.Sub(r.began)
		}
		if x.Settled != nil {
			s.settled = r.history.settled(a).Sub(r.began)
		}
		if quiet, busy := r.history.quiet(a); busy || quiet > 0 {
			took := ms(quiet)
			x.Quiet, x.Busy = &took, busy
		}
		c.results, c.spans = append(c.results, x), append(c.spans, s)
	}
	return c
}

// since is the time in milliseconds between two moments; nil: the second one never came.
func since(from, to time.Time) *float64 {
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
	var causes tallied
	var run errorRun
	for _, a := range lost {
		l := c.loss(a)
		l.late = run.continues(l, c.sinceSettled(a.End()))
		causes.add(l)
		if len(list) < mostLosses {
			list = append(list, l)
		}
	}
	return list, causes.sorted()
}

// sinceSettled is how long ago the reloads before a moment had settled, where none was under way.
func (c course) sinceSettled(at time.Duration) time.Duration {
	since := at
	for _, s := range c.spans[:c.last(at)] {
		since = min(since, at-s.settled)
	}
	return since
}

func (c course) loss(a load.Attempt) LostRequest {
	at := a.End()
	number, after, stage := c.place(at)
	connection := "new"
	if a.Lost.Reused {
		connection = "reused"
	}
	kind := a.Lost.Kind
	return LostRequest{At: ms(at), Kind: kind, Connection: connection, Reload: number, After: ms(after), Stage: stage, Took: ms(a.Latency), Error: a.Lost.Text,
		cut: (kind == load.Reset || kind == load.Closed) && c.killed(at)}
}

// killSlack is how far apart the end of a connection and the report of the kill that caused it may be.
const killSlack = 250 * time.Millisecond

// killed reports whether a worker was killed at about this moment.
func (c course) killed(at time.Duration) bool {
	i, _ := slices.BinarySearch(c.kills, at-c.roundTrip-killSlack)
	return i < len(c.kills) && c.kills[i] <= at+killSlack
}

// errorRun follows the errors (5xx) that begin during a reload or right after it, as long as they continue without a pause. Old workers
// may end so soon that the first error of a new one comes only then.
type errorRun struct {
	reload int // 0: none
	last   float64
	before bool // there were errors before the first reload: later ones say nothing about it
}

// errorPause is the pause, in milliseconds, that ends a run.
const errorPause = 500

// continues notes a loss, and reports whether it belongs to a run although its reload is over: that settled so long ago.
func (r *errorRun) continues(l LostRequest, settled time.Duration) bool {
	if l.Kind != load.Status5 || r.before {
		return false
	}
	switch {
	case l.Stage == Before:
		r.before = true
		return false
	case l.Stage != Idle:
		r.reload, r.last = l.Reload, l.At
		return false
	case ms(settled) <= errorPause:
		r.reload = l.Reload
	case l.Reload != r.reload || l.At-r.last > errorPause:
		r.reload = 0
		return false
	}
	r.last = l.At
	return true
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
