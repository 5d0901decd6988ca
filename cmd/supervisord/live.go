package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/daemon"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// How often the lines on a terminal are drawn: when something has happened, and each second for the times in them.
const (
	redraw    = 250 * time.Millisecond // at most
	countdown = time.Second
)

// live draws a line for each program on a terminal, and keeps it current; elsewhere it draws nothing.
type live struct {
	client  *control.Client
	out     *os.File
	stop    context.CancelFunc // nil: it does not draw
	done    chan struct{}
	changed chan struct{} // something has happened; with room for one

	mu       sync.Mutex
	programs []string
	lines    int // that are on the terminal
}

func newLive(client *control.Client, out *os.File, plain bool) *live {
	l := &live{client: client, out: out, changed: make(chan struct{}, 1)}
	if plain || !daemon.IsTerminal(out) {
		return l
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.stop, l.done = cancel, make(chan struct{})
	go l.run(ctx)
	return l
}

func (l *live) drawn() bool { return l.stop != nil }

// follow says which programs are to be shown.
func (l *live) follow(tickets []supervisor.Ticket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range tickets {
		l.programs = append(l.programs, t.Program)
	}
}

// notice has the lines drawn again, with what has happened. It does not wait.
func (l *live) notice() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// say writes a line that stays.
func (l *live) say(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintln(l.out, text)
}

// close ends the drawing and takes the lines away.
func (l *live) close() {
	if l.stop == nil {
		return
	}
	l.stop()
	<-l.done
	l.stop = nil
	l.draw(nil)
}

func (l *live) run(ctx context.Context) {
	defer close(l.done)
	st := &control.Status{}
	for ctx.Err() == nil {
		if new, err := l.client.Status(ctx, "", false); err == nil {
			st = new
		}
		l.draw(l.texts(st))
		if after(ctx, redraw, nil) != nil {
			return
		}
		l.countDown(ctx, st)
	}
}

// countDown keeps the times in the lines current until something happens.
func (l *live) countDown(ctx context.Context, st *control.Status) {
	t := time.NewTicker(countdown)
	defer t.Stop()
	for {
		select {
		case <-l.changed:
			return
		case <-t.C:
			l.draw(l.texts(st))
		case <-ctx.Done():
			return
		}
	}
}

func (l *live) texts(st *control.Status) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var texts []string
	for _, name := range l.programs {
		for _, p := range st.Programs {
			if p.Name == name {
				texts = append(texts, progress(p, time.Now()))
			}
		}
	}
	return texts
}

// draw replaces the lines.
func (l *live) draw(texts []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	if l.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", l.lines)
	}
	b.WriteString("\r\x1b[J")
	width := columns(l.out)
	for _, text := range texts {
		if r := []rune(text); len(r) >= width {
			text = string(r[:width-1])
		}
		b.WriteString(text + "\n")
	}
	l.lines = len(texts)
	l.out.WriteString(b.String()) //nolint:errcheck // it is only drawn
}

// columns is the width of a terminal.
func columns(f *os.File) int {
	if size := windowSize(f); size.Col > 1 {
		return int(size.Col)
	}
	return 80
}

// windowSize is zero where it is not known.
func windowSize(f *os.File) unix.Winsize {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return unix.Winsize{}
	}
	return *size
}

// progress is a program in one line: "web  generation 8: spawning 3/8, ready 3/8, soak 4 s; draining 2".
func progress(p control.Program, now time.Time) string {
	var trial, drains string
	draining := 0
	for _, g := range p.Generations {
		switch g.Role {
		case program.RoleTrial:
			trial = trialProgress(g, now)
		case program.RoleServing:
			if trial == "" {
				trial = fmt.Sprintf("generation %d serves", g.Number)
			}
		case program.RoleDraining:
			draining += len(g.Workers)
		}
	}
	if trial == "" {
		trial = string(p.State)
	}
	if draining > 0 {
		drains = fmt.Sprintf("; draining %d", draining)
	}
	if p.Due != nil {
		drains += "; a reload waits: " + p.Due.Waits
	}
	return p.Name + "  " + trial + drains
}

func trialProgress(g control.Generation, now time.Time) string {
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
