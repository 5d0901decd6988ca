package observe

import (
	"slices"
	"sync"

	"example.org/supervisord/internal/observe/page"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// How many updates the page shows: of one program, so that one that crashes again and again leaves the others theirs, and of all.
const (
	shownOfOne = 50
	shownOfAll = 200
)

// recent is the newest updates, oldest first.
type recent struct {
	mu     sync.Mutex
	events []page.Event
}

func (r *recent) add(u supervisor.Update) {
	e := page.Event{Update: u, Failure: isFailure(&u.Report)}
	e.Reload, e.Stop = nil, nil
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
	r.events = append(r.events, e)
}

func (r *recent) list() []page.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// isFailure reports whether an update is bad news.
func isFailure(r *program.Report) bool {
	switch r.Kind {
	case program.TrialFailed, program.StartRetry, program.ReloadDropped, program.CanaryRefused, program.WorkerLate, program.WorkerKilled,
		program.ConnectionsReset, program.GenerationBusy, program.PathRestored, program.PathTaken:
		return true
	case program.WorkerDied:
		return !r.Clean
	default:
		return false
	}
}
