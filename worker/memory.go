package worker

import (
	"context"
	"errors"
	"os"
	"time"

	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/proc"
)

// measureWithin is how long a worker's memory may take to measure: a process can keep the lock on it from us.
const measureWithin = 10 * time.Second

// Memory measures what the worker and the processes below it use, in bytes; a process that was orphaned does not count. What
// is resident (RSS) costs little to read, but counts a page that several processes share once for each; so only if that is more
// than limit, the proportional share (PSS) is read and returned instead, where the kernel lets us. An error is of the worker's own
// process: it may have ended. Where the worker has a control group with the memory controller, that is asked instead. It takes 10 s at
// most, and ends with the worker.
func (w *Worker) Memory(limit uint64) (uint64, error) {
	w.mu.Lock()
	pid, ended, group := w.process.pid, w.process.ended, w.process.group
	w.mu.Unlock()
	if pid == 0 || ended {
		return 0, os.ErrProcessDone
	}
	if used, ok := groupMemory(group); ok {
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
