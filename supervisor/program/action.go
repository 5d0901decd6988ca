package program

import "example.org/supervisord/internal/config"

// Action is something that Step wants done. Actions are performed in order. None can fail: what goes wrong comes back as an event.
type Action interface{ action() }

type (
	// Prepare resolves the snapshot of a generation and runs its preflight. Prepared is the answer.
	Prepare struct{ Generation *Generation }

	// Abandon ends a Prepare whose result is not needed any more.
	Abandon struct{ Generation int }

	// Spawn starts a worker. life.Exited is the last answer, whatever happens.
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

	// Steer says where new connections go from now on. It comes before any SendSignal of the same Step.
	Steer struct{ Shares []Share }

	// SetPaused says whether new connections wait in the kernel.
	SetPaused struct{ Paused bool }

	// Forget drops what was kept for a generation: it is gone.
	Forget struct{ Generation int }
)

// Share is the part of the new connections that a generation gets.
type Share struct {
	Generation int
	Slots      []int `json:",omitempty"` // only these, where each slot has a socket; nil: all
	Weight     int   // relative to those of the other shares
	Unit       bool  `json:",omitempty"` // a socket of a socket unit has it, where there is one, in place of the generation's
}

func (Prepare) action()    {}
func (Abandon) action()    {}
func (Spawn) action()      {}
func (SendSignal) action() {}
func (Steer) action()      {}
func (SetPaused) action()  {}
func (Forget) action()     {}
func (Report) action()     {}
