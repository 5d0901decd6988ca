package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"
)

// kept is how many of the last lines a journal remembers: those of a minute and a half, because a request is missed
// when its timeout is over.
const kept = 4000

// journal remembers the last events, and counts all of them. Its methods may be called from any goroutine.
type journal struct {
	began time.Time

	mu     sync.Mutex
	lines  []line
	counts map[string]int
}

// line is what happened, and when since the beginning.
type line struct {
	at   time.Duration
	text string
}

func newJournal() *journal { return &journal{began: time.Now(), counts: map[string]int{}} }

// event counts an event of a kind, and remembers it.
func (j *journal) event(kind, format string, args ...any) {
	j.mu.Lock()
	j.counts[kind]++
	j.mu.Unlock()
	j.line("soak: "+kind+": "+format, args...)
}

// line remembers a line.
func (j *journal) line(format string, args ...any) {
	at := time.Since(j.began)
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.lines) == kept {
		j.lines = j.lines[1:]
	}
	j.lines = append(j.lines, line{at, fmt.Sprintf(format, args...)})
}

func (j *journal) count(kind string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.counts[kind]
}

// show prints the lines that are remembered of a time.
func (j *journal) show(out io.Writer, from, to time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, l := range j.lines {
		if from <= l.at && l.at <= to {
			fmt.Fprintf(out, "%10.3f  %s\n", l.at.Seconds(), l.text)
		}
	}
}

// table prints how often each kind of event happened, as rows of Markdown.
func (j *journal) table(out io.Writer) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fmt.Fprint(out, "| event | number |\n| --- | --- |\n")
	for _, kind := range slices.Sorted(maps.Keys(j.counts)) {
		fmt.Fprintf(out, "| %s | %d |\n", kind, j.counts[kind])
	}
}

// spell is something that is the case for a time, now and then: an outcome may depend on whether it was the case
// meanwhile.
type spell struct {
	mu    sync.Mutex
	begun int
	now   int
}

// during makes it the case while f runs.
func (s *spell) during(f func()) {
	s.mu.Lock()
	s.begun++
	s.now++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.now--
		s.mu.Unlock()
	}()
	f()
}

// mark begins to look. The function that it returns reports whether it was the case at any time since.
func (s *spell) mark() func() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, was := s.begun, s.now > 0
	return func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return was || s.begun > before
	}
}
