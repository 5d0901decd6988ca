package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"example.org/supervisord/internal/lab/load"
)

func TestTimelineIsWellFormed(t *testing.T) {
	svg := Timeline("a <&> b", 200, []Panel{{
		Title: "web", Note: "1 lost", Length: time.Second,
		Attempts: load.Attempts{{At: 0, Latency: time.Millisecond},
			{At: 1, Latency: time.Second, Lost: &load.Lost{Kind: load.Reset}}},
		Marks: []Mark{{At: time.Second / 2, Words: "1"}}, Spans: []Span{{0, time.Second, "start"}},
	}, {}}, LegendItem{"start", "new workers start"})
	d := xml.NewDecoder(bytes.NewReader(svg))
	var err error
	for err == nil {
		_, err = d.Token()
	}
	if !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	for _, want := range []string{"a &lt;&amp;&gt; b", `class="reset"`, `class="start"`, "new workers start", "1 s<"} {
		if !bytes.Contains(svg, []byte(want)) {
			t.Errorf("there is no %q in %s", want, svg)
		}
	}
}

// TestLabelsDoNotOverprint draws the worst case: a long title, reloads close together, every kind of loss.
func TestLabelsDoNotOverprint(t *testing.T) {
	p := Panel{Title: strings.Repeat("http://127.0.0.1:8080/long/", 8), Note: "1000000 lost", Length: 10 * time.Second}
	for i := range 400 {
		p.Marks = append(p.Marks, Mark{At: time.Duration(i) * 25 * time.Millisecond, Words: fmt.Sprint(i + 1)})
		p.Attempts = append(p.Attempts,
			load.Attempt{At: time.Duration(i) * 25 * time.Millisecond, Latency: time.Millisecond,
				Lost: &load.Lost{Kind: load.Kinds[i%len(load.Kinds)]}})
	}
	svg := Timeline("proof", 200, []Panel{p}, LegendItem{"start", "new workers start"},
		LegendItem{"drain", "old workers drain"})
	if !bytes.Contains(svg, []byte("prefers-color-scheme:dark")) {
		t.Error("there is no dark variant")
	}
	type box struct {
		words       string
		y, from, to float64
	}
	var boxes []box
	for _, m := range regexp.MustCompile(
		`<text x="(.+?)" y="(.+?)" text-anchor="(.+?)" class="(.+?)">(.+?)</text>`).FindAllSubmatch(svg, -1) {
		x, _ := strconv.ParseFloat(string(m[1]), 64)
		y, _ := strconv.ParseFloat(string(m[2]), 64)
		width := 6.8 * float64(utf8.RuneCount(m[5]))
		from := map[string]float64{"start": x, "middle": x - width/2, "end": x - width}[string(m[3])]
		boxes = append(boxes, box{string(m[5]), y, from, from + width})
	}
	for i, a := range boxes {
		if a.from < 0 || a.to > Width {
			t.Errorf("%q is outside of the drawing: %v", a.words, a)
		}
		for _, b := range boxes[:i] {
			if math.Abs(a.y-b.y) < 12 && a.from < b.to && b.from < a.to {
				t.Errorf("%q overprints %q: %v, %v", a.words, b.words, a, b)
			}
		}
	}
	if len(boxes) < 30 {
		t.Errorf("only %d labels were found", len(boxes))
	}
}
