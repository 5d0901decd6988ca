package prove

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// The picture, in pixels.
const (
	plotWidth, plotHeight = 1120.0, 520.0
	plotLeft, plotRight   = 76.0, 1096.0
	lossTop, lossBottom   = 104.0, 148.0 // the strip with the lost requests
	plotTop, plotBottom   = 160.0, 440.0
)

// colours of the kinds of loss.
var colours = map[Kind]string{
	Refused: "#7b1fa2", Reset: "#c62828", Closed: "#ef6c00", TimedOut: "#5d4037", Status5: "#ad1457", Other: "#455a64",
}

// column is the requests of one piece of time.
type column struct {
	p50, p95, p99, max time.Duration
	empty              bool
}

// chart is a picture being drawn.
type chart struct {
	bytes.Buffer
	took    time.Duration
	width   time.Duration // of a column
	low     float64       // of the latency axis, log10 of milliseconds
	high    float64
	columns []column
}

// Plot draws the latency over time (percentiles of columns of 100 ms or more, on a logarithmic axis), with the reloads and the
// lost requests, as SVG.
func (v *Verdict) Plot() []byte {
	c := &chart{took: time.Duration(v.Took * float64(time.Millisecond))}
	c.took = max(c.took, 100*time.Millisecond)
	c.width = max(100*time.Millisecond, (c.took / 250).Round(100*time.Millisecond))
	c.fill(v.records)
	c.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %[1]g %[2]g" font-family="system-ui, 'DejaVu Sans', sans-serif" font-size="13" fill="#222">`,
		plotWidth, plotHeight)
	c.printf(`<rect width="100%%" height="100%%" fill="white"/>`)
	c.title(v)
	c.reloads(v.Reloads)
	c.axes()
	c.bands()
	c.losses(v.lost)
	c.legend(v)
	c.printf("</svg>")
	return c.Bytes()
}

func (c *chart) printf(format string, args ...any) { fmt.Fprintf(c, format+"\n", args...) }

// text writes what may hold anything.
func (c *chart) text(x, y float64, attributes, words string) {
	var safe strings.Builder
	xml.EscapeText(&safe, []byte(words)) //nolint:errcheck // a Builder takes everything
	c.printf(`<text x="%.1f" y="%.1f" %s>%s</text>`, x, y, attributes, safe.String())
}

// fill sorts the answered requests into columns by when they were sent, and fits the axis to them.
func (c *chart) fill(records []record) {
	sorted := make([][]time.Duration, int(c.took/c.width)+1)
	for _, r := range records {
		if i := int(r.at / c.width); !r.lost && i >= 0 && i < len(sorted) {
			sorted[i] = append(sorted[i], r.latency)
		}
	}
	least, most := time.Duration(math.MaxInt64), time.Duration(0)
	for _, l := range sorted {
		slices.Sort(l)
		if len(l) == 0 {
			c.columns = append(c.columns, column{empty: true})
			continue
		}
		x := column{p50: percentile(l, 50), p95: percentile(l, 95), p99: percentile(l, 99), max: l[len(l)-1]}
		c.columns = append(c.columns, x)
		least, most = min(least, x.p50), max(most, x.max)
	}
	if most == 0 {
		least, most = time.Millisecond, 10*time.Millisecond
	}
	c.low = math.Floor(math.Log10(max(0.01, ms(least))))
	c.high = max(c.low+1, math.Ceil(math.Log10(max(0.01, ms(most)))))
}

func (c *chart) x(at time.Duration) float64 {
	return plotLeft + (plotRight-plotLeft)*min(1, max(0, float64(at)/float64(c.took)))
}

func (c *chart) y(latency time.Duration) float64 {
	part := (math.Log10(max(0.001, ms(latency))) - c.low) / (c.high - c.low)
	return plotBottom - (plotBottom-plotTop)*min(1, max(0, part))
}

func (c *chart) title(v *Verdict) {
	c.text(plotLeft, 34, `font-size="20" font-weight="600"`,
		fmt.Sprintf("%s: %d requests, %d reloads, %d lost", v.Program, v.Requests.Sent, len(v.Reloads), v.Requests.Lost))
	c.text(plotLeft, 56, `fill="#666"`, fmt.Sprintf("%s, %d requests a second for %s; longest time without an answer %s",
		v.Target, v.Rate, lasting(v.Took), lasting(v.Gap.Length)))
}

// reloads draws when the new workers started and the old ones drained.
func (c *chart) reloads(list []Reload) {
	at := func(millis float64) time.Duration { return time.Duration(millis * float64(time.Millisecond)) }
	band := func(from, to time.Duration, colour string) {
		if w := c.x(to) - c.x(from); w > 0 {
			c.printf(`<rect x="%.1f" y="%g" width="%.1f" height="%g" fill="%s"/>`, c.x(from), lossTop, w, plotBottom-lossTop, colour)
		}
	}
	for _, r := range list {
		hup, decided, settled := at(r.At), c.took, c.took
		if r.Decided != nil {
			decided = hup + at(*r.Decided)
		}
		if r.Settled != nil {
			settled = hup + at(*r.Settled)
		}
		band(decided, settled, "#eceff1")
		band(hup, decided, "#ffe9b8")
	}
	last := -100.0
	for _, r := range list {
		x, colour := c.x(at(r.At)), "#e09f00"
		if r.Outcome == Failed || r.Outcome == Undecided {
			colour = "#c62828"
		}
		c.printf(`<line x1="%.1f" x2="%.1f" y1="%g" y2="%g" stroke="%s" stroke-width="1.5"/>`, x, x, lossTop-6, plotBottom, colour)
		if x-last >= 22 { // no two numbers on each other
			c.text(x, lossTop-11, `text-anchor="middle" font-size="12" fill="#8a6200"`, fmt.Sprint(r.Number))
			last = x
		}
	}
	c.text(plotLeft-10, lossTop-11, `text-anchor="end" font-size="12" fill="#8a6200"`, "reload")
}

func (c *chart) axes() {
	for e := c.low; e <= c.high; e++ {
		y := c.y(time.Duration(math.Pow(10, e) * float64(time.Millisecond)))
		c.printf(`<line x1="%g" x2="%g" y1="%.1f" y2="%.1f" stroke="#cfd8dc"/>`, plotLeft, plotRight, y, y)
		c.text(plotLeft-10, y+4, `text-anchor="end" fill="#555"`, decade(e))
	}
	step := nice(c.took / 10)
	for at := time.Duration(0); at <= c.took; at += step {
		c.printf(`<line x1="%.1f" x2="%.1f" y1="%g" y2="%g" stroke="#90a4ae"/>`, c.x(at), c.x(at), plotBottom, plotBottom+5)
		c.text(c.x(at), plotBottom+20, `text-anchor="middle" fill="#555"`, fmt.Sprintf("%g s", at.Seconds()))
	}
	c.printf(`<line x1="%g" x2="%g" y1="%g" y2="%g" stroke="#90a4ae"/>`, plotLeft, plotRight, plotBottom, plotBottom)
	c.text(plotLeft-10, (lossTop+lossBottom)/2+5, `text-anchor="end" fill="#555"`, "lost")
	c.printf(`<line x1="%g" x2="%g" y1="%g" y2="%g" stroke="#cfd8dc"/>`, plotLeft, plotRight, lossBottom, lossBottom)
}

// decade is the label of a power of ten of milliseconds.
func decade(e float64) string {
	if e >= 3 {
		return fmt.Sprintf("%g s", math.Pow(10, e-3))
	}
	return fmt.Sprintf("%g ms", math.Pow(10, e))
}

// nice is the next longer time that people count in.
func nice(d time.Duration) time.Duration {
	for unit := 100 * time.Millisecond; ; unit *= 10 {
		for _, n := range []time.Duration{1, 2, 5} {
			if n*unit >= d {
				return n * unit
			}
		}
	}
}

// bands draws p50 to p95 and p95 to p99 as areas, the median as a line, and the slowest of each column as a dot.
func (c *chart) bands() {
	c.area(func(x column) (time.Duration, time.Duration) { return x.p95, x.p99 }, "#bbdefb")
	c.area(func(x column) (time.Duration, time.Duration) { return x.p50, x.p95 }, "#64b5f6")
	for _, run := range c.runs() {
		var points strings.Builder
		for i := run[0]; i < run[1]; i++ {
			fmt.Fprintf(&points, "%.1f,%.1f ", c.middle(i), c.y(c.columns[i].p50))
		}
		c.printf(`<polyline points="%s" fill="none" stroke="#0d47a1" stroke-width="2" stroke-linejoin="round" stroke-linecap="round"/>`, points.String())
	}
	for i, x := range c.columns {
		if !x.empty {
			c.printf(`<circle cx="%.1f" cy="%.1f" r="1.6" fill="#546e7a"/>`, c.middle(i), c.y(x.max))
		}
	}
}

func (c *chart) middle(i int) float64 { return c.x(time.Duration(i)*c.width + c.width/2) }

func (c *chart) area(edges func(column) (low, high time.Duration), colour string) {
	for _, run := range c.runs() {
		var there, back string
		for i := run[0]; i < run[1]; i++ {
			low, high := edges(c.columns[i])
			there += fmt.Sprintf("%.1f,%.1f ", c.middle(i), c.y(high))
			back = fmt.Sprintf("%.1f,%.1f ", c.middle(i), c.y(low)) + back
		}
		c.printf(`<polygon points="%s%s" fill="%s" fill-opacity="0.8"/>`, there, back, colour)
	}
}

// runs are the ranges of columns without an empty one.
func (c *chart) runs() [][2]int {
	var runs [][2]int
	from := -1
	for i, x := range c.columns {
		switch {
		case !x.empty && from < 0:
			from = i
		case x.empty && from >= 0:
			runs, from = append(runs, [2]int{from, i}), -1
		}
	}
	if from >= 0 {
		runs = append(runs, [2]int{from, len(c.columns)})
	}
	return runs
}

// losses draws how many requests were lost in each column, by kind, as bars on one another.
func (c *chart) losses(lost []lostRequest) {
	counts := make([]map[Kind]int, len(c.columns))
	most := 0
	for _, l := range lost {
		i := min(max(0, int(l.at/c.width)), len(counts)-1)
		if counts[i] == nil {
			counts[i] = map[Kind]int{}
		}
		counts[i][l.kind]++
		sum := 0
		for _, n := range counts[i] {
			sum += n
		}
		most = max(most, sum)
	}
	wide := max(4, (c.x(c.width)-c.x(0))-0.5)
	for i, count := range counts {
		y := lossBottom
		for _, k := range kinds {
			if n := count[k]; n > 0 {
				h := (lossBottom - lossTop) * float64(n) / float64(most)
				y -= h
				c.printf(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`, c.middle(i)-wide/2, y, wide, h, colours[k])
			}
		}
	}
	if most > 0 {
		c.text(plotRight, lossTop-11, `text-anchor="end" font-size="12" fill="#555"`, fmt.Sprintf("highest bar: %d in %s", most, c.width))
	}
}

func (c *chart) legend(v *Verdict) {
	x := plotLeft
	item := func(colour, words string) {
		c.printf(`<rect x="%.1f" y="%g" width="14" height="14" fill="%s"/>`, x, plotBottom+44, colour)
		c.text(x+20, plotBottom+56, "", words)
		x += 42 + 7.2*float64(len(words))
	}
	item("#0d47a1", "p50")
	item("#64b5f6", "to p95")
	item("#bbdefb", "to p99")
	item("#546e7a", "slowest (dots)")
	item("#ffe9b8", "new workers start")
	item("#eceff1", "old workers drain")
	for _, k := range kinds {
		if n := v.Requests.Kinds[k]; n > 0 {
			item(colours[k], fmt.Sprintf("%s: %d", words[k], n))
		}
	}
}
