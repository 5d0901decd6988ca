package program

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Summary says in a few words what a program is doing: "web up, generation 3 (4 workers), 1 draining".
func (p *Program) Summary() string {
	text := fmt.Sprintf("%s %s", p.Name, p.State())
	if g := p.Serving; g != nil {
		text += fmt.Sprintf(", generation %d (%s)", g.Number, count(len(g.Workers), "worker"))
	}
	if p.lastFailed() {
		text += ", " + LastFailed
	}
	if n := p.rolledBack(); n > 0 && p.Serving != nil {
		text += fmt.Sprintf(", rolled back from %d", n)
	}
	if p.Trial != nil {
		text += ", " + p.Trial.onTrial()
	}
	text += p.retired()
	if !p.Paused.Until.IsZero() {
		text += ", paused"
	}
	if p.State() == Waiting && p.Failures > 0 {
		text += ", " + count(p.Failures, "failed start")
	}
	switch {
	case p.AwaitsOthers():
		text += ", waits for " + list(p.Awaits)
	case p.Waits(time.Time{}) != "":
		text += ", a reload waits"
		if p.Trial == nil && p.full() {
			text += " until a generation has gone (max_draining)"
		}
	}
	return text
}

// retired is what the Summary says of the generations that do not serve any more.
func (p *Program) retired() (text string) {
	draining := len(p.Draining)
	for _, g := range p.Draining {
		if p.Role(g) == RoleKept {
			draining--
			text += fmt.Sprintf(", generation %d kept", g.Number)
		}
	}
	if draining > 0 {
		text += fmt.Sprintf(", %d draining", draining)
	}
	return text
}

// onTrial is what the Summary says of a generation on trial.
func (g *Generation) onTrial() string {
	ready := 0
	for _, w := range g.Workers {
		if w.State != Starting {
			ready++
		}
	}
	if !g.Held {
		return fmt.Sprintf("generation %d starting (%d/%d ready)", g.Number, ready, len(g.Slots))
	}
	text := fmt.Sprintf("canary generation %d (%d/%d ready)", g.Number, ready, len(g.Slots))
	if g.Share > 0 {
		text += " with " + Percentage(g.Share) + " of the new connections"
	}
	if g.waitsForPerson() {
		text += ": promote or abort it"
	}
	return text
}

// LastFailed is in the Summary of a program that serves although its last reload failed.
const LastFailed = "last deploy failed"

// lastFailed reports whether the newest reload that is decided failed, so that an older generation than was asked for
// serves.
func (p *Program) lastFailed() bool {
	for _, r := range slices.Backward(p.Reloads) {
		if !r.Outcome.Open() {
			return p.Serving != nil && r.Outcome.Failed()
		}
	}
	return false
}

// Waits says what the reload that is due waits for; "": none is due but the next attempt to start, which has its time.
func (p *Program) Waits(now time.Time) string {
	switch t := p.Trial; {
	case p.Again == nil, p.State() == Waiting && !p.AwaitsOthers():
		return ""
	case p.AwaitsOthers():
		return list(p.Awaits) + " must serve first"
	case t != nil && t.waitsForPerson():
		return fmt.Sprintf("generation %d, a canary, waits to be promoted or aborted", t.Number)
	case t != nil:
		return fmt.Sprintf("generation %d does not serve yet", t.Number)
	case now.Before(p.AgainAt):
		return "the delay before it is not over"
	}
	return p.tooMany()
}

// tooMany says that max_draining is reached.
func (p *Program) tooMany() string {
	drain := " drain"
	if len(p.counted()) == 1 {
		drain = " drains"
	}
	return count(len(p.counted()), "generation") + drain + ", as many as reload.max_draining allows"
}

// Lines is the text of a status_file: the generation and the PID of each worker that lives and is or was ready, in the
// order of these numbers.
func (p *Program) Lines() string {
	generations := p.Generations()
	slices.SortFunc(generations, func(a, b *Generation) int { return a.Number - b.Number })
	var b strings.Builder
	for _, g := range generations {
		var pids []int
		for _, w := range g.Workers {
			was := w.State == Stopping && !g.Served.IsZero()
			if w.PID != 0 && (was || w.State != Starting && w.State != Stopping) {
				pids = append(pids, w.PID)
			}
		}
		slices.Sort(pids)
		for _, pid := range pids {
			fmt.Fprintf(&b, "%d:%d\n", g.Number, pid)
		}
	}
	return b.String()
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
