package receipt

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

var second = regexp.MustCompile(`@(\d+)`)

// recordIn reads a record of JSON, in which @7 is the seventh second.
func recordIn(text string) (r program.ReloadRecord) {
	text = second.ReplaceAllStringFunc(text, func(at string) string {
		return time.Unix(int64(must.Be(strconv.Atoi(at[1:]))), 0).UTC().Format(`"` + time.RFC3339 + `"`)
	})
	must.Be(r, json.Unmarshal([]byte(text), &r))
	return r
}

// TestReceipts reads testdata/receipts.txt; with -rewrite it writes the answers. A line of "receipts" is what a
// Recorder sees, with semicolons between steps: "saw RECORD" in an update, "found T RECORD…" in the status of a
// supervisord that began at T, "crash" in another update. A line of the answer has the receipts in turn. "text", "log"
// and "json" are what people, the log and clients get of a record.
func TestReceipts(t *testing.T) {
	datadriven.RunTest(t, "testdata/receipts.txt", func(t *testing.T, d *datadriven.TestData) string {
		var b strings.Builder
		for line := range strings.Lines(d.Input) {
			fmt.Fprintln(&b, answers[d.Cmd](strings.TrimSpace(line)))
		}
		return b.String()
	})
}

var answers = map[string]func(line string) string{
	"receipts": func(line string) string {
		recorder, done := NewRecorder(), []Receipt{}
		for step := range strings.SplitSeq(line, "; ") {
			verb, rest, _ := strings.Cut(step, " ")
			switch verb {
			case "saw":
				r := recordIn(rest)
				if one := recorder.See(supervisor.Update{Program: "web", Report: program.Report{Reload: &r}}); one != nil {
					done = append(done, *one)
					if !reflect.DeepEqual(one.ReloadRecord, r) {
						return "another record"
					}
				}
			case "crash":
				recorder.See(supervisor.Update{Program: "web", Report: program.Report{Kind: program.WorkerDied}})
			case "found":
				began, list, _ := strings.Cut(rest, " ")
				p := supervisor.ProgramStatus{Name: "web"}
				for one := range strings.SplitSeq(list, " and ") {
					p.Reloads = append(p.Reloads, recordIn(one))
				}
				done = append(done, recorder.Resync(&supervisor.Status{Programs: []supervisor.ProgramStatus{p},
					Started: time.Unix(int64(must.Be(strconv.Atoi(began))), 0)})...)
			}
		}
		var list []string
		for _, r := range done {
			list = append(list, fmt.Sprintf("%s %d: %s, ended at %d", r.Program, r.Generation, r.Outcome, r.Ended.Unix()))
		}
		return strings.Join(append(list, "none")[:max(1, len(list))], "; ")
	},
	"text": func(line string) string { return (&Receipt{"web", recordIn(line)}).Text() },
	"json": func(line string) string { return string(must.Be(json.Marshal(Receipt{"web", recordIn(line)}))) },
	"log": func(line string) string {
		core, logs := observer.New(zapcore.DebugLevel)
		(&Receipt{"web", recordIn(line)}).Log(zap.New(core))
		text := ""
		for _, entry := range logs.All() {
			text += entry.Level.String() + " " + entry.Message
			fields := entry.ContextMap()
			for _, key := range slices.Sorted(maps.Keys(fields)) {
				text += fmt.Sprintf(" %s=%v", key, fields[key])
			}
		}
		return text
	},
}

func TestOldReloadsAreForgotten(t *testing.T) {
	recorder := NewRecorder()
	for n := 1; n <= 3*kept; n++ {
		r := recordIn(fmt.Sprintf(`{"generation":%d,"outcome":"serves","decided":@%[1]d,"ended":@%[1]d}`, n))
		if recorder.See(supervisor.Update{Program: "web", Report: program.Report{Reload: &r}}) == nil {
			t.Errorf("there is no receipt for generation %d", n)
		}
	}
	if n := len(recorder.given["web"]); n != kept {
		t.Errorf("%d are kept", n)
	}
}
