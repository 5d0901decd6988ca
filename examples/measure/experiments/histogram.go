package main

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// series is latencies under a name.
type series struct {
	name      string
	latencies spread
}

// perDecade is how many bars a power of ten has.
const perDecade = 20

// drawHistogram draws two series over each other, the first as bars, the second as a line; both axes are logarithmic, so that
// one request in a hundred thousand is seen.
func drawHistogram(title string, all []series) []byte {
	d := newDrawing(title, wide, 420)
	least, most := all[0].latencies.at(0), time.Duration(0)
	for _, s := range all {
		least, most = min(least, s.latencies.at(0)), max(most, s.latencies.at(1))
	}
	x := logScale(least, most, left, right)
	highest := 1
	var counts [][]int
	for _, s := range all {
		counts = append(counts, s.counts(x))
		for _, n := range counts[len(counts)-1] {
			highest = max(highest, n)
		}
	}
	// Below 1 there is room for a bar of one request.
	y := scale{-0.3, math.Ceil(math.Log10(float64(highest))), 370, 76}
	for e := 0.0; e <= y.high; e++ {
		d.line("grid", left, y.at(e), right, y.at(e))
		d.text(left-10, y.at(e)+4, "end", "soft", count(int(math.Pow(10, e))))
	}
	x.decades(func(at float64, label string) {
		d.line("axis", at, 370, at, 375)
		d.text(at, 392, "middle", "soft", label)
	})
	d.line("axis", left, 370, right, 370)
	d.bars(counts[0], x, y)
	d.steps(counts[1], x, y)
	d.legend(all)
	return d.finish()
}

func (s series) counts(x scale) []int {
	n := make([]int, int(x.high-x.low)*perDecade)
	for _, l := range s.latencies {
		i := int((math.Log10(millis(max(l, time.Microsecond))) - x.low) * perDecade)
		n[max(0, min(i, len(n)-1))]++
	}
	return n
}

func (d *drawing) bars(counts []int, x, y scale) {
	width := (x.to - x.from) / float64(len(counts))
	for i, n := range counts {
		if n > 0 {
			top := y.at(math.Log10(float64(n)))
			d.rect("calm", x.from+width*float64(i), top, width-0.6, y.from-top)
		}
	}
}

func (d *drawing) steps(counts []int, x, y scale) {
	width := (x.to - x.from) / float64(len(counts))
	var path strings.Builder
	fmt.Fprintf(&path, "M%.1f %.1f", x.from, y.from)
	for i, n := range counts {
		top := y.from
		if n > 0 {
			top = y.at(math.Log10(float64(n)))
		}
		fmt.Fprintf(&path, "L%.1f %.1fL%.1f %.1f", x.from+width*float64(i), top, x.from+width*float64(i+1), top)
	}
	fmt.Fprintf(&path, "L%.1f %.1f", x.to, y.from)
	d.put(`<path class="step" d="%s"/>`, path.String())
}

func (d *drawing) legend(all []series) {
	at := 630.0
	for i, s := range all {
		d.rect([]string{"calm", "with"}[i], at, 26, 12, 12)
		d.text(at+18, 37, "start", "soft", fmt.Sprintf("%s: %s requests", s.name, count(len(s.latencies))))
		at += 230
	}
}
