package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strings"
	"time"
)

// drawing is an SVG being written. It brings its own background, light or dark as the reader's system is.
type drawing struct {
	bytes.Buffer
	width, height float64
}

// style has the light colours, and the dark ones for those who want them.
const style = `<style>
text{fill:#24292f;font-family:system-ui,'DejaVu Sans',sans-serif;font-size:13px}
.ground{fill:#ffffff;stroke:#d0d7de}.title{font-size:20px;font-weight:600}.name{font-size:14px;font-weight:600}.soft{fill:#57606a}.bad{fill:#cf222e}.good{fill:#1a7f37}
.grid{stroke:#eaeef2}.axis{stroke:#afb8c1}.mark{stroke:#8c959f;stroke-dasharray:3 3}
.wide{fill:#ddf4ff}.narrow{fill:#80ccff}.median{stroke:#0969da;fill:none;stroke-width:1.8;stroke-linejoin:round}.slowest{stroke:#57606a;stroke-width:2.4;stroke-linecap:round}.calm{fill:#afb8c1}.with{fill:#0969da}.step{stroke:#0969da;fill:none;stroke-width:1.8}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}.ground{fill:#0d1117;stroke:#30363d}.soft{fill:#8d96a0}.bad{fill:#ff7b72}.good{fill:#3fb950}
.grid{stroke:#21262d}.axis{stroke:#6e7681}.mark{stroke:#6e7681}
.wide{fill:#0c2d6b}.narrow{fill:#1158c7}.median{stroke:#79c0ff}.slowest{stroke:#8d96a0}.calm{fill:#6e7681}.with{fill:#58a6ff}.step{stroke:#58a6ff}
}</style>`

func newDrawing(title string, width, height float64) *drawing {
	d := &drawing{width: width, height: height}
	d.put(`<svg xmlns="http://www.w3.org/2000/svg" width="%[1]g" height="%[2]g" viewBox="0 0 %[1]g %[2]g" role="img">`, width, height)
	d.put(`<title>%s</title>`, escaped(title))
	d.put("%s", style)
	d.put(`<rect class="ground" x="0.5" y="0.5" width="%g" height="%g" rx="6"/>`, width-1, height-1)
	d.text(24, 36, "start", "title", title)
	return d
}

func (d *drawing) put(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

func (d *drawing) finish() []byte {
	d.put("</svg>")
	return d.Bytes()
}

func escaped(words string) string {
	var safe strings.Builder
	xml.EscapeText(&safe, []byte(words)) //nolint:errcheck // a Builder takes everything
	return safe.String()
}

func (d *drawing) text(x, y float64, anchor, class, words string) {
	d.put(`<text x="%.1f" y="%.1f" text-anchor="%s" class="%s">%s</text>`, x, y, anchor, class, escaped(words))
}

func (d *drawing) line(class string, x1, y1, x2, y2 float64) {
	d.put(`<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, class, x1, y1, x2, y2)
}

func (d *drawing) rect(class string, x, y, width, height float64) {
	if width > 0 && height > 0 {
		d.put(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, class, x, y, width, height)
	}
}

func (d *drawing) dot(class string, x, y, r float64) {
	d.put(`<circle class="%s" cx="%.1f" cy="%.1f" r="%g"/>`, class, x, y, r)
}

// scale maps values to pixels.
type scale struct {
	low, high float64 // values; their logarithms where logarithmic
	from, to  float64 // pixels
}

// logScale fits whole decades of milliseconds.
func logScale(least, most time.Duration, from, to float64) scale {
	if most <= 0 {
		least, most = time.Millisecond, 10*time.Millisecond
	}
	low := math.Floor(math.Log10(millis(max(least, 10*time.Microsecond))))
	return scale{low, max(low+1, math.Ceil(math.Log10(millis(most)))), from, to}
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (s scale) at(v float64) float64 {
	part := (v - s.low) / (s.high - s.low)
	return s.from + (s.to-s.from)*min(1, max(0, part))
}

func (s scale) log(d time.Duration) float64 {
	return s.at(math.Log10(millis(max(d, time.Microsecond))))
}

// decades are the powers of ten that the scale shows, with their labels.
func (s scale) decades(put func(pixel float64, label string)) {
	for e := s.low; e <= s.high; e++ {
		label := fmt.Sprintf("%g ms", math.Pow(10, e))
		if e >= 3 {
			label = fmt.Sprintf("%g s", math.Pow(10, e-3))
		}
		put(s.at(e), label)
	}
}

// seconds draws a time axis.
func (d *drawing) seconds(x scale, y float64) {
	d.line("axis", x.from, y, x.to, y)
	step := nice(x.high / 10)
	for at := 0.0; at <= x.high+step/100; at += step {
		d.line("axis", x.at(at), y, x.at(at), y+5)
		d.text(x.at(at), y+20, "middle", "soft", fmt.Sprintf("%g s", math.Round(at*10)/10))
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
