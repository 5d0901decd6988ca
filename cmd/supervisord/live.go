package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/terminal"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

const (
	// redraw is how often the lines on a terminal change at most.
	redraw = 250 * time.Millisecond
	// recount is how often connections are counted while a generation drains: the kernel has no events for them.
	recount = time.Second
)

// live keeps lines on a terminal current while a command waits. The methods of a nil live do nothing.
type live struct {
	stop    context.CancelFunc
	drawing sync.WaitGroup
}

// newLive draws what texts returns until close. It returns nil if out is not a terminal.
func newLive(out *os.File, texts func(ctx context.Context, now time.Time) []string) *live {
	lines := terminal.NewLines(out, time.Second)
	if lines == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &live{stop: cancel}
	l.drawing.Go(func() {
		defer lines.Clear()
		tick := time.NewTicker(redraw)
		defer tick.Stop()
		for ctx.Err() == nil {
			lines.Show(texts(ctx, time.Now())...)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return l
}

// close ends the drawing and removes the lines.
func (l *live) close() {
	if l != nil {
		l.stop()
		l.drawing.Wait()
	}
}

// waiting is what a command waits for: a line for each program. It asks for the status only after an event; the times
// in a line keep counting by themselves.
type waiting struct {
	client   *control.Client
	programs atomic.Pointer[[]string]
	events   atomic.Int64

	status *supervisor.Status
	seen   int64     // of events
	asked  time.Time // when for the status
}

// follow notes what the tickets name, and that something has happened. It does not wait.
func (w *waiting) follow(line control.WaitLine) {
	if line.Tickets != nil {
		var names []string
		for _, t := range line.Tickets {
			names = append(names, t.Program)
		}
		w.programs.Store(&names)
	}
	w.events.Add(1)
}

func (w *waiting) texts(ctx context.Context, now time.Time) (texts []string) {
	names := w.programs.Load()
	if names == nil {
		return nil
	}
	if events := w.events.Load(); events > w.seen || w.counts() && now.Sub(w.asked) >= recount {
		if st, err := w.client.Status(ctx, "", false); err == nil {
			w.status, w.seen, w.asked = st, events, now
		}
	}
	if w.status == nil {
		return nil
	}
	for _, p := range w.status.Programs {
		if slices.Contains(*names, p.Name) {
			texts = append(texts, p.Name+": "+progress(p, now))
		}
	}
	return texts
}

// counts reports whether a line has a number of connections.
func (w *waiting) counts() bool {
	return w.status != nil && slices.ContainsFunc(w.status.Programs, func(p supervisor.ProgramStatus) bool {
		return slices.ContainsFunc(p.Generations, func(g supervisor.GenerationStatus) bool { return g.InHand != nil })
	})
}

// progress says what a program waits for: "worker 9 of generation 8 is not ready yet, 4s of 30s (2 of 8 are);
// generation 7 serves".
func progress(p supervisor.ProgramStatus, now time.Time) string {
	var parts, last []string // a narrow terminal cuts the last
	for _, g := range p.Generations {
		text := generationProgress(g, now)
		switch {
		case text == "":
		case g.Role == program.RoleServing:
			last = append([]string{text}, last...)
		default:
			parts, last = append(parts, text), append(last, awaited(g)...)
		}
	}
	if p.Due != nil {
		parts = append(parts, "a reload waits: "+p.Due.Waits)
	}
	if p.RetryAt != nil {
		parts = append(parts, fmt.Sprintf("retrying in %s", seconds(p.RetryAt.Sub(now))))
	}
	if parts = append(parts, last...); len(parts) == 0 {
		return string(p.State)
	}
	return strings.Join(parts, "; ")
}

// awaited says why the first worker that is not ready yet is not.
func awaited(g supervisor.GenerationStatus) []string {
	for _, w := range g.Workers {
		if w.State == program.Starting && w.Seen != "" {
			return []string{visible(w.Seen)}
		}
	}
	return nil
}

func generationProgress(g supervisor.GenerationStatus, now time.Time) string {
	states := map[program.WorkerState][]supervisor.WorkerStatus{}
	for _, w := range g.Workers {
		states[w.State] = append(states[w.State], w)
	}
	switch stopping := states[program.Stopping]; {
	case g.Role == program.RoleTrial:
		return trialProgress(g, states, now)
	case len(stopping) > 0:
		return fmt.Sprintf("generation %d stops: %s left", g.Number, count(len(stopping), "worker")) +
			until(stopping, ", next signal", now)
	case g.Role == program.RoleDraining:
		text, hint := fmt.Sprintf("generation %d drains", g.Number), ""
		if g.InHand != nil {
			text += ": " + g.InHand.String()
			hint = shorter(*g.InHand)
		}
		return text + until(states[program.Finishing], "; told to stop", now) + hint
	case g.Role == program.RoleServing:
		return fmt.Sprintf("generation %d serves", g.Number)
	}
	return ""
}

func trialProgress(g supervisor.GenerationStatus, states map[program.WorkerState][]supervisor.WorkerStatus,
	now time.Time) string {
	starting, soaking := states[program.Starting], states[program.Soaking]
	ready := len(g.Workers) - len(starting)
	switch {
	case g.Held && g.HeldTill != nil:
		return fmt.Sprintf("the canary, generation %d, is well and is promoted in %s if it stays well", g.Number,
			seconds(g.HeldTill.Sub(now)))
	case g.Held:
		return fmt.Sprintf("the canary, generation %d, waits for promote or abort", g.Number)
	case !slices.ContainsFunc(g.Workers, func(w supervisor.WorkerStatus) bool { return w.PID > 0 }):
		return fmt.Sprintf("prepares generation %d", g.Number)
	case len(starting) > 0:
		w := starting[0]
		text := fmt.Sprintf("worker %d of generation %d is not ready yet", w.Number, g.Number)
		if w.Deadline != nil {
			text += fmt.Sprintf(", %s of %s", seconds(now.Sub(w.Since)), program.Short(w.Deadline.Sub(w.Since)))
		}
		if g.Slots > 1 {
			text += fmt.Sprintf(" (%d of %d are)", ready, g.Slots)
		}
		return text + after(": ", visible(w.Text))
	case len(soaking) > 0:
		return fmt.Sprintf("generation %d is ready", g.Number) + until(soaking, " and serves", now)
	}
	return fmt.Sprintf("%d of %d workers of generation %d are ready", ready, g.Slots, g.Number)
}

// until says when the last of these workers has a deadline, and what comes then.
func until(workers []supervisor.WorkerStatus, what string, now time.Time) string {
	var last time.Time
	for _, w := range workers {
		if w.Deadline != nil && w.Deadline.After(last) {
			last = *w.Deadline
		}
	}
	if last.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s in %s", what, seconds(last.Sub(now)))
}

// seconds returns a duration in whole seconds, so that a line does not flicker.
func seconds(d time.Duration) string { return max(0, d.Round(time.Second)).String() }
