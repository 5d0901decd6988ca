package daemon

import (
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/socket/unixpath"
)

// The control socket is tried again after the first of these, then after twice that time, up to the second.
const (
	controlAgain     = time.Second
	controlAgainMost = 30 * time.Second
)

// reachable is the control socket, which may open later than the service starts: a disk may be full. Its methods may be called from any
// goroutine.
type reachable struct {
	mu     sync.Mutex
	api    *control.API // nil: there is none yet
	timer  *time.Timer
	closed bool
}

// open opens the control socket. If that fails, the log says so once, and it is tried again after a pause that doubles, unless another
// supervisord has the path: the service must not fail because of it.
func (r *reachable) open(api *control.API, log *zap.Logger, pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	first := pause == controlAgain
	err := api.Serve()
	if err == nil {
		if r.api = api; !first {
			log.Info("the control socket is open now", zap.String("path", api.Path))
		}
		return
	}
	if first {
		log.Error("no control socket: `supervisord reload` and `status` cannot reach this supervisord", zap.Error(err))
	}
	if !errors.Is(err, unixpath.ErrInUse) {
		r.timer = time.AfterFunc(pause, func() { r.open(api, log, min(2*pause, controlAgainMost)) })
	}
}

// fd is the descriptor for the next image, or -1.
func (r *reachable) fd() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.api == nil {
		return -1
	}
	return r.api.FD()
}

func (r *reachable) close(log *zap.Logger) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.timer != nil {
		r.timer.Stop()
	}
	if r.api == nil {
		return
	}
	if err := r.api.Close(); err != nil {
		log.Error("cannot close the control socket", zap.Error(err))
	}
}
