package program

import (
	"time"
)

// Report is an event in the life of a program, for the log, for clients that wait for a reload, and for metrics. Fields that do
// not apply to the kind are zero.
type Report struct {
	Kind       ReportKind    `json:"kind"`
	Generation int           `json:"generation,omitempty"`
	Worker     int           `json:"worker,omitempty"`
	Slot       int           `json:"slot"`
	PID        int           `json:"pid,omitempty"`
	Serving    int           `json:"serving,omitempty"`  // the generation that serves meanwhile, or did until now
	Listener   string        `json:"listener,omitempty"` // its name
	Signal     string        `json:"signal,omitempty"`   // the one that was sent: "TERM"
	Step       string        `json:"step,omitempty"`     // the one that failed
	Reason     string        `json:"reason,omitempty"`
	AskedBy    string        `json:"asked_by,omitempty"` // a user, "signal", "watch"; not there: nobody
	By         Renewal       `json:"by,omitempty"`       // of TrialBegan, if it begins by itself
	Clean      bool          `json:"clean,omitempty"`    // of WorkerDied: status 0
	Expected   bool          `json:"-"`                  // of WorkerDied: the worker was to be replaced anyway
	Wait       int           `json:"-"`                  // the wait(2) status of the process, where it is known
	Tail       []string      `json:"tail,omitempty"`     // last lines of stderr
	Took       time.Duration `json:"took_ns,omitempty"`  // how long it was until now
	After      time.Duration `json:"after_ns,omitempty"` // how long it will be from now
	Killed     int           `json:"killed,omitempty"`   // workers of the generation that had to be killed
	Reset      int           `json:"reset,omitempty"`    // of ConnectionsReset: how many

	Reload *ReloadRecord `json:"reload,omitempty"` // the record of the reload that this changes
	Stop   *StopRecord   `json:"stop,omitempty"`   // of StopEnded
}

// about returns r with the worker that r is about.
func (r Report) about(g *Generation, w *Worker) Report {
	r.Generation, r.Worker, r.Slot, r.PID = g.Number, w.Number, w.Slot, w.PID
	return r
}

// Decides reports whether this decided the outcome of a reload.
func (r *Report) Decides() bool {
	switch r.Kind {
	case ServesAgain, NothingServes, GenerationGone, GenerationQuiet, GenerationBusy, ConnectionsReset, RolledBack:
		return false
	default:
		return r.Reload != nil && !r.Reload.Outcome.Open()
	}
}

// ReportKind says what happened. Its text is the sentence in the log.
type ReportKind string

// The kinds: every message of the log about the life of a program.
const (
	TrialBegan       ReportKind = "new generation begins"
	ReloadQueued     ReportKind = "reload during a trial: one more follows when it has ended"
	ReloadHeld       ReportKind = "reload waits for a person: it follows when the canary is promoted, and abort drops it"
	ReloadFull       ReportKind = "reload waits: as many generations drain as max_draining allows"
	ReloadDropped    ReportKind = "reload is given up before it began"
	ReloadDamped     ReportKind = "watched files change with every generation: reloads for them are delayed"
	CanaryPromoted   ReportKind = "canary is promoted"
	Scaled           ReportKind = "number of workers changes"
	SignalSent       ReportKind = "signal is sent to the workers"
	CanaryHeld       ReportKind = "canary is well and held; promote or abort it"
	CanaryWatched    ReportKind = "canary is well; it is promoted if it stays so"
	CanaryRefused    ReportKind = "canary refused; nothing has changed"
	TrialFailed      ReportKind = "new generation failed"
	ReloadRetry      ReportKind = "reload is tried again later"
	StartRetry       ReportKind = "nothing serves; trying again later"
	ServesAgain      ReportKind = "old generation serves again"
	NothingServes    ReportKind = "nothing serves: the old generation does not get ready again"
	GenerationServes ReportKind = "new generation serves"
	GenerationGone   ReportKind = "generation is gone"
	GenerationKept   ReportKind = "old generation is kept: it can be rolled back to"
	GenerationQuiet  ReportKind = "generation has nothing in hand any more"
	GenerationBusy   ReportKind = "generation is told to stop with connections in hand"
	ConnectionsReset ReportKind = "connections are reset: no worker of their generation was left to accept them"
	PathRestored     ReportKind = "the path of a unix socket is put back"
	PathTaken        ReportKind = "clients do not find a unix socket: its path cannot be put back"
	RolledBack       ReportKind = "rolled back: the generation before serves again"
	ShareChanged     ReportKind = "canary's share of the new connections changes"
	Paused           ReportKind = "new connections wait: the program is paused"
	Resumed          ReportKind = "new connections are accepted again"
	WorkerSpawned    ReportKind = "worker runs"
	WorkerReady      ReportKind = "worker is ready"
	WorkerLate       ReportKind = "worker was not ready in time"
	WorkerLeaving    ReportKind = "worker is to be replaced"
	WorkerStopping   ReportKind = "worker is told to stop"
	WorkerKilled     ReportKind = "worker is killed"
	WorkerStopped    ReportKind = "worker has stopped"
	WorkerDied       ReportKind = "worker died"
	SlotRetry        ReportKind = "worker will be started again"
	StopBegan        ReportKind = "program is to stop"
	StopEnded        ReportKind = "program has stopped"
)
