// Package plot draws measurements as SVG: simple drawings with scales, and requests over time. A plotting library would
// do more, but `supervisord prove` is part of the daemon's binary, which is executed again for every worker that
// starts.
package plot

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strings"
	"time"
)

// Drawing is an SVG being written. It brings its own background, light or dark like the reader's system.
type Drawing struct{ out bytes.Buffer }

// The classes of what is drawn have the same names as the methods' class argument.
const style = `<style>
text{fill:#24292f;font-family:system-ui,'DejaVu Sans',sans-serif;font-size:13px}
.ground{fill:#ffffff;stroke:#d0d7de}.title{font-size:20px;font-weight:600}` +
	`.name{font-size:14px;font-weight:600}.soft{fill:#57606a}.bad{fill:#cf222e}.good{fill:#1a7f37}
.grid{stroke:#eaeef2}.axis{stroke:#afb8c1}.mark{stroke:#8c959f;stroke-dasharray:3 3}` +
	`.failure{stroke:#cf222e;stroke-width:1.5}
.wide{fill:#ddf4ff}.narrow{fill:#80ccff}` +
	`.median{stroke:#0969da;fill:none;stroke-width:1.8;stroke-linejoin:round}` +
	`.slowest{stroke:#57606a;stroke-width:2.4;stroke-linecap:round}.calm{fill:#afb8c1}.with{fill:#0969da}` +
	`.step{stroke:#0969da;fill:none;stroke-width:1.8}
.start{fill:#fff1c7}.drain{fill:#f0f2f4}.refused{fill:#8250df}.reset{fill:#cf222e}.closed{fill:#e16f24}` +
	`.timeout{fill:#7d4e00}.error5{fill:#bf3989}.other{fill:#57606a}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}.ground{fill:#0d1117;stroke:#30363d}.soft{fill:#8d96a0}.bad{fill:#ff7b72}.good{fill:#3fb950}
.grid{stroke:#21262d}.axis{stroke:#6e7681}.mark{stroke:#6e7681}.failure{stroke:#ff7b72}
.wide{fill:#0c2d6b}.narrow{fill:#1158c7}.median{stroke:#79c0ff}.slowest{stroke:#8d96a0}.calm{fill:#6e7681}` +
	`.with{fill:#58a6ff}.step{stroke:#58a6ff}
.start{fill:#3b2a00}.drain{fill:#1c2128}.refused{fill:#a371f7}.reset{fill:#ff7b72}.closed{fill:#f0883e}` +
	`.timeout{fill:#d29922}.error5{fill:#f778ba}.other{fill:#8d96a0}
}</style>`

// New begins a drawing of a size in pixels.
func New(title string, width, height float64) *Drawing {
	d := &Drawing{}
	d.put(`<svg xmlns="http://www.w3.org/2000/svg" width="%[1]g" height="%[2]g" viewBox="0 0 %[1]g %[2]g" role="img">`,
		width, height)
	d.put(`<title>%s</title>`, escaped(title))
	d.put("%s", style)
	d.put(`<rect class="ground" x="0.5" y="0.5" width="%g" height="%g" rx="6"/>`, width-1, height-1)
	d.Text(24, 36, "start", "title", title)
	return d
}

func (d *Drawing) put(format string, args ...any) { fmt.Fprintf(&d.out, format+"\n", args...) }

// SVG ends the drawing and returns it.
func (d *Drawing) SVG() []byte {
	d.put("</svg>")
	return d.out.Bytes()
}

func escaped(words string) string {
	var safe strings.Builder
	xml.EscapeText(&safe, []byte(words)) //nolint:errcheck // a Builder takes everything
	return safe.String()
}

// Text writes words at a point; anchor is start, middle or end.
func (d *Drawing) Text(x, y float64, anchor, class, words string) {
	d.put(`<text x="%.1f" y="%.1f" text-anchor="%s" class="%s">%s</text>`, x, y, anchor, class, escaped(words))
}

// Line draws a line between two points.
func (d *Drawing) Line(class string, x1, y1, x2, y2 float64) {
	d.put(`<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, class, x1, y1, x2, y2)
}

// Rect draws a rectangle, unless it is empty.
func (d *Drawing) Rect(class string, x, y, width, height float64) {
	if width > 0 && height > 0 {
		d.put(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, class, x, y, width, height)
	}
}

// Dot draws a circle of radius r.
func (d *Drawing) Dot(class string, x, y, r float64) {
	d.put(`<circle class="%s" cx="%.1f" cy="%.1f" r="%g"/>`, class, x, y, r)
}

// Path draws a path in the language of SVG: many small shapes as one element.
func (d *Drawing) Path(class, path string) { d.put(`<path class="%s" d="%s"/>`, class, path) }

// LegendItem is one item of a legend.
type LegendItem struct{ Class, Words string }

// Legend draws keys from left to right, in as many rows as they need.
func (d *Drawing) Legend(x, y float64, keys ...LegendItem) {
	for i, row := range legendRows(x, keys) {
		at := x
		for _, k := range row {
			d.Rect(k.Class, at, y-11+legendPitch*float64(i), 12, 12)
			d.Text(at+18, y+legendPitch*float64(i), "start", "soft", k.Words)
			at += k.width()
		}
	}
}

const legendPitch = 22.0

// charWidth is that of a character, about: a legend and a title are laid out without the font.
const charWidth = 7.2

func (k LegendItem) width() float64 { return 40 + charWidth*float64(len(k.Words)) }

func legendRows(x float64, keys []LegendItem) (rows [][]LegendItem) {
	at := Right
	for _, k := range keys {
		if at+k.width() > Right {
			rows, at = append(rows, nil), x
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], k)
		at += k.width()
	}
	return rows
}

// Axis maps values to pixels.
type Axis struct {
	Low, High float64 // values; their logarithms where it is logarithmic
	From, To  float64 // pixels
}

// Log returns a logarithmic scale of whole decades of milliseconds that holds all latencies from least to most.
func Log(least, most time.Duration, from, to float64) Axis {
	if most <= 0 {
		least, most = time.Millisecond, 10*time.Millisecond
	}
	low := math.Floor(math.Log10(millis(max(least, 10*time.Microsecond))))
	return Axis{low, max(low+1, math.Ceil(math.Log10(millis(most)))), from, to}
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// At is the pixel of a value.
func (s Axis) At(v float64) float64 {
	part := (v - s.Low) / (s.High - s.Low)
	return s.From + (s.To-s.From)*min(1, max(0, part))
}

// Log10 is the value of a latency on a scale of Log.
func Log10(d time.Duration) float64 { return math.Log10(millis(max(d, time.Microsecond))) }

// Log is the pixel of a latency on a scale of Log.
func (s Axis) Log(d time.Duration) float64 { return s.At(Log10(d)) }

// Decades calls put for each power of ten on a scale of Log.
func (s Axis) Decades(put func(pixel float64, label string)) {
	for e := s.Low; e <= s.High; e++ {
		label := fmt.Sprintf("%g ms", math.Pow(10, e))
		if e >= 3 {
			label = fmt.Sprintf("%g s", math.Pow(10, e-3))
		}
		put(s.At(e), label)
	}
}

// Seconds draws a time axis at height y; x is a scale of seconds.
func (d *Drawing) Seconds(x Axis, y float64) {
	d.Line("axis", x.From, y, x.To, y)
	step := nice(x.High / 10)
	for at := 0.0; at <= x.High+step/100; at += step {
		d.Line("axis", x.At(at), y, x.At(at), y+5)
		d.Text(x.At(at), y+20, "middle", "soft", fmt.Sprintf("%g s", math.Round(at*10)/10))
	}
}

// nice is the next larger number that people count in.
func nice(v float64) float64 {
	for unit := 0.1; ; unit *= 10 {
		for _, n := range []float64{1, 2, 5} {
			if n*unit >= v {
				return n * unit
			}
		}
	}
}
