package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
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

// newLive draws the lines of texts until close. newLive returns nil if out is not a terminal.
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

// waiting has a line for each program that a command waits for. It asks for the status only after an event; the times
// in a line keep counting by themselves.
type waiting struct {
	client   *control.Client
	programs atomic.Pointer[[]string]
	events   atomic.Int64

	status *supervisor.Status
	seen   int64     // of events
	asked  time.Time // when for the status
}

// follow notes the programs of the tickets, and that something has happened. follow never blocks.
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

// isAwaited reports whether it is known why a worker is not ready yet.
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

// underWay says what is under way in a program, a line for each generation with which something is.
func underWay(p *supervisor.ProgramStatus, now time.Time) (lines []string) {
	for _, g := range p.Generations {
		switch stopping := inState(g, program.Stopping); {
		case g.Held && g.HeldTill == nil: // the summary says so
		case g.Role == program.RoleTrial:
			lines = append(lines, trialProgress(g, now))
		case len(stopping) > 0:
			lines = append(lines, fmt.Sprintf("generation %d stops: %s left", g.Number, count(len(stopping), "worker"))+
				until(stopping, ", next signal", now))
		case g.KeptTill != nil:
			lines = append(lines, kept(p.Name, g.Number, g.KeptTill.Sub(now)))
		case g.Role == program.RoleDraining:
			lines = append(lines, drainProgress(g, now))
		}
	}
	if p.Due != nil {
		lines = append(lines, fmt.Sprintf("a reload waits (%s): %s", p.Due.Reason, p.Due.Waits))
	}
	if p.RetryAt != nil {
		lines = append(lines, fmt.Sprintf("retrying in %s", seconds(p.RetryAt.Sub(now))))
	}
	return lines
}

// drainProgress says what a generation has in hand, and how to wait less if all that it has in hand is silence.
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
		if w.Deadline != nil {
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

// --watch draws after an event, but at most and at least this often: what the kernel knows of workers has no events.
const (
	watchAtMost  = time.Second
	watchAtLeast = 5 * time.Second
)

// watchStatus draws the status, and again after each event, until Ctrl-C. It continues when supervisord is upgraded, or
// dies and comes back.
func watchStatus(ctx context.Context, client *control.Client, name string, v statusView) error {
	ctx, cancel := context.WithCancel(ctx)
	events, resized := make(chan struct{}, 1), make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH, syscall.SIGCONT)
	defer signal.Stop(resized)
	var following sync.WaitGroup
	following.Go(func() {
		control.Lasting(ctx, func(ctx context.Context) (bool, error) { //nolint:errcheck // the status has the same error
			return false, client.Events(ctx, name, func(supervisor.Update) {
				select {
				case events <- struct{}{}:
				default:
				}
			})
		})
	})
	defer following.Wait()
	defer cancel()
	drawn := false
	return control.Lasting(ctx, func(ctx context.Context) (bool, error) {
		st, err := client.Status(ctx, name, true)
		if err == nil {
			v.draw(st)
			drawn = true
		} else {
			if drawn && ctx.Err() == nil {
				fmt.Print(clear + err.Error() + "\n")
			}
			return false, err
		}
		soonest, latest := time.After(watchAtMost), time.After(watchAtLeast)
		var happened chan struct{}
		for {
			select {
			case <-soonest:
				happened = events
			case <-happened:
				return false, nil
			case <-latest:
				return false, nil
			case <-resized:
				return false, nil
			case <-ctx.Done():
				return true, context.Cause(ctx)
			}
		}
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
