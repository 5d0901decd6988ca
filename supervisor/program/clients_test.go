package program

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"example.org/supervisord/internal/config"
)

// lanes is a model of what package socket does about the decisions of a program: which lane each generation has, where
// the kernel sends new connections, and which clients wait where.
type lanes struct {
	of      map[int]int // the lane of each generation
	serving []int       // the lanes that get new connections
	waiting map[int]int // clients, by lane
}

// follow carries out the actions of a step.
func (l *lanes) follow(actions []Action) {
	for _, a := range actions {
		switch a := a.(type) {
		case Prepare:
			l.of[a.Generation.Number] = l.lease()
		case Forget:
			delete(l.of, a.Generation)
		case Steer:
			l.steer(a.Shares)
		}
	}
	for lane := range l.waiting {
		if !l.held(lane) && !slices.Contains(l.serving, lane) {
			delete(l.waiting, lane) // these are reset
		}
	}
}

// lease returns the lane of the next generation: one that nobody has, first those that get new connections.
func (l *lanes) lease() int {
	for _, lane := range l.serving {
		if !l.held(lane) {
			return lane
		}
	}
	lane := 0
	for l.held(lane) {
		lane++
	}
	return lane
}

func (l *lanes) held(lane int) bool {
	for _, of := range l.of {
		if of == lane {
			return true
		}
	}
	return false
}

// steer sends new connections where the program wants them. A generation that is gone has no lane: they go where they
// went.
func (l *lanes) steer(shares []Share) {
	var serving []int
	for _, s := range shares {
		if lane, has := l.of[s.Generation]; has {
			serving = append(serving, lane)
		}
	}
	if len(serving) > 0 {
		l.serving = serving
	}
}

// accept lets every worker accept that can.
func (l *lanes) accept(p *Program) {
	for w, g := range p.Workers() {
		if w.State != Starting && w.State != Stopping {
			delete(l.waiting, l.of[g.Number])
		}
	}
}

// drawLanes draws a configuration whose generations have lanes.
func drawLanes(t *rapid.T) *config.Program {
	c := drawSteered(t)
	c.Workers = max(2, c.Workers)
	return c
}

// drawLasting is drawLanes for the end of a history: nothing begins by itself.
func drawLasting(t *rapid.T) *config.Program {
	c := drawLanes(t)
	c.MaxAge, c.Reload.Every = 0, 0
	return c
}

// withClients plays a history in which clients connect and workers accept at any time.
func withClients(t *rapid.T) (*history, *lanes) {
	l := &lanes{of: map[int]int{}, waiting: map[int]int{}}
	h := historyOf(t, drawLanes, true)
	h.follow = l.follow
	h.follow(h.actions)
	for range rapid.IntRange(0, 80).Draw(t, "length") {
		h.step(h.event())
		if rapid.Bool().Draw(t, "goes well") {
			h.goesWell()
		}
		if len(l.serving) > 0 && rapid.Bool().Draw(t, "connects") {
			l.waiting[rapid.SampledFrom(l.serving).Draw(t, "lane")]++
		}
		if rapid.Bool().Draw(t, "accept") {
			l.accept(h.p)
		}
	}
	return h, l
}

func TestAnyHistoryEndsWithNobodyWaitingWhereNobodyAccepts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, l := withClients(t)
		newest := drawLasting(t)
		h.step(Start{Config: newest})
		h.step(Reload{Config: newest, Reason: "HUP"})
		h.settleDown()
		if l.accept(h.p); len(l.waiting) > 0 {
			t.Fatalf("clients wait by lane: %v, generations have %v", l.waiting, l.of)
		}
	})
}

func TestClientsOfAStoppedProgramWaitInTheLaneOfTheNextGeneration(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, l := withClients(t)
		h.step(Stop{})
		h.settleDown()
		waiting := slices.Clone(l.serving)
		if len(waiting) > 1 {
			t.Fatalf("while nothing serves, new connections go to the lanes %v", waiting)
		}
		h.step(Start{Config: drawLasting(t)})
		h.settleDown()
		if lane := l.of[h.p.Serving.Number]; len(waiting) == 1 && lane != waiting[0] {
			t.Fatalf("clients waited in lane %d, and the next generation has lane %d", waiting[0], lane)
		}
	})
}
