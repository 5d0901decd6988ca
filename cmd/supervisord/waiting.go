package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// waiting waits for what was asked for, over the death or upgrade of the supervisord that was asked.
type waiting struct {
	client  *control.Client
	until   string
	timeout time.Duration
	see     func(control.Line) // what is worth seeing
	tickets []supervisor.Ticket
	heard   bool // a line has come since the last try
	verdict *control.Verdict
}

// How long a supervisord that is gone is looked for, how often, and how much later than the server the client gives up.
const (
	patience = 30 * time.Second
	again    = 100 * time.Millisecond
	grace    = 5 * time.Second
)

// errLost says that nobody is there any more who knows the outcome.
var errLost = errors.New("outcome unknown: look at `supervisord status` and the log")

// run begins with first, and takes the wait up again whenever the connection breaks. What first asks for is asked again only if it
// is not known to have been accepted: another reload does no harm.
func (w *waiting) run(ctx context.Context, first func(context.Context, func(control.Line)) error) error {
	deadline := time.Now().Add(w.timeout)
	ctx, cancel := context.WithDeadlineCause(ctx, deadline.Add(grace), errLate)
	defer cancel()
	err := first(ctx, w.take)
	var lost time.Time // since when nobody answers; zero: not yet
	var gone error     // that nobody is there, as it was seen last
	for w.verdict == nil {
		switch {
		case errors.Is(err, control.ErrNotThere):
			gone = err
		case errors.Is(err, errLate) && gone != nil:
			return unknown(gone)
		}
		if err != nil && !recoverable(err, !lost.IsZero()) {
			return err
		}
		if lost.IsZero() {
			lost = time.Now()
		}
		if time.Since(lost) > patience {
			return unknown(err)
		}
		if err = pause(ctx); err != nil {
			continue
		}
		w.heard = false
		if w.tickets == nil {
			err = first(ctx, w.take)
		} else {
			err = w.client.Wait(ctx, w.texts(), w.until, max(time.Second, time.Until(deadline)).String(), w.take)
		}
		if w.heard || errors.Is(err, control.ErrBroken) {
			lost, gone = time.Now(), nil // somebody was there
		}
	}
	return nil
}

func unknown(why error) error {
	return &exitError{exitUnknown, fmt.Errorf("%w (%w)", errLost, why)}
}

var errLate = &exitError{exitTimeout, errors.New("timed out waiting; what was asked for goes on")}

// recoverable reports whether another try may help. That nobody answers may be so for a moment only where somebody did before.
func recoverable(err error, before bool) bool {
	if p, ok := errors.AsType[*control.Problem](err); ok {
		return p.Code == control.Stopping && before
	}
	return errors.Is(err, control.ErrBroken) || errors.Is(err, control.ErrNotThere) && before
}

func pause(ctx context.Context) error {
	t := time.NewTimer(again)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// texts writes the tickets as the API reads them.
func (w *waiting) texts() []string {
	var list []string
	for _, t := range w.tickets {
		list = append(list, fmt.Sprintf("%s:%d:%s", t.Program, t.Generation, t.Instance))
	}
	return list
}

// take takes notice of a line.
func (w *waiting) take(l control.Line) {
	w.heard = true
	switch {
	case l.Tickets != nil:
		w.tickets = l.Tickets
	case l.Verdict != nil:
		w.verdict = l.Verdict
	}
	w.see(l)
}

// report says how it went, and returns an error with the exit code if it was not well.
func report(out io.Writer, v *control.Verdict) error {
	if len(v.Programs) == 0 {
		fmt.Fprintln(out, "the configuration is applied; no program runs, so there was nothing to replace")
	}
	var failed []string
	for _, p := range v.Programs {
		text := describe(p)
		if outcomeCodes[p.Outcome] == 0 {
			fmt.Fprintln(out, text)
			continue
		}
		failed = append(failed, text)
	}
	code := outcomeCodes[v.Outcome]
	if code == 0 {
		return nil
	}
	return &exitError{code, errors.New(strings.Join(failed, "\n"))}
}

// describe says in a sentence or two how it went for a program.
func describe(p control.ProgramVerdict) string {
	it := fmt.Sprintf("%s: generation %d", p.Program, p.Generation)
	switch p.Outcome {
	case program.Serves:
		if p.Since != nil {
			return fmt.Sprintf("%s: already running: generation %d has served since %s", p.Program, p.Generation, p.Since.Local().Format(time.DateTime))
		}
		return it + " serves" + took(p.Took) + drain(p)
	case program.Held:
		return fmt.Sprintf("%s: the canary is well and held; `supervisord promote %s` or `abort %s`", it, p.Program, p.Program)
	case control.Down:
		if p.Already {
			return p.Program + ": already stopped"
		}
		return p.Program + ": stopped"
	case control.Killed:
		return fmt.Sprintf("%s: %d of the old workers had to be killed%s", it, p.Killed, note(p.Reason))
	case control.TimedOut:
		return it + ": " + p.Reason
	case program.Superseded, program.Stopped, program.Aborted, control.Unknown:
		return fmt.Sprintf("%s: %s%s", it, p.Outcome, note(p.Reason)) + stillServes(p)
	}
	return it + " failed" + at(p) + note(p.Reason) + stillServes(p) + tail(p.Tail)
}

func took(d time.Duration) string {
	if d <= 1 {
		return ""
	}
	return " after " + short(d)
}

func drain(p control.ProgramVerdict) string {
	switch {
	case p.Replaced == 0:
		return ""
	case p.Drained:
		return fmt.Sprintf("; generation %d has ended%s", p.Replaced, took(p.Drain))
	}
	return fmt.Sprintf("; generation %d drains", p.Replaced)
}

func note(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func at(p control.ProgramVerdict) string {
	text := ""
	if p.Worker != 0 {
		text = fmt.Sprintf(": worker %d (slot %d, PID %d)", p.Worker, p.Slot, p.PID)
	}
	if p.Step != "" {
		text += " at step " + p.Step
	}
	return text
}

func stillServes(p control.ProgramVerdict) string {
	if p.Serving == 0 {
		return "; nothing serves"
	}
	return fmt.Sprintf("; generation %d still serves", p.Serving)
}

func tail(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return "\nits last lines:\n  " + strings.Join(lines, "\n  ")
}

// short is a duration that is read, not computed with.
func short(d time.Duration) string {
	switch {
	case d >= time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}
