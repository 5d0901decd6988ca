package lab

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// The sentences of the log that scripts and dashboards rely on, once more as literals: a change of one is a change of what
// users see.
const (
	Starts        = "supervisord starts"
	Ends          = "supervisord ends"
	HUP           = "HUP: reading the configuration and replacing the workers of every program"
	USR1          = "USR1: reopening log files"
	Refused       = "configuration refused; nothing has changed"
	NotConfigured = "program is no longer configured"
	Stopping      = "stopping every program"

	TrialBegan       = "new generation begins"
	ReloadQueued     = "reload during a trial: one more follows when it has ended"
	ReloadHeld       = "reload waits for a person: it follows when the canary is promoted or aborted"
	ReloadFull       = "reload waits: as many generations drain as max_draining allows"
	ReloadDamped     = "watched files change with every generation: reloads for them are delayed"
	CanaryHeld       = "canary is well and held; promote or abort it"
	TrialFailed      = "new generation failed"
	ReloadRetry      = "reload is tried again later"
	StartRetry       = "nothing serves; trying again later"
	GenerationServes = "new generation serves"
	GenerationGone   = "generation is gone"
	WorkerRuns       = "worker runs"
	WorkerReady      = "worker is ready"
	WorkerTold       = "worker is told to stop"
	WorkerKilled     = "worker is killed"
	WorkerStopped    = "worker has stopped"
	WorkerDied       = "worker died"
	SlotRetry        = "worker will be started again"
	ProgramStopped   = "program has stopped"
)

// Line is one line of the log. A line that is not JSON was written by a worker and has only Text and N.
type Line struct {
	Level, Program, Signal, Step, Reason, Error, Took, After, Version string

	Msg                                            string
	Generation, Worker, Slot, PID, Serving, Killed int
	Now                                            bool
	Time                                           time.Time
	Stderr                                         []string

	N    int    `json:"-"` // its number, from 1
	Text string `json:"-"` // all of it
}

// TookDuration is Took, 0 if there is none.
func (l Line) TookDuration() time.Duration { d, _ := time.ParseDuration(l.Took); return d }

// AfterDuration is After, 0 if there is none.
func (l Line) AfterDuration() time.Duration { d, _ := time.ParseDuration(l.After); return d }

// Cond is a condition that a line meets or not.
type Cond func(Line) bool

// Says is met by lines with this sentence.
func Says(sentence string) Cond { return func(l Line) bool { return l.Msg == sentence } }

// Program is met by lines about a program.
func Program(name string) Cond { return func(l Line) bool { return l.Program == name } }

// Gen is met by lines about a generation.
func Gen(number int) Cond { return func(l Line) bool { return l.Generation == number } }

// Slot is met by lines about a slot, and those about none if it is 0.
func Slot(number int) Cond { return func(l Line) bool { return l.Slot == number } }

// PID is met by lines about a process.
func PID(number int) Cond { return func(l Line) bool { return l.PID == number } }

// Step is met by lines that name the step that failed.
func Step(name string) Cond { return func(l Line) bool { return l.Step == name } }

// After is met by lines after e.
func After(e Line) Cond { return func(l Line) bool { return l.N > e.N } }

// Contains is met by lines with this text in them, JSON or not.
func Contains(text string) Cond { return func(l Line) bool { return strings.Contains(l.Text, text) } }

// Journal collects what a supervisord and its workers write to stdout and stderr, line by line. It is safe for concurrent use.
type Journal struct {
	mu    sync.Mutex
	lines []Line
	more  chan struct{} // closed at the next line
	eof   chan struct{} // closed when nobody can write any more
}

func newJournal(r io.ReadCloser) *Journal {
	j := &Journal{more: make(chan struct{}), eof: make(chan struct{})}
	go func() {
		defer close(j.eof)
		defer r.Close()
		in := bufio.NewScanner(r)
		in.Buffer(nil, 4<<20)
		for in.Scan() {
			j.add(in.Text())
		}
	}()
	return j
}

func (j *Journal) add(text string) {
	var l Line
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		l = Line{}
	}
	l.Text = text
	j.mu.Lock()
	defer j.mu.Unlock()
	l.N = len(j.lines) + 1
	j.lines = append(j.lines, l)
	close(j.more)
	j.more = make(chan struct{})
}

// All returns the lines so far that meet every condition, and what is closed at the next line.
func (j *Journal) All(conds ...Cond) ([]Line, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []Line
next:
	for _, l := range j.lines {
		for _, c := range conds {
			if !c(l) {
				continue next
			}
		}
		found = append(found, l)
	}
	return found, j.more
}

// String is the last 200 lines.
func (j *Journal) String() string {
	lines, _ := j.All()
	var b strings.Builder
	for _, l := range lines[max(0, len(lines)-200):] {
		fmt.Fprintln(&b, l.Text)
	}
	return b.String()
}
