package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/terminal"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// redraw is how often the lines on a terminal change at most.
const redraw = 250 * time.Millisecond

// live keeps a line for each program current on a terminal. It asks for the status only after an event; the times in a line go on by
// themselves. The methods of a nil live do nothing.
type live struct {
	client   *control.Client
	lines    *terminal.Lines
	stop     context.CancelFunc
	drawing  sync.WaitGroup
	programs atomic.Pointer[[]string]
	events   atomic.Int64
}

// newLive returns nil if out is not a terminal, or if every event gets a line.
func newLive(client *control.Client, out *os.File, verbose bool) *live {
	lines := terminal.NewLines(out, time.Second)
	if verbose || lines == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &live{client: client, lines: lines, stop: cancel}
	l.drawing.Go(func() { l.run(ctx) })
	return l
}

// follow has the lines drawn again, for the programs that the tickets name. It does not wait.
func (l *live) follow(line control.WaitLine) {
	if l == nil {
		return
	}
	if line.Tickets != nil {
		var names []string
		for _, t := range line.Tickets {
			names = append(names, t.Program)
		}
		l.programs.Store(&names)
	}
	l.events.Add(1)
}

// close ends the drawing and removes the lines.
func (l *live) close() {
	if l != nil {
		l.stop()
		l.drawing.Wait()
	}
}

func (l *live) run(ctx context.Context) {
	defer l.lines.Clear()
	st, seen := &supervisor.Status{}, int64(0)
	tick := time.NewTicker(redraw)
	defer tick.Stop()
	for ctx.Err() == nil {
		if events := l.events.Load(); events > seen {
			if now, err := l.client.Status(ctx, "", false); err == nil {
				st, seen = now, events
			}
		}
		l.lines.Show(l.texts(st)...)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (l *live) texts(st *supervisor.Status) (texts []string) {
	names := l.programs.Load()
	for _, p := range st.Programs {
		if names != nil && slices.Contains(*names, p.Name) {
			texts = append(texts, progress(p, time.Now()))
		}
	}
	return texts
}

// progress returns a program in one line: "web  generation 8: spawning 3/8, ready 3/8, soak 4 s; draining 2".
func progress(p supervisor.ProgramStatus, now time.Time) string {
	text, draining := string(p.State), 0
	for _, g := range slices.Backward(p.Generations) { // the trial comes first, so it counts most
		switch g.Role {
		case program.RoleTrial:
			text = trialProgress(g, now)
		case program.RoleServing:
			text = fmt.Sprintf("generation %d serves", g.Number)
		case program.RoleDraining:
			draining += len(g.Workers)
		}
	}
	if draining > 0 {
		text += fmt.Sprintf("; draining %d", draining)
	}
	if p.Due != nil {
		text += "; a reload waits: " + p.Due.Waits
	}
	return p.Name + "  " + text
}

func trialProgress(g supervisor.GenerationStatus, now time.Time) string {
	spawned, ready := 0, 0
	var soak time.Duration
	for _, w := range g.Workers {
		if w.PID > 0 {
			spawned++
		}
		if w.State != program.Starting {
			ready++
		}
		if w.State == program.Soaking && w.Deadline != nil {
			soak = max(soak, w.Deadline.Sub(now))
		}
	}
	text := fmt.Sprintf("generation %d: ", g.Number)
	switch {
	case g.Held:
		if g.Share > 0 {
			return text + "canary held with " + program.Percentage(g.Share)
		}
		return text + "canary held"
	case spawned == 0:
		return text + "preparing"
	case ready < g.Slots:
		text += fmt.Sprintf("spawning %d/%d, ", spawned, g.Slots)
	}
	text += fmt.Sprintf("ready %d/%d", ready, g.Slots)
	if soak > 0 {
		text += fmt.Sprintf(", soak %d s", int(soak.Seconds()+0.99))
	}
	return text
}
