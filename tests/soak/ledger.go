package main

import (
	"fmt"
	"sync"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// key is one reload.
type key struct {
	program    string
	generation int
}

func (k key) String() string { return fmt.Sprintf("generation %d of %s", k.generation, k.program) }

// outcomes has the outcome of each reload: what supervisord records of it, in its status and events, and what commands
// were told. It reports a contradiction when it appears. Its methods may be called from any goroutine.
type outcomes struct {
	violated func(format string, args ...any)

	mu       sync.Mutex
	recorded map[key]program.Outcome
	answers  map[key]program.Outcome
	checked  map[string]int // by program: each reload up to this one has an outcome
	compared int            // answers
}

func newLedger(violated func(string, ...any)) *outcomes {
	return &outcomes{violated: violated, recorded: map[key]program.Outcome{}, answers: map[key]program.Outcome{},
		checked: map[string]int{}}
}

// record takes what supervisord says of a reload.
func (l *outcomes) record(name string, r *program.ReloadRecord, where string) {
	if r == nil || r.Outcome.Open() {
		return
	}
	l.put(l.recorded, key{name, r.Generation}, r.Outcome, where)
}

// told takes what a command was told.
func (l *outcomes) told(k key, o program.Outcome, who string) {
	l.put(l.answers, k, o, who)
	l.mu.Lock()
	l.compared++
	l.mu.Unlock()
}

func (l *outcomes) put(side map[key]program.Outcome, k key, o program.Outcome, who string) {
	l.mu.Lock()
	recorded, answered := l.recorded[k], l.answers[k]
	side[k] = o
	l.mu.Unlock()
	for _, before := range []program.Outcome{recorded, answered} {
		if before != "" && before != o {
			l.violated("%v has two outcomes: %s, and %s by %s", k, before, o, who)
			return
		}
	}
}

// complete checks that every reload up to the newest one has an outcome, and that every answer was about one of them.
// Nothing may be under way.
func (l *outcomes) complete(st *supervisor.Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range st.Programs {
		for n := l.checked[p.Name] + 1; n <= p.Newest; n++ {
			if l.recorded[key{p.Name, n}] == "" {
				l.violated("%v has no outcome", key{p.Name, n})
			}
		}
		l.checked[p.Name] = p.Newest
	}
	for k := range l.answers {
		if l.recorded[k] == "" {
			l.violated("a command was told of %v, which supervisord does not know", k)
		}
	}
}

// counts returns how many reloads have an outcome, and how many answers were compared with one.
func (l *outcomes) counts() (reloads, answers int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.recorded), l.compared
}
