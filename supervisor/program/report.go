package program

import (
	"time"
)

// Report is something worth telling about a program: to the log, to whoever waits for a reload, to metrics.
// The fields that the kind has no use for are zero.
type Report struct {
	Kind       ReportKind    `json:"kind"`
	Generation int           `json:"generation,omitempty"`
	Worker     int           `json:"worker,omitempty"`
	Slot       int           `json:"slot"`
	PID        int           `json:"pid,omitempty"`
	Serving    int           `json:"serving,omitempty"` // the generation that serves all the while, or did until now
	Signal     string        `json:"signal,omitempty"`  // that was sent: "TERM"
	Step       string        `json:"step,omitempty"`    // that failed
	Reason     string        `json:"reason,omitempty"`
	AskedBy    string        `json:"asked_by,omitempty"` // who wanted it: a user, "signal", "watch"; not there: nobody
	By         Renewal       `json:"by,omitempty"`       // of TrialBegan: it begins by itself
	Clean      bool          `json:"clean,omitempty"`    // of WorkerDied: it ended by itself, with status 0
	Wait       int           `json:"-"`                  // what wait(2) says of the end of the process, where it is known
	Tail       []string      `json:"tail,omitempty"`     // last lines of stderr
	Took       time.Duration `json:"took_ns,omitempty"`  // how long it was until now
	After      time.Duration `json:"after_ns,omitempty"` // how long it will be from now
	Killed     int           `json:"killed,omitempty"`   // workers of the generation that had to be killed

	Reload *ReloadRecord `json:"reload,omitempty"` // how the reload goes that this is about, where it changes that
	Stop   *StopRecord   `json:"stop,omitempty"`   // of StopEnded
}

// Decides reports whether the reload got its outcome as this happened.
func (r *Report) Decides() bool {
	return r.Reload != nil && !r.Reload.Outcome.Open() && r.Kind != GenerationGone
}

// ReportKind says what happened. Its text is the sentence in the log.
type ReportKind string

// What is reported: all the words that the log has for the life of a program.
const (
	TrialBegan       ReportKind = "new generation begins"
	ReloadQueued     ReportKind = "reload during a trial: one more follows when it has ended"
	ReloadHeld       ReportKind = "reload waits for a person: it follows when the canary is promoted or aborted"
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
	GenerationServes ReportKind = "new generation serves"
	GenerationGone   ReportKind = "generation is gone"
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
