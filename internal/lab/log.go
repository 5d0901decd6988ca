package lab

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// The sentences of the log that scripts and dashboards rely on, repeated as literals: users see a change of one.
const (
	Starts        = "supervisord starts"
	Ends          = "supervisord ends"
	HUP           = "HUP: reading the configuration and replacing the workers of every program"
	USR1          = "USR1: reopening log files"
	Refused       = "configuration refused; nothing has changed"
	NotConfigured = "program is no longer configured"
	Stopping      = "stopping every program"

	TrialBegan       = "generation starts"
	ReloadQueued     = "a reload waits until the one before it has ended"
	ReloadHeld       = "a reload waits until the canary is promoted (abort drops it)"
	ReloadFull       = "a reload waits: as many old generations drain as max_draining allows"
	ReloadDamped     = "watched files change with every generation, so reloads for them wait"
	CanaryHeld       = "the canary is well and waits: promote or abort it"
	TrialFailed      = "generation failed"
	ReloadRetry      = "the reload is tried again"
	StartRetry       = "no worker is up; retrying"
	GenerationServes = "generation serves"
	GenerationGone   = "generation has ended"
	WorkerRuns       = "worker runs"
	WorkerReady      = "worker is ready"
	WorkerTold       = "worker is told to stop"
	WorkerKilled     = "worker is killed"
	WorkerOutlived   = "worker continues without its first process"
	WorkerStopped    = "worker has stopped"
	WorkerDied       = "worker died"
	SlotRetry        = "slot gets a new worker"
	ProgramStopped   = "the program has stopped"
)

// Entry is one line of the log. A line that is not JSON was written by a worker and has only Text and N.
type Entry struct {
	Level, Msg, Version, Error string
	Time                       time.Time

	logSubject
	logOutcome

	N    int    `json:"-"` // its number, from 1
	Text string `json:"-"` // all of it
}

// logSubject is what a line is about.
type logSubject struct {
	Program                       string
	Generation, Worker, Slot, PID int
}

// logOutcome is what happened to it.
type logOutcome struct {
	Signal, Step, Reason string
	Took                 float64 `json:"took_ms"`
	After                float64 `json:"after_ms"`
	Serving, Killed      int
	Now                  bool
	Stderr               []string
}

// Cond is a condition on a line.
type Cond func(Entry) bool

// Says matches lines with this sentence.
func Says(sentence string) Cond { return func(l Entry) bool { return l.Msg == sentence } }

// Program matches lines about a program.
func Program(name string) Cond { return func(l Entry) bool { return l.Program == name } }

// Gen matches lines about a generation.
func Gen(number int) Cond { return func(l Entry) bool { return l.Generation == number } }

// Slot matches lines about a slot; 0: about none.
func Slot(number int) Cond { return func(l Entry) bool { return l.Slot == number } }

// PID matches lines about a process.
func PID(number int) Cond { return func(l Entry) bool { return l.PID == number } }

// Step matches lines that name the step that failed.
func Step(name string) Cond { return func(l Entry) bool { return l.Step == name } }

// After matches lines after e.
func After(e Entry) Cond { return func(l Entry) bool { return l.N > e.N } }

// Contains matches lines with this text in them, JSON or not.
func Contains(text string) Cond {
	return func(l Entry) bool { return strings.Contains(l.Text, text) }
}

// Transcript collects what a supervisord and its workers write to stdout and stderr. It is safe for concurrent use.
type Transcript struct {
	mu    sync.Mutex
	lines []Entry
	more  chan struct{} // closed at the next line
}

// Add adds a line.
func (j *Transcript) Add(text string) {
	var l Entry
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		l = Entry{}
	}
	l.Text = text
	j.mu.Lock()
	defer j.mu.Unlock()
	l.N = len(j.lines) + 1
	j.lines = append(j.lines, l)
	if j.more != nil {
		close(j.more)
		j.more = nil
	}
}

// All returns the lines so far that meet every condition, and a channel that is closed at the next line.
func (j *Transcript) All(conds ...Cond) ([]Entry, <-chan struct{}) {
	found, _, more := j.after(0, conds...)
	return found, more
}

// after is All of the lines after the first n, and how many lines there are: what waits looks at each line once.
func (j *Transcript) after(n int, conds ...Cond) ([]Entry, int, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.more == nil {
		j.more = make(chan struct{})
	}
	var found []Entry
	for _, l := range j.lines[n:] {
		if !slices.ContainsFunc(conds, func(c Cond) bool { return !c(l) }) {
			found = append(found, l)
		}
	}
	return found, len(j.lines), j.more
}

// String is the last 200 lines.
func (j *Transcript) String() string {
	lines, _ := j.All()
	return whole(lines[max(0, len(lines)-200):])
}

// Report is what a failing test prints: in short form the last ten lines, and the first three of what follows the last
// line of supervisord itself (why it ended, or a dump of goroutines), because a reader may see no more than the
// beginning. Then come the lines as they are, 200 up to there and 400 more.
func (j *Transcript) Report() string {
	lines, _ := j.All()
	end := len(lines)
	for end > 0 && lines[end-1].Msg == "" {
		end--
	}
	if end == 0 { // no line is JSON
		end = len(lines)
	}
	var b strings.Builder
	for _, l := range lines[max(0, end-10):min(len(lines), end+3)] {
		fmt.Fprintln(&b, l.Short())
	}
	return fmt.Sprintf("its last lines, in short:\n%sall of it:\n%s", &b,
		whole(lines[max(0, end-200):min(len(lines), end+400)]))
}

// since returns up to 400 lines from number first on.
func (j *Transcript) since(first int) string {
	lines, _ := j.All()
	lines = lines[min(len(lines), first-1):]
	return whole(lines[:min(len(lines), 400)])
}

func whole(lines []Entry) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintln(&b, l.Text)
	}
	return b.String()
}

// shortLine is how many bytes Short returns at most.
const shortLine = 220

// Short is the line in short form: the time of day, the level if it is not the usual one, the sentence, and the fields
// that tell what the sentence does not.
func (l Entry) Short() string {
	var fields map[string]any
	if l.Msg == "" || json.Unmarshal([]byte(l.Text), &fields) != nil {
		return fmt.Sprintf("%.*s", shortLine, l.Text)
	}
	words := []string{l.Time.UTC().Format("15:04:05.000")}
	if l.Level == "warn" || l.Level == "error" {
		words = append(words, strings.ToUpper(l.Level))
	}
	words = append(words, l.Msg+":")
	for _, known := range []string{"time", "level", "msg", "event", "asked_by"} {
		delete(fields, known)
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		words = append(words, fmt.Sprintf("%s=%v", key, fields[key]))
	}
	return fmt.Sprintf("%.*s", shortLine, strings.TrimSuffix(strings.Join(words, " "), ":"))
}
