package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"example.org/supervisord/internal/commandline"
	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/observe/receipt"
	"example.org/supervisord/internal/terminal"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

const (
	// defaultTimeout is how long a command waits by default.
	defaultTimeout = 5 * time.Minute
)

// wait shows the progress of a request, and then its verdict.
func (a *asking) wait(ctx context.Context, request control.Request, until control.Until) error {
	if a.timeout < time.Second || a.timeout > 24*time.Hour {
		return commandline.Usagef("--timeout %s is out of range: write 1s to 24h", a.timeout)
	}
	var live *live
	if !a.verbose { // otherwise every event has a line
		live = newLive(a.client, os.Stderr)
	}
	defer live.close()
	last := ""
	v, err := a.client.Await(ctx, request, until, a.timeout, func(l control.WaitLine) {
		live.follow(l)
		if l.Update == nil || !a.verbose && live != nil {
			return
		}
		if last != "" {
			fmt.Fprintln(os.Stderr, last)
		}
		last = ""
		switch progress := l.Update.Kind.Progress(); {
		case a.verbose || progress == program.Milestone:
			fmt.Fprintln(os.Stderr, line(*l.Update))
		case progress == program.Ending: // the last of them says the same as the verdict
			last = line(*l.Update)
		}
	})
	live.close()
	switch {
	case errors.Is(err, context.Canceled):
		return errInterrupted
	case err != nil:
		return err
	}
	return a.conclude(v)
}

// conclude prints a verdict, and returns an error with its exit code if it is not a success.
func (a *asking) conclude(v *control.Verdict) error {
	if a.json {
		document := control.NewReport(a.name, v)
		if failed := report(io.Discard, v, terminal.Palette{}, terminal.Palette{}); failed != nil {
			failed.report = document
			return failed
		}
		return printReport(document, nil, 0)
	}
	failed := report(os.Stdout, v, terminal.Colors(os.Stdout), terminal.Colors(os.Stderr))
	for _, p := range v.Programs {
		if a.verbose && p.Reload != nil && !p.Reload.Outcome.Open() {
			report := receipt.Receipt{Program: p.Program, ReloadRecord: *p.Reload}
			fmt.Println(p.Program + ": " + report.Text())
		}
	}
	if failed != nil {
		return failed
	}
	return nil
}

// report prints the outcomes that are a success, and returns the others as an error with the exit code.
func report(out io.Writer, v *control.Verdict, onOut, onErr terminal.Palette) *exitError {
	if len(v.Programs) == 0 {
		fmt.Fprintln(out, "the configuration is applied; no program runs, so there was nothing to replace")
	}
	var failed []string
	for _, p := range v.Programs {
		if outcomeCodes[p.Outcome] == 0 {
			fmt.Fprintln(out, describe(p, time.Now(), onOut))
		} else {
			failed = append(failed, describe(p, time.Now(), onErr))
		}
	}
	if code := outcomeCodes[v.Outcome]; code != 0 {
		return &exitError{code: code, err: errors.New(strings.Join(failed, "\n"))}
	}
	return nil
}

// describe returns the outcome for a program in a sentence or two.
func describe(p control.ProgramVerdict, now time.Time, paint terminal.Palette) string {
	it := fmt.Sprintf("%s: generation %d", p.Program, p.Generation)
	switch p.Outcome {
	case program.Serves:
		switch {
		case !p.Since.IsZero():
			return fmt.Sprintf("%s: already running: generation %d has served since %s", p.Program, p.Generation,
				p.Since.Local().Format(time.DateTime))
		case p.From != 0 && !p.Until.IsZero():
			return it + paint.Good(" serves again") + "; " + kept(p.Program, p.From, p.Until.Sub(now))
		case p.From != 0:
			return it + paint.Good(" serves again") + fmt.Sprintf("; generation %d gets no new connections and drains", p.From)
		}
		return p.Program + ": " + strings.Replace(p.Reload.Text(), " serves", paint.Good(" serves"), 1) +
			drain(p.Program, p.Reload, now)
	case program.Held:
		held := program.Report{Kind: program.CanaryHeld, Generation: p.Generation, Reload: p.Reload}
		return p.Program + ": " + held.Text(p.Program)
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
	text := p.Reload.Text() + stillServes(p) + p.Reload.Failure.LastLines()
	return p.Program + ": " + strings.Replace(text, " failed", paint.Bad(" failed"), 1)
}

// drain says what becomes of the generation that served before.
func drain(name string, r *program.ReloadRecord, now time.Time) string {
	switch {
	case r.Replaced == 0:
		return ""
	case !r.Ended.IsZero():
		gone := program.Report{Kind: program.GenerationGone, Generation: r.Replaced, Took: r.Drain}
		return "; " + gone.Text(name) + after("; ", atTheEnd(r))
	case !r.KeptTill.IsZero():
		return "; " + kept(name, r.Replaced, r.KeptTill.Sub(now))
	}
	return fmt.Sprintf("; generation %d drains", r.Replaced)
}

// kept says how long a generation is kept.
func kept(name string, generation int, left time.Duration) string {
	r := program.Report{Kind: program.GenerationKept, Generation: generation, After: max(0, left)}
	return r.Text(name)
}

// atTheEnd says what the generation before had in hand when it was told to stop, and how many connections were reset;
// "": nothing.
func atTheEnd(r *program.ReloadRecord) string {
	var parts []string
	if r.Left != nil {
		parts = append(parts, "drain.timeout stopped it with connections in use: "+r.Left.String())
	}
	switch {
	case r.Reset == 1:
		parts = append(parts, "1 connection was reset that waited")
	case r.Reset > 1:
		parts = append(parts, fmt.Sprintf("%d connections were reset that waited", r.Reset))
	}
	return strings.Join(parts, "; ")
}

// after returns text after something else, if there is text.
func after(separator, text string) string {
	if text == "" {
		return ""
	}
	return separator + text
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

func reason(p control.ProgramVerdict) string { return after(": ", p.Reason) }

func stillServes(p control.ProgramVerdict) string {
	if p.Serving == 0 {
		return "; no generation of it serves"
	}
	if p.Reload != nil && p.Reload.Gap == program.GapClosed {
		return fmt.Sprintf("; nothing served for %s; generation %d serves again",
			program.Short(p.Reload.GapEnded.Sub(p.Reload.Decided)), p.Serving)
	}
	return fmt.Sprintf("; generation %d still serves", p.Serving)
}
