package prove

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/internal/lab/plot"
	"example.org/supervisord/internal/terminal"
)

// words is what a person calls each kind of loss.
var words = map[load.LossKind]string{
	load.Refused: "refused", load.Reset: "reset", load.Closed: "closed while waiting", load.TimedOut: "timed out",
	load.Status5: "5xx", load.Other: "other",
}

// mostShown bounds the lost requests that are listed for people.
const mostShown = 8

// width is that of a line of text, about.
const width = 100

// Text writes the findings for people: first what matters most.
func (v *Findings) Text(w io.Writer, paint terminal.Palette) error {
	var b bytes.Buffer
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("%s", v.verdict(paint))
	p("")
	p("%s on %s: reloaded %d times in %s", v.Program, v.Target, len(v.Reloads), lasting(v.Took))
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
		p("\n%s", paint.Warn(wrap("warning: "+text, "  ", "  ")))
	}
	_, err := w.Write(b.Bytes())
	return err
}

// verdict is the first line, in color.
func (v *Findings) verdict(paint terminal.Palette) string {
	text := strings.ToUpper(v.Verdict) + ": " + v.Headline
	if len(v.Causes) > 0 {
		text += " (" + strings.Join(v.Reasons, "; ") + ")"
	}
	word, rest, _ := strings.Cut(wrap(text, "", "  "), ":")
	if v.Passed() {
		return paint.Good(word) + ":" + rest
	}
	return paint.Bad(word) + ":" + rest
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
		p("\n%s", wrap(fmt.Sprintf("%d lost: %s.", c.Lost, c.Cause), "  ", "  "))
		if again := func(d Cause) bool { return d.Remedy == c.Remedy }; !slices.ContainsFunc(v.Causes[i+1:], again) {
			p("%s", wrap(c.Remedy+".", "  -> ", "     "))
		}
	}
	if s := v.Server; s != nil && s.Remedy != "" && len(v.Causes) > 0 {
		p("\n%s", wrap(s.Name+" ("+s.Page+"): "+s.Remedy+".", "  -> ", "     "))
	}
}

func (v *Findings) textLosses(p func(string, ...any)) {
	for _, k := range load.Kinds {
		if n := v.Requests.Kinds[k]; n > 0 {
			p("               %d %s", n, words[k])
		}
	}
	for _, l := range v.Losses[:min(len(v.Losses), mostShown)] {
		why := l.Error[strings.LastIndex(l.Error, ": ")+1:]
		p("%s", wrap(fmt.Sprintf("%s, %s connection, %s: %s", when(l.Reload, l.After), l.Connection, words[l.Kind], why),
			"                 ", "                   "))
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
		p("  %-12s %-8s p50 %-9s p95 %-9s p99 %-9s max %s", title, x.name, lasting(x.P50), lasting(x.P95), lasting(x.P99),
			lasting(x.Max))
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
	p("%s", wrap(text, "  reloads      ", "               "))
	for _, r := range v.Reloads {
		if r.Outcome == failed {
			p("%s", wrap(fmt.Sprintf("reload %d: generation %d failed: %s", r.Number, r.Generation, r.Reason),
				"                 ", "                   "))
		}
	}
}

func (v *Findings) textWorkers(p func(string, ...any)) {
	w := v.Workers
	killed := fmt.Sprint(w.Killed)
	if !w.KilledKnown {
		killed += " or more" // the connection to supervisord broke meanwhile
	}
	text := fmt.Sprintf("%s killed, %d died, %d old ones still there, %d processes left behind", killed, len(w.Died),
		len(w.Old), len(w.LeftBehind))
	if w.Stopped > 0 {
		text += fmt.Sprintf("; old ones were gone %s after their signal at most", lasting(w.Stopped))
	}
	p("%s", wrap(text, "  workers      ", "               "))
	if d := v.Descriptors; d.Before >= 0 && d.After >= 0 {
		p("  descriptors  %d before, %d after", d.Before, d.After)
	}
}

// lasting writes milliseconds with three digits.
func lasting(millis float64) string {
	return load.Short(time.Duration(millis * float64(time.Millisecond)))
}

// wrap breaks a sentence into lines of width characters: the first begins with head, the others with indent.
func wrap(text, head, indent string) string {
	var b strings.Builder
	b.WriteString(head)
	column, begun := len(head), false
	for _, word := range strings.Fields(text) {
		switch {
		case !begun:
		case column+1+len(word) > width:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column, begun = column+len(word), true
	}
	return b.String()
}

// Plot draws the latency over time, with the reloads and the lost requests, as SVG.
func (v *Findings) Plot() []byte {
	panel := plot.Panel{
		Title: fmt.Sprintf("%s, %d requests a second for %s; longest time without an answer %s", v.Target, v.Rate,
			lasting(v.Took), lasting(v.Gap.Length)),
		Note: fmt.Sprintf("%d lost", v.Requests.Lost), Attempts: v.all, Length: millis(v.Took),
	}
	for _, r := range v.Reloads {
		at, decided, settled := millis(r.At), panel.Length, panel.Length
		if r.Decided != nil {
			decided = at + millis(*r.Decided)
		}
		if r.Settled != nil {
			settled = at + millis(*r.Settled)
		}
		panel.Spans = append(panel.Spans, plot.Span{From: decided, To: settled, Class: "drain"},
			plot.Span{From: at, To: decided, Class: "start"})
		panel.Marks = append(panel.Marks,
			plot.Mark{At: at, Words: fmt.Sprint(r.Number), Failed: r.Outcome == failed || r.Outcome == undecided})
	}
	title := fmt.Sprintf("%s: %d requests, %d reloads, %d lost", v.Program, v.Requests.Sent, len(v.Reloads),
		v.Requests.Lost)
	return plot.Timeline(title, 280, []plot.Panel{panel}, plot.LegendItem{Class: "start", Words: "new workers start"},
		plot.LegendItem{Class: "drain", Words: "old workers drain"})
}

func millis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
