package observe

import (
	"context"
	"slices"
	"time"

	"example.org/supervisord/internal/observe/page"
)

// shown is how many receipts of each program the page shows.
const shown = 5

// state is what the page shows.
func (o *Observer) state(ctx context.Context) (*page.State, error) {
	status, err := o.ask(ctx)
	if err != nil {
		return nil, err
	}
	st := &page.State{Now: time.Now(), Status: o.Gauge.Extend(status, true), Details: map[string]page.Detail{}}
	st.Status.Version = o.Version
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range status.Programs {
		receipts := o.recorder.Receipts(p.Name, p.Reloads)
		st.Details[p.Name] = page.Detail{Receipts: receipts[:min(shown, len(receipts))]}
	}
	st.Recent = slices.Clone(o.recent[max(0, len(o.recent)-kept):])
	return st, nil
}
