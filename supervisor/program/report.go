package program

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Report is an event in the life of a program, for the log, for clients that wait for a reload, and for metrics. Fields
// that do not apply to the kind are zero.
type Report struct {
	Kind       ReportKind `json:"id"`
	Generation int        `json:"generation,omitempty"`
	Worker     int        `json:"worker,omitempty"`
	Slot       int        `json:"slot"`
	PID        int        `json:"pid,omitempty"`
	Serving    int        `json:"serving,omitempty"` // the generation that serves meanwhile, or did until now
	Particulars
	Reason  string `json:"reason,omitempty"`
	AskedBy string `json:"asked_by,omitempty"` // a user, "signal", "watch"; not there: nobody
	End
	Took  time.Duration `json:"took_ns,omitempty"`  // how long it was until now
	After time.Duration `json:"after_ns,omitempty"` // how long it will be from now

	Reload *ReloadRecord `json:"reload,omitempty"` // the record of the reload that this changes
	Stop   *StopRecord   `json:"stop,omitempty"`   // of StopEnded
}

// Particulars are what only reports of some kinds have.
type Particulars struct {
	Listener string   `json:"listener,omitempty"` // its name
	Awaits   []string `json:"awaits,omitempty"`   // of StartWaits: the programs that do not serve yet
	Signal   string   `json:"signal,omitempty"`   // the one that was sent: "TERM"
	By       Renewal  `json:"by,omitempty"`       // of TrialBegan, if it begins by itself
	Killed   int      `json:"killed,omitempty"`   // workers of the generation that had to be killed
	Reset    int      `json:"reset,omitempty"`    // of ConnectionsReset: how many
	Repeats  bool     `json:"-"`                  // nothing serves, and it is only the next attempt to start
}

// End says how a worker ended, or a trial failed.
type End struct {
	Step     string   `json:"step,omitempty"`  // the one that failed
	Clean    bool     `json:"clean,omitempty"` // of WorkerDied: its end counts as a success
	Expected bool     `json:"-"`               // of WorkerDied: it was to be replaced anyway, or fails nothing
	Wait     int      `json:"-"`               // the wait(2) status of the process, where it is known
	Tail     []string `json:"tail,omitempty"`  // last lines of stderr
}

// about returns r with the worker that r is about.
func (r Report) about(g *Generation, w *Worker) Report {
	r.Generation, r.Worker, r.Slot, r.PID = g.Number, w.Number, w.Slot, w.PID
	return r
}

// failed is the report of a trial that failed.
func failed(generation int, f *Failure) Report {
	return Report{Kind: TrialFailed, Generation: generation, Worker: f.Worker, Slot: f.Slot, PID: f.PID,
		End:    End{Step: f.Step, Tail: f.Tail, Wait: f.Wait},
		Reason: f.Reason}
}

// Text says what became of the new generation, in the words of the report that decided it: it serves, or it failed.
func (r *ReloadRecord) Text() string {
	report := Report{Kind: GenerationServes, Generation: r.Generation, Took: r.Took}
	if r.Outcome != Serves {
		report = failed(r.Generation, cmp.Or(r.Failure, &Failure{}))
	}
	return report.Text("")
}

// ReportKind says what happened. Its text is for programs that read the log or the events, and never changes.
type ReportKind string

// The kinds: every message of the log about the life of a program.
const (
	TrialBegan       ReportKind = "generation_began"
	ReloadQueued     ReportKind = "reload_queued"
	ReloadHeld       ReportKind = "reload_waits_for_person"
	ReloadFull       ReportKind = "reload_waits_for_drain"
	ReloadDropped    ReportKind = "reload_dropped"
	ReloadDamped     ReportKind = "reload_damped"
	CanaryPromoted   ReportKind = "canary_promoted"
	Scaled           ReportKind = "scaled"
	SignalSent       ReportKind = "signal_sent"
	CanaryHeld       ReportKind = "canary_held"
	CanaryWatched    ReportKind = "canary_watched"
	CanaryRefused    ReportKind = "canary_refused"
	TrialFailed      ReportKind = "generation_failed"
	ReloadRetry      ReportKind = "reload_retry"
	StartRetry       ReportKind = "start_retry"
	StartWaits       ReportKind = "start_waits"
	ServesAgain      ReportKind = "serves_again"
	NothingServes    ReportKind = "nothing_serves"
	GenerationServes ReportKind = "generation_serves"
	GenerationGone   ReportKind = "generation_gone"
	GenerationKept   ReportKind = "generation_kept"
	GenerationLent   ReportKind = "generation_lent"
	GenerationQuiet  ReportKind = "generation_quiet"
	GenerationBusy   ReportKind = "generation_busy"
	ConnectionsReset ReportKind = "connections_reset"
	PathRestored     ReportKind = "path_restored"
	PathTaken        ReportKind = "path_taken"
	RolledBack       ReportKind = "rolled_back"
	ShareChanged     ReportKind = "share_changed"
	Paused           ReportKind = "paused"
	Resumed          ReportKind = "resumed"
	WorkerSpawned    ReportKind = "worker_spawned"
	WorkerReady      ReportKind = "worker_ready"
	WorkerAwaited    ReportKind = "worker_awaited"
	WorkerStrange    ReportKind = "worker_not_ready"
	WorkerLate       ReportKind = "worker_late"
	WorkerLeaving    ReportKind = "worker_leaving"
	WorkerStopping   ReportKind = "worker_stopping"
	WorkerOutlived   ReportKind = "worker_outlived"
	WorkerInherits   ReportKind = "worker_inherits"
	WorkerKilled     ReportKind = "worker_killed"
	WorkerStopped    ReportKind = "worker_stopped"
	WorkerDied       ReportKind = "worker_died"
	SlotRetry        ReportKind = "worker_restart"
	StopBegan        ReportKind = "program_stopping"
	StopEnded        ReportKind = "program_stopped"
)

// Level is how bad the news is: a log level.
type Level string

// The levels.
const (
	debug Level = "debug"
	info  Level = "info"
	warn  Level = "warn"
	bad   Level = "error"
)

// Progress says what a report is to a command that waits and shows only what matters.
type Progress int

// The kinds of progress.
const (
	Detail    Progress = iota // not shown
	Milestone                 // a line of its own
	Ending                    // may be what the command waits for: a line if anything follows
)

// words is all that the log, the events, the page and the commands that wait say about a kind of report.
type words struct {
	level    Level
	progress Progress
	decides  bool   // the report may decide a reload
	sentence string // with places in braces: see places
}

// kinds are the words for every kind. Nothing else words what has happened to a program.
var kinds = map[ReportKind]words{
	TrialBegan:   {info, Milestone, false, "generation{generation} starts{why}"},
	ReloadQueued: {info, Milestone, false, "a reload waits until the one before it has ended{why}"},
	ReloadHeld:   {warn, Milestone, false, "a reload waits until the canary is promoted (abort drops it){why}"},
	ReloadFull: {warn, Milestone, false,
		"a reload waits: as many old generations drain as max_draining allows{why}"},
	ReloadDropped: {warn, Detail, true, "the waiting reload is dropped{why}"},
	ReloadDamped: {warn, Detail, false,
		"watched files change with every generation, so reloads for them wait{wait}{reason}"},
	CanaryPromoted:   {info, Detail, false, "the canary{canary} is promoted{why}"},
	Scaled:           {info, Detail, false, "the number of workers changes{reason}{by}"},
	SignalSent:       {info, Detail, false, "signal{signal} is sent to the workers{of}{by}"},
	CanaryHeld:       {info, Ending, false, "the canary{canary} is well{share} and waits: promote or abort it"},
	CanaryWatched:    {info, Milestone, false, "the canary{canary} is well{share}, and is promoted{in} if it stays well"},
	CanaryRefused:    {warn, Detail, false, "the canary is refused, and nothing has changed{reason}"},
	TrialFailed:      {bad, Detail, true, "generation{generation} failed{which}{step}{reason}{aborted}"},
	ReloadRetry:      {warn, Detail, false, "the reload is tried again{in}"},
	StartRetry:       {warn, Milestone, false, "no worker is up; retrying{in}"},
	StartWaits:       {info, Milestone, false, "the start waits{awaits}{why}"},
	ServesAgain:      {info, Ending, false, "generation{generation} serves again{took}"},
	NothingServes:    {bad, Ending, false, "nothing serves: generation{generation} does not get ready again"},
	GenerationServes: {info, Ending, true, "generation{generation} serves{took}"},
	GenerationGone:   {info, Ending, false, "generation{generation} has ended{took}{killed}"},
	GenerationKept: {info, Milestone, false,
		"generation{generation} is kept{for}: `supervisord rollback{program}` returns to it"},
	GenerationLent: {info, Milestone, false,
		"generation{generation} keeps serving where another one does not yet{reason}"},
	GenerationQuiet: {info, Detail, false, "generation{generation} has no connections or flows in use any more{took}"},
	GenerationBusy: {warn, Milestone, false,
		"drain.timeout is over: generation{generation} is stopped with connections in use{took}{reason}"},
	ConnectionsReset: {warn, Milestone, false,
		"generation{generation} has no worker left; connections that waited were reset{reset}"},
	PathRestored: {warn, Milestone, false, "the path of listener{listener} is put back{reason}"},
	PathTaken:    {warn, Milestone, false, "clients do not find the socket of listener{listener}{reason}"},
	RolledBack:   {warn, Milestone, false, "rolled back{from}: generation{generation} serves again{why}"},
	ShareChanged: {info, Milestone, false,
		"the canary{canary} gets another share of the new connections{percent}{why}"},
	Paused:         {info, Milestone, false, "paused: new connections wait{most}{by}"},
	Resumed:        {info, Milestone, false, "resumed{took}: new connections are accepted again{by}"},
	WorkerSpawned:  {debug, Detail, false, "worker{worker} runs{place}"},
	WorkerReady:    {info, Detail, false, "worker{worker} is ready{took}"},
	WorkerAwaited:  {info, Detail, false, "waiting for worker{worker} to be ready{reason}"},
	WorkerStrange:  {warn, Milestone, false, "worker{worker} is not ready yet{reason}"},
	WorkerLate:     {warn, Milestone, false, "worker{worker} was not ready in time{reason}"},
	WorkerLeaving:  {warn, Detail, false, "worker{worker} is to be replaced{reason}"},
	WorkerStopping: {debug, Detail, false, "worker{worker} is told to stop{plan}"},
	WorkerOutlived: {info, Detail, false, "worker{worker} continues without its first process{reason}"},
	WorkerInherits: {info, Detail, false,
		"worker{worker} is started for connections that wait in the socket of one that has ended{reason}"},
	WorkerKilled:  {warn, Milestone, false, "worker{worker} is killed{reason}"},
	WorkerStopped: {info, Detail, false, "worker{worker} has stopped{took}{reason}"},
	WorkerDied:    {warn, Detail, false, "worker{worker} died{step}{reason}"},
	SlotRetry:     {warn, Detail, false, "slot{slot} gets a new worker{in}"},
	StopBegan:     {info, Detail, true, "the program stops{why}"},
	StopEnded:     {info, Ending, false, "the program has stopped{stop}"},
}

// Progress says what the kind is to a command that waits.
func (k ReportKind) Progress() Progress { return kinds[k].progress }

// Sentence is the message of the log: the same for every report of the kind, as the values are fields.
func (k ReportKind) Sentence() string { return k.fill(func(string) string { return "" }) }

// fill returns the sentence with the value of each place.
func (k ReportKind) fill(value func(place string) string) string {
	var b strings.Builder
	for rest := kinds[k].sentence; ; {
		before, after, found := strings.Cut(rest, "{")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		place, after, _ := strings.Cut(after, "}")
		b.WriteString(value(place))
		rest = after
	}
}

// Level is the level of the report in the log.
func (r *Report) Level() Level {
	switch {
	case r.Repeats:
		return debug // that it failed, and when the next one begins, says enough at night
	case r.Kind == WorkerDied && r.Clean:
		return info // it has only done what it had to do
	}
	return kinds[r.Kind].level
}

// Decides reports whether this decided the outcome of a reload.
func (r *Report) Decides() bool {
	return kinds[r.Kind].decides && r.Reload != nil && !r.Reload.Outcome.Open()
}

// Promises reports whether this tells somebody the number of a generation that begins, or will.
func (r *Report) Promises() bool {
	switch r.Kind {
	case TrialBegan, ReloadQueued, ReloadHeld, ReloadFull, StartWaits:
		return true
	}
	return false
}

// Text is the sentence with its values, for a person who sees it for the first time. program is the program's name.
func (r *Report) Text(program string) string {
	return r.Kind.fill(func(place string) string {
		if place == "program" {
			return " " + program
		}
		return places[place](r)
	})
}

// places are the values in the sentences. Each begins with what separates it from the word before, and is empty if
// there is no value.
var places = map[string]func(*Report) string{
	"generation": func(r *Report) string { return fmt.Sprintf(" %d", r.Generation) },
	"canary":     func(r *Report) string { return fmt.Sprintf(", generation %d,", r.Generation) },
	"worker":     (*Report).worker,
	"slot":       func(r *Report) string { return fmt.Sprintf(" %d of generation %d", r.Slot, r.Generation) },
	"place":      func(r *Report) string { return fmt.Sprintf(" in slot %d", r.Slot) },
	"from":       func(r *Report) string { return fmt.Sprintf(" from generation %d", r.Serving) },
	"listener":   func(r *Report) string { return " " + r.Listener },
	"awaits":     func(r *Report) string { return " for " + list(r.Awaits) },
	"signal":     func(r *Report) string { return " " + r.Signal },
	"reset":      func(r *Report) string { return fmt.Sprintf(": %d", r.Reset) },

	"took": func(r *Report) string { return took(r.Took) },
	"in":   func(r *Report) string { return in(r.After) },
	"for":  func(r *Report) string { return " for " + Short(r.After) },
	"most": func(r *Report) string { return ", for " + Short(r.After) + " at most" },
	"wait": func(r *Report) string { return " " + Short(r.After) },

	"reason":  func(r *Report) string { return after(": ", r.Reason) },
	"by":      (*Report).by,
	"why":     (*Report).why,
	"step":    func(r *Report) string { return after(" at step ", r.Step) },
	"which":   (*Report).which,
	"aborted": (*Report).abortedBy,
	"plan":    (*Report).plan,

	"share": func(r *Report) string {
		if r.Reload == nil || r.Reload.Share == 0 {
			return ""
		}
		return " with " + Percentage(r.Reload.Share) + " of the new connections"
	},
	"percent": func(r *Report) string {
		if r.Reload == nil {
			return ""
		}
		return ": " + Percentage(r.Reload.Share)
	},
	"of": func(r *Report) string {
		if r.Generation == 0 {
			return ""
		}
		return fmt.Sprintf(" of generation %d", r.Generation)
	},
	"killed": func(r *Report) string {
		if r.Killed == 0 {
			return ""
		}
		return fmt.Sprintf("; %d of its workers had to be killed", r.Killed)
	},
	"stop": func(r *Report) string {
		if r.Stop == nil || r.Stop.Killed == 0 {
			return ""
		}
		return "; " + count(r.Stop.Killed, "worker") + " had to be killed"
	},
}

func (r *Report) worker() string {
	text := fmt.Sprintf(" %d of generation %d", r.Worker, r.Generation)
	if r.PID != 0 { // otherwise it never ran
		text += fmt.Sprintf(" (PID %d)", r.PID)
	}
	return text
}

// why says why something happens, and who asked for it.
func (r *Report) why() string {
	switch {
	case r.Reason == "" || strings.Contains(r.AskedBy, r.Reason): // such as HUP, by signal HUP
		return r.by()
	case r.AskedBy == "":
		return " (" + r.Reason + ")"
	case r.Reason == "requested":
		return " (requested by " + r.AskedBy + ")"
	}
	return " (" + r.Reason + "; by " + r.AskedBy + ")"
}

func (r *Report) by() string {
	if r.AskedBy == "" {
		return ""
	}
	return " (by " + r.AskedBy + ")"
}

// which says which worker made a trial fail.
func (r *Report) which() string {
	switch {
	case r.Worker == 0:
		return ""
	case r.PID == 0: // it never ran
		return fmt.Sprintf(": worker %d (slot %d)", r.Worker, r.Slot)
	}
	return fmt.Sprintf(": worker %d (slot %d, PID %d)", r.Worker, r.Slot, r.PID)
}

// abortedBy says who aborted a trial. That of another failure asked for the generation.
func (r *Report) abortedBy() string {
	if r.Step != stepAbort {
		return ""
	}
	return r.by()
}

// plan says which signal a worker gets, and how long until the next one.
func (r *Report) plan() string {
	text := after(" with ", r.Signal)
	if r.After > 0 {
		text += ", and has " + Short(r.After) + " to end"
	}
	return text
}

func took(d time.Duration) string {
	if d < time.Millisecond {
		return ""
	}
	return " after " + Short(d)
}

func in(d time.Duration) string {
	if d <= 0 {
		return " at once"
	}
	return " in " + Short(d)
}

// after returns text after something else, if there is text.
func after(separator, text string) string {
	if text == "" {
		return ""
	}
	return separator + text
}

// Short returns a duration for people.
func Short(d time.Duration) string {
	switch {
	case d >= time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}
