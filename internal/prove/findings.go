package prove

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/internal/proc"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// Findings is the result, and the JSON of --json: see docs/prove.md. Every time is in milliseconds; "at" counts from
// the beginning of the load.
type Findings struct {
	Judgement
	Scene
	Requests    Requests       `json:"requests"`
	Losses      []LostRequest  `json:"losses"` // the first mostLosses
	Causes      []Cause        `json:"causes"` // of all losses; the first is the one to fix first
	Server      *KnownServer   `json:"server"` // that the program runs; null: it is not known
	Latency     Phases         `json:"latency_ms"`
	Gap         Outage         `json:"longest_gap"`
	Reloads     []ReloadResult `json:"reloads"`
	Workers     Casualties     `json:"workers"`
	Descriptors Descriptors    `json:"descriptors"`

	all load.Attempts // for the plot
}

// Judgement says whether the proof has passed.
type Judgement struct {
	Verdict  string   `json:"verdict"`  // passed, failed, interrupted
	Headline string   `json:"headline"` // the most important thing to know
	Reasons  []string `json:"reasons"`  // why it has not passed
	Warnings []string `json:"warnings"`
}

// Scene says what was proved, and with what load.
type Scene struct {
	Program  string    `json:"program"`
	Target   string    `json:"target"`
	Protocol string    `json:"protocol"` // http, or tcp: connect and close
	PID      int       `json:"pid"`      // of supervisord
	Child    bool      `json:"child"`    // it was started for the proof
	Began    time.Time `json:"began"`
	Took     float64   `json:"took_ms"` // of the load
	Rate     int       `json:"rate"`    // requests each second that were asked for
}

// Requests counts.
type Requests struct {
	Sent     int                   `json:"sent"`
	Answered int                   `json:"answered"`
	Lost     int                   `json:"lost"`
	Kinds    map[load.LossKind]int `json:"kinds"` // of the lost; every kind is there
}

// Stage is how far the reload was.
type Stage string

// The stages.
const (
	Before   Stage = "before"   // no reload yet
	Starting Stage = "starting" // the new workers start; the old ones serve
	Draining Stage = "draining" // the new ones serve; the old ones finish
	Idle     Stage = "settled"  // nothing of the last reload is under way
)

// LostRequest is one lost request.
type LostRequest struct {
	At         float64       `json:"at_ms"` // when it was lost
	Kind       load.LossKind `json:"kind"`
	Connection string        `json:"connection"` // new, reused
	Reload     int           `json:"reload"`     // the last one before it; 0: none
	// since that reload was asked for, or since the beginning if there is none
	After float64 `json:"after_ms"`
	Stage Stage   `json:"stage"`
	Took  float64 `json:"took_ms"` // since it was sent
	Error string  `json:"error"`

	killed, died bool // a worker was killed, or died by itself, at that moment
	alone        bool // no reload was under way, and none had been for a moment
	idle         bool // the connection was idle when it was closed
}

// mostLosses bounds Findings.Losses.
const mostLosses = 1000

// Phases are the latencies of the answered requests by what went on while they were under way; nil: there was none.
type Phases struct {
	Before *Latency `json:"before"` // the first reload
	During *Latency `json:"during"` // from asking for a reload until the old workers are gone
	After  *Latency `json:"after"`  // between reloads and after the last
}

// Latency are percentiles.
type Latency struct {
	Requests int     `json:"requests"`
	P50      float64 `json:"p50"`
	P95      float64 `json:"p95"`
	P99      float64 `json:"p99"`
	Max      float64 `json:"max"`
}

// Outage is the longest time in which no request was answered.
type Outage struct {
	Length float64 `json:"ms"`
	At     float64 `json:"at_ms"`
	Reload int     `json:"reload"` // the last one before it; 0: none
	After  float64 `json:"after_ms"`
}

// ReloadResult is one reload and what came of it.
type ReloadResult struct {
	Number     int      `json:"number"`
	At         float64  `json:"at_ms"`
	Outcome    string   `json:"outcome"`
	Generation int      `json:"generation"` // 0: it brought none
	Decided    *float64 `json:"decided_ms"` // after it was asked for: it served, or failed; null: never
	Settled    *float64 `json:"settled_ms"` // after it was asked for: every older worker was gone; null: never
	// after the switch: the old workers had nothing in hand any more, or were out of time; null: not known
	Quiet  *float64 `json:"quiet_ms"`
	Busy   bool     `json:"busy"`   // the old workers still had something in hand when drain.timeout was over
	Reason string   `json:"reason"` // why it failed
	Lost   int      `json:"lost"`   // between this reload and the next

	others bool // busy with more than the connections that prove itself keeps and uses
}

// Casualties are the workers that did not end as they should.
type Casualties struct {
	Killed      int      `json:"killed"`       // they did not stop in time
	KilledKnown bool     `json:"killed_known"` // false: the connection to supervisord broke, and there may be more
	Stopped     float64  `json:"stopped_ms"`   // the longest time that one took from its signal to its end
	Died        []string `json:"died"`         // without having been told to stop
	Old         []int    `json:"old"`          // PIDs of older generations that still lived at the end
	LeftBehind  []string `json:"left_behind"`  // processes that workers had started and that outlived them
}

// Descriptors are supervisord's own; -1: they cannot be seen.
type Descriptors struct {
	Before int            `json:"before"`
	After  int            `json:"after"`
	More   map[string]int `json:"more"` // by what they are, where there are more than before
}

// Passed reports whether nothing was lost and every reload served.
func (v *Findings) Passed() bool { return v.Verdict == "passed" }

// findings draws the conclusions.
func (r *proof) findings() *Findings {
	v := &Findings{
		Judgement: Judgement{Reasons: []string{}, Warnings: []string{}},
		Scene: Scene{Program: r.program.Name, Target: r.target.String(), Protocol: "http", PID: r.supervisord.pid,
			Child: r.supervisord.child != nil,
			Began: r.began, Took: ms(r.took), Rate: r.Rate},
		all: r.tally.all,
	}
	if r.target.bare {
		v.Protocol = "tcp"
	}
	course := r.course()
	v.Requests = requests(r.tally.all)
	v.Losses, v.Causes = course.losses(r.tally.all)
	for i := range v.Causes {
		concern(&v.Causes[i], r.program)
	}
	v.Server = serverOf(r.program)
	v.Latency = course.phases(r.tally.all)
	from, length := r.tally.all.LongestGap(0, r.took)
	number, after, _ := course.place(from)
	v.Gap = Outage{ms(length), ms(from), number, ms(after)}
	v.Reloads = course.list(r.tally.all)
	v.Workers = Casualties{Killed: len(r.history.kills), Stopped: r.history.longestStop(),
		KilledKnown: r.supervisord.events.Gaps() == 0,
		Died:        append([]string{}, r.history.died...), LeftBehind: r.leftBehind(), Old: append([]int{}, r.left.old...)}
	v.Descriptors = r.left.compare()
	v.judge(r)
	return v
}

// judge decides whether the proof has passed, and says why not.
func (v *Findings) judge(r *proof) {
	say := func(bad bool, format string, args ...any) {
		if bad {
			v.Reasons = append(v.Reasons, fmt.Sprintf(format, args...))
		}
	}
	count, busy, why := map[string]int{}, 0, ""
	for _, x := range v.Reloads {
		count[x.Outcome]++
		why = cmp.Or(why, x.Reason)
		if x.others {
			busy++
		}
	}
	say(v.Requests.Lost > 0, "%d of %d requests were lost", v.Requests.Lost, v.Requests.Sent)
	say(v.Requests.Answered == 0, "no request was answered")
	say(count[failed] > 0, "%d of %d reloads failed: %s", count[failed], len(v.Reloads), why)
	say(r.broken != "", "%s", r.broken)
	v.Verdict = "passed"
	if r.interrupted {
		v.Verdict = "interrupted"
		say(true, "interrupted after %d of %d reloads", len(v.Reloads), r.Reloads)
	} else {
		say(count[undecided] > 0, "%d of %d reloads were undecided after %s", count[undecided], len(v.Reloads), r.patience)
	}
	if len(v.Reasons) > 0 && !r.interrupted {
		v.Verdict = "failed"
	}
	switch {
	case r.broken != "":
		v.Headline = r.broken
	case len(v.Causes) > 0:
		v.Headline = v.Causes[0].Headline
	case len(v.Reasons) > 0:
		v.Headline = strings.Join(v.Reasons, "; ")
	default:
		v.Headline = "nothing was lost and every reload served"
	}
	v.warn(count[superseded], busy)
}

// warn says what is wrong although nothing was lost by it.
func (v *Findings) warn(superseded, busy int) {
	say := func(bad bool, format string, args ...any) {
		if bad {
			v.Warnings = append(v.Warnings, fmt.Sprintf(format, args...))
		}
	}
	w, d := v.Workers, v.Descriptors
	say(superseded > 0, "%d reloads were superseded: somebody else reloads this supervisord, too", superseded)
	say(busy > 0, "in %d of %d reloads the old workers still had something in hand when drain.timeout was over: raise "+
		"it in [program.%s.drain] if requests take so long; "+
		"for clients that keep using their connections, the worker must answer \"Connection: close\" on TERM", busy, len(
		v.Reloads), v.Program)
	say(w.Killed > 0 && v.Headline != killed.headline,
		"%d workers had to be killed: they did not end within the stop plan ([program.%s.stop]); their requests in flight "+
			"were cut", w.Killed, v.Program)
	say(len(w.Died) > 0, "%d workers died without being told to stop: %s", len(w.Died), strings.Join(w.Died, "; "))
	say(len(w.Old) > 0, "%d workers of older generations still run: PID %s", len(w.Old),
		strings.Trim(fmt.Sprint(w.Old), "[]"))
	say(len(w.LeftBehind) > 0, "workers left processes behind: %s", strings.Join(w.LeftBehind, ", "))
	say(d.After > d.Before && d.Before >= 0, "supervisord has %d descriptors more than before: %v", d.After-d.Before,
		d.More)
}

func requests(all load.Attempts) Requests {
	lost, kinds := all.Lost()
	for _, k := range load.Kinds {
		kinds[k] += 0 // every kind is there
	}
	return Requests{Sent: len(all), Lost: lost, Answered: len(all) - lost, Kinds: kinds}
}

// ms is a time in milliseconds, to a thousandth.
func ms(d time.Duration) float64 { return math.Round(float64(d)/1e3) / 1e3 }

// mostTexts is of how many lost requests the whole error is kept.
const mostTexts = 10_000

// tally is every request so far.
type tally struct {
	all  load.Attempts
	lost int
}

func (t *tally) add(a load.Attempt) {
	if a.Lost != nil {
		if t.lost++; t.lost > mostTexts {
			a.Lost.Text = knownText(a.Lost.Text)
		}
	}
	t.all = append(t.all, a)
}

// knownText returns the part of an error's text by which its cause is known, or "": nothing else of the text stays in
// memory.
func knownText(text string) string {
	for _, known := range []string{noPort, noDescriptor} {
		if strings.Contains(text, known) {
			return known
		}
	}
	return ""
}

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

// orphans are the processes that workers of older generations started and that outlived them: the supervisord is their
// parent now (PR_SET_CHILD_SUBREAPER), and their environment tells where they come from.
func (r *proof) orphans() (list []proc.Stat) {
	for _, pid := range proc.Children(r.supervisord.pid) {
		environ, _ := proc.Environ(pid)
		generation, err := strconv.Atoi(environ["SUPERVISORD_GENERATION"])
		p, gone := proc.ReadStat(pid)
		if environ["SUPERVISORD_PROGRAM"] == r.program.Name && err == nil && generation < r.history.serving &&
			!r.history.workers[pid] && gone == nil && !p.Dead() {
			list = append(list, p)
		}
	}
	return list
}

// leftBehind names the orphans and, of a child that has ended, whatever is left of its workers' process groups. It is
// asked when the supervisord has been let go.
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

// descriptors counts the open descriptors of the supervisord by what they are, without listening sockets: a generation
// that finds no free lane opens one, which stays for the next. It returns nil where they cannot be seen.
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
