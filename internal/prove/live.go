package prove

import (
	"fmt"
	"io"
	"time"
)

// live is one line on a terminal that tells how it goes.
type live struct {
	out   io.Writer // nil: nobody looks
	drawn bool
}

func (l *live) show(r *proof) {
	if l.out == nil {
		return
	}
	l.drawn = true
	fmt.Fprintf(l.out, "\r\x1b[K%5.1fs  %d requests  %d lost  reload %d of %d%s",
		time.Since(r.began).Seconds(), len(r.tally.records), len(r.tally.losses), len(r.history.reloads), r.Reloads, l.state(r))
}

// state says what is under way.
func (l *live) state(r *proof) string {
	n := len(r.history.reloads)
	if n == 0 {
		return ""
	}
	switch last := r.history.reloads[n-1]; {
	case last.decided.IsZero():
		return ": new workers start"
	case last.settled.IsZero():
		return ": old workers drain"
	case last.outcome == Failed:
		return ": failed"
	}
	return ": done"
}

// clear wipes the line, so that the verdict stands alone.
func (l *live) clear() {
	if l.drawn {
		fmt.Fprint(l.out, "\r\x1b[K")
	}
}
