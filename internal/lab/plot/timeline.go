package plot

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/supervisord/internal/lab/load"
)

// Panel is one load over time.
type Panel struct {
	Title, Note string // above, left and right; the note is green if nothing was lost
	Attempts    load.Attempts
	Marks       []Mark
	Spans       []Span // what went on meanwhile, drawn behind
	Length      time.Duration
}

// Mark is a moment at which something was done.
type Mark struct {
	At     time.Duration
	Words  string
	Failed bool
}

// Span is a time, in the colour of a class.
type Span struct {
	From, To time.Duration
	Class    string
}

// The measures of a timeline, in pixels.
const (
	Width       = 1120.0
	Left, Right = 84.0, Width - 36 // the time axis
	lossHeight  = 40.0
	latencyTop  = lossHeight + 52

	mostColumns = 220
	shortest    = 100 * time.Millisecond // of a column
)

// Timeline draws panels below each other on the same scales, each with what was lost above the latencies of what was
// answered. height is that of the latencies of a panel; keys are a legend for the Spans.
func Timeline(title string, height float64, panels []Panel, keys ...LegendItem) []byte {
	pitch := height + latencyTop + 16
	bottom := 64 + pitch*float64(len(panels))
	keys = append([]LegendItem{{"with", "p50"}, {"narrow", "to p95"}, {"wide", "to p99"}, {"calm", "slowest (dots)"}},
		keys...)
	for _, p := range panels {
		keys = append(keys, p.lossKeys(keys)...)
	}
	d := New(title, Width, bottom+54+legendPitch*float64(len(legendRows(Left, keys))))
	length, least, most := 100*time.Millisecond, time.Duration(1<<62), time.Duration(0)
	for _, p := range panels {
		length = max(length, p.Length)
		l := p.Attempts.Latencies()
		least, most = min(least, l.Quantile(0.5)/2), max(most, l.Quantile(1))
	}
	x := Axis{0, length.Seconds(), Left, Right}
	for i, p := range panels {
		top := 64 + pitch*float64(i)
		d.panel(p, x, top, Log(least, most, top+latencyTop+height, top+latencyTop))
	}
	d.Seconds(x, bottom-14)
	d.Legend(Left, bottom+50, keys...)
	return d.SVG()
}

func (d *Drawing) panel(p Panel, x Axis, top float64, y Axis) {
	title := []rune(p.Title)
	if room := int((Right-Left)/nameWidth) - len(p.Note) - 2; len(title) > room {
		title = append(title[:room-1], '…')
	}
	d.Text(Left, top+14, "start", "name", string(title))
	class := "good"
	if lost, _ := p.Attempts.Lost(); lost > 0 {
		class = "bad"
	}
	d.Text(Right, top+14, "end", class, p.Note)
	top += 26
	for _, s := range p.Spans {
		d.Rect(s.Class, x.At(s.From.Seconds()), top+14, x.At(s.To.Seconds())-x.At(s.From.Seconds()), y.From-top-14)
	}
	y.Decades(func(at float64, label string) {
		d.Line("grid", Left, at, Right, at)
		d.Text(Left-10, at+4, "end", "soft", label)
	})
	d.marks(p.Marks, x, top, y.From)
	columns := p.columns()
	width := (x.To - x.From) * p.Length.Seconds() / (x.High * float64(len(columns)))
	d.latencies(columns, width, y)
	d.losses(columns, width, top+14)
}

// nameWidth is that of a character of a panel's title, about.
const nameWidth = 8.0

// marks draws vertical lines, and their words where these do not cover each other.
func (d *Drawing) marks(marks []Mark, x Axis, top, bottom float64) {
	last := -100.0 // where the last words end
	for _, m := range marks {
		at, class := x.At(m.At.Seconds()), "mark"
		if m.Failed {
			class = "failure"
		}
		d.Line(class, at, top+14, at, bottom)
		if half := charWidth * float64(len(m.Words)) / 2; at-half >= last+6 {
			d.Text(at, top+9, "middle", "soft", m.Words)
			last = at + half
		}
	}
}

// column is the requests of one piece of time.
type column struct {
	latencies load.Times
	lost      map[load.LossKind]int
	losses    int
}

func (p Panel) columns() []column {
	n := max(1, min(mostColumns, int(p.Length/shortest)))
	all := make([]column, n)
	for i := range all {
		all[i].lost = map[load.LossKind]int{}
	}
	for _, s := range p.Attempts {
		at := s.At
		if s.Lost != nil {
			at = s.End()
		}
		i := int(float64(n) * float64(at) / float64(max(p.Length, 1)))
		if i < 0 || i >= n {
			continue
		}
		if s.Lost != nil {
			all[i].lost[s.Lost.Kind]++
			all[i].losses++
			continue
		}
		all[i].latencies = append(all[i].latencies, s.Latency)
	}
	for i := range all {
		slices.Sort(all[i].latencies)
	}
	return all
}

// latencies draws p50 to p95 and p95 to p99 as columns, the median as a line that breaks where no request was answered,
// and the slowest answers as dots.
func (d *Drawing) latencies(columns []column, width float64, y Axis) {
	var line, outer, inner, dots strings.Builder // one path each: thousands of elements would make a big file
	box := func(path *strings.Builder, x, top, height float64) {
		fmt.Fprintf(path, "M%.1f %.1fh%.1fv%.1fh-%.1fz", x, top, width+0.2, height, width+0.2)
	}
	pen := "M"
	for i, c := range columns {
		if len(c.latencies) == 0 {
			pen = "M"
			continue
		}
		x := Left + width*float64(i)
		p50, p95, p99 := y.Log(c.latencies.Quantile(0.5)), y.Log(c.latencies.Quantile(0.95)), y.Log(
			c.latencies.Quantile(0.99))
		box(&outer, x, p99, p95-p99)
		box(&inner, x, p95, p50-p95)
		fmt.Fprintf(&dots, "M%.1f %.1fh0", x+width/2, y.Log(c.latencies.Quantile(1)))
		fmt.Fprintf(&line, "%s%.1f %.1f", pen, x+width/2, p50)
		pen = "L"
	}
	d.Path("wide", outer.String())
	d.Path("narrow", inner.String())
	d.Path("slowest", dots.String())
	d.Path("median", line.String())
}

// lossClass is the class of each kind of loss.
var lossClass = map[load.LossKind]string{load.Refused: "refused", load.Reset: "reset", load.Closed: "closed",
	load.TimedOut: "timeout", load.Status5: "error5", load.Other: "other"}

// losses draws how many requests were lost, as bars of which the highest fills the strip.
func (d *Drawing) losses(columns []column, width, top float64) {
	most := 0
	for _, c := range columns {
		most = max(most, c.losses)
	}
	for i, c := range columns {
		y := top + lossHeight
		for _, kind := range load.Kinds {
			if n := c.lost[kind]; n > 0 {
				height := max(3, (lossHeight-6)*float64(n)/float64(most))
				y -= height
				d.Rect(lossClass[kind], Left+width*float64(i), y, max(4, width), height)
			}
		}
	}
	d.Line("grid", Left, top+lossHeight, Right, top+lossHeight)
	d.Text(Left-10, top+lossHeight-6, "end", "soft", "lost")
	if most > 0 {
		d.Text(Left-10, top+12, "end", "soft", fmt.Sprint(most))
	}
}

// lossKeys are the legend for the kinds of loss that have none yet.
func (p Panel) lossKeys(have []LegendItem) (keys []LegendItem) {
	_, kinds := p.Attempts.Lost()
	for _, k := range load.Kinds {
		if kinds[k] > 0 && !slices.ContainsFunc(have, func(key LegendItem) bool { return key.Class == lossClass[k] }) {
			keys = append(keys, LegendItem{lossClass[k], string(k)})
		}
	}
	return keys
}
