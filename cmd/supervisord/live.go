package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/terminal"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// A display asks for the status after an event, but at most and at least this often: what the kernel knows of
// workers and connections has no events.
const (
	progressAtMost, progressAtLeast = 250 * time.Millisecond, 500 * time.Millisecond
	watchAtMost, watchAtLeast       = time.Second, 5 * time.Second
)

// events tells a display that something has happened. tell never blocks.
type events chan struct{}

func newEvents() events { return make(events, 1) }

func (e events) tell() {
	select {
	case e <- struct{}{}:
	default:
	}
}

// refresh calls ask again and again until ctx ends: when something has happened, but not more often than atMost says,
// and not less often than atLeast. It continues when supervisord is upgraded, or dies and comes back.
func (e events) refresh(ctx context.Context, atMost, atLeast time.Duration, ask func(context.Context) error) error {
	return control.Lasting(ctx, func(ctx context.Context) (bool, error) {
		if err := ask(ctx); err != nil {
			return false, err
		}
		soonest, latest := time.After(atMost), time.After(atLeast)
		var happened events
		for {
			select {
			case <-soonest:
				happened = e
			case <-happened:
				return false, nil
			case <-latest:
				return false, nil
			case <-ctx.Done():
				return true, context.Cause(ctx)
			}
		}
	})
}

// live shows on a terminal what a command waits for, a line for each program. The methods of a nil live do nothing.
type live struct {
	events
	tickets chan []supervisor.Ticket // of the request
	stop    context.CancelFunc
	drawing sync.WaitGroup
}

// newLive returns a live that draws until close, or nil if out is not a terminal.
func newLive(client *control.Client, out *os.File) *live {
	lines := terminal.NewLines(out, time.Second)
	if lines == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &live{events: newEvents(), tickets: make(chan []supervisor.Ticket, 1), stop: cancel}
	l.drawing.Go(func() {
		defer lines.Clear()
		var awaited []supervisor.Ticket
		l.refresh(ctx, progressAtMost, progressAtLeast, func(ctx context.Context) error { //nolint:errcheck // see Await
			select {
			case awaited = <-l.tickets:
			default:
			}
			st, err := client.Status(ctx, "", false)
			if err != nil {
				return err
			}
			var texts []string
			for _, t := range awaited {
				if p := st.Program(t.Program); p != nil {
					texts = append(texts, p.Name+": "+progress(*p, time.Now()))
				}
			}
			lines.Show(texts...)
			return nil
		})
	})
	return l
}

// follow notes what the command waits for, and that something has happened.
func (l *live) follow(line control.WaitLine) {
	if l == nil {
		return
	}
	if line.Tickets != nil {
		select {
		case l.tickets <- line.Tickets:
		default:
		}
	}
	l.tell()
}

// close ends the drawing and removes the lines.
func (l *live) close() {
	if l != nil {
		l.stop()
		l.drawing.Wait()
	}
}

// progress says in one line what a program waits for: "worker 9 of generation 8 is not ready yet, 4s of 30s (2 of 8
// are); generation 7 serves".
func progress(p supervisor.ProgramStatus, now time.Time) string {
	parts, reasons := underWay(&p, now), []string(nil)
	for _, g := range p.Generations {
		switch i := slices.IndexFunc(g.Workers, isAwaited); {
		case g.Role == program.RoleServing && !isStopping(g):
			parts = append(parts, fmt.Sprintf("generation %d serves", g.Number))
		case i >= 0:
			reasons = append(reasons, terminal.Visible(g.Workers[i].Seen))
		}
	}
	if parts = append(parts, reasons...); len(parts) == 0 { // a narrow terminal cuts the end
		return string(p.State)
	}
	return strings.Join(parts, "; ")
}

// isAwaited reports whether supervisord knows why a worker is not ready yet.
func isAwaited(w supervisor.WorkerStatus) bool { return w.State == program.Starting && w.Seen != "" }

func isStopping(g supervisor.GenerationStatus) bool { return len(inState(g, program.Stopping)) > 0 }

func inState(g supervisor.GenerationStatus, s program.WorkerState) (found []supervisor.WorkerStatus) {
	for _, w := range g.Workers {
		if w.State == s {
			found = append(found, w)
		}
	}
	return found
}

// underWay returns a line for each generation of a program that changes or waits, and for a waiting reload or retry.
func underWay(p *supervisor.ProgramStatus, now time.Time) (lines []string) {
	for _, g := range p.Generations {
		switch stopping := inState(g, program.Stopping); {
		case g.Held && g.HeldTill.IsZero(): // the summary says so
		case g.Role == program.RoleTrial:
			lines = append(lines, trialProgress(g, now))
		case len(stopping) > 0:
			lines = append(lines, fmt.Sprintf("generation %d stops: %s left", g.Number, count(len(stopping), "worker"))+
				until(stopping, ", next signal", now))
		case !g.KeptTill.IsZero():
			lines = append(lines, kept(p.Name, g.Number, g.KeptTill.Sub(now)))
		case g.Role == program.RoleDraining:
			lines = append(lines, drainProgress(g, now))
		}
	}
	if p.Due != nil {
		lines = append(lines, fmt.Sprintf("a reload waits (%s): %s", p.Due.Reason, p.Due.Waits))
	}
	if !p.RetryAt.IsZero() {
		lines = append(lines, fmt.Sprintf("retrying in %s", seconds(p.RetryAt.Sub(now))))
	}
	return lines
}

// drainProgress says what connections a draining generation has, and which key shortens the wait if all are silent.
func drainProgress(g supervisor.GenerationStatus, now time.Time) string {
	text, hint := fmt.Sprintf("generation %d drains", g.Number), ""
	if l := g.InHand; l != nil {
		text += ": " + l.String()
		if l.Active > 0 && l.Active == l.Busy() {
			hint = fmt.Sprintf(" (supervisord waits until they are silent for drain.silence = %q)", program.Short(l.Within))
		}
	}
	return text + until(inState(g, program.Finishing), "; told to stop", now) + hint
}

func trialProgress(g supervisor.GenerationStatus, now time.Time) string {
	starting, soaking := inState(g, program.Starting), inState(g, program.Soaking)
	ready := len(g.Workers) - len(starting)
	switch {
	case g.Held:
		well := program.Report{Kind: program.CanaryWatched, Generation: g.Number,
			After: g.HeldTill.Sub(now).Round(time.Second)}
		return well.Text("")
	case !slices.ContainsFunc(g.Workers, func(w supervisor.WorkerStatus) bool { return w.PID > 0 }):
		return fmt.Sprintf("prepares generation %d", g.Number)
	case len(starting) > 0:
		w := starting[0]
		text := fmt.Sprintf("worker %d of generation %d is not ready yet", w.Number, g.Number)
		if !w.Deadline.IsZero() {
			text += fmt.Sprintf(", %s of %s", seconds(now.Sub(w.Since)), program.Short(w.Deadline.Sub(w.Since)))
		}
		if g.Slots > 1 {
			text += fmt.Sprintf(" (%d of %d are)", ready, g.Slots)
		}
		return text + after(": ", terminal.Visible(w.Text))
	case len(soaking) > 0:
		return fmt.Sprintf("generation %d is ready", g.Number) + until(soaking, " and serves", now)
	}
	return fmt.Sprintf("%d of %d workers of generation %d are ready", ready, g.Slots, g.Number)
}

// until says when the last of these workers has a deadline, and what comes then.
func until(workers []supervisor.WorkerStatus, what string, now time.Time) string {
	var last time.Time
	for _, w := range workers {
		if w.Deadline.After(last) {
			last = w.Deadline
		}
	}
	if last.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s in %s", what, seconds(last.Sub(now)))
}

// seconds returns a duration in whole seconds, so that a line does not flicker.
func seconds(d time.Duration) string { return max(0, d.Round(time.Second)).String() }

// watchStatus draws the status until Ctrl-C.
func watchStatus(ctx context.Context, client *control.Client, name string, v statusView) error {
	ctx, cancel := context.WithCancel(ctx)
	happened := newEvents()
	var following sync.WaitGroup
	following.Go(func() {
		control.Lasting(ctx, func(ctx context.Context) (bool, error) { //nolint:errcheck // the status has the same error
			return false, client.Events(ctx, name, func(supervisor.Update) { happened.tell() })
		})
	})
	defer following.Wait()
	defer cancel()
	drawn := false
	return happened.refresh(ctx, watchAtMost, watchAtLeast, func(ctx context.Context) error {
		st, err := client.Status(ctx, name, true)
		if err == nil {
			v.draw(st)
			drawn = true
		} else if drawn && ctx.Err() == nil {
			fmt.Print(clear + err.Error() + "\n")
		}
		return err
	})
}

// clear clears a terminal and writes from its top.
const clear = "\x1b[H\x1b[J"

// draw draws the status over what was drawn before: on a terminal the lines that fit.
func (v statusView) draw(st *supervisor.Status) {
	rows := 0
	if terminal.Is(os.Stdout) {
		v.width, rows = terminal.Size(os.Stdout)
	}
	lines := v.lines(st, time.Now())
	if room := max(1, rows-2); rows > 0 && len(lines) > room { // below are the last line and the cursor
		lines = append(lines[:room:room], fmt.Sprintf("… and %d more lines", len(lines)-room))
	}
	fmt.Print(clear + strings.Join(v.cut(lines), "\n") + "\n")
}
