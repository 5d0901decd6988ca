package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"example.org/supervisord/internal/terminal"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// detailed is up to how many programs a status without a name shows in detail; of more it shows a line each.
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

// verdict is a word for what a program does, and how bad that is.
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
	case held && canary.HeldTill == nil:
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
	return generation(p, program.RoleServing) != nil && p.RetryAt != nil && p.Due == nil && ready < slots
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

// overviewColumn is a column of the overview.
type overviewColumn struct {
	title string
	right bool // aligned
	spare int  // the order in which columns go where the terminal is too narrow; 0: it stays
	text  func(p *supervisor.ProgramStatus, now time.Time) string
}

// columns are those of the overview; the program and its state come before them.
var columns = []overviewColumn{
	{"GEN", true, 0, generations},
	{"READY", true, 0, func(p *supervisor.ProgramStatus, _ time.Time) string {
		ready, slots := readiness(p)
		if slots == 0 {
			return "-"
		}
		return fmt.Sprintf("%d/%d", ready, slots)
	}},
	{"CPU", true, 1, func(p *supervisor.ProgramStatus, _ time.Time) string {
		return total(p, func(w supervisor.WorkerStatus) *float64 { return w.CPUPercent }, func(percent float64) string {
			if percent >= 10 {
				return fmt.Sprintf("%.0f%%", percent)
			}
			return fmt.Sprintf("%.1f%%", percent)
		})
	}},
	{"MEM", true, 2, func(p *supervisor.ProgramStatus, _ time.Time) string {
		return total(p, func(w supervisor.WorkerStatus) *int64 { return w.Memory }, memory)
	}},
	{"CONNS", true, 3, func(p *supervisor.ProgramStatus, _ time.Time) string {
		return total(p, func(w supervisor.WorkerStatus) *int { return w.Connections },
			func(n int) string { return fmt.Sprint(n) })
	}},
	{"LAST DEPLOY", false, 0, lastDeploy},
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

// generations returns the generation that serves, and behind an arrow the one that is to follow.
func generations(p *supervisor.ProgramStatus, _ time.Time) string {
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
		return strings.Join(slices.DeleteFunc([]string{age(now.Sub(at)), who, how}, func(s string) bool { return s == "" }),
			" ")
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

// overviewRow is a line of the overview.
type overviewRow struct {
	level urgency
	cells []string // the program, its state, and the columns
}

// overview returns the heads and a line for each program, what needs a person first, and else by name. No line is wider
// than width; 0: each may be as wide as it likes.
func (v statusView) overview(st *supervisor.Status, now time.Time) (head, body []string) {
	var rows []overviewRow
	for i := range st.Programs {
		p := &st.Programs[i]
		bad, word := verdict(p)
		cells := []string{p.Name, word}
		for _, c := range columns {
			cells = append(cells, c.text(p, now))
		}
		rows = append(rows, overviewRow{bad, cells})
	}
	slices.SortStableFunc(rows, func(a,
		b overviewRow) int {
		return cmp.Compare(min(a.level, isBusy), min(b.level, isBusy))
	})
	text := v.first(st, now) + ": " + count(len(rows), "program")
	if n := slices.IndexFunc(append(rows, overviewRow{level: isWell}),
		func(r overviewRow) bool { return r.level >= isBusy }); n > 0 {
		text += ", " + v.colored(rows[0].level)(fmt.Sprintf("%d need attention", n))
	}
	lines := v.table(rows)
	return []string{text, lines[0]}, lines[1:]
}

// table lays the rows out below their titles.
func (v statusView) table(rows []overviewRow) []string {
	titles := []string{"PROGRAM", "STATE"}
	for _, c := range columns {
		titles = append(titles, c.title)
	}
	widths := make([]int, len(titles))
	for i, title := range titles {
		widths[i] = utf8.RuneCountInString(title)
		for _, r := range rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(r.cells[i]))
		}
	}
	if v.width > 0 {
		v.narrow(widths)
	}
	lines := []string{layOut(titles, widths, func(text string) string { return text })}
	for _, r := range rows {
		lines = append(lines, layOut(r.cells, widths, v.colored(r.level)))
	}
	return lines
}

// least is what is left of the last column, the last deploy, before other columns go.
const least = len("27m deploy ok")

// narrow makes columns fit the terminal: names are cut to a fifth of it, then columns go, whose width is negative then,
// and what is left is that of the last column.
func (v statusView) narrow(widths []int) {
	widths[0] = min(widths[0], max(v.width/5, len("PROGRAM")))
	last := len(widths) - 1
	for order := 1; ; order++ {
		sum := 0
		for _, w := range widths[:last] {
			sum += w + len("  ")
		}
		i := slices.IndexFunc(columns, func(c overviewColumn) bool { return c.spare == order })
		if sum+min(widths[last], least) <= v.width || i < 0 {
			widths[last] = max(1, min(widths[last], v.width-sum))
			return
		}
		widths[i+2] = -len("  ")
	}
}

// layOut returns one line of the table; its second cell is colored.
func layOut(cells []string, widths []int, color func(string) string) string {
	var b strings.Builder
	for i, cell := range cells {
		if widths[i] < 0 {
			continue
		}
		if n := utf8.RuneCountInString(cell); n > widths[i] {
			cell = string([]rune(cell)[:widths[i]-1]) + "…"
		}
		pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		switch {
		case i >= 2 && columns[i-2].right:
			b.WriteString(pad + cell + "  ")
		case i == 1:
			b.WriteString(color(cell) + pad + "  ")
		default:
			b.WriteString(cell + pad + "  ")
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// colored returns the color of a level.
func (v statusView) colored(l urgency) func(string) string {
	switch l {
	case isBad:
		return v.paint.Bad
	case isWell:
		return v.paint.Good
	case isIdle:
		return func(text string) string { return text }
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
