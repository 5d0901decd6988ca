package control

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

var now = time.Date(2026, 11, 22, 15, 4, 5, 0, time.UTC)

// web7 is the ticket of the reload to generation 7 of web.
var web7 = supervisor.Ticket{Program: "web", Generation: 7}

// TestWaits reads testdata/waits.txt; with -rewrite it writes the answers. A line is a wait for the outcome of changes,
// and a line of the answer has its verdicts. Steps have semicolons between them, and arguments of JSON; NOW is a time.
//
//	until STATE     waits for that, and not for serves
//	ticket TICKET   waits for this change; no ticket is web7
//	reload RECORD   the record of the reload to generation 7 of web, which replaces 6; other: of that program
//	found PROGRAM   a status of web with the records so far; gone: one without it; elsewhere: one of another instance
//	began N         a trial of generation N of web; timeout PROGRAM: time is up
//
// The records of "records" are in updates, and once more in a status, as if updates were missed: it must not matter.
func TestWaits(t *testing.T) {
	datadriven.RunTest(t, "testdata/waits.txt", func(t *testing.T, d *datadriven.TestData) string {
		var b strings.Builder
		for line := range strings.Lines(strings.ReplaceAll(d.Input, "NOW", now.Format(`"`+time.RFC3339+`"`))) {
			got := (&waiting{until: untilServes}).play(line)
			fmt.Fprintln(&b, got)
			if d.Cmd == "records" {
				if missed := (&waiting{until: untilServes, missed: true}).play(line + "; found {}"); missed != got {
					t.Errorf("%s: %s, but %s in a status", line, got, missed)
				}
			}
		}
		return b.String()
	})
}

// waiting is a line of testdata/waits.txt.
type waiting struct {
	*wait
	until   Until
	tickets []supervisor.Ticket
	records []program.ReloadRecord
	missed  bool // updates
}

func (w *waiting) play(line string) string {
	for step := range strings.SplitSeq(strings.TrimSpace(line), ";") {
		verb, text, _ := strings.Cut(strings.TrimSpace(step), " ")
		switch verb {
		case "until":
			w.until = Until(text)
			continue
		case "ticket":
			w.tickets = append(w.tickets, *read(text, supervisor.Ticket{Program: "web"}))
			continue
		}
		if w.tickets == nil {
			w.tickets = []supervisor.Ticket{web7}
		}
		if w.wait == nil {
			w.wait = newWait(w.tickets, w.until)
		}
		w.step(verb, text)
	}
	return w.String()
}

func (w *waiting) step(verb, text string) {
	status := &supervisor.Status{}
	if verb == "elsewhere" {
		status.Instance = verb
	}
	switch verb {
	case "reload", "other":
		r := newRecord(text)
		name := strings.Replace(verb, "reload", "web", 1)
		w.records = append(w.records, *r)
		if !w.missed {
			w.see(supervisor.Update{Program: "nobody", Report: program.Report{Reload: newRecord(`{"outcome":"worker"}`)}})
			w.see(supervisor.Update{Program: name})
			w.see(supervisor.Update{Program: name, Report: program.Report{Reload: r}})
		}
	case "found", "elsewhere", "timeout":
		p := read(text, supervisor.ProgramStatus{Name: "web"})
		p.Reloads = append(p.Reloads, w.records...)
		status.Programs = []supervisor.ProgramStatus{*p}
		if verb == "timeout" {
			w.timeOut(status)
			return
		}
		w.look(status)
	case "gone":
		w.look(status)
	case "began":
		w.see(supervisor.Update{Program: "web",
			Report: program.Report{Kind: program.TrialBegan, Generation: *read(text, 0)}})
	default:
		panic("there is no step " + verb)
	}
}

// read reads JSON into a copy of v.
func read[T any](text string, v T) *T {
	return must.Be(&v, json.Unmarshal([]byte(text), &v))
}

// newRecord reads the record of the reload to generation 7, which replaces generation 6.
func newRecord(text string) *program.ReloadRecord {
	r := read(text, program.ReloadRecord{Generation: 7, Replaced: 6, Durations: program.Durations{Took: time.Second}})
	if r.Outcome.Failed() || r.Outcome == program.Aborted {
		r.Failure = &program.Failure{Step: "start", Reason: "because", Worker: 3, Tail: []string{"last words"}}
	}
	return r
}

// String has the verdicts, and that of all when nothing is pending.
func (w *waiting) String() string {
	var all []string
	for _, g := range w.goals {
		text := g.Program + " " + string(g.Outcome)
		if g.Serving != 0 {
			text += fmt.Sprintf(", %d serves", g.Serving)
		}
		if g.Reason != "" {
			text += ": " + strings.Replace(g.Reason, now.Local().Format(time.TimeOnly), "NOW", 1)
		}
		if r := g.Reload; r != nil && !r.Ended.IsZero() {
			text += fmt.Sprintf(" (%d ended, %d killed)", r.Replaced, r.Killed)
		}
		all = append(all, text)
	}
	if len(w.pending()) == 0 {
		all = append(all, "verdict "+string(w.verdict().Outcome))
	}
	return strings.Join(all, "; ")
}

func TestClientKnowsTheVerdictOfAStreamThatBreaksBehindIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l := must.Get(net.Listen("unix", path))(t)
	serves, requests := newRecord(`{"outcome":"serves"}`), 0
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests++
		out := newLines(w)
		out.write(WaitLine{Tickets: []supervisor.Ticket{web7}})
		out.write(WaitLine{Update: &supervisor.Update{Program: "web", Report: program.Report{
			Kind: program.GenerationServes, Reload: serves}}})
		panic(http.ErrAbortHandler)
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	c := NewClient(path)
	v, err := c.Await(t.Context(), OfReload(ReloadBody{}), "serves", time.Minute, func(WaitLine) {})
	if err != nil || v.Outcome != program.Serves || v.Programs[0].Reload.Replaced != 6 {
		t.Errorf("the verdict is %+v, %v", v, err)
	}
	c.Close()
	server.Close()
	if <-served; requests != 1 {
		t.Errorf("supervisord was asked %d times", requests)
	}
}
