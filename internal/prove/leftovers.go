package prove

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/supervisord/internal/proc"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// leftovers is what the reloads left: descriptors, workers, and processes that workers had started.
type leftovers struct {
	before, after map[string]int // descriptors of the supervisord, by what they are; nil: they cannot be seen
	old           []int          // workers of older generations
	orphans       []proc.Stat
}

// look looks for leftovers while the supervisord lives. What the last worker had is given a moment to be closed.
func (r *proof) look(ctx context.Context) {
	late := time.NewTimer(2 * time.Second)
	defer late.Stop()
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for waiting := true; waiting; {
		r.left.after = r.descriptors(ctx)
		if r.interrupted || r.broken != "" || total(r.left.after) <= total(r.left.before) {
			break
		}
		select {
		case <-tick.C:
		case <-late.C:
			waiting = false
		}
	}
	r.left.orphans = r.orphans()
	if st, err := r.supervisord.client.Status(ctx, r.program.Name, false); err == nil && !r.interrupted && r.broken == "" {
		r.left.old = oldWorkers(st)
	}
}

// oldWorkers lists the workers of generations that should have gone.
func oldWorkers(st *supervisor.Status) []int {
	old := []int{}
	for _, p := range st.Programs {
		for _, g := range p.Generations {
			for _, w := range g.Workers {
				if g.Role == program.RoleDraining && w.PID != 0 {
					old = append(old, w.PID)
				}
			}
		}
	}
	slices.Sort(old)
	return old
}

// orphans are the processes that workers of older generations started and that outlived them: the supervisord is their parent now
// (PR_SET_CHILD_SUBREAPER), and their environment tells where they come from.
func (r *proof) orphans() (list []proc.Stat) {
	for _, pid := range proc.Children(r.supervisord.pid) {
		environ, _ := proc.Environ(pid)
		generation, err := strconv.Atoi(environ["SUPERVISORD_GENERATION"])
		p, gone := proc.ReadStat(pid)
		if environ["SUPERVISORD_PROGRAM"] == r.program.Name && err == nil && generation < r.history.serving && !r.history.workers[pid] && gone == nil && !p.Dead() {
			list = append(list, p)
		}
	}
	return list
}

// leftBehind names the orphans and, of a child that has ended, whatever is left of its workers' process groups. It is asked when
// the supervisord has been let go.
func (r *proof) leftBehind() []string {
	left := []string{}
	for _, p := range proc.Stats() {
		orphan := slices.ContainsFunc(r.left.orphans, func(o proc.Stat) bool { return o.PID == p.PID && o.Began == p.Began })
		if orphan || r.supervisord.child != nil && r.history.workers[p.Group] && !p.Dead() {
			left = append(left, fmt.Sprintf("%s (PID %d)", proc.Name(p.PID), p.PID))
		}
	}
	return left
}

// descriptors counts the open descriptors of the supervisord by what they are, without listening sockets: a generation that finds no free
// lane opens one, which stays for the next. It returns nil where they cannot be seen.
func (r *proof) descriptors(ctx context.Context) map[string]int {
	st, err := r.supervisord.client.Status(ctx, "", false)
	if err != nil {
		return nil
	}
	all, err := proc.Descriptors(r.supervisord.pid)
	if err != nil {
		return nil
	}
	for _, p := range st.Programs {
		for _, l := range p.Listeners {
			for _, fd := range l.FDs {
				delete(all, fd)
			}
		}
	}
	count := map[string]int{}
	for _, to := range all {
		if kind, _, numbered := strings.Cut(to, ":["); numbered && kind != "anon_inode" {
			to = kind
		}
		count[to]++
	}
	return count
}

func total(count map[string]int) int {
	n := 0
	for _, c := range count {
		n += c
	}
	return n
}

// compare counts the descriptors; -1 if they cannot be seen.
func (l *leftovers) compare() Descriptors {
	d := Descriptors{Before: -1, After: -1, More: map[string]int{}}
	if l.before != nil {
		d.Before = total(l.before)
	}
	if l.after != nil {
		d.After = total(l.after)
	}
	for what, n := range l.after {
		if n > l.before[what] && d.After > d.Before {
			d.More[what] = n - l.before[what]
		}
	}
	return d
}
