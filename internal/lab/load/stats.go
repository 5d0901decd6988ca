package load

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"sync"
	"time"
)

// Attempt is one request. At counts from the beginning of the load.
type Attempt struct {
	At, Latency time.Duration
	Lost        *Lost // nil: it was answered
}

// End is when the request was answered, or lost.
func (s Attempt) End() time.Duration { return s.At + s.Latency }

// Collector collects the samples of a Load.
type Collector struct {
	mu  sync.Mutex
	all Attempts
}

// Add is for New.
func (r *Collector) Add(s Attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, s)
}

// Attempts returns what was collected so far.
func (r *Collector) Attempts() Attempts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// Attempts are requests, in any order.
type Attempts []Attempt

// Lost counts the lost requests, also by kind.
func (all Attempts) Lost() (n int, kinds map[LossKind]int) {
	kinds = map[LossKind]int{}
	for _, s := range all {
		if s.Lost != nil {
			n++
			kinds[s.Lost.Kind]++
		}
	}
	return n, kinds
}

// Between returns the requests that were sent in a window.
func (all Attempts) Between(from, to time.Duration) Attempts {
	return slices.Collect(func(yield func(Attempt) bool) {
		for _, s := range all {
			if s.At >= from && s.At < to && !yield(s) {
				return
			}
		}
	})
}

// Latencies returns those of the answered requests.
func (all Attempts) Latencies() Times {
	return Sort(func(yield func(time.Duration) bool) {
		for _, s := range all {
			if s.Lost == nil && !yield(s.Latency) {
				return
			}
		}
	})
}

// LongestGap returns the longest time without an answer between two moments, and when it began.
func (all Attempts) LongestGap(from, to time.Duration) (at, length time.Duration) {
	ends := Sort(func(yield func(time.Duration) bool) {
		for _, s := range all {
			if e := s.End(); s.Lost == nil && e > from && e < to && !yield(e) {
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
	if d < 0 {
		return "-" + Short(-d)
	}
	unit := time.Duration(1)
	for rest := d; rest >= 1000; rest /= 10 {
		unit *= 10
	}
	switch d = d.Round(unit); {
	case d >= 100*time.Second:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d >= time.Second:
		return fmt.Sprintf("%.3g s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.3g ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.3g µs", float64(d)/float64(time.Microsecond))
}
