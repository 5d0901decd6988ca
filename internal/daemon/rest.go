package daemon

import (
	"runtime/debug"
	"sync"
	"time"

	"go.uber.org/zap"

	"example.org/supervisord/internal/proc"
)

// restAfter is how long nothing must have happened before memory is given back: reloads that follow each other closely do not pay for
// getting it again, and the first one after a pause pays no more than a fraction of a millisecond.
const restAfter = 2 * time.Second

// rest gives memory back once after something has happened. Until something happens again it wakes nobody. Its methods may be called from
// any goroutine.
type rest struct {
	mu    sync.Mutex
	held  bool // a reload is under way
	timer *time.Timer
}

func newRest(log *zap.Logger) *rest {
	return &rest{timer: time.AfterFunc(restAfter, func() { giveBack(log) })}
}

// busy says that something has happened, and whether a reload is under way.
func (r *rest) busy(reload bool) {
	r.mu.Lock()
	r.held = reload
	r.mu.Unlock()
	r.used()
}

// used says that something has happened.
func (r *rest) used() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held {
		r.timer.Stop()
	} else {
		r.timer.Reset(restAfter)
	}
}

// giveBack returns what is free of the heap, and the pages of the program file, to the kernel.
func giveBack(log *zap.Logger) {
	debug.FreeOSMemory()
	if err := proc.UnmapBinary(); err != nil {
		log.Debug("cannot give back pages of the program file", zap.Error(err))
	}
}
