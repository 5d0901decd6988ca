package observe

import (
	"slices"
	"sync"

	"example.org/supervisord/supervisor"
)

// How many updates the page shows: of one program, so that one that crashes again and again leaves the others theirs, and of all.
const (
	shownOfOne = 50
	shownOfAll = 200
)

// recent is the newest updates, oldest first.
type recent struct {
	mu     sync.Mutex
	events []supervisor.Update
}

func (r *recent) add(u supervisor.Update) {
	u.Reload, u.Stop = nil, nil // the status has them
	r.mu.Lock()
	defer r.mu.Unlock()
	of, oldest := 0, 0
	for i := len(r.events) - 1; i >= 0; i-- {
		if r.events[i].Program == u.Program {
			of, oldest = of+1, i
		}
	}
	switch {
	case of >= shownOfOne:
		r.events = slices.Delete(r.events, oldest, oldest+1)
	case len(r.events) >= shownOfAll:
		r.events = slices.Delete(r.events, 0, 1)
	}
	r.events = append(r.events, u)
}

func (r *recent) list() []supervisor.Update {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}
