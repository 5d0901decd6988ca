package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/internal/lab/plot"
)

// panelHeight is the height of the latencies in a timeline.
const panelHeight = 150

// marks draws redeploys as lines.
func marks(at []time.Duration) (all []plot.Mark) {
	for _, moment := range at {
		all = append(all, plot.Mark{At: moment})
	}
	return all
}

// latencyAxis draws the lines and labels of a vertical axis of latencies.
func latencyAxis(d *plot.Drawing, y plot.Axis) {
	y.Decades(func(at float64, label string) {
		d.Line("grid", plot.Left, at, plot.Right, at)
		d.Text(plot.Left-10, at+4, "end", "soft", label)
	})
}

// series is latencies with a name.
type series struct {
	name      string
	latencies load.Times
}

// barsPerDecade is how many bars of a histogram a power of ten has.
const barsPerDecade = 20

// drawHistogram draws two series over each other, the first as bars, the second as a line. Both axes are logarithmic,
// so that one request in a hundred thousand is seen.
func drawHistogram(title string, bars, line series) []byte {
	const top, bottom = 76, 370
	d := plot.New(title, plot.Width, 420)
	x := plot.Log(min(bars.latencies.Quantile(0), line.latencies.Quantile(0)),
		max(bars.latencies.Quantile(1), line.latencies.Quantile(1)), plot.Left, plot.Right)
	first, firstMost := bars.counts(x)
	second, secondMost := line.counts(x)
	// Below 1 there is room for a bar of one request.
	y := plot.Axis{Low: -0.3, High: math.Ceil(math.Log10(float64(max(1, firstMost, secondMost)))), From: bottom, To: top}
	for e := 0.0; e <= y.High; e++ {
		d.Line("grid", plot.Left, y.At(e), plot.Right, y.At(e))
		d.Text(plot.Left-10, y.At(e)+4, "end", "soft", count(int(math.Pow(10, e))))
	}
	x.Decades(func(at float64, label string) {
		d.Line("axis", at, bottom, at, bottom+5)
		d.Text(at, bottom+22, "middle", "soft", label)
	})
	d.Line("axis", plot.Left, bottom, plot.Right, bottom)
	width := (plot.Right - plot.Left) / float64(len(first))
	height := func(n int) float64 {
		if n == 0 {
			return bottom
		}
		return y.At(math.Log10(float64(n)))
	}
	var path strings.Builder
	fmt.Fprintf(&path, "M%.1f %d", plot.Left, bottom)
	for i := range first {
		from := plot.Left + width*float64(i)
		d.Rect("calm", from, height(first[i]), width-0.6, bottom-height(first[i]))
		fmt.Fprintf(&path, "L%.1f %.1fL%.1f %.1f", from, height(second[i]), from+width, height(second[i]))
	}
	d.Path("step", path.String()+fmt.Sprintf("L%.1f %d", plot.Right, bottom))
	d.Legend(630, 37, plot.LegendItem{Class: "calm", Words: bars.key()}, plot.LegendItem{Class: "with", Words: line.key()})
	return d.SVG()
}

func (s series) key() string { return fmt.Sprintf("%s: %s requests", s.name, count(len(s.latencies))) }

// counts returns how many latencies each bar has, and the most.
func (s series) counts(x plot.Axis) (n []int, most int) {
	n = make([]int, int(x.High-x.Low)*barsPerDecade)
	for _, l := range s.latencies {
		i := max(0, min(int((plot.Log10(l)-x.Low)*barsPerDecade), len(n)-1))
		n[i]++
		most = max(most, n[i])
	}
	return n, most
}

// drawGaps draws the gap of every stretch as a dot, the median as a bar, in pairs of columns.
func drawGaps(title string, all []gapping) []byte {
	d := plot.New(title, plot.Width, 400)
	least, most := time.Duration(math.MaxInt64), time.Duration(0)
	for _, g := range all {
		least, most = min(least, g.calm.Quantile(0), g.with.Quantile(0)), max(most, g.calm.Quantile(1), g.with.Quantile(1))
	}
	y := plot.Log(least, most, 350, 70)
	latencyAxis(d, y)
	pitch := (plot.Right - plot.Left) / float64(len(all))
	for i, g := range all {
		middle := plot.Left + pitch*(float64(i)+0.5)
		d.Text(middle, 384, "middle", "name", "workers: "+g.workers)
		drawColumn(d, "calm", "no redeploy", g.calm, middle-40, y)
		drawColumn(d, "with", "redeploy", g.with, middle+40, y)
	}
	for _, published := range []struct {
		gap  time.Duration
		name string
	}{{200 * time.Millisecond, "published: 0.2 s"}, {15 * time.Millisecond, "published, tuned: 0.015 s"}} {
		if at := y.Log(published.gap); at > y.To && at < y.From {
			d.Line("mark", plot.Left, at, plot.Right, at)
			d.Text(plot.Right, at-4, "end", "soft", published.name)
		}
	}
	return d.SVG()
}

func drawColumn(d *plot.Drawing, class, name string, gaps load.Times, x float64, y plot.Axis) {
	d.Text(x, 366, "middle", "soft", name)
	for i, gap := range gaps {
		d.Dot(class, x+float64(i%5-2)*5, y.Log(gap), 3.2)
	}
	d.Rect(class, x-26, y.Log(gaps.Quantile(0.5))-1.5, 52, 3)
}

// drawCounts draws how many calls ended in each tenth of a second, answered and failed.
func drawCounts(title string, panels []plot.Panel) []byte {
	const height, pitch = 84.0, 84.0 + 62
	d := plot.New(title, plot.Width, 90+pitch*float64(len(panels)))
	for i, p := range panels {
		top := 64 + pitch*float64(i)
		d.Text(plot.Left, top+14, "start", "name", p.Title)
		class := "good"
		if failed(p.Attempts) > 0 {
			class = "bad"
		}
		d.Text(plot.Right, top+14, "end", class, p.Note)
		drawEnds(d, p, top+26, height)
	}
	bottom := 72 + pitch*float64(len(panels))
	d.Legend(plot.Left, bottom, plot.LegendItem{Class: "with", Words: "answered"},
		plot.LegendItem{Class: "bad", Words: "failed"})
	d.Text(plot.Right, bottom, "end", "soft", "in each tenth of a second")
	return d.SVG()
}

func drawEnds(d *plot.Drawing, p plot.Panel, top, height float64) {
	n := max(1, int(p.Length/(100*time.Millisecond)))
	answered, lost, most := make([]float64, n), make([]float64, n), 1.0
	for _, a := range p.Attempts {
		i := int(float64(n) * float64(a.End()) / float64(p.Length))
		if i < 0 || i >= n {
			continue
		}
		if a.Lost == nil {
			answered[i]++
		} else {
			lost[i]++
		}
		most = max(most, answered[i]+lost[i])
	}
	x := plot.Axis{High: p.Length.Seconds(), From: plot.Left, To: plot.Right}
	width := (plot.Right - plot.Left) / float64(n)
	for i := range n {
		at, good, bad := plot.Left+width*float64(i), height*answered[i]/most, height*lost[i]/most
		d.Rect("with", at, top+height-good, width*0.8, good)
		d.Rect("bad", at, top+height-good-bad, width*0.8, bad)
	}
	for _, m := range p.Marks {
		d.Line("mark", x.At(m.At.Seconds()), top-4, x.At(m.At.Seconds()), top+height)
	}
	d.Text(plot.Left-10, top+8, "end", "soft", fmt.Sprint(most))
	d.Text(plot.Left-10, top+height, "end", "soft", "0")
	d.Seconds(x, top+height)
}
