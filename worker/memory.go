package worker

import (
	"context"
	"errors"
	"os"
	"time"

	"example.org/supervisord/internal/cgroup"
	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/proc"
)

// measureWithin is how long it may take to measure a worker's memory: a process can keep the lock on it from us.
const measureWithin = 10 * time.Second

// Memory returns what the worker and its descendants use, in bytes: by its control group if that has the memory controller, else by
// proc.MemoryOfTree with this limit. A process that was orphaned does not count then. It takes 10 s at most, and ends with the worker.
func (w *Worker) Memory(limit uint64) (uint64, error) {
	w.mu.Lock()
	pid, there, group := w.process.pid, w.adoptable(), w.process.group
	w.mu.Unlock()
	if !there {
		return 0, os.ErrProcessDone
	}
	if used, ok := cgroup.Memory(group); ok {
		return used, nil
	}
	type answer struct {
		used uint64
		err  error
	}
	ctx, cancel := context.WithTimeout(w.life, measureWithin)
	defer cancel()
	a, err := foreign.Look(ctx, &w.launcher.looks, w, func() answer {
		used, err := proc.MemoryOfTree(pid, limit)
		return answer{used, err}
	})
	return a.used, errors.Join(err, a.err)
}
