package prove

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"example.org/supervisord/internal/lab/load"
)

// words is what a person calls each kind of loss.
var words = map[load.LossKind]string{
	load.Refused: "refused", load.Reset: "reset", load.Closed: "closed while waiting", load.TimedOut: "timed out", load.Status5: "5xx", load.Other: "other",
}

// mostShown bounds the lost requests that are listed for people.
const mostShown = 8

// Text writes the findings for people.
func (v *Findings) Text(w io.Writer) error {
	var b bytes.Buffer
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("%s on %s: %d reloads in %s", v.Program, v.Target, len(v.Reloads), lasting(v.Took))
	p("")
	p("  requests     %d sent, %d answered, %d lost%s", v.Requests.Sent, v.Requests.Answered, v.Requests.Lost, v.how())
	v.textLosses(p)
	v.textLatency(p)
	if v.Requests.Answered > 0 {
		p("  longest gap  %s without an answer, %s", lasting(v.Gap.Length), when(v.Gap.Reload, v.Gap.After))
	}
	v.textReloads(p)
	v.textWorkers(p)
	v.textCauses(p)
	for _, text := range v.Warnings {
		p("\n%s", wrap("warning: "+text, 100, "  "))
	}
	p("\n%s", v.last())
	_, err := w.Write(b.Bytes())
	return err
}

// how says what was sent if it was not HTTP.
func (v *Findings) how() string {
	if v.Protocol == "tcp" {
		return " (it does not speak HTTP: each connects and closes)"
	}
	return ""
}

// textCauses writes the causes, and each remedy once, below the last cause that it fits.
func (v *Findings) textCauses(p func(string, ...any)) {
	for i, c := range v.Causes {
		p("\n%s", wrap(fmt.Sprintf("%s (%d): %s.", c.title(), c.Lost, c.Cause), 100, "  "))
		if again := func(d Cause) bool { return d.Remedy == c.Remedy }; !slices.ContainsFunc(v.Causes[i+1:], again) {
			p("%s", wrap("-> "+strings.ReplaceAll(c.Remedy, "NAME", v.Program)+".", 100, "     "))
		}
	}
}

func (c Cause) title() string {
	title := words[c.Kind]
	if c.Connection == "reused" {
		title += " on a used connection"
	}
	if c.Connection == "new" {
		title += " on a new connection"
	}
	return title
}

func (v *Findings) last() string {
	if v.Passed() {
		return "PASSED: nothing was lost and every reload served"
	}
	return strings.ToUpper(v.Verdict) + ": " + strings.Join(v.Reasons, "; ")
}

func (v *Findings) textLosses(p func(string, ...any)) {
	for _, k := range load.Kinds {
		if n := v.Requests.Kinds[k]; n > 0 {
			p("               %d %s", n, words[k])
		}
	}
	for _, l := range v.Losses[:min(len(v.Losses), mostShown)] {
		p("                 %s, %s connection, %s (%s)", when(l.Reload, l.After), l.Connection, words[l.Kind], l.Error)
	}
	if more := v.Requests.Lost - mostShown; more > 0 {
		p("                 and %d more", more)
	}
}

// when names a moment by the reload before it.
func when(reload int, after float64) string {
	if reload == 0 {
		return lasting(after) + " after the beginning"
	}
	return fmt.Sprintf("%s after reload %d", lasting(after), reload)
}

func (v *Findings) textLatency(p func(string, ...any)) {
	title := "latency"
	for _, x := range []struct {
		name string
		*Latency
	}{{"before", v.Latency.Before}, {"during", v.Latency.During}, {"after", v.Latency.After}} {
		if x.Latency == nil {
			continue
		}
		p("  %-12s %-8s p50 %-9s p95 %-9s p99 %-9s max %s", title, x.name, lasting(x.P50), lasting(x.P95), lasting(x.P99), lasting(x.Max))
		title = ""
	}
}

func (v *Findings) textReloads(p func(string, ...any)) {
	var decided, quiet, settled []float64
	count := map[string]int{}
	for _, r := range v.Reloads {
		count[r.Outcome]++
		if r.Outcome == served {
			decided = append(decided, *r.Decided)
		}
		if r.Outcome == served && r.Quiet != nil && !r.Busy {
			quiet = append(quiet, *r.Quiet)
		}
		if r.Outcome == served && r.Settled != nil {
			settled = append(settled, *r.Settled)
		}
	}
	text := fmt.Sprintf("%d of %d served", count[served], len(v.Reloads))
	for _, o := range []string{superseded, failed, undecided} {
		if count[o] > 0 {
			text += fmt.Sprintf(", %d %s", count[o], o)
		}
	}
	if len(decided) > 0 {
		text += fmt.Sprintf("; new workers served after %s at most", lasting(slices.Max(decided)))
	}
	if len(quiet) > 0 {
		text += fmt.Sprintf(", old ones had nothing in hand within another %s", lasting(slices.Max(quiet)))
	}
	if len(settled) > 0 {
		text += fmt.Sprintf(", old ones were gone after %s", lasting(slices.Max(settled)))
	}
	p("  reloads      %s", text)
	for _, r := range v.Reloads {
		if r.Outcome == failed {
			p("                 reload %d: generation %d failed: %s", r.Number, r.Generation, r.Reason)
		}
	}
}

func (v *Findings) textWorkers(p func(string, ...any)) {
	w := v.Workers
	killed := fmt.Sprint(w.Killed)
	if !w.KilledKnown {
		killed += " or more" // the connection to supervisord broke meanwhile
	}
	p("  workers      %s killed, %d died, %d old ones still there, %d processes left behind", killed, len(w.Died), len(w.Old), len(w.LeftBehind))
	if d := v.Descriptors; d.Before >= 0 && d.After >= 0 {
		p("  descriptors  %d before, %d after", d.Before, d.After)
	}
}

// lasting writes milliseconds with three digits.
func lasting(millis float64) string {
	return load.Short(time.Duration(millis * float64(time.Millisecond)))
}

// wrap breaks a sentence into indented lines of at most width characters.
func wrap(text string, width int, indent string) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(text) {
		switch {
		case column == 0:
			b.WriteString(indent + word)
			column = len(indent) + len(word)
		case column+1+len(word) > width:
			b.WriteString("\n" + indent + word)
			column = len(indent) + len(word)
		default:
			b.WriteString(" " + word)
			column += 1 + len(word)
		}
	}
	return b.String()
}
