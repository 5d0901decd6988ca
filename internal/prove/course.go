package prove

import (
	"cmp"
	"slices"
	"time"
)

// course is the reloads on the time of the load. What was never decided, or never settled, was so until its end.
type course struct {
	spans     []span
	past      []*reload
	kills     []time.Duration // of workers, since the load began; sorted
	roundTrip time.Duration   // so late the client may notice that a connection is cut
}

// span is one reload, since the load began.
type span struct{ hup, decided, settled time.Duration }

func (r *proof) course() course {
	c := course{past: r.history.reloads, roundTrip: r.RoundTrip}
	for _, at := range r.history.kills {
		c.kills = append(c.kills, at.Sub(r.began))
	}
	slices.Sort(c.kills)
	for _, x := range c.past {
		s := span{hup: x.at.Sub(r.began), decided: r.took, settled: r.took}
		if !x.decided.IsZero() {
			s.decided = x.decided.Sub(r.began)
		}
		if !x.settled.IsZero() {
			s.settled = x.settled.Sub(r.began)
		}
		c.spans = append(c.spans, s)
	}
	return c
}

// place says where a moment stands: after which reload, by how much, and how far that one was.
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
	return number, at - s.hup, stage
}

// last is the number of the last reload before a moment.
func (c course) last(at time.Duration) int {
	n, _ := slices.BinarySearchFunc(c.spans, at, func(s span, at time.Duration) int {
		if s.hup <= at {
			return -1
		}
		return 1
	})
	return n
}

// under reports whether some reload was under way between two moments.
func (c course) under(from, until time.Duration) bool {
	for _, s := range c.spans[:c.last(until)] {
		if from < s.settled {
			return true
		}
	}
	return false
}

// losses places and explains every lost request; of the losses themselves it returns the first mostLosses.
func (c course) losses(lost []lostRequest) ([]Loss, []Cause) {
	lost = slices.Clone(lost)
	slices.SortStableFunc(lost, func(a, b lostRequest) int { return cmp.Compare(a.at, b.at) })
	list := []Loss{}
	var all tallied
	var run errorRun
	for _, x := range lost {
		l := c.loss(x)
		l.late = run.continues(l, c.sinceSettled(x.at))
		all.add(l)
		if len(list) < mostLosses {
			list = append(list, l)
		}
	}
	return list, all.sorted()
}

// sinceSettled is how long ago the reloads before a moment had settled, where none was under way.
func (c course) sinceSettled(at time.Duration) time.Duration {
	since := at
	for _, s := range c.spans[:c.last(at)] {
		since = min(since, at-s.settled)
	}
	return since
}

func (c course) loss(x lostRequest) Loss {
	number, after, stage := c.place(x.at)
	connection := "new"
	if x.reused {
		connection = "reused"
	}
	return Loss{At: ms(x.at), Kind: x.kind, Connection: connection, Reload: number, After: ms(after), Stage: stage, Took: ms(x.took), Error: x.text,
		cut: (x.kind == Reset || x.kind == Closed) && c.killed(x.at)}
}

// killSlack is how far apart the end of a connection and the report of the kill that caused it may be.
const killSlack = 250 * time.Millisecond

// killed reports whether a worker was killed at about this moment.
func (c course) killed(at time.Duration) bool {
	i, _ := slices.BinarySearch(c.kills, at-c.roundTrip-killSlack)
	return i < len(c.kills) && c.kills[i] <= at+killSlack
}

// errorRun follows the errors (5xx) that begin during a reload or right after it, for as long as they go on without a pause. Old workers
// may end so soon that the first error of a new one comes only then.
type errorRun struct {
	reload int // 0: none
	last   float64
	before bool // there were errors before the first reload: those of later say nothing about it
}

// errorPause is the pause, in milliseconds, that ends a run.
const errorPause = 500

// continues takes notice of a loss, and reports whether it belongs to a run although its reload is over, which settled so long ago.
func (r *errorRun) continues(l Loss, settled time.Duration) bool {
	if l.Kind != Status5 || r.before {
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

func (c course) phases(records []record) Phases {
	var before, during, after []time.Duration
	for _, r := range records {
		switch {
		case r.lost:
		case c.last(r.at+r.latency) == 0:
			before = append(before, r.latency)
		case c.under(r.at, r.at+r.latency):
			during = append(during, r.latency)
		default:
			after = append(after, r.latency)
		}
	}
	return Phases{summary(before), summary(during), summary(after)}
}

func summary(latencies []time.Duration) *Latency {
	if len(latencies) == 0 {
		return nil
	}
	slices.Sort(latencies)
	at := func(percent int) float64 { return ms(percentile(latencies, percent)) }
	return &Latency{len(latencies), at(50), at(95), at(99), at(100)}
}

// list is the reloads for the verdict.
func (c course) list(lost []lostRequest) []Reload {
	list := []Reload{}
	for i, x := range c.past {
		r := Reload{Number: i + 1, At: ms(c.spans[i].hup), Outcome: x.outcome, Generation: x.generation, Reason: x.reason}
		if !x.decided.IsZero() {
			took := ms(x.decided.Sub(x.at))
			r.Decided = &took
		}
		if !x.settled.IsZero() {
			took := ms(x.settled.Sub(x.at))
			r.Settled = &took
		}
		list = append(list, r)
	}
	for _, x := range lost {
		if n := c.last(x.at); n > 0 {
			list[n-1].Lost++
		}
	}
	return list
}
