package prove

import (
	"slices"
	"time"
)

// course is the reloads on the time of the load. What was never decided, or never settled, was so until its end.
type course struct {
	spans []span
	past  []*reload
}

// span is one reload, since the load began.
type span struct{ hup, decided, settled time.Duration }

func (r *proof) course() course {
	c := course{past: r.history.reloads}
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

func (c course) losses(lost []lostRequest) []Loss {
	list := []Loss{}
	for _, x := range lost[:min(len(lost), mostLosses)] {
		number, after, stage := c.place(x.at)
		connection := "new"
		if x.reused {
			connection = "reused"
		}
		list = append(list, Loss{ms(x.at), x.kind, connection, number, ms(after), stage, ms(x.took), x.text})
	}
	slices.SortStableFunc(list, func(a, b Loss) int { return int(1000 * (a.At - b.At)) })
	return list
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
