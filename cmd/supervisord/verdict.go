package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/commandline"
	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/observe/receipt"
	"example.org/supervisord/internal/terminal"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// showing is how a command shows what it waits for.
type showing struct {
	command       string // its name
	timeout       time.Duration
	json, verbose bool
}

const (
	// defaultTimeout is how long a command waits by default.
	defaultTimeout = 5 * time.Minute
	// receiptsTimeout is how long a command waits for the receipts of what has ended.
	receiptsTimeout = 5 * time.Second
)

func (s *showing) flags(c *cobra.Command) {
	c.Flags().DurationVar(&s.timeout, "timeout", defaultTimeout, "how long to wait")
	s.reports(c)
	c.Flags().BoolVarP(&s.verbose, "verbose", "v", false,
		"also print every event, and a report on what the reload cost (without --drained: what is known by then)")
}

// reports gives a command --json.
func (s *showing) reports(c *cobra.Command) {
	s.command = c.Name()
	reportFlag(c, &s.json, "print one JSON document, also after a failure")
}

// wait shows the progress of a request, and then its verdict.
func (s *showing) wait(ctx context.Context, client *control.Client, request control.Request, until string) error {
	if s.timeout < time.Second || s.timeout > 24*time.Hour {
		return commandline.Usagef("--timeout %s is out of range: write 1s to 24h", s.timeout)
	}
	var live *live
	progress := &waiting{client: client}
	if !s.verbose { // otherwise every event has a line
		live = newLive(os.Stderr, progress.texts)
	}
	defer live.close()
	last := ""
	v, err := client.Await(ctx, request, until, s.timeout, func(l control.WaitLine) {
		progress.follow(l)
		if l.Update == nil || !s.verbose && live != nil {
			return
		}
		if last != "" {
			fmt.Fprintln(os.Stderr, last)
		}
		last = ""
		switch progress := l.Update.Kind.Progress(); {
		case s.verbose || progress == program.Milestone:
			fmt.Fprintln(os.Stderr, line(*l.Update))
		case progress == program.Ending: // if it is the last one, the verdict says the same
			last = line(*l.Update)
		}
	})
	live.close()
	switch {
	case errors.Is(err, context.Canceled):
		return &exitError{code: exitInterrupted, err: errors.New("interrupted; the operation continues")}
	case err != nil:
		return err
	}
	return s.conclude(ctx, client, v)
}

// conclude prints a verdict, and returns an error with its exit code if it is not a success.
func (s *showing) conclude(ctx context.Context, client *control.Client, v *control.Verdict) error {
	var receipts []receipt.Receipt
	if s.json || s.verbose {
		receipts = receiptsOf(ctx, client, v)
	}
	if s.json {
		document := control.NewReport(s.command, v, receipts)
		if failed := report(io.Discard, v, terminal.Palette{}, terminal.Palette{}); failed != nil {
			failed.report = document
			return failed
		}
		return printReport(document, nil, 0)
	}
	failed := report(os.Stdout, v, terminal.Colors(os.Stdout), terminal.Colors(os.Stderr))
	for _, r := range receipts {
		writeReceipt(os.Stdout, r)
	}
	if failed != nil {
		return failed
	}
	return nil
}

// receiptsOf returns the receipts of the generations that were waited for, or rolled back. While the old generation
// drains, they are not complete.
func receiptsOf(ctx context.Context, client *control.Client, v *control.Verdict) []receipt.Receipt {
	ctx, cancel := context.WithTimeout(ctx, receiptsTimeout)
	defer cancel()
	var found []receipt.Receipt
	for _, p := range v.Programs {
		a, err := client.Receipts(ctx, p.Program)
		if err != nil {
			continue
		}
		for _, r := range a.Receipts {
			if (r.Generation == p.Generation || r.Generation == p.From) && !r.Outcome.Open() {
				found = append(found, r)
			}
		}
	}
	return found
}

// writeReceipt prints what a reload cost.
func writeReceipt(out io.Writer, r receipt.Receipt) {
	fmt.Fprintf(out, "report on %s, generation %d: %s\n", r.Program, r.Generation, r.Outcome)
	fmt.Fprintf(out, "  took %s, spawn to ready %s", program.Short(r.Took), program.Short(r.SpawnToReady))
	switch {
	case r.Ended.IsZero():
		fmt.Fprint(out, "; not final: the drain continues")
	case r.Replaced != 0:
		fmt.Fprintf(out, ", overlap %s, drain %s", program.Short(r.Overlap), program.Short(r.Drain))
	}
	if r.Quiet > 0 && r.Left == nil {
		fmt.Fprintf(out, "\n  generation %d had no connection in use any more %s after the switch", r.Replaced,
			program.Short(r.Quiet))
	}
	if text := atTheEnd(&r.ReloadRecord); text != "" {
		fmt.Fprintf(out, "\n  generation %d: %s", r.Replaced, text)
	}
	fmt.Fprintln(out)
	for _, k := range r.Kills.List() {
		fmt.Fprintf(out, "  killed: worker %d of generation %d (PID %d): %s\n", k.Worker, k.Generation, k.PID, k.Reason)
	}
	if more := r.Killed - len(r.Kills.List()); more > 0 {
		fmt.Fprintf(out, "  killed: %d more\n", more)
	}
}

// report prints the outcomes that are a success, and returns the others as an error with the exit code.
func report(out io.Writer, v *control.Verdict, onOut, onErr terminal.Palette) *exitError {
	if len(v.Programs) == 0 {
		fmt.Fprintln(out, "the configuration is applied; no program runs, so there was nothing to replace")
	}
	var failed []string
	for _, p := range v.Programs {
		if outcomeCodes[p.Outcome] == 0 {
			fmt.Fprintln(out, describe(p, onOut))
		} else {
			failed = append(failed, describe(p, onErr))
		}
	}
	if code := outcomeCodes[v.Outcome]; code != 0 {
		return &exitError{code: code, err: errors.New(strings.Join(failed, "\n"))}
	}
	return nil
}

// describe returns the outcome for a program in a sentence or two.
func describe(p control.ProgramVerdict, paint terminal.Palette) string {
	it := fmt.Sprintf("%s: generation %d", p.Program, p.Generation)
	switch p.Outcome {
	case program.Serves:
		if p.Since != nil {
			return fmt.Sprintf("%s: already running: generation %d has served since %s", p.Program, p.Generation,
				p.Since.Local().Format(time.DateTime))
		}
		if p.From != 0 {
			return it + paint.Good(" serves again") + rolledBackFrom(p)
		}
		return p.Program + ": " + strings.Replace(p.Reload.Text(), " serves", paint.Good(" serves"), 1) +
			drain(p.Program, p.Reload)
	case program.Held:
		return it + held(p)
	case control.Down:
		if p.Already {
			return p.Program + ": already stopped"
		}
		return p.Program + ": stopped"
	case control.Killed:
		return it + ": " + paint.Warn(fmt.Sprintf("%d of the old workers had to be killed", killed(p))) + reason(p)
	case control.TimedOut:
		return it + reason(p)
	case control.RolledBack:
		return it + paint.Warn(" was rolled back") + fmt.Sprintf("%s; generation %d serves", reason(p), p.Serving)
	case program.Superseded, program.Stopped, program.Aborted, control.Unknown:
		return it + ": " + paint.Warn(string(p.Outcome)) + reason(p) + stillServes(p)
	}
	text := p.Reload.Text() + stillServes(p)
	if f := p.Reload.Failure; f != nil && len(f.Tail) > 0 {
		text += "\nits last lines:\n  " + strings.Join(f.Tail, "\n  ")
	}
	return p.Program + ": " + strings.Replace(text, " failed", paint.Bad(" failed"), 1)
}

// line is an event in one line.
func line(u supervisor.Update) string { return u.Program + ": " + u.Text }

// killed returns how many workers had to be killed.
func killed(p control.ProgramVerdict) int {
	if p.Stop != nil {
		return p.Stop.Killed
	}
	return p.Reload.Killed
}

func reason(p control.ProgramVerdict) string {
	if p.Reason == "" {
		return ""
	}
	return ": " + p.Reason
}

func stillServes(p control.ProgramVerdict) string {
	if p.Serving == 0 {
		return "; nothing serves"
	}
	if p.Reload != nil && p.Reload.Gap == program.GapClosed {
		return fmt.Sprintf("; nothing served for %s; generation %d serves again",
			program.Short(p.Reload.GapEnded.Sub(p.Reload.Decided)), p.Serving)
	}
	return fmt.Sprintf("; generation %d still serves", p.Serving)
}
