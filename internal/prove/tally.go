package prove

import (
	"slices"
	"strings"
	"time"
)

// record is what is remembered of every request.
type record struct {
	at, latency time.Duration
	lost        bool
}

// lostRequest is what is remembered of a lost one besides.
type lostRequest struct {
	at   time.Duration // when it was lost
	took time.Duration // since it was sent
	loss
}

// mostTexts is of how many lost requests the whole error is kept.
const mostTexts = 10_000

// tally is every request so far.
type tally struct {
	records []record
	losses  []lostRequest
}

func (t *tally) add(s sample) {
	t.records = append(t.records, record{s.at, s.latency, s.loss != nil})
	if s.loss == nil {
		return
	}
	l := lostRequest{s.at + s.latency, s.latency, *s.loss}
	if len(t.losses) >= mostTexts {
		l.text = knownText(l.text)
	}
	t.losses = append(t.losses, l)
}

// knownText returns the part of an error's text by which its cause is known, or "". It keeps nothing of text in memory.
func knownText(text string) string {
	for _, k := range knownCauses {
		if k.text != "" && strings.Contains(text, k.text) {
			return k.text
		}
	}
	return ""
}

// gap is a time without an answer.
type gap struct{ from, length time.Duration }

// longestGap is the longest time between two answers, the begin and the end (until) of the load being answers.
func (t *tally) longestGap(until time.Duration) gap {
	answers := make([]time.Duration, 0, len(t.records)+1)
	for _, r := range t.records {
		if !r.lost {
			answers = append(answers, min(until, r.at+r.latency))
		}
	}
	slices.Sort(answers)
	answers = append(answers, until)
	var longest gap
	last := time.Duration(0)
	for _, at := range answers {
		if at-last > longest.length {
			longest = gap{last, at - last}
		}
		last = at
	}
	return longest
}

// percentile returns the nearest rank of sorted latencies, which are not empty.
func percentile(sorted []time.Duration, percent int) time.Duration {
	rank := (len(sorted)*percent + 99) / 100
	return sorted[max(0, rank-1)]
}
