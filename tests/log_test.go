package tests

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
	starts        = "supervisord starts"
	ends          = "supervisord ends"
	hup           = "HUP: reading the configuration and replacing the workers of every program"
	usr1          = "USR1: reopening log files"
	refused       = "configuration refused; nothing has changed"
	notConfigured = "program is no longer configured"
	stopping      = "stopping every program"

	trialBegan       = "new generation begins"
	reloadQueued     = "reload during a trial: one more follows when it has ended"
	trialFailed      = "new generation failed"
	reloadRetry      = "reload is tried again later"
	startRetry       = "nothing serves; trying again later"
	generationServes = "new generation serves"
	generationGone   = "generation is gone"
	workerRuns       = "worker runs"
	workerReady      = "worker is ready"
	workerTold       = "worker is told to stop"
	workerKilled     = "worker is killed"
	workerStopped    = "worker has stopped"
	workerDied       = "worker died"
	slotRetry        = "worker will be started again"
	programStopped   = "program has stopped"
)

// line is one line of the log. What is not JSON was written by a worker and has only text.
type line struct {
	Level, Program, Signal, Step, Reason, Error, Took, After, Version string

	Msg                                            string
	Generation, Worker, Slot, PID, Serving, Killed int
	Now                                            bool
	Time                                           time.Time
	Stderr                                         []string

	n    int // its number
	text string
}

func (l line) took() time.Duration  { d, _ := time.ParseDuration(l.Took); return d }
func (l line) after() time.Duration { d, _ := time.ParseDuration(l.After); return d }

// cond is what a line must meet.
type cond func(line) bool

func says(sentence string) cond { return func(l line) bool { return l.Msg == sentence } }
func program(name string) cond  { return func(l line) bool { return l.Program == name } }
func gen(number int) cond       { return func(l line) bool { return l.Generation == number } }
func slot(number int) cond      { return func(l line) bool { return l.Slot == number } }
func pid(number int) cond       { return func(l line) bool { return l.PID == number } }
func step(name string) cond     { return func(l line) bool { return l.Step == name } }
func after(e line) cond         { return func(l line) bool { return l.n > e.n } }
func contains(text string) cond { return func(l line) bool { return strings.Contains(l.text, text) } }

// journal is the log of a supervisord as it comes in.
type journal struct {
	mu    sync.Mutex
	lines []line
	more  chan struct{} // closed at the next line
	eof   chan struct{} // closed when nobody can write any more
}

func newJournal(r io.ReadCloser) *journal {
	j := &journal{more: make(chan struct{}), eof: make(chan struct{})}
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

func (j *journal) add(text string) {
	var l line
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		l = line{}
	}
	l.text = text
	j.mu.Lock()
	defer j.mu.Unlock()
	l.n = len(j.lines) + 1
	j.lines = append(j.lines, l)
	close(j.more)
	j.more = make(chan struct{})
}

// all returns the lines so far that meet every condition, and what is closed at the next line.
func (j *journal) all(conds ...cond) ([]line, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []line
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

func (j *journal) String() string {
	lines, _ := j.all()
	var b strings.Builder
	for _, l := range lines[max(0, len(lines)-200):] {
		fmt.Fprintln(&b, l.text)
	}
	return b.String()
}
