package prove

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// mostShown bounds the lost requests that are listed for people.
const mostShown = 8

// Text writes the verdict for people.
func (v *Verdict) Text(w io.Writer) error {
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

// how says what was sent where it was not HTTP.
func (v *Verdict) how() string {
	if v.Protocol == "tcp" {
		return " (it speaks no HTTP: each connects and closes)"
	}
	return ""
}

// textCauses writes the causes, and each remedy once, below the last cause that it is for.
func (v *Verdict) textCauses(p func(string, ...any)) {
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

func (v *Verdict) last() string {
	if v.Passed() {
		return "PASSED: nothing was lost and every reload served"
	}
	return strings.ToUpper(v.Verdict) + ": " + strings.Join(v.Reasons, "; ")
}

func (v *Verdict) textLosses(p func(string, ...any)) {
	for _, k := range kinds {
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

// when says a moment by the reload before it.
func when(reload int, after float64) string {
	if reload == 0 {
		return lasting(after) + " after the begin"
	}
	return fmt.Sprintf("%s after reload %d", lasting(after), reload)
}

func (v *Verdict) textLatency(p func(string, ...any)) {
	title := "latency"
	for _, x := range []struct {
		name string
		*Latency
	}{{"before", v.Latency.Before}, {"during", v.Latency.During}, {"after", v.Latency.After}} {
		if x.Latency == nil {
			continue
		}
		p("  %-12s %-8s p50 %-9s p95 %-9s p99 %-9s max %-9s", title, x.name, lasting(x.P50), lasting(x.P95), lasting(x.P99), lasting(x.Max))
		title = ""
	}
}

func (v *Verdict) textReloads(p func(string, ...any)) {
	var decided, settled []float64
	count := map[Outcome]int{}
	for _, r := range v.Reloads {
		count[r.Outcome]++
		if r.Outcome == Served {
			decided = append(decided, *r.Decided)
		}
		if r.Outcome == Served && r.Settled != nil {
			settled = append(settled, *r.Settled)
		}
	}
	text := fmt.Sprintf("%d of %d served", count[Served], len(v.Reloads))
	for _, o := range []Outcome{Superseded, Failed, Undecided} {
		if count[o] > 0 {
			text += fmt.Sprintf(", %d %s", count[o], o)
		}
	}
	if len(decided) > 0 {
		text += fmt.Sprintf("; new workers served after %s at most", lasting(slices.Max(decided)))
	}
	if len(settled) > 0 {
		text += fmt.Sprintf(", old ones were gone after %s", lasting(slices.Max(settled)))
	}
	p("  reloads      %s", text)
	for _, r := range v.Reloads {
		if r.Outcome == Failed {
			p("                 reload %d: generation %d failed: %s", r.Number, r.Generation, r.Reason)
		}
	}
}

func (v *Verdict) textWorkers(p func(string, ...any)) {
	w := v.Workers
	killed := fmt.Sprint(w.Killed)
	if !w.KilledKnown {
		killed += " or more" // this kernel does not tell
	}
	p("  workers      %s killed, %d died, %d old ones still there, %d processes left behind", killed, len(w.Died), len(w.Old), len(w.LeftBehind))
	if d := v.Descriptors; d.Before >= 0 && d.After >= 0 {
		p("  descriptors  %d before, %d after", d.Before, d.After)
	}
}

// lasting says milliseconds with two or three digits that matter.
func lasting(millis float64) string {
	d := time.Duration(millis * float64(time.Millisecond))
	switch {
	case d >= 10*time.Second:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%.0f ms", millis)
	}
	return fmt.Sprintf("%.2f ms", millis)
}

// wrap breaks a sentence into lines of at most width, all indented.
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
