package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"example.org/supervisord/internal/terminal"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// detailed is the number of programs up to which a status without a name shows details instead of a line each.
const detailed = 3

// urgency is how much a program needs a person, the worst first. The page has the same levels and words:
// static/verdict.js.
type urgency int

const (
	isBad urgency = iota
	needsSomeone
	isBusy
	isIdle
	isWell
)

// verdict returns a word for the state of a program, and how bad that state is.
func verdict(p *supervisor.ProgramStatus) (urgency, string) {
	canary := generation(p, program.RoleTrial)
	held := canary != nil && canary.Held
	switch {
	case p.State == program.Waiting || p.State == program.StartingUp && p.Failures > 0:
		return isBad, "failing"
	case deployFailed(p):
		return isBad, "deploy failed"
	case lacksWorkers(p):
		if up, _ := readiness(p); up == 0 {
			return isBad, "crashing"
		}
		return needsSomeone, "crashing"
	case held && canary.HeldTill.IsZero():
		return needsSomeone, "canary held"
	case p.Paused != nil:
		return needsSomeone, "paused"
	case slices.ContainsFunc(p.Listeners, stuck):
		return isBad, "not accepting"
	case p.State == program.Down && p.Stop != nil && p.Stop.AskedBy != "":
		return isIdle, "stopped"
	case p.State == program.Down:
		return isIdle, "down"
	case p.State == program.Up:
		return isWell, "up"
	case held:
		return needsSomeone, "canary"
	}
	return isBusy, string(p.State)
}

// stuck reports whether no worker accepts from a listener of a program that serves.
func stuck(l supervisor.ListenerStatus) bool { return l.Queue != nil && l.Queue.Stuck > 0 }

// generation returns the generation with this role, or nil.
func generation(p *supervisor.ProgramStatus, role program.Role) *supervisor.GenerationStatus {
	for i := range p.Generations {
		if p.Generations[i].Role == role {
			return &p.Generations[i]
		}
	}
	return nil
}

// deployFailed reports whether the last deploy failed and nothing newer has begun.
func deployFailed(p *supervisor.ProgramStatus) bool {
	for i, r := range slices.Backward(p.Reloads) {
		switch {
		case r.Outcome == program.Superseded:
		case r.Outcome == program.Pending && p.Failures > 0 && i > 0: // nothing serves, and the next try is under way
		default:
			return r.Outcome.Failed()
		}
	}
	return false
}

// lacksWorkers reports whether the serving generation has fewer workers than it should have, and the next try has a
// time.
func lacksWorkers(p *supervisor.ProgramStatus) bool {
	ready, slots := readiness(p)
	return generation(p, program.RoleServing) != nil && !p.RetryAt.IsZero() && p.Due == nil && ready < slots
}

// readiness returns how many workers of the generation that serves, or else of the one that starts, are ready, and how
// many it should have.
func readiness(p *supervisor.ProgramStatus) (ready, slots int) {
	g := generation(p, program.RoleServing)
	if g == nil {
		g = generation(p, program.RoleTrial)
	}
	if g == nil {
		return 0, 0
	}
	for _, w := range g.Workers {
		if w.State == program.Ready || w.State == program.Soaking || w.State == program.Leaving {
			ready++
		}
	}
	return ready, g.Slots
}

// total is the sum of a value over all workers: "?" if one worker's is unknown, "-" without workers.
func total[N int | int64 | float64](p *supervisor.ProgramStatus, of func(supervisor.WorkerStatus) *N,
	text func(N) string) string {
	var sum N
	workers := 0
	for _, g := range p.Generations {
		for _, w := range g.Workers {
			n := of(w)
			if n == nil {
				return "?"
			}
			sum += *n
			workers++
		}
	}
	if workers == 0 {
		return "-"
	}
	return text(sum)
}

// generations returns the number of the serving generation, and behind an arrow that of the trial: "8→9".
func generations(p *supervisor.ProgramStatus) string {
	text := ""
	if g := generation(p, program.RoleServing); g != nil {
		text = fmt.Sprint(g.Number)
	}
	if g := generation(p, program.RoleTrial); g != nil {
		text += fmt.Sprintf("→%d", g.Number)
	}
	if text == "" {
		return "-"
	}
	return text
}

// lastDeploy says when the last deploy was decided, by whom, and how it went.
func lastDeploy(p *supervisor.ProgramStatus, now time.Time) string {
	for _, r := range slices.Backward(p.Reloads) {
		if r.Outcome.Open() || r.Outcome == program.Superseded {
			continue
		}
		at, who, how := r.Decided, asker(r.AskedBy), r.Outcome.Text()
		if r.Outcome == program.Serves {
			how = "ok"
		}
		if !r.RolledBack.IsZero() {
			at, who, how = r.RolledBack, asker(r.RolledBackBy), "rolled back"
		}
		return age(now.Sub(at)) + after(" ", who) + " " + how
	}
	return "-"
}

// asker shortens who asked for something: "root (uid 0, pid 4711, login alice)" is alice, "signal HUP from bash (…)" is
// HUP, "timer: reload.every" is timer.
func asker(who string) string {
	name, detail, _ := strings.Cut(who, " (")
	if _, login, found := strings.Cut(detail, "login "); found {
		return strings.TrimSuffix(login, ")")
	}
	name, _, _ = strings.Cut(name, ":")
	name, _, _ = strings.Cut(name, " from ")
	return strings.TrimPrefix(name, "signal ")
}

// age returns a duration in one unit.
func age(d time.Duration) string {
	switch d = max(0, d); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// needs says how many programs there are, and how many need a person.
func (v statusView) needs(b *strings.Builder, st *supervisor.Status) {
	worst, needy := isBusy, 0
	for i := range st.Programs {
		if level, _ := verdict(&st.Programs[i]); level < isBusy {
			worst, needy = min(worst, level), needy+1
		}
	}
	fmt.Fprintf(b, ": %s", count(len(st.Programs), "program"))
	if needy > 0 {
		fmt.Fprintf(b, ", %s", v.colored(worst)(fmt.Sprintf("%d need attention", needy)))
	}
}

// overview writes a table with a line for each program: first those that need a person, the others in their order.
func (v statusView) overview(b *strings.Builder, st *supervisor.Status, now time.Time) {
	level := func(p supervisor.ProgramStatus) urgency {
		level, _ := verdict(&p)
		return min(level, isBusy)
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "PROGRAM\t%s\tGEN\tREADY\tCPU\tMEM\tCONNS\tLAST DEPLOY\n", v.paint.Plain("STATE"))
	for _, p := range slices.SortedStableFunc(slices.Values(st.Programs),
		func(a, b supervisor.ProgramStatus) int { return cmp.Compare(level(a), level(b)) }) {
		v.row(t, &p, now)
	}
	t.Flush() //nolint:errcheck // a strings.Builder takes everything
}

// row writes the line of a program. On a terminal a name has a fifth of the width.
func (v statusView) row(t io.Writer, p *supervisor.ProgramStatus, now time.Time) {
	name, ready := p.Name, "-"
	if v.width > 0 {
		name = terminal.Cut(name, max(v.width/5, len("PROGRAM")))
	}
	level, word := verdict(p)
	if up, slots := readiness(p); slots > 0 {
		ready = fmt.Sprintf("%d/%d", up, slots)
	}
	fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, v.colored(level)(word), generations(p), ready,
		total(p, func(w supervisor.WorkerStatus) *float64 { return w.CPUPercent }, percent),
		total(p, func(w supervisor.WorkerStatus) *int64 { return w.Memory }, memory),
		total(p, func(w supervisor.WorkerStatus) *int { return w.Connections }, strconv.Itoa), lastDeploy(p, now))
}

func percent(n float64) string {
	if n >= 10 {
		return fmt.Sprintf("%.0f%%", n)
	}
	return fmt.Sprintf("%.1f%%", n)
}

// colored returns the color of a level.
func (v statusView) colored(l urgency) func(string) string {
	switch l {
	case isBad:
		return v.paint.Bad
	case isWell:
		return v.paint.Good
	case isIdle:
		return v.paint.Plain
	}
	return v.paint.Warn
}

// cut cuts lines to the width of the terminal.
func (v statusView) cut(lines []string) []string {
	if v.width > 0 {
		for i := range lines {
			lines[i] = terminal.Cut(lines[i], v.width)
		}
	}
	return lines
}
