package main

import (
	"fmt"
	"strings"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// sentence is an update in one line.
func sentence(u supervisor.Update) string {
	var b strings.Builder
	b.WriteString(u.Program)
	if u.Generation != 0 {
		fmt.Fprintf(&b, ": generation %d", u.Generation)
	}
	fmt.Fprintf(&b, ": %s", u.Kind)
	if u.Worker != 0 {
		fmt.Fprintf(&b, "  worker=%d slot=%d pid=%d", u.Worker, u.Slot, u.PID)
	}
	for _, f := range []struct{ key, value string }{
		{"signal", u.Signal}, {"step", u.Step}, {"reason", u.Reason}, {"asked_by", u.AskedBy},
	} {
		if f.value != "" {
			fmt.Fprintf(&b, "  %s=%q", f.key, f.value)
		}
	}
	if u.Took > 0 {
		fmt.Fprintf(&b, "  took=%s", short(u.Took))
	}
	if u.After > 0 {
		fmt.Fprintf(&b, "  after=%s", short(u.After))
	}
	if u.Killed > 0 {
		fmt.Fprintf(&b, "  killed=%d", u.Killed)
	}
	return b.String()
}

// milestone reports whether an update is worth a line for somebody who waits and does not want to know everything.
func milestone(k program.ReportKind) bool {
	switch k {
	case program.TrialBegan, program.ReloadQueued, program.ReloadHeld, program.ReloadFull,
		program.CanaryHeld, program.CanaryWatched, program.GenerationServes,
		program.GenerationGone, program.WorkerKilled, program.WorkerLate, program.StartRetry:
		return true
	}
	return false
}
