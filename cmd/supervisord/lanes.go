package main

import (
	"fmt"
	"strings"
	"time"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/supervisor/program"
)

// The words for what becomes of connections and of the generation that had them.

// drain says what becomes, or became, of the generation that served before.
func drain(name string, r *program.ReloadRecord) string {
	switch {
	case r.Replaced == 0:
		return ""
	case !r.Ended.IsZero():
		gone := program.Report{Kind: program.GenerationGone, Generation: r.Replaced, Took: r.Drain}
		return "; " + gone.Text(name) + after("; ", atTheEnd(r))
	case !r.KeptTill.IsZero():
		return kept(name, r.Replaced, r.KeptTill)
	}
	return fmt.Sprintf("; generation %d drains", r.Replaced)
}

// atTheEnd says what the generation before had in hand when it was told to stop, and how many connections were reset;
// "": nothing.
func atTheEnd(r *program.ReloadRecord) string {
	var parts []string
	if r.Left != nil {
		parts = append(parts, "drain.timeout stopped it with connections in use: "+r.Left.String())
	}
	if r.Reset > 0 {
		parts = append(parts, reset(r.Reset))
	}
	return strings.Join(parts, "; ")
}

// reset says that supervisord has reset connections.
func reset(n int) string { return were(n, "connection") + " reset that waited" }

// were returns "1 connection was" or "2 connections were".
func were(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " was"
	}
	return count(n, noun) + " were"
}

// after returns text after something else, if there is text.
func after(separator, text string) string {
	if text == "" {
		return ""
	}
	return separator + text
}

// shorter says how to wait less, if all that is waited for is silence; "": it is not.
func shorter(l program.Look) string {
	if l.Active == 0 || l.Active < l.Busy() {
		return ""
	}
	return fmt.Sprintf(" (drain.silence = %q waits for their silence; a lower one waits less)", program.Short(l.Within))
}

func kept(name string, generation int, until time.Time) string {
	return fmt.Sprintf("; generation %d is kept until %s: `supervisord rollback %s` returns to it", generation,
		clock(&until), name)
}

// rolledBackFrom says what becomes of the generation that a rollback has replaced.
func rolledBackFrom(p control.ProgramVerdict) string {
	if p.Until != nil {
		return kept(p.Program, p.From, *p.Until)
	}
	return fmt.Sprintf("; generation %d gets no new connections and drains", p.From)
}

// held says that a canary is well, and how to continue.
func held(p control.ProgramVerdict) string {
	if p.Reload == nil || p.Reload.Share == 0 {
		return fmt.Sprintf(": the canary is well and held; `supervisord promote %s` or `abort %s`", p.Program, p.Program)
	}
	more := ""
	if next := nextShare(p.Reload.Share); next != "" {
		more = fmt.Sprintf(", `promote %s --canary %s`", p.Program, next)
	}
	return fmt.Sprintf(" gets %s of new connections and is well; `supervisord promote %s`%s or `abort %s`",
		program.Percentage(p.Reload.Share), p.Program, more, p.Program)
}

// nextShare proposes a share for the next step of a canary; "": it is time for everything.
func nextShare(share int) string {
	for _, next := range []int{2500, 5000} {
		if share < next {
			return program.Percentage(next)
		}
	}
	return ""
}
