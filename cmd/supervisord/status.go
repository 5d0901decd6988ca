package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/daemon"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

func statusCommand(path *string) *cobra.Command {
	a, asJSON, watch := &asking{path: path}, false, false
	c := &cobra.Command{
		Use:   "status [PROGRAM]",
		Short: "show programs, generations, workers, and what they use",
		Long: `status shows what a running supervisord does. CPU is that of a worker's process group since the last look, or since it began;
MEMORY is resident memory, CONNS the connections that are open on the program's listeners, as the kernel counts them; QUEUE
is how many wait to be accepted, and how many may. "?" is what cannot be found out.

` + exitCodes,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.programs(1),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write it as JSON")
	c.Flags().BoolVar(&watch, "watch", false, "go on, and draw it again when something happens")
	c.MarkFlagsMutuallyExclusive("json", "watch")
	return a.command(c, func(ctx context.Context, client *control.Client, args []string) error {
		if watch {
			return untilInterrupted(watchStatus(ctx, client, first(args)))
		}
		st, err := client.Status(ctx, first(args), true)
		switch {
		case err != nil:
			return err
		case asJSON:
			return printJSON(os.Stdout, st)
		}
		_, err = io.WriteString(os.Stdout, statusText(st, time.Now()))
		return err
	})
}

// How often --watch draws: at most, and at least, for what the kernel says of workers is no event.
const (
	watchAtMost  = time.Second
	watchAtLeast = 5 * time.Second
)

// watchStatus draws the status, and again after each event. It goes on when supervisord is upgraded or dies and comes back.
func watchStatus(ctx context.Context, client *control.Client, program string) error {
	events := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		followEvents(ctx, client, program, events)
	}()
	defer func() { cancel(); <-done }()
	for drawn := false; ; drawn = true {
		st, err := client.Status(ctx, program, true)
		switch {
		case err == nil:
			fmt.Print("\x1b[H\x1b[J" + fit(statusText(st, time.Now()), os.Stdout))
		case !drawn || ctx.Err() != nil || !recoverable(err, true):
			return err
		default:
			fmt.Print("\x1b[H\x1b[J", err, "\n")
		}
		if err := after(ctx, watchAtMost, nil); err != nil {
			return err
		}
		if err := after(ctx, watchAtLeast-watchAtMost, events); err != nil {
			return err
		}
	}
}

// after waits for a time, or for something to happen.
func after(ctx context.Context, d time.Duration, events <-chan struct{}) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-events:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// followEvents says that something has happened, for as long as ctx lasts.
func followEvents(ctx context.Context, client *control.Client, program string, events chan<- struct{}) {
	for {
		err := client.Events(ctx, program, func(supervisor.Update) {
			select {
			case events <- struct{}{}:
			default:
			}
		})
		if _, refused := errors.AsType[*control.Problem](err); ctx.Err() != nil || refused && !recoverable(err, true) || pause(ctx) != nil {
			return
		}
	}
}

// fit cuts a text to the size of a terminal, so that drawing it again covers it.
func fit(text string, f *os.File) string {
	if !daemon.IsTerminal(f) {
		return text
	}
	rows := 24
	if size := windowSize(f); size.Row > 1 {
		rows = int(size.Row)
	}
	lines := strings.SplitAfter(text, "\n")
	width := columns(f)
	for i, line := range lines {
		if r := []rune(strings.TrimSuffix(line, "\n")); len(r) > width {
			lines[i] = string(r[:width]) + "\n"
		}
	}
	if len(lines) >= rows {
		lines = append(lines[:rows-2], fmt.Sprintf("… %d more lines", len(lines)-rows+1))
	}
	return strings.Join(lines, "")
}

// statusText is a status for people.
func statusText(st *control.Status, now time.Time) string {
	var b strings.Builder
	stopping := ""
	if st.Stopping {
		stopping = ", stopping"
	}
	fmt.Fprintf(&b, "supervisord %s, PID %d, for %s%s\n", st.Version, st.PID, short(now.Sub(st.Started)), stopping)
	if st.Upgrade != "" {
		fmt.Fprintf(&b, "the last upgrade failed: %s\n", st.Upgrade)
	}
	for _, p := range st.Programs {
		writeProgram(&b, p, now)
	}
	return b.String()
}

func writeProgram(b *strings.Builder, p control.Program, now time.Time) {
	fmt.Fprintf(b, "\n%s\n", p.Summary)
	if s := p.Stop; s != nil && s.AskedBy != "" && s.Generation == p.Newest {
		fmt.Fprintf(b, "  stopped by %s\n", s.AskedBy)
	}
	if r := lastReload(p); r != nil {
		fmt.Fprintf(b, "  last reload: %s, %s ago%s\n", sentenceOf(r), short(now.Sub(r.Decided)), by(cmp.Or(abortedBy(r), r.AskedBy)))
	}
	if p.Due != nil {
		fmt.Fprintf(b, "  a reload waits (%s): %s\n", p.Due.Reason, p.Due.Waits)
	}
	if p.RetryAt != nil {
		fmt.Fprintf(b, "  next retry in %s\n", short(max(0, p.RetryAt.Sub(now))))
	}
	if p.Lost > 0 {
		fmt.Fprintf(b, "  %d lines of output could not be written to a log file; the log says why\n", p.Lost)
	}
	for _, l := range p.Listeners {
		queue := "?"
		if l.Queue != nil {
			queue = fmt.Sprintf("%d/%d", l.Queue.Waiting, l.Queue.Limit)
		}
		if l.Closed {
			fmt.Fprintf(b, "  listener %s at %s, closed: nothing serves (when_down = %q)\n", l.Name, l.Address, l.WhenDown)
			continue
		}
		fmt.Fprintf(b, "  listener %s at %s, queue %s\n", l.Name, l.Address, queue)
	}
	if len(p.Generations) == 0 {
		return
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  GENERATION\tROLE\tSLOT\tWORKER\tPID\tSTATE\tAGE\tCPU\tMEMORY\tCONNS\t")
	for _, g := range p.Generations {
		for _, w := range slices.SortedStableFunc(slices.Values(g.Workers), bySlot) {
			fmt.Fprintf(t, "  %d\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", g.Number, role(g), w.Slot, w.Number, number(&w.PID), state(w, now),
				age(w, now), cpu(w.CPUPercent), memory(w.Memory), number(w.Connections), w.Text)
		}
	}
	t.Flush() //nolint:errcheck // a strings.Builder takes everything
	if why := connectionsError(p); why != "" {
		fmt.Fprintf(b, "  CONNS is not known: %s\n", why)
	}
}

func bySlot(a, b control.WorkerStatus) int { return cmp.Compare(a.Slot, b.Slot) }

// connectionsError is why the connections of a worker are not known, or "".
func connectionsError(p control.Program) string {
	for _, g := range p.Generations {
		for _, w := range g.Workers {
			if w.ConnectionsWhy != "" {
				return w.ConnectionsWhy
			}
		}
	}
	return ""
}

// lastReload is the last one that was decided, or nil.
func lastReload(p control.Program) *program.ReloadRecord {
	for i := range slices.Backward(p.Reloads) {
		if r := &p.Reloads[i]; !r.Outcome.Open() {
			return r
		}
	}
	return nil
}

// sentenceOf says how a reload went.
func sentenceOf(r *program.ReloadRecord) string {
	text := fmt.Sprintf("generation %d ", r.Generation)
	switch {
	case r.Outcome == program.Serves:
		return text + "serves" + took(r.Took)
	case r.Failure != nil && r.Outcome == program.Aborted:
		return text + "was aborted: " + r.Failure.Reason
	case r.Failure != nil:
		return text + "failed at step " + r.Failure.Step + ": " + r.Failure.Reason
	case r.Outcome == program.Stopped:
		return text + "was given up: the program was stopped"
	}
	return text + "was given up: " + string(r.Outcome)
}

// abortedBy says who gave a reload up.
func abortedBy(r *program.ReloadRecord) string {
	if r.Failure == nil {
		return ""
	}
	return r.Failure.AskedBy
}

// by says who asked for something, where somebody did.
func by(who string) string {
	if who == "" {
		return ""
	}
	return ", by " + who
}

func role(g control.Generation) string {
	if g.Held {
		return "canary"
	}
	return string(g.Role)
}

// state is a worker's state, with what is left of it where it has a deadline.
func state(w control.WorkerStatus, now time.Time) string {
	if w.Deadline == nil {
		return string(w.State)
	}
	return fmt.Sprintf("%s (%s left)", w.State, short(max(0, w.Deadline.Sub(now))))
}

func age(w control.WorkerStatus, now time.Time) string {
	if w.Began == nil {
		return "?"
	}
	return short(max(0, now.Sub(*w.Began)))
}

func cpu(percent *float64) string {
	if percent == nil {
		return "?"
	}
	return fmt.Sprintf("%.1f%%", *percent)
}

func memory(bytes *int64) string {
	switch {
	case bytes == nil:
		return "?"
	case *bytes < 10<<20:
		return fmt.Sprintf("%.1fM", float64(*bytes)/(1<<20))
	}
	return fmt.Sprintf("%dM", *bytes>>20)
}

func number(n *int) string {
	if n == nil {
		return "?"
	}
	return fmt.Sprint(*n)
}
