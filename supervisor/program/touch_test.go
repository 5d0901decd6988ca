package program

import (
	"encoding/json"
	"testing"
	"time"

	"example.org/supervisord/internal/config"
)

// parts encodes every part of a program.
func (h *history) parts() map[Part]string {
	parts := map[Part]string{}
	put := func(k PartKind, number int, v any) {
		text, err := json.Marshal(v)
		if err != nil {
			h.Fatal(err)
		}
		parts[Part{k, number}] = string(text)
	}
	put(SteeringPart, 0, h.p.Steering)
	for _, r := range h.p.Reloads {
		put(ReloadPart, r.Generation, r)
	}
	for _, r := range h.p.Past {
		put(PastPart, r.Generation, r)
	}
	for _, g := range h.p.Generations() {
		alone := *g
		alone.Workers = nil
		put(GenerationPart, g.Number, alone)
		for _, w := range g.Workers {
			put(WorkerPart, w.Number, struct {
				*Worker
				Of int
			}{w, g.Number})
		}
	}
	return parts
}

// checkTouched: every part that has changed, come or gone is said to be touched.
func (h *history) checkTouched(before map[Part]string) {
	touched := map[Part]bool{}
	for _, part := range h.p.Touched() {
		touched[part] = true
	}
	after := h.parts()
	for part, text := range after {
		if !touched[part] && before[part] != text {
			h.Fatalf("%s %d was %q, is %s, and is not touched", part.Kind, part.Number, before[part], text)
		}
	}
	for part, text := range before {
		if _, lives := after[part]; !lives && !touched[part] {
			h.Fatalf("%s %d is gone and not touched: %s", part.Kind, part.Number, text)
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
