package program

import (
	"slices"
	"time"
)

// Crash is the end of a worker that nobody asked for, or a replacement that did not become ready.
type Crash struct {
	At         time.Time `json:"at"`
	Generation int       `json:"generation"`
	Worker     int       `json:"worker"`
	Slot       int       `json:"slot"`
	Reason     string    `json:"reason"`
	Tail       []string  `json:"tail,omitempty"` // its last lines of stderr
}

// Copy returns a copy that shares nothing mutable with c, which may be nil.
func (c *Crash) Copy() *Crash {
	if c == nil {
		return nil
	}
	d := *c
	d.Tail = slices.Clone(c.Tail)
	return &d
}

// crashes is what is known of workers that ended unexpectedly while their generation served.
type crashes struct {
	Restarts  int    `json:",omitempty"` // replaced since the serving generation began; one that only replaces them goes on counting
	LastCrash *Crash `json:",omitempty"`
}

// recordCrash remembers the last crash.
func (p *Program) recordCrash(now time.Time, g *Generation, w *Worker, reason string, tail []string) {
	p.LastCrash = &Crash{At: now, Generation: g.Number, Worker: w.Number, Slot: w.Slot, Reason: reason, Tail: tail}
}
