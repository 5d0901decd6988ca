package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"sync"
	"time"
)

// sample is one request. Times are since the load began.
type sample struct {
	at, latency time.Duration
	failure     string // "" when it was answered
}

func (s sample) end() time.Duration { return s.at + s.latency }

// record is what a load came to, in no order.
type record struct {
	began   time.Time
	mu      sync.Mutex
	samples []sample
}

func (r *record) add(at time.Time, latency time.Duration, err error) {
	s := sample{at: at.Sub(r.began), latency: latency}
	if err != nil {
		s.failure = err.Error()
	}
	r.mu.Lock()
	r.samples = append(r.samples, s)
	r.mu.Unlock()
}

// window is a piece of time.
type window struct{ from, to time.Duration }

// of returns what was sent in one of the windows; all without windows.
func (r *record) of(windows ...window) samples {
	if len(windows) == 0 {
		return r.samples
	}
	var some samples
	for _, s := range r.samples {
		if slices.ContainsFunc(windows, func(w window) bool { return s.at >= w.from && s.at < w.to }) {
			some = append(some, s)
		}
	}
	return some
}

type samples []sample

func (all samples) failed() int {
	n := 0
	for _, s := range all {
		if s.failure != "" {
			n++
		}
	}
	return n
}

// digits are what makes two errors of one kind differ: addresses, ports.
var digits = regexp.MustCompile(`[0-9][0-9.:]*`)

// reasons are the kinds of failure and how many of each there were, the most frequent first.
func (all samples) reasons() []string {
	counts := map[string]int{}
	for _, s := range all {
		if s.failure != "" {
			counts[digits.ReplaceAllString(s.failure, "…")]++
		}
	}
	kinds := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	for i, kind := range kinds {
		kinds[i] = fmt.Sprintf("%s times `%s`", count(counts[kind]), kind)
	}
	return kinds[:min(len(kinds), 5)]
}

// latencies of what was answered, sorted.
func (all samples) latencies() spread {
	var l spread
	for _, s := range all {
		if s.failure == "" {
			l = append(l, s.latency)
		}
	}
	slices.Sort(l)
	return l
}

// gap is the longest time within w in which nobody was answered.
func (all samples) gap(w window) time.Duration {
	ends := []time.Duration{w.from, w.to}
	for _, s := range all {
		if e := s.end(); s.failure == "" && e > w.from && e < w.to {
			ends = append(ends, e)
		}
	}
	slices.Sort(ends)
	longest := time.Duration(0)
	for i := 1; i < len(ends); i++ {
		longest = max(longest, ends[i]-ends[i-1])
	}
	return longest
}

// spread is sorted durations.
type spread []time.Duration

// at is the value that a part of all do not exceed; 1 is the longest.
func (s spread) at(part float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	return s[max(0, min(len(s), int(math.Ceil(part*float64(len(s)))))-1)]
}

// short writes a duration with three digits.
func short(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.3g s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.3g ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.3g µs", float64(d)/float64(time.Microsecond))
}

func ratio(a, b time.Duration) string {
	if b == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", float64(a)/float64(b))
}

// count writes a number with its thousands apart.
func count(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return count(n/1000) + fmt.Sprintf(",%03d", n%1000)
}
