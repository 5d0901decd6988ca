package prove

import (
	"fmt"
	"time"
)

// drawLine shows the progress.
func (r *proof) drawLine() {
	r.Live.Show(fmt.Sprintf("%.0fs  %d requests, %d lost; reload %d of %d%s",
		time.Since(r.began).Seconds(), len(r.tally.all), r.tally.lost, len(r.history.reloads), r.Reloads, r.state()))
}

// state says what is under way.
func (r *proof) state() string {
	n := len(r.history.reloads)
	if n == 0 {
		return ""
	}
	last := r.history.reloads[n-1]
	switch outcome, _, _ := r.history.outcome(last); {
	case outcome == undecided:
		return ": new workers start"
	case r.history.settled(last).IsZero():
		return ": old workers drain"
	case outcome == failed:
		return ": failed"
	}
	return ": done"
}
