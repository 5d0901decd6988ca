package program

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"example.org/supervisord/internal/config"
)

// parts copies every part of a program.
func (h *history) parts() map[Part]any {
	parts := map[Part]any{{SteeringPart, 0}: slices.Clone(h.p.Steering)} // whose slots are only replaced
	for _, r := range h.p.Reloads {
		c := r.Copy()
		c.Failure, c.Left = copyOf(r.Failure), copyOf(r.Left)
		parts[Part{ReloadPart, r.Generation}] = c
	}
	for _, r := range h.p.Past {
		parts[Part{PastPart, r.Generation}] = r
	}
	for _, g := range h.p.Generations() {
		alone := *g
		alone.Workers, alone.Looks, alone.Slots, alone.Failure = nil, nil, slices.Clone(g.Slots), copyOf(g.Failure)
		parts[Part{GenerationPart, g.Number}] = alone
		for _, w := range g.Workers {
			parts[Part{WorkerPart, w.Number}] = workerOf{*w, g.Number}
		}
	}
	return parts
}

type workerOf struct {
	Worker
	of int
}

func copyOf[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

// same reports whether two copies of a part are equal.
func same(a, b any) bool {
	switch a := a.(type) {
	case workerOf: // most parts are, and reflection takes most of the time of a random history
		b, ok := b.(workerOf)
		return ok && a == b
	case PastReload:
		b, ok := b.(PastReload)
		return ok && a == b
	}
	return reflect.DeepEqual(a, b)
}

// checkTouched: every part that has changed, come or gone since the last call is said to be touched.
func (h *history) checkTouched() {
	touched := map[Part]bool{}
	for _, part := range h.p.Touched() {
		touched[part] = true
	}
	before := h.was
	h.was = h.parts()
	for part, now := range h.was {
		if !touched[part] && !same(before[part], now) {
			h.Fatalf("%s %d was %+v, is %+v, and is not touched", part.Kind, part.Number, before[part], now)
		}
	}
	for part, was := range before {
		if _, lives := h.was[part]; !lives && !touched[part] {
			h.Fatalf("%s %d is gone and not touched: %+v", part.Kind, part.Number, was)
		}
	}
}

func TestStepTouchesOnlyWhatChanges(t *testing.T) {
	c := testConfig(100, config.All)
	p, now := New(c), time.Unix(1_000_000, 0)
	play(p, now, p.Step(now, Start{Config: c}))
	p.Touched()
	p.Step(now, Spawned{Worker: 7, PID: 4711})
	if got := p.Touched(); len(got) != 1 || got[0] != (Part{WorkerPart, 7}) {
		t.Errorf("one worker runs, and %v are touched", got)
	}
	p.Step(now, Exited{Worker: 7})
	seen := map[Part]bool{}
	for _, part := range p.Touched() {
		seen[part] = true
	}
	if want := 3; len(seen) != want { // the worker, its successor, the slots of the generation
		t.Errorf("one worker ends, and %v are touched", seen)
	}
}
