package metrics

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"

	"example.org/supervisord/internal/lab/leftover"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

func TestMain(m *testing.M) { leftover.Main(m) }

// oneProgram returns a program whose listener has an empty queue.
func oneProgram() func(context.Context) (*supervisor.Status, error) {
	return func(context.Context) (*supervisor.Status, error) {
		return &supervisor.Status{Started: time.Unix(1000, 0), Version: "1.2.3", Programs: []supervisor.ProgramStatus{{
			Name: "web",
			Listeners: []supervisor.ListenerStatus{{Name: "http", Handover: "steer", ShutDowns: 2,
				Queue: &supervisor.AcceptQueue{Limit: 128}}, {Name: "udp", Handover: "share"},
				{Name: "local", Address: "/run/web.sock", Handover: "share", Path: &supervisor.PathStatus{Restored: 3}}},
			Paused: &program.PauseTime{},
			Generations: []supervisor.GenerationStatus{
				{Number: 3, Role: program.RoleTrial, Share: 500, Workers: []supervisor.WorkerStatus{in(program.Starting)}},
				{Number: 2, Role: program.RoleServing, Share: 9500, Directory: "/srv/web/releases/2", Config: "f57d7865cbf8",
					Workers: []supervisor.WorkerStatus{in(program.Ready), in(program.Ready)}},
				{Number: 1, Role: program.RoleDraining,
					GenerationTimes: program.GenerationTimes{Retired: time.Unix(2000, 0)},
					InHand: &program.Look{Queued: 1, Handshakes: 2, Unread: 4, Answering: 8, Active: 32,
						Idle: 16}, Workers: []supervisor.WorkerStatus{in(program.Stopping)}},
				{Number: 0, Role: program.RoleDraining,
					GenerationTimes: program.GenerationTimes{Retired: time.Unix(1500, 0)}},
			}}}}, nil
	}
}

func in(state program.WorkerState) supervisor.WorkerStatus {
	return supervisor.WorkerStatus{Standing: program.Standing{State: state}}
}

func scrape(t *testing.T, m *Metrics) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Code, w.Body.String()
}

// full returns all values that can be scraped.
func full(t *testing.T) string {
	t.Helper()
	m := New(oneProgram())
	served := program.ReloadRecord{Outcome: program.Serves, Durations: program.Durations{Took: 2 * time.Second}}
	gone := served
	gone.Left = &program.Look{Queued: 1, Handshakes: 2, Unread: 4, Answering: 8, Idle: 16}
	for _, r := range []program.Report{
		{Kind: program.TrialBegan, Reload: &program.ReloadRecord{Outcome: program.Pending}},
		{Kind: program.TrialBegan, AskedBy: "alice (uid 1000, pid 4711)",
			Reload: &program.ReloadRecord{Outcome: program.Pending}},
		{Kind: program.GenerationServes, Reload: &served},
		{Kind: program.TrialFailed, Reload: &program.ReloadRecord{Outcome: program.NotReady}},
		{Kind: program.TrialFailed, Reload: &program.ReloadRecord{Outcome: program.NotReady}},
		{Kind: program.StopBegan, Reload: &program.ReloadRecord{Outcome: program.Stopped}},
		{Kind: program.GenerationQuiet, Took: 30 * time.Millisecond, Reload: &served},
		{Kind: program.GenerationBusy, Took: 10 * time.Second, Reload: &gone},
		{Kind: program.ConnectionsReset, Particulars: program.Particulars{Reset: 5}, Reload: &gone},
		{Kind: program.RolledBack, Reload: &served},
		{Kind: program.GenerationGone, Took: 20 * time.Second,
			Reload: &gone}, {Kind: program.SlotRetry}, {Kind: program.WorkerKilled}, {Kind: program.WorkerReady},
	} {
		m.See(supervisor.Update{Program: "web", Report: r})
	}
	code, text := scrape(t, m)
	if code != http.StatusOK {
		t.Fatalf("%d: %s", code, text)
	}
	return text
}

// testdata/scrape.txt has lines of a scrape, or beginnings.
func TestScrapeHasEveryMetric(t *testing.T) {
	wanted := must.Get(os.ReadFile("testdata/scrape.txt"))(t)
	text := full(t)
	for want := range strings.Lines(string(wanted)) {
		if !strings.Contains(text, "\n"+strings.TrimSuffix(want, "\n")) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

func TestMetricsPassTheLinter(t *testing.T) {
	problems, err := promlint.New(strings.NewReader(full(t))).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

func TestClientThatAsksForOpenMetricsGetsIt(t *testing.T) {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	New(oneProgram()).ServeHTTP(w, r)
	kind, text := w.Header().Get("Content-Type"), w.Body.String()
	if !strings.HasPrefix(kind, "application/openmetrics-text; version=1.0.0") || !strings.HasSuffix(text, "\n# EOF\n") {
		t.Errorf("the answer is %s:\n%s", kind, text)
	}
}

// TestFormatIsReadByPrometheusParser parses a scrape with difficult labels with the parser of Prometheus.
func TestFormatIsReadByPrometheusParser(t *testing.T) {
	const odd = "a\"b\\c\nd\xff"
	m := New(func(context.Context) (*supervisor.Status, error) {
		return &supervisor.Status{Programs: []supervisor.ProgramStatus{{Name: odd}}}, nil
	})
	for _, took := range []time.Duration{0, 50 * time.Millisecond, 51 * time.Millisecond, time.Hour} {
		m.See(supervisor.Update{Program: odd, Report: program.Report{Kind: program.GenerationServes,
			Reload: &program.ReloadRecord{Outcome: program.Serves, Durations: program.Durations{Took: took}}}})
	}
	_, text := scrape(t, m)
	var parser expfmt.TextParser
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	metric := families["supervisord_reload_duration_seconds"].GetMetric()[0]
	if got := metric.GetLabel()[0].GetValue(); got != strings.ToValidUTF8(odd, "\uFFFD") {
		t.Errorf("the label arrives as %q", got)
	}
	h := metric.GetHistogram()
	if b := h.GetBucket(); h.GetSampleCount() != 4 || h.GetSampleSum() != 3600.101 || b[0].GetCumulativeCount() != 2 ||
		b[1].GetCumulativeCount() != 3 ||
		b[len(b)-1].GetCumulativeCount() != 4 || len(b) != 13 {
		t.Errorf("the histogram is %v", h)
	}
	for name, f := range families {
		if f.GetHelp() == "" || f.GetType() == 3 {
			t.Errorf("%s has no help or no type", name)
		}
	}
}

func TestRemovedProgramIsForgotten(t *testing.T) {
	m := New(oneProgram())
	m.See(supervisor.Update{Program: "gone", Report: program.Report{Kind: program.SlotRetry}})
	if _, text := scrape(t, m); strings.Contains(text, "gone\"") {
		t.Error("it is still there")
	}
}

func TestScrapesAreLimited(t *testing.T) {
	inside, leave := make(chan bool), make(chan bool)
	m := New(func(context.Context) (*supervisor.Status, error) {
		inside <- true
		<-leave
		return &supervisor.Status{}, nil
	})
	var all sync.WaitGroup
	for range maxScrapes {
		all.Go(func() { scrape(t, m) })
		<-inside
	}
	if code, _ := scrape(t, m); code != http.StatusServiceUnavailable {
		t.Errorf("one too many gets %d", code)
	}
	close(leave)
	all.Wait()
}

func TestScrapeFailsIfSupervisorDoesNotAnswer(t *testing.T) {
	m := New(func(context.Context) (*supervisor.Status, error) { return nil, errors.New("late") })
	if code, text := scrape(t, m); code != http.StatusServiceUnavailable ||
		!strings.Contains(text, "the supervisor does not answer: late") {
		t.Errorf("%d: %s", code, text)
	}
}

var name = regexp.MustCompile(`\b(?:supervisord|process|go)_[a-z_]+[a-z]\b`)

// exported returns the names in a scrape, including the parts of a histogram.
func exported(text string) []string {
	var names []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			names = append(names, name.FindString(line))
		}
	}
	return names
}

// tests/engines compares the dashboards and the alerts with a scrape of a real supervisord.
func TestEveryDocumentedMetricExists(t *testing.T) {
	there := exported(full(t))
	text := must.Get(os.ReadFile("../../../docs/metrics.md"))(t)
	used := name.FindAllString(string(text), -1)
	if len(used) == 0 {
		t.Error("docs/metrics.md has no metric")
	}
	for _, n := range used {
		if !slices.Contains(there, n) && !slices.Contains(there, n+"_bucket") {
			t.Errorf("docs/metrics.md has %s, which is not exported", n)
		}
	}
}

func TestEveryMetricIsDocumented(t *testing.T) {
	text := must.Get(os.ReadFile("../../../docs/metrics.md"))(t)
	parts := regexp.MustCompile(`_(bucket|sum|count)$`)
	for _, n := range exported(full(t)) {
		if n = parts.ReplaceAllString(n, ""); strings.HasPrefix(n, "supervisord") && !strings.Contains(string(text), "`"+n) {
			t.Errorf("docs/metrics.md does not have %s", n)
		}
	}
}
