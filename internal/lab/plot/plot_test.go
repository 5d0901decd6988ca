package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/load"
)

func TestTimelineIsWellFormed(t *testing.T) {
	svg := Timeline("a <&> b", 200, []Panel{{
		Title: "web", Note: "1 lost", Length: time.Second,
		Attempts: load.Attempts{{At: 0, Latency: time.Millisecond}, {At: 1, Latency: time.Second, Lost: &load.Lost{Kind: load.Reset}}},
		Marks:    []Mark{{At: time.Second / 2, Words: "1"}}, Spans: []Span{{0, time.Second, "start"}},
	}, {}}, Key{"start", "new workers start"})
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
