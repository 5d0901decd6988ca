package prove

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Verdict is the result, and the JSON of --json: see docs/prove.md. Every time is in milliseconds; "at" counts from the begin of
// the load.
type Verdict struct {
	Verdict     string      `json:"verdict"` // passed, failed, interrupted
	Reasons     []string    `json:"reasons"` // why it has not passed
	Warnings    []string    `json:"warnings"`
	Program     string      `json:"program"`
	Target      string      `json:"target"`
	Protocol    string      `json:"protocol"` // http, or tcp: connect and close
	PID         int         `json:"pid"`      // of supervisord
	Child       bool        `json:"child"`    // it was started for the proof
	Began       time.Time   `json:"began"`
	Took        float64     `json:"took_ms"` // of the load
	Rate        int         `json:"rate"`    // requests each second that were asked for
	Requests    Requests    `json:"requests"`
	Losses      []Loss      `json:"losses"` // the first mostLosses
	Causes      []Cause     `json:"causes"` // of all losses
	Latency     Phases      `json:"latency_ms"`
	Gap         Gap         `json:"longest_gap"`
	Reloads     []Reload    `json:"reloads"`
	Workers     Workers     `json:"workers"`
	Descriptors Descriptors `json:"descriptors"`

	records []record // for the plot
	lost    []lostRequest
}

// Requests counts.
type Requests struct {
	Sent     int          `json:"sent"`
	Answered int          `json:"answered"`
	Lost     int          `json:"lost"`
	Kinds    map[Kind]int `json:"kinds"` // of the lost; every kind is there
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

// Loss is one lost request.
type Loss struct {
	At         float64 `json:"at_ms"` // when it was lost
	Kind       Kind    `json:"kind"`
	Connection string  `json:"connection"` // new, reused
	Reload     int     `json:"reload"`     // the last one before it; 0: none
	After      float64 `json:"after_ms"`   // since that reload's HUP; since the begin where there is none
	Stage      Stage   `json:"stage"`
	Took       float64 `json:"took_ms"` // since it was sent
	Error      string  `json:"error"`

	cut  bool // a worker was killed at that moment
	late bool // Idle, but the errors began during the reload and have gone on since
}

// mostLosses bounds Verdict.Losses.
const mostLosses = 1000

// Phases are the latencies of the answered requests by what went on while they were under way; nil: there was none.
type Phases struct {
	Before *Latency `json:"before"` // the first reload
	During *Latency `json:"during"` // from a HUP until the old workers are gone
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

// Gap is the longest time in which no request was answered.
type Gap struct {
	Length float64 `json:"ms"`
	At     float64 `json:"at_ms"`
	Reload int     `json:"reload"` // the last one before it; 0: none
	After  float64 `json:"after_ms"`
}

// Reload is one HUP and what came of it.
type Reload struct {
	Number     int      `json:"number"`
	At         float64  `json:"at_ms"`
	Outcome    Outcome  `json:"outcome"`
	Generation int      `json:"generation"` // 0: it brought none
	Decided    *float64 `json:"decided_ms"` // after the HUP: it served, or failed; null: never
	Settled    *float64 `json:"settled_ms"` // after the HUP: every older worker was gone; null: never
	Reason     string   `json:"reason"`     // why it failed
	Lost       int      `json:"lost"`       // between this HUP and the next
}

// Workers is what happened to them, but for being replaced.
type Workers struct {
	Killed      int      `json:"killed"`       // they did not stop in time
	KilledKnown bool     `json:"killed_known"` // false: this kernel does not tell how some of them ended
	Died        []string `json:"died"`         // nobody had told them to
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
func (v *Verdict) Passed() bool { return v.Verdict == "passed" }

// verdict draws the conclusions.
func (r *proof) verdict() *Verdict {
	v := &Verdict{
		Program: r.program.Name, Target: r.target.String(), Protocol: "http", PID: r.master.pid, Child: r.master.child != nil,
		Began: r.began, Took: ms(r.took), Rate: r.Rate, records: r.tally.records, lost: r.tally.losses,
		Reasons: []string{}, Warnings: []string{},
	}
	if r.target.bare {
		v.Protocol = "tcp"
	}
	course := r.course()
	v.Requests = r.tally.requests()
	v.Losses, v.Causes = course.losses(r.tally.losses)
	v.Latency = course.phases(r.tally.records)
	g := r.tally.longestGap(r.took)
	number, after, _ := course.place(g.from)
	v.Gap = Gap{ms(g.length), ms(g.from), number, ms(after)}
	v.Reloads = course.list(r.tally.losses)
	v.Workers = r.workers()
	v.Descriptors = compare(r.before, r.after)
	v.judge(r)
	return v
}

// judge says whether it has passed, and why not.
func (v *Verdict) judge(r *proof) {
	say := func(bad bool, format string, args ...any) {
		if bad {
			v.Reasons = append(v.Reasons, fmt.Sprintf(format, args...))
		}
	}
	count := map[Outcome]int{}
	for _, x := range v.Reloads {
		count[x.Outcome]++
	}
	say(v.Requests.Lost > 0, "%d of %d requests were lost", v.Requests.Lost, v.Requests.Sent)
	say(v.Requests.Answered == 0, "no request was answered")
	say(count[Failed] > 0, "%d of %d reloads failed", count[Failed], len(v.Reloads))
	say(r.broken != "", "%s", r.broken)
	v.Verdict = "passed"
	if r.interrupted {
		v.Verdict = "interrupted"
		say(true, "it was interrupted after %d of %d reloads", len(v.Reloads), r.Reloads)
	} else {
		say(count[Undecided] > 0, "%d of %d reloads came to nothing within %s", count[Undecided], len(v.Reloads), r.patience)
	}
	if len(v.Reasons) > 0 && !r.interrupted {
		v.Verdict = "failed"
	}
	v.warn(count[Superseded])
}

// warn tells what is wrong although nothing was lost by it.
func (v *Verdict) warn(superseded int) {
	say := func(bad bool, format string, args ...any) {
		if bad {
			v.Warnings = append(v.Warnings, fmt.Sprintf(format, args...))
		}
	}
	w, d := v.Workers, v.Descriptors
	say(superseded > 0, "%d reloads share the generation of a later one: somebody else reloads this supervisord too", superseded)
	say(w.Killed > 0, "%d workers had to be killed: they did not end within the stop plan ([program.%s.stop]); what they had in hand was cut off", w.Killed, v.Program)
	say(len(w.Died) > 0, "%d workers died without being told to: %s", len(w.Died), strings.Join(w.Died, "; "))
	say(len(w.Old) > 0, "%d workers of older generations still run: PID %s", len(w.Old), strings.Trim(fmt.Sprint(w.Old), "[]"))
	say(len(w.LeftBehind) > 0, "workers left processes behind: %s", strings.Join(w.LeftBehind, ", "))
	say(d.After > d.Before && d.Before >= 0, "supervisord has %d descriptors more than before: %v", d.After-d.Before, d.More)
}

func (t *tally) requests() Requests {
	q := Requests{Sent: len(t.records), Lost: len(t.losses), Answered: len(t.records) - len(t.losses), Kinds: map[Kind]int{}}
	for _, k := range kinds {
		q.Kinds[k] = 0
	}
	for _, l := range t.losses {
		q.Kinds[l.kind]++
	}
	return q
}

func (r *proof) workers() Workers {
	w := Workers{Killed: len(r.history.kills), KilledKnown: r.master.seen == nil || !r.master.seen.unknown,
		Died: append([]string{}, r.history.died...), LeftBehind: r.leftBehind(), Old: []int{}}
	if !r.interrupted {
		w.Old = append(w.Old, r.history.left()...)
		slices.Sort(w.Old)
	}
	return w
}

func compare(before, after map[string]int) Descriptors {
	d := Descriptors{Before: -1, After: -1, More: map[string]int{}}
	if before != nil {
		d.Before = total(before)
	}
	if after != nil {
		d.After = total(after)
	}
	for what, n := range after {
		if n > before[what] && d.After > d.Before {
			d.More[what] = n - before[what]
		}
	}
	return d
}

// ms is a time in milliseconds, to a thousandth.
func ms(d time.Duration) float64 { return math.Round(float64(d)/1e3) / 1e3 }
