package prove

import (
	"fmt"
	"time"

	"example.org/supervisord/internal/lab/plot"
)

// Plot draws the latency over time, with the reloads and the lost requests, as SVG.
func (v *Findings) Plot() []byte {
	panel := plot.Panel{
		Title: fmt.Sprintf("%s, %d requests a second for %s; longest time without an answer %s", v.Target, v.Rate, lasting(v.Took), lasting(v.Gap.Length)),
		Note:  fmt.Sprintf("%d lost", v.Requests.Lost), Attempts: v.all, Length: millis(v.Took),
	}
	for _, r := range v.Reloads {
		at, decided, settled := millis(r.At), panel.Length, panel.Length
		if r.Decided != nil {
			decided = at + millis(*r.Decided)
		}
		if r.Settled != nil {
			settled = at + millis(*r.Settled)
		}
		panel.Spans = append(panel.Spans, plot.Span{From: decided, To: settled, Class: "drain"}, plot.Span{From: at, To: decided, Class: "start"})
		panel.Marks = append(panel.Marks, plot.Mark{At: at, Words: fmt.Sprint(r.Number), Failed: r.Outcome == failed || r.Outcome == undecided})
	}
	title := fmt.Sprintf("%s: %d requests, %d reloads, %d lost", v.Program, v.Requests.Sent, len(v.Reloads), v.Requests.Lost)
	return plot.Timeline(title, 280, []plot.Panel{panel}, plot.Key{Class: "start", Words: "new workers start"}, plot.Key{Class: "drain", Words: "old workers drain"})
}

func millis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
