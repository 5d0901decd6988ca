package program

import "example.org/supervisord/internal/config"

// Action is something that Step wants done. Actions are performed in order. None can fail: what goes wrong comes back as an event.
type Action interface{ action() }

type (
	// Prepare resolves the snapshot of a generation and runs its preflight. Prepared is the answer.
	Prepare struct{ Generation *Generation }

	// Abandon ends a Prepare whose result is not needed any more.
	Abandon struct{ Generation int }

	// Spawn starts a worker. Exited is the last answer, whatever happens.
	Spawn struct {
		Generation *Generation
		Worker     *Worker
	}

	// SendSignal sends a signal to a worker, or to its whole process group.
	SendSignal struct {
		Worker int
		Signal config.Signal
		Group  bool
	}

	// Serve makes a generation the one for new connections.
	Serve struct{ Generation int }

	// Forget drops what was kept for a generation: it is gone.
	Forget struct{ Generation int }
)

func (Prepare) action()    {}
func (Abandon) action()    {}
func (Spawn) action()      {}
func (SendSignal) action() {}
func (Serve) action()      {}
func (Forget) action()     {}
func (Report) action()     {}
