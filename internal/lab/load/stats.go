package load

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"sync"
	"time"
)

// Sample is one request. At counts from the beginning of the load.
type Sample struct {
	At, Latency time.Duration
	Loss        *Loss // nil: it was answered
}

// End is when the request was answered, or lost.
func (s Sample) End() time.Duration { return s.At + s.Latency }

// Record collects the samples of a Load.
type Record struct {
	mu  sync.Mutex
	all Samples
}

// Add is for New.
func (r *Record) Add(s Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, s)
}

// Samples returns what was collected so far.
func (r *Record) Samples() Samples {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// Samples are requests, in any order.
type Samples []Sample

// Lost counts the lost requests by kind.
func (all Samples) Lost() (n int, kinds map[Kind]int) {
	kinds = map[Kind]int{}
	for _, s := range all {
		if s.Loss != nil {
			n++
			kinds[s.Loss.Kind]++
		}
	}
	return n, kinds
}

// Between returns the requests that were sent in a window.
func (all Samples) Between(from, to time.Duration) Samples {
	return slices.Collect(func(yield func(Sample) bool) {
		for _, s := range all {
			if s.At >= from && s.At < to && !yield(s) {
				return
			}
		}
	})
}

// Latencies returns those of the answered requests.
func (all Samples) Latencies() Times {
	return Sort(func(yield func(time.Duration) bool) {
		for _, s := range all {
			if s.Loss == nil && !yield(s.Latency) {
				return
			}
		}
	})
}

// LongestGap returns the longest time without an answer between two moments, and when it began.
func (all Samples) LongestGap(from, to time.Duration) (at, length time.Duration) {
	ends := Sort(func(yield func(time.Duration) bool) {
		for _, s := range all {
			if e := s.End(); s.Loss == nil && e > from && e < to && !yield(e) {
				return
			}
		}
	})
	last := from
	for _, end := range append(ends, to) {
		if end-last > length {
			at, length = last, end-last
		}
		last = end
	}
	return at, length
}

// Times are durations in ascending order.
type Times []time.Duration

// Sort sorts durations.
func Sort(list iter.Seq[time.Duration]) Times { return slices.Sorted(list) }

// Quantile returns the nearest rank: the value that the share q of all durations do not exceed; 0 if there are none.
func (t Times) Quantile(q float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	rank := int(math.Ceil(q*float64(len(t)) - 1e-9))
	return t[max(0, min(len(t), rank)-1)]
}

// String is the median, p99 and the longest.
func (t Times) String() string {
	if len(t) == 0 {
		return "nothing was measured"
	}
	return fmt.Sprintf("%s / %s / %s", Short(t.Quantile(0.5)), Short(t.Quantile(0.99)), Short(t.Quantile(1)))
}

// Short writes a duration with three digits.
func Short(d time.Duration) string {
	switch {
	case d >= 100*time.Second:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d >= time.Second:
		return fmt.Sprintf("%.3g s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.3g ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.3g µs", float64(d)/float64(time.Microsecond))
}
