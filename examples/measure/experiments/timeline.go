package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// panel is one load over time.
type panel struct {
	title, note string
	samples     samples
	marks       []time.Duration // when something was redeployed or stopped
	length      time.Duration
}

const (
	wide        = 1120.0
	left, right = 84.0, wide - 36
	panelHeight = 150.0
	lossHeight  = 26.0
	panelPitch  = panelHeight + lossHeight + 52
)

// drawTimeline draws the panels below each other, on the same scales.
func drawTimeline(title string, panels []panel) []byte {
	d := newDrawing(title, wide, 64+panelPitch*float64(len(panels))+36)
	length, least, most := time.Duration(0), time.Duration(1<<62), time.Duration(0)
	for _, p := range panels {
		length = max(length, p.length)
		l := p.samples.latencies()
		least, most = min(least, l.at(0.5)/2), max(most, l.at(1))
	}
	x := scale{0, length.Seconds(), left, right}
	for i, p := range panels {
		top := 64 + panelPitch*float64(i)
		d.latencies(p, x, top, logScale(least, most, top+lossHeight+36+panelHeight, top+lossHeight+36))
	}
	d.seconds(x, 64+panelPitch*float64(len(panels))-14)
	return d.finish()
}

// latencies draws one panel: its name, what failed, and the latency of what was answered.
func (d *drawing) latencies(p panel, x scale, top float64, y scale) {
	d.text(left, top+14, "start", "name", p.title)
	class := "good"
	if p.samples.failed() > 0 {
		class = "bad"
	}
	d.text(right, top+14, "end", class, p.note)
	y.decades(func(at float64, label string) {
		d.line("grid", left, at, right, at)
		d.text(left-10, at+4, "end", "soft", label)
	})
	for _, m := range p.marks {
		d.line("mark", x.at(m.Seconds()), top+26, x.at(m.Seconds()), y.from)
	}
	columns := p.columns(220)
	width := (x.to - x.from) * p.length.Seconds() / (x.high * float64(len(columns)))
	d.bands(columns, width, y)
	d.failures(columns, width, top+26)
	d.text(left-10, top+26+lossHeight-6, "end", "soft", "failed")
}

// column is the requests of one piece of time.
type column struct {
	latencies        spread
	failed, answered int
}

func (p panel) columns(n int) []column {
	all := make([]column, n)
	for _, s := range p.samples {
		i := int(float64(n) * float64(s.at) / float64(p.length))
		if i < 0 || i >= n {
			continue
		}
		if s.failure != "" {
			all[i].failed++
			continue
		}
		all[i].answered++
		all[i].latencies = append(all[i].latencies, s.latency)
	}
	for i := range all {
		slices.Sort(all[i].latencies)
	}
	return all
}

// bands draws p50 to p95 and p95 to p99 as columns, the median as a line that breaks where nobody was answered, and the
// slowest answers as dots.
func (d *drawing) bands(columns []column, width float64, y scale) {
	var line, outer, inner, dots strings.Builder // one path each: thousands of elements would be a big file
	box := func(path *strings.Builder, x, top, height float64) {
		fmt.Fprintf(path, "M%.1f %.1fh%.1fv%.1fh-%.1fz", x, top, width+0.2, height, width+0.2)
	}
	pen := "M"
	for i, c := range columns {
		if len(c.latencies) == 0 {
			pen = "M"
			continue
		}
		x := left + width*float64(i)
		p50, p95, p99 := y.log(c.latencies.at(0.5)), y.log(c.latencies.at(0.95)), y.log(c.latencies.at(0.99))
		box(&outer, x, p99, p95-p99)
		box(&inner, x, p95, p50-p95)
		fmt.Fprintf(&dots, "M%.1f %.1fh0", x+width/2, y.log(c.latencies.at(1)))
		fmt.Fprintf(&line, "%s%.1f %.1f", pen, x+width/2, p50)
		pen = "L"
	}
	d.put(`<path class="wide" d="%s"/><path class="narrow" d="%s"/><path class="slowest" d="%s"/><path class="median" d="%s"/>`,
		outer.String(), inner.String(), dots.String(), line.String())
}

// failures draws how many requests failed, as bars of which the highest fills the strip.
func (d *drawing) failures(columns []column, width, top float64) {
	most := 0
	for _, c := range columns {
		most = max(most, c.failed)
	}
	for i, c := range columns {
		if c.failed > 0 {
			height := max(3, lossHeight*float64(c.failed)/float64(most))
			d.rect("bad", left+width*float64(i), top+lossHeight-height, max(2, width), height)
		}
	}
	d.line("grid", left, top+lossHeight, right, top+lossHeight)
}

// drawCounts draws how many calls ended in each piece of time, answered and failed.
func drawCounts(title string, panels []panel) []byte {
	const high = 84.0
	d := newDrawing(title, wide, 64+(high+62)*float64(len(panels))+4)
	for i, p := range panels {
		top := 64 + (high+62)*float64(i)
		d.text(left, top+14, "start", "name", p.title)
		class := "good"
		if p.samples.failed() > 0 {
			class = "bad"
		}
		d.text(right, top+14, "end", class, p.note)
		d.counts(p, scale{0, p.length.Seconds(), left, right}, top+26, high)
	}
	return d.finish()
}

func (d *drawing) counts(p panel, x scale, top, high float64) {
	n := max(1, int(p.length/(100*time.Millisecond)))
	ended := panel{length: p.length}
	for _, s := range p.samples {
		s.at = s.end()
		ended.samples = append(ended.samples, s)
	}
	columns := ended.columns(n)
	most := 1
	for _, c := range columns {
		most = max(most, c.answered+c.failed)
	}
	width := (x.to - x.from) / float64(n)
	for i, c := range columns {
		at, bad, good := x.from+width*float64(i), high*float64(c.failed)/float64(most), high*float64(c.answered)/float64(most)
		d.rect("with", at, top+high-good, width*0.8, good)
		d.rect("bad", at, top+high-good-bad, width*0.8, bad)
	}
	for _, m := range p.marks {
		d.line("mark", x.at(m.Seconds()), top-4, x.at(m.Seconds()), top+high)
	}
	d.text(left-10, top+8, "end", "soft", fmt.Sprint(most))
	d.text(left-10, top+high, "end", "soft", "0")
	d.seconds(x, top+high)
}
