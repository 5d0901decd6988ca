package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/terminal"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

func statusCommand(path *string) *cobra.Command {
	a, watch, verbose, ready := &asking{path: path}, false, false, false
	c := &cobra.Command{
		Use:   "status [PROGRAM]",
		Short: "show programs, generations, workers, and what they use",
		Long: `status shows what a running supervisord does: of more than three programs a line each, what needs a person
first; of a PROGRAM, with -v, and of fewer programs the details.

CPU is that of a worker's process group since the last look, or since the group began; MEMORY is resident memory;
CONNS is the number of open connections on the program's listeners, as the kernel counts them; QUEUE is how many
connections wait to be accepted, and how many can. "?" stands for what is unknown.`,
		ValidArgsFunction: a.programs(1),
	}
	reportFlag(c, &a.json, "print it as JSON; after a failure, one document that says why")
	c.Flags().BoolVar(&watch, "watch", false, "draw the status again when something happens, until Ctrl-C")
	c.Flags().BoolVar(&ready, "ready", false,
		"exit with 1 unless all that is shown serves, and supervisord is not stopping")
	c.Flags().BoolVarP(&verbose, "verbose", "v", false,
		"show the details of all programs, with the numbers and PIDs of workers")
	c.MarkFlagsMutuallyExclusive("watch", "json", "ready")
	return a.command(c, func(ctx context.Context, args []string) error {
		view := statusView{verbose: verbose, detail: verbose || len(args) > 0, paint: terminal.Colors(os.Stdout)}
		if watch {
			return untilInterrupted(watchStatus(ctx, a.client, first(args), view))
		}
		st, err := a.client.Status(ctx, first(args), true)
		switch {
		case err != nil:
			return err
		case a.json:
			return printJSON(st)
		}
		view.print(st)
		if ready {
			return st.Ready()
		}
		return nil
	})
}

// statusView is how a status is shown.
type statusView struct {
	verbose bool
	detail  bool // of any number of programs
	width   int  // of the terminal; 0: there is none
	paint   terminal.Palette
}

func (v statusView) print(st *supervisor.Status) {
	if terminal.Is(os.Stdout) {
		v.width, _ = terminal.Size(os.Stdout)
	}
	fmt.Print(v.status(st, time.Now()))
}

// status returns a status for people.
func (v statusView) status(st *supervisor.Status, now time.Time) string {
	lines := v.lines(st, now)
	if v.isOverview(st) {
		lines = v.cut(append(lines, "`supervisord status PROGRAM` shows a program in detail"))
	}
	return strings.Join(lines, "\n") + "\n"
}

// isOverview reports whether each program has one line.
func (v statusView) isOverview(st *supervisor.Status) bool {
	return !v.detail && len(st.Programs) > detailed
}

// lines returns the lines of a status: with a line for each program, or with the details.
func (v statusView) lines(st *supervisor.Status, now time.Time) []string {
	var b strings.Builder
	fmt.Fprintf(&b, "supervisord %s, PID %d, up %s", st.Version, st.PID, program.Short(now.Sub(st.Started)))
	if st.Stopping {
		b.WriteString(", stopping")
	}
	if v.isOverview(st) {
		v.needs(&b, st)
	}
	b.WriteString("\n")
	if st.Upgrade != "" {
		fmt.Fprintf(&b, "%s: %s\n", v.paint.Bad("the last upgrade failed"), st.Upgrade)
	}
	if v.isOverview(st) {
		v.overview(&b, st, now)
	} else {
		for _, p := range st.Programs {
			v.program(&b, p, now)
		}
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ") // tables fill their last column
	}
	return lines
}

func (v statusView) program(b *strings.Builder, p supervisor.ProgramStatus, now time.Time) {
	fmt.Fprintf(b, "\n%s\n", v.summary(p))
	if s := p.Stop; s != nil && s.AskedBy != "" && s.Generation == p.Newest {
		fmt.Fprintf(b, "  stopped by %s\n", s.AskedBy)
	}
	v.lastReload(b, p, now)
	v.restarts(b, p, now)
	if p.Paused != nil {
		fmt.Fprintf(b, "  paused for %s more%s: new connections wait; `supervisord resume %s` ends the pause\n",
			program.Short(max(0, p.Paused.Until.Sub(now))),
			by(p.Paused.AskedBy), p.Name)
	}
	for _, line := range underWay(&p, now) {
		fmt.Fprintf(b, "  %s\n", line)
	}
	if p.Lost > 0 {
		fmt.Fprintf(b, "  %d lines of output could not be written to a log file; the log says why\n", p.Lost)
	}
	for _, l := range p.Listeners {
		fmt.Fprintf(b, "  %s\n", v.listener(l))
		v.harm(b, l, now)
	}
	v.workers(b, p, now)
}

// listener is the line of a listener: its address, its queue, and why generations or workers share a socket.
func (v statusView) listener(l supervisor.ListenerStatus) string {
	text := "listener " + l.Name
	if l.Address != l.Name {
		text += " at " + l.Address
	}
	switch {
	case l.Closed:
		text += fmt.Sprintf(", closed: nothing serves (when_down = %q)", l.WhenDown)
	case l.Queue != nil:
		text += fmt.Sprintf(", queue %d/%d", l.Queue.Waiting, l.Queue.Limit)
		if l.Queue.Stuck > 0 {
			text += v.paint.Bad(fmt.Sprintf(", no worker accepts: a connection has waited for %s", program.Short(l.Queue.Stuck)))
		}
	}
	if n := stranded(l); n > 0 {
		text += fmt.Sprintf(" (%d in the socket of a generation that is gone)", n)
	}
	if l.Why != "" {
		text += ", shared by all generations: " + l.Why
	}
	if l.PerSlotWhy != "" {
		text += ", one socket for all workers: " + l.PerSlotWhy
	}
	return text
}

// harm says how processes have damaged a listener or the path of a unix socket.
func (v statusView) harm(b *strings.Builder, l supervisor.ListenerStatus, now time.Time) {
	if l.ShutDowns > 0 {
		fmt.Fprintf(b, "    a process has shut this listener down %s\n", strings.TrimSuffix(times(l.ShutDowns), ", last"))
	}
	if l.Path == nil {
		return
	}
	if l.Path.Problem != "" {
		fmt.Fprintf(b, "    %s: %s\n", v.paint.Bad("clients do not find the socket"), l.Path.Problem)
	}
	if l.Path.Restored > 0 {
		fmt.Fprintf(b, "    its path was put back %s, %s ago: %s\n", times(l.Path.Restored),
			program.Short(max(0, now.Sub(l.Path.Last))), l.Path.Damage)
	}
}

// times returns "once" or "3 times, last".
func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times, last", n)
}

// summary colors the state of a program in its summary.
func (v statusView) summary(p supervisor.ProgramStatus) string {
	rest, found := strings.CutPrefix(p.Summary, p.Name+" "+string(p.State))
	if !found {
		return p.Summary
	}
	level, _ := verdict(&p)
	rest = strings.Replace(rest, program.LastFailed, v.paint.Bad(program.LastFailed), 1)
	return v.paint.Strong(p.Name) + " " + v.colored(level)(string(p.State)) + rest
}

// restarts says how often workers were replaced because they had ended unexpectedly, and how the last one ended.
func (v statusView) restarts(b *strings.Builder, p supervisor.ProgramStatus, now time.Time) {
	if p.Restarts > 0 {
		fmt.Fprintf(b, "  %s since the generation began\n", v.paint.Warn(count(p.Restarts, "restart")))
	}
	if c := p.LastCrash; c != nil {
		fmt.Fprintf(b, "  last crash: worker %d (slot %d, generation %d): %s, %s ago\n", c.Worker, c.Slot, c.Generation,
			c.Reason, program.Short(max(0, now.Sub(c.At))))
		writeTail(b, c.Tail)
	}
}

// writeTail prints the last lines of a worker.
func writeTail(b *strings.Builder, tail []string) {
	for _, line := range tail {
		fmt.Fprintf(b, "    | %s\n", terminal.Visible(line))
	}
}

// stranded counts the connections that wait where no generation accepts them.
func stranded(l supervisor.ListenerStatus) (n int) {
	for _, lane := range l.Lanes {
		if lane.Generation == 0 && lane.Share == 0 {
			n += lane.Queued
		}
	}
	return n
}

// lastReload says how the last reload that was decided has ended.
func (v statusView) lastReload(b *strings.Builder, p supervisor.ProgramStatus, now time.Time) {
	for _, r := range slices.Backward(p.Reloads) {
		switch {
		case r.Outcome.Open():
			continue
		case !r.RolledBack.IsZero() && !serves(p, r.Generation):
			fmt.Fprintf(b, "  last reload: generation %d was rolled back, %s ago%s\n", r.Generation,
				program.Short(now.Sub(r.RolledBack)), by(r.RolledBackBy))
		default:
			text := outcome(&r)
			if r.Failure != nil {
				text = v.paint.Bad(text)
			}
			fmt.Fprintf(b, "  last reload: %s, %s ago%s\n", text, program.Short(now.Sub(r.Decided)),
				by(cmp.Or(abortedBy(&r), r.AskedBy)))
			if r.Failure != nil {
				writeTail(b, r.Failure.Tail)
			}
		}
		return
	}
}

// serves reports whether a generation serves now. A generation that was rolled back may serve again.
func serves(p supervisor.ProgramStatus, generation int) bool {
	return slices.ContainsFunc(p.Generations, func(g supervisor.GenerationStatus) bool {
		return g.Number == generation && g.Role == program.RoleServing
	})
}

func (v statusView) workers(b *strings.Builder, p supervisor.ProgramStatus, now time.Time) {
	if len(p.Generations) == 0 {
		return
	}
	why := "" // CONNS is unknown
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	details := func(number, pid string) string {
		if !v.verbose {
			return ""
		}
		return number + "\t" + pid + "\t"
	}
	fmt.Fprintf(t, "  GENERATION\tROLE\tSLOT\t%s%s\tAGE\tCPU\tMEMORY\tCONNS\t\n", details("WORKER", "PID"),
		v.paint.Plain("STATE"))
	for _, g := range p.Generations {
		bySlot := func(a, b supervisor.WorkerStatus) int { return cmp.Compare(a.Slot, b.Slot) }
		for _, w := range slices.SortedStableFunc(slices.Values(g.Workers), bySlot) {
			why = cmp.Or(why, w.ConnectionsError)
			fmt.Fprintf(t, "  %d\t%s\t%d\t%s%s\t%s\t%s\t%s\t%s\t%s\n", g.Number, role(g), w.Slot,
				details(strconv.Itoa(w.Number), strconv.Itoa(w.PID)), v.state(w, now),
				known(w.Began, func(t time.Time) string { return program.Short(max(0, now.Sub(t))) }),
				known(w.CPUPercent, func(percent float64) string { return fmt.Sprintf("%.1f%%", percent) }),
				known(w.Memory, memory), known(w.Connections, func(n int) string { return fmt.Sprint(n) }), cmp.Or(w.Seen,
					leftOf(w), w.Text))
		}
	}
	t.Flush() //nolint:errcheck // a strings.Builder takes everything
	if why != "" {
		fmt.Fprintf(b, "  CONNS is not known: %s\n", why)
	}
}

// known returns a value for people, "?" if there is none.
func known[T any](value *T, text func(T) string) string {
	if value == nil {
		return "?"
	}
	return text(*value)
}

func memory(bytes int64) string {
	switch {
	case bytes < 10<<20:
		return fmt.Sprintf("%.1fM", float64(bytes)/(1<<20))
	case bytes >= 10<<30:
		return fmt.Sprintf("%.1fG", float64(bytes)/(1<<30))
	}
	return fmt.Sprintf("%dM", bytes>>20)
}

// outcome returns how a reload went.
func outcome(r *program.ReloadRecord) string {
	text := fmt.Sprintf("generation %d was ", r.Generation)
	switch {
	case r.Outcome == program.Aborted && r.Failure != nil:
		return text + "aborted: " + r.Failure.Reason
	case r.Outcome == program.Serves || r.Failure != nil:
		return r.Text()
	case r.Outcome == program.Stopped:
		return text + "given up: the program was stopped"
	}
	return text + "given up: " + string(r.Outcome)
}

// abortedBy returns who aborted a reload, or "" if it was not aborted.
func abortedBy(r *program.ReloadRecord) string {
	if r.Failure == nil {
		return ""
	}
	return r.Failure.AskedBy
}

// by says who asked for something, if somebody did.
func by(who string) string {
	if who == "" {
		return ""
	}
	return ", by " + who
}

// role returns what a generation does, and its share of the new connections if another has a share, too.
func role(g supervisor.GenerationStatus) string {
	text := string(g.Role)
	switch {
	case g.Held:
		text = "canary"
	case g.Role == program.RoleTrial:
		text = "starting"
	}
	if g.Share > 0 && g.Share < program.Whole {
		text += " " + program.Percentage(g.Share)
	}
	return text
}

// state returns the state of a worker, with the time that is left until its deadline.
func (v statusView) state(w supervisor.WorkerStatus, now time.Time) string {
	text := string(w.State)
	if w.State == program.Finishing {
		text = "draining"
	}
	if !w.Deadline.IsZero() {
		text = fmt.Sprintf("%s (%s left)", text, program.Short(max(0, w.Deadline.Sub(now))))
	}
	switch w.State {
	case program.Ready:
		return v.paint.Good(text)
	case program.Starting, program.Soaking, program.Leaving:
		return v.paint.Warn(text)
	}
	return v.paint.Plain(text)
}

func leftOf(w supervisor.WorkerStatus) string {
	return after("its first process has ended; left: ", w.Left)
}
