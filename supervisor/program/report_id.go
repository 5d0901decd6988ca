package program

// reportIDs are the names of the kinds for programs that read the log or the events. Unlike the sentences, they never change.
var reportIDs = map[ReportKind]string{
	TrialBegan:       "generation_began",
	ReloadQueued:     "reload_queued",
	ReloadHeld:       "reload_waits_for_person",
	ReloadFull:       "reload_waits_for_drain",
	ReloadDropped:    "reload_dropped",
	ReloadDamped:     "reload_damped",
	CanaryPromoted:   "canary_promoted",
	Scaled:           "scaled",
	SignalSent:       "signal_sent",
	CanaryHeld:       "canary_held",
	CanaryWatched:    "canary_watched",
	CanaryRefused:    "canary_refused",
	TrialFailed:      "generation_failed",
	ReloadRetry:      "reload_retry",
	StartRetry:       "start_retry",
	GenerationServes: "generation_serves",
	GenerationGone:   "generation_gone",
	GenerationKept:   "generation_kept",
	GenerationQuiet:  "generation_quiet",
	GenerationBusy:   "generation_busy",
	ConnectionsReset: "connections_reset",
	RolledBack:       "rolled_back",
	ShareChanged:     "share_changed",
	Paused:           "paused",
	Resumed:          "resumed",
	WorkerSpawned:    "worker_spawned",
	WorkerReady:      "worker_ready",
	WorkerLate:       "worker_late",
	WorkerLeaving:    "worker_leaving",
	WorkerStopping:   "worker_stopping",
	WorkerKilled:     "worker_killed",
	WorkerStopped:    "worker_stopped",
	WorkerDied:       "worker_died",
	SlotRetry:        "worker_restart",
	StopBegan:        "program_stopping",
	StopEnded:        "program_stopped",
}

// ID returns the name of a kind for programs, such as "worker_ready".
func (k ReportKind) ID() string { return reportIDs[k] }
