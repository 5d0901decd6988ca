package program

import (
	"time"

	"example.org/supervisord/internal/config"
)

// Event is something that a program has to answer to.
type Event interface{ event() }

type (
	// Start makes the program run with this configuration.
	Start struct {
		Config  *config.Program
		AskedBy string
	}

	// Reload asks for a new generation. It never starts a program that was told to stop. A whole generation waits where one is
	// on trial, or too many drain. A canary never waits: it begins at once, or CanaryRefused says why not and nothing changes.
	Reload struct {
		Config  *config.Program // nil: the one that it has
		Reason  string          // why, for the log
		AskedBy string          // who asked for it; "": nobody
		Canary  int             // this many workers first, held beside the serving generation until Promote; 0: no canary
		For     time.Duration   // promote the canary by itself after it was well for so long; 0: wait for Promote or Abort
		By      Renewal         // it begins by itself; "": somebody asked for it
	}

	// Promote lets a held canary go on to become the whole generation.
	Promote struct{ AskedBy string }

	// Abort gives up the trial.
	Abort struct{ Reason, AskedBy string }

	// Scale changes the number of workers until the next configuration. 0 is not a number of workers: that is Stop.
	Scale struct {
		Workers int
		AskedBy string
	}

	// Stop ends the program: every worker goes through its stop plan.
	Stop struct {
		Reason      string // why, for the log
		AskedBy     string
		Interrupted bool // it was INT, which may have a signal of its own
	}

	// Kill ends the program now: KILL to every worker.
	Kill struct{ Reason, AskedBy string }

	// Prepared: the snapshot of a generation on trial is resolved and its preflight has passed, or not.
	Prepared struct {
		Generation int
		Failure    *Failure
	}

	// Spawned: the command of a worker runs.
	Spawned struct{ Worker, PID int }

	// ReadySaid: a worker is ready to serve.
	ReadySaid struct{ Worker int }

	// NeverReady: whether a worker is ready cannot be found out.
	NeverReady struct {
		Worker int
		Reason string
	}

	// Replace: a worker shall be replaced with overlap (it said that it is going to stop, it is unhealthy, …).
	Replace struct {
		Worker int
		Reason string
	}

	// OverLimit: a worker has more than its limits allow. It is replaced unless something is under way in the program already;
	// then nothing happens, and whoever said it will say it again.
	OverLimit struct {
		Worker int
		Reason string
	}

	// Extend: a worker asks for more time to become ready.
	Extend struct {
		Worker int
		By     time.Duration
	}

	// Exited: a worker has ended, or could not be started.
	Exited struct {
		Worker int
		Exit   Exit
	}

	// Tick: time has passed.
	Tick struct{}
)

// Exit is how a worker ended.
type Exit struct {
	Clean  bool     // status 0
	Step   string   // what failed before the command ran ("exec", "user", …); "": it ran
	Reason string   // for people: "exited with status 3"
	Wait   int      // what wait(2) says of its end, where it is known
	Tail   []string // its last lines of stderr, where captured
}

// Failure is why a trial failed.
type Failure struct {
	Step    string   `json:"step"` // prepare, preflight, exec, user, …, start, ready, soak, serve, abort
	Reason  string   `json:"reason"`
	AskedBy string   `json:"asked_by,omitempty"` // who gave it up
	Worker  int      `json:"worker,omitempty"`   // 0: no worker in particular
	Slot    int      `json:"slot"`
	PID     int      `json:"pid,omitempty"`
	Wait    int      `json:"-"`              // see Exit
	Tail    []string `json:"tail,omitempty"` // its last lines of stderr
}

// The steps of a failure that are not those of a spawn.
const (
	StepPrepare   = "prepare"
	StepPreflight = "preflight"
	stepReady     = "ready"
	stepAbort     = "abort" // it was given up
)

func (Start) event()      {}
func (Reload) event()     {}
func (Promote) event()    {}
func (Abort) event()      {}
func (Scale) event()      {}
func (Stop) event()       {}
func (Kill) event()       {}
func (Prepared) event()   {}
func (Spawned) event()    {}
func (ReadySaid) event()  {}
func (NeverReady) event() {}
func (Replace) event()    {}
func (OverLimit) event()  {}
func (Extend) event()     {}
func (Exited) event()     {}
func (Tick) event()       {}
