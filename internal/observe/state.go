package observe

import (
	"context"
	"slices"
	"time"

	"supervisord/internal/observe/kernel"
	"supervisord/internal/observe/metrics"
	"supervisord/internal/observe/page"
)

// shown is how many receipts of each program the page shows.
const shown = 5

// state is what the page shows.
func (o *Observer) state(ctx context.Context) (*page.State, error) {
	status, err := o.ask(ctx)
	if err != nil {
		return nil, err
	}
	st := &page.State{Now: time.Now(), Version: o.Version, Status: status, Details: map[string]page.Detail{}}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range status.Programs {
		receipts := append(o.recorder.Open(p.Name), o.recorder.Receipts(p.Name)...)
		d := page.Detail{Receipts: receipts[:min(shown, len(receipts))], Lives: o.recorder.Lives(p.Name), Queues: map[string]kernel.Queue{}}
		for _, l := range p.Listeners {
			if q, ok := metrics.Queue(l); ok {
				d.Queues[l.Name] = q
			}
		}
		st.Details[p.Name] = d
	}
	st.Recent = slices.Clone(o.recent[max(0, len(o.recent)-kept):])
	return st, nil
}
