package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cockroachdb/datadriven"
	"go.yaml.in/yaml/v3"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/terminal"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// noon is a time today, as a clock shows it here.
var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.Local)

// TestWords reads testdata/words: what supervisord answers, and what people read of it. With -rewrite it writes that.
// The answers are those of the API as YAML; "noon+1m" is a time, and it is noon unless "at" says otherwise.
//
//	status [verbose] [at=T] [copies=N width=(N,…)]   a program, or copies in windows of these widths; the last has failed
//	progress, verdict, asker                         a line for each program, outcome, and name of who asked
func TestWords(t *testing.T) {
	datadriven.Walk(t, "testdata/words", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "status" {
				return statusIn(t, d)
			}
			var b strings.Builder
			for line := range strings.Lines(d.Input) {
				switch d.Cmd {
				case "progress":
					fmt.Fprintln(&b, progress(answer(t, line, supervisor.ProgramStatus{}), noon))
				case "verdict":
					v := answer(t, line, control.ProgramVerdict{Program: "web", Generation: 8, Outcome: program.Serves})
					fmt.Fprintln(&b, describe(v, noon, terminal.Palette{}))
				case "asker":
					fmt.Fprintln(&b, asker(strings.TrimSuffix(line, "\n")))
				}
			}
			return b.String()
		})
	})
}

var clockTime = regexp.MustCompile(`\bnoon([+-][0-9.hms]+)?`)

// clock returns the time that "noon", "noon+1m" or "noon-1m" is.
func clock(t *testing.T, text string) time.Time {
	t.Helper()
	if _, later, is := strings.Cut(text, "noon"); !is || later != "" {
		return noon.Add(must.Get(time.ParseDuration(later))(t))
	}
	return noon
}

// answer reads an answer of the API into a copy of v.
func answer[T any](t *testing.T, text string, v T) T {
	t.Helper()
	var raw any
	text = clockTime.ReplaceAllStringFunc(text, func(s string) string {
		return "'" + clock(t, s).Format(time.RFC3339Nano) + "'"
	})
	must.Do(t, yaml.Unmarshal([]byte(text), &raw))
	must.Do(t, json.Unmarshal(must.Get(json.Marshal(raw))(t), &v))
	return v
}

// statusIn is the status that people see.
func statusIn(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	at, copies, widths, shown := "noon", 1, []int{0}, ""
	d.MaybeScanArgs(t, "at", &at)
	d.MaybeScanArgs(t, "copies", &copies)
	d.MaybeScanArgs(t, "width", &widths)
	st := &supervisor.Status{Version: "1.2.3", PID: 27052, Started: noon}
	for i := range copies {
		p := answer(t, d.Input, supervisor.ProgramStatus{})
		if copies > 1 {
			p.Name = fmt.Sprintf("%s-%d", p.Name, i)
		}
		if copies > 1 && i == copies-1 {
			p.Reloads[0].Outcome = program.NotReady
		}
		st.Programs = append(st.Programs, p)
	}
	for _, width := range widths {
		text := statusView{verbose: d.HasArg("verbose"), width: width}.status(st, clock(t, at))
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); width > 0 && n > width {
				t.Errorf("a line has %d columns of %d: %s", n, width, line)
			}
		}
		shown += text
	}
	return strings.ReplaceAll(shown, "\n\n", "\n")
}

func TestReloadThatWasRolledBackExitsAsOneThatWasSuperseded(t *testing.T) {
	if code := outcomeCodes[control.RolledBack]; code != exitSuperseded {
		t.Errorf("it exits with %d", code)
	}
}
