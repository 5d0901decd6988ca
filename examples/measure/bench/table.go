package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// row is one line of the table.
type row struct {
	what, required, measured string
	met                      verdict
}

type verdict string

const (
	yes     verdict = "yes"
	no      verdict = "**no**"
	nothing verdict = "" // nothing is required
)

func verdictOf(ok bool) verdict {
	if ok {
		return yes
	}
	return no
}

func (r row) print(w io.Writer) {
	fmt.Fprintf(w, "| %s | %s | %s | %s |\n", r.what, r.required, r.measured, r.met)
}

func head(w io.Writer) {
	fmt.Fprint(w, "| what | required | measured | met |\n| --- | --- | --- | --- |\n")
}

// spread is a set of durations.
type spread []time.Duration

// at is the value below which the share q of all lies.
func (s spread) at(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func (s spread) String() string {
	if len(s) == 0 {
		return "nothing was measured"
	}
	return fmt.Sprintf("%s / %s / %s", short(s.at(0.5)), short(s.at(0.99)), short(s.at(1)))
}

// short is a duration with three digits.
func short(d time.Duration) string {
	unit := time.Duration(1)
	for x := max(d, -d); x >= 1000; x /= 10 {
		unit *= 10
	}
	return d.Round(unit).String()
}

func mib(n uint64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

func ratio(a, b time.Duration) string {
	if b <= 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", float64(a)/float64(b))
}
