package prove

import (
	"fmt"
	"time"
)

// event is something that supervisord did with the program.
type event struct {
	at         time.Time
	kind       eventKind
	generation int
	pid        int
	reason     string
}

type eventKind int

const (
	began   eventKind = iota // a new generation is on trial
	served                   // it serves
	failed                   // it failed
	gone                     // the last worker of a generation has ended
	refused                  // the configuration was refused: no new generation
	ready                    // a worker is ready, or was first seen
	ended                    // a worker ended as it should
	killed                   // a worker had to be killed
	died                     // a worker ended although nobody had asked it to
)

// Outcome is what became of a reload.
type Outcome string

// The outcomes.
const (
	Served     Outcome = "served"     // its generation serves
	Superseded Outcome = "superseded" // a later reload brought the generation: somebody else asked for one as well, and supervisord makes one of those that come during a trial
	Failed     Outcome = "failed"     // its generation failed; the one before went on serving
	Undecided  Outcome = "undecided"  // nothing came of it in time
)

// reload is one HUP and what came of it.
type reload struct {
	at         time.Time
	generation int
	decided    time.Time // when its generation served, or failed
	settled    time.Time // when everything older was gone
	outcome    Outcome
	reason     string
}

// history is what happened to the program, told by events. It is plain data.
type history struct {
	reloads []*reload
	alive   map[int]bool // generations that have workers
	serving int
	workers map[int]int // generation by PID, of every worker ever seen
	live    map[int]bool
	kills   []time.Time // one for each worker that had to be killed
	died    []string
}

func newHistory() *history {
	return &history{alive: map[int]bool{}, workers: map[int]int{}, live: map[int]bool{}}
}

// hup tells that a reload was asked for.
func (h *history) hup(at time.Time) {
	h.reloads = append(h.reloads, &reload{at: at, outcome: Undecided})
}

func (h *history) add(e event) {
	switch e.kind {
	case began:
		h.begin(e)
	case served:
		h.serving = e.generation
		h.decide(e, Served)
	case failed:
		delete(h.live, e.pid) // the worker that failed it has ended, where one is named
		h.decide(e, Failed)
	case gone:
		delete(h.alive, e.generation)
		h.settle(e)
	case refused:
		h.refuse(e)
	case ready:
		h.workers[e.pid], h.live[e.pid] = e.generation, true
	case ended:
		delete(h.live, e.pid)
	case killed:
		h.kills = append(h.kills, e.at)
	case died:
		delete(h.live, e.pid)
		h.died = append(h.died, fmt.Sprintf("pid %d of generation %d: %s", e.pid, e.generation, e.reason))
	}
}

// begin gives the generation to the reloads that wait for one. All but the last of them are superseded.
func (h *history) begin(e event) {
	h.alive[e.generation] = true
	var last *reload
	for _, r := range h.reloads {
		if r.generation != 0 || r.outcome != Undecided {
			continue
		}
		if last != nil {
			last.outcome = Superseded
		}
		r.generation, last = e.generation, r
	}
}

func (h *history) decide(e event, o Outcome) {
	for _, r := range h.reloads {
		if r.generation != e.generation || !r.decided.IsZero() {
			continue
		}
		r.decided = e.at
		if r.outcome == Undecided {
			r.outcome = o
		}
		if r.outcome == Failed {
			r.reason = e.reason
		}
	}
	h.settle(e)
}

// refuse ends the reloads that were to bring a generation and never will.
func (h *history) refuse(e event) {
	for _, r := range h.reloads {
		if r.generation == 0 && r.outcome == Undecided {
			r.outcome, r.reason, r.decided, r.settled = Failed, e.reason, e.at, e.at
		}
	}
}

// settle notes which reloads have nothing under way any more: of a failed one its own generation is gone, of another all older.
func (h *history) settle(e event) {
	for _, r := range h.reloads {
		if r.decided.IsZero() || !r.settled.IsZero() {
			continue
		}
		if r.outcome == Failed && !h.alive[r.generation] || r.outcome != Failed && !h.olderThan(r.generation) {
			r.settled = e.at
		}
	}
}

func (h *history) olderThan(generation int) bool {
	for g := range h.alive {
		if g < generation {
			return true
		}
	}
	return false
}

// decided reports whether the last reload served or failed; there may be none.
func (h *history) decided() bool {
	n := len(h.reloads)
	return n == 0 || !h.reloads[n-1].decided.IsZero()
}

// settled reports whether nothing is under way.
func (h *history) settled() bool {
	for _, r := range h.reloads {
		if r.settled.IsZero() {
			return false
		}
	}
	return true
}

// left are the workers of older generations that still live.
func (h *history) left() []int {
	var pids []int
	for pid := range h.live {
		if h.workers[pid] != h.serving {
			pids = append(pids, pid)
		}
	}
	return pids
}
