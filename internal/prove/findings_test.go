package prove

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/lab/process"
	"example.org/supervisord/internal/terminal"
	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker/ready"
)

// at returns a time in the proofs below, which start at 0.
func at(millis int) time.Time { return time.UnixMilli(int64(millis)) }

// record returns the record of a reload that replaced the previous generation; an event at 0 has not happened.
func record(generation int, outcome program.Outcome, decided, ended int) *supervisor.Update {
	r := &program.ReloadRecord{Generation: generation, Replaced: generation - 1, Outcome: outcome}
	if decided > 0 {
		r.Decided = at(decided)
	}
	if ended > 0 {
		r.Ended = at(ended)
	}
	if outcome.Failed() {
		r.Failure = &program.Failure{Step: "start", Reason: "exited with status 1"}
	}
	return &supervisor.Update{Program: "web", Report: program.Report{Reload: r}}
}

// keeps changes a record: the generation before is kept.
func keeps(u *supervisor.Update) *supervisor.Update {
	u.Reload.KeptTill = at(60_000)
	return u
}

// tell builds a history from "reload", answers and records.
func tell(steps ...any) *history {
	h := newHistory("web")
	for i, s := range steps {
		switch s := s.(type) {
		case *supervisor.Update:
			h.add(s)
		case reloaded:
			h.answer(s)
		default:
			h.reloads = append(h.reloads, &asked{at: at(100 * i)})
		}
	}
	return h
}

func outcomes(h *history) []string {
	var list []string
	for _, a := range h.reloads {
		outcome, _, _ := h.outcome(a)
		list = append(list, outcome)
	}
	return list
}

func TestOutcomesOfReloads(t *testing.T) {
	first := record(1, program.Serves, 1, 1)
	for name, c := range map[string]struct {
		history *history
		want    []string
		settled bool
	}{
		"served and settled": {tell(first, "reload", reloaded{2, nil}, record(2, program.Serves, 2, 3)), []string{served},
			true},
		"old ones still drain": {tell(first, "reload", reloaded{2, nil}, record(2, program.Serves, 2, 0)), []string{served},
			false},
		"failed": {tell(first, "reload", reloaded{2, nil}, record(2, program.WorkerDown, 2, 3)),
			[]string{failed}, true},
		"failed, not yet gone": {tell(first, "reload", reloaded{2, nil}, record(2, program.NotReady, 2, 0)),
			[]string{failed}, false},
		"given up by somebody": {tell(first, "reload", reloaded{2, nil}, record(2, program.Aborted, 2, 3)),
			[]string{failed}, true},
		"configuration refused": {tell(first, "reload", reloaded{0, errors.New("line 3")}), []string{failed}, true},
		"not answered yet":      {tell(first, "reload"), []string{undecided}, false},
		"still on trial": {tell(first, "reload", reloaded{2, nil}, record(2, program.Pending, 0, 0)),
			[]string{undecided}, false},
		"superseded": {tell(first, "reload", reloaded{2, nil}, record(2, program.Superseded, 2, 2)),
			[]string{superseded}, true},
		"settled only by order": {tell(first, "reload", reloaded{2, nil}, record(2, program.Serves, 2, 0), "reload",
			reloaded{3, nil}, record(3, program.Serves, 3, 4)), []string{served, served}, false},
		"one after a failed one": {tell(first, "reload", reloaded{2, nil}, record(2, program.WorkerDown, 2, 3), "reload",
			reloaded{3, nil}, record(3, program.Serves, 4, 5)), []string{failed, served}, true},
		"another program": {tell(first, "reload", reloaded{2, nil},
			&supervisor.Update{Program: "other", Report: record(2, program.Serves, 2, 3).Report}), []string{undecided}, false},
		"the old one is kept": {tell(first, "reload", reloaded{2, nil}, keeps(record(2, program.Serves, 2, 0))),
			[]string{served}, true},
	} {
		if got := outcomes(c.history); !slices.Equal(got, c.want) || c.history.allSettled() != c.settled {
			t.Errorf("%s: %v, settled %v; want %v, %v", name, got, c.history.allSettled(), c.want, c.settled)
		}
	}
}

func TestReasonOfAFailedReload(t *testing.T) {
	h := tell("reload", reloaded{2, nil}, record(2, program.WorkerDown, 2, 3), "reload", reloaded{0, errors.New("line 3")})
	if _, reason, _ := h.outcome(h.reloads[0]); reason != "start: exited with status 1" {
		t.Errorf("reason %q", reason)
	}
	if _, reason, _ := h.outcome(h.reloads[1]); reason != "line 3" {
		t.Errorf("reason %q", reason)
	}
	if h.startFailed() == "" {
		t.Error("nothing served, and the start has not failed")
	}
}

func TestOldWorkersThatLive(t *testing.T) {
	st := &supervisor.Status{Programs: []supervisor.ProgramStatus{{Generations: []supervisor.GenerationStatus{{}, {},
		{}}}}}
	for i, role := range []program.Role{program.RoleServing, program.RoleDraining, program.RoleKept} {
		g := &st.Programs[0].Generations[i]
		g.Role = role
		g.Workers = make([]supervisor.WorkerStatus, 1)
		g.Workers[0].PID = 10 + i
	}
	if got := oldWorkers(st); !slices.Equal(got, []int{11}) {
		t.Errorf("left %v, want 11", got)
	}
}

// example returns a proof of 1 s with a reload that begins at 300 ms, serves at 400 ms and settles at 600 ms.
func example() *proof {
	u, _ := url.Parse("http://127.0.0.1:8080/")
	r := &proof{
		Plan: Plan{Rate: 100, Reloads: 1}, program: &config.Program{Name: "web"}, target: &endpoint{url: u, network: "tcp"},
		supervisord: &supervised{pid: 1 << 30, events: &process.Follower{}}, began: at(0), took: time.Second,
		left: leftovers{before: map[string]int{"socket": 3, "pipe": 1}, after: map[string]int{"socket": 3, "pipe": 3}},
	}
	r.history = tell(record(2, program.Serves, 400, 600))
	r.history.reloads = []*asked{{at: at(300), generation: 2}}
	for i := range 100 {
		r.tally.add(load.Attempt{At: time.Duration(i) * 10 * time.Millisecond,
			Latency: time.Duration(i+1) * 100 * time.Microsecond})
	}
	return r
}

func lose(r *proof, millis int, l load.Lost) {
	r.tally.add(load.Attempt{At: time.Duration(millis) * time.Millisecond, Latency: time.Millisecond, Lost: &l})
}

func TestProofWithoutLossPasses(t *testing.T) {
	v := example().findings()
	if !v.Passed() || v.Requests.Sent != 100 || v.Requests.Answered != 100 {
		t.Errorf("%+v", v)
	}
	if n := v.Latency.Before.Requests + v.Latency.During.Requests + v.Latency.After.Requests; n != 100 {
		t.Errorf("latencies of %d requests, want 100", n)
	}
	if v.Latency.After.Max != 10 || v.Latency.Before.P50 != 1.5 {
		t.Errorf("latencies %+v and %+v", v.Latency.Before, v.Latency.After)
	}
	if v.Descriptors.More["pipe"] != 2 || len(v.Warnings) != 1 {
		t.Errorf("descriptors %+v, warnings %q; want two pipes more, and a warning", v.Descriptors, v.Warnings)
	}
}

// stops adds to a proof that a worker was told to stop and was gone.
func stops(r *proof, told, gone int) {
	r.history.add(&supervisor.Update{Time: at(told), Program: "web",
		Report: program.Report{Kind: program.WorkerStopping, Worker: 1}})
	r.history.add(&supervisor.Update{Time: at(gone), Program: "web",
		Report: program.Report{Kind: program.WorkerStopped, Worker: 1}})
}

// Losses that several proofs have.
var (
	closed       = load.Lost{Kind: load.Closed, Text: "EOF"}
	closedReused = load.Lost{Kind: load.Closed, Reused: true, Text: "EOF"}
	reset        = load.Lost{Kind: load.Reset, Text: "reset"}
	resetReused  = load.Lost{Kind: load.Reset, Reused: true, Text: "reset"}
	timedOut     = load.Lost{Kind: load.TimedOut, Text: "timeout"}
	unavailable  = load.Lost{Kind: load.Status5, Text: "status 503"}
)

func TestLossIsPlacedAndExplained(t *testing.T) {
	for _, c := range []struct {
		millis   int
		took     time.Duration
		loss     load.Lost
		stage    Stage
		reload   int
		headline string
	}{
		{100, 0, closedReused, Before, 0, "before anything is reloaded"},
		{350, 0, load.Lost{Kind: load.Refused, Text: "refused"}, Starting, 1, "nothing listens at times"},
		{450, 0, closedReused, Draining, 1, "closes idle connections on TERM"},
		{450, 0, resetReused, Draining, 1, "closes idle connections on TERM"},
		{450, 5 * time.Millisecond, resetReused, Draining, 1, "exits on TERM without finishing its requests"},
		{450, 0, closed, Draining, 1, "exits on TERM without finishing its requests"},
		{450, 0, reset, Draining, 1, "exits on TERM without finishing its requests"},
		{700, 0, reset, Idle, 1, "exits on TERM without finishing its requests"},
		{950, 0, reset, Idle, 1, "in use, without being reloaded"},
		{350, 0, timedOut, Starting, 1, "waited too long for a worker"},
		{450, 0, timedOut, Draining, 1, "does not answer"},
		{350, 0, load.Lost{Kind: load.Status5, Text: "status 500"}, Starting, 1, "while new workers start"},
		{450, 0, unavailable, Draining, 1, "says that it is ready before it can answer"},
		{1200, 0, unavailable, Idle, 1, "(5xx) without being reloaded"},
		{450, 0, load.Lost{Kind: load.Other, Text: "connect: cannot assign requested address"}, Draining, 1,
			"ran out of ports"},
		{450, 0, load.Lost{Kind: load.Other, Text: "socket: too many open files"}, Draining, 1, "ran out of descriptors"},
		{450, 0, load.Lost{Kind: load.Other, Text: "status 404"}, Draining, 1, "another answer"},
	} {
		r := example()
		r.tally.add(load.Attempt{At: time.Duration(c.millis)*time.Millisecond - c.took, Latency: c.took, Lost: &c.loss})
		v := r.findings()
		l := v.Losses[0]
		if v.Passed() || l.Stage != c.stage || l.Reload != c.reload || len(v.Causes) != 1 ||
			!strings.Contains(v.Headline, c.headline) || v.Causes[0].Remedy == "" {
			t.Errorf("%d ms, %+v: %+v with causes %+v; want %s of reload %d and %q", c.millis, c.loss, l, v.Causes, c.stage,
				c.reload, c.headline)
		}
	}
}

func TestLossAtTheMomentOfAKillOrDeathIsThatOfTheKill(t *testing.T) {
	for _, c := range []struct {
		millis   int
		loss     load.Lost
		headline string
	}{
		{500, reset, killed.headline},
		{520, closedReused, killed.headline},
		{500, unavailable, earlyReady.headline},
		{800, reset, "exits on TERM"},
		{1500, reset, "die under load"},
	} {
		r := example()
		r.took = 2 * time.Second
		r.history.add(&supervisor.Update{Time: at(505), Program: "web", Report: program.Report{Kind: program.WorkerKilled}})
		r.history.add(&supervisor.Update{Time: at(1505), Program: "web", Report: program.Report{Kind: program.WorkerDied}})
		lose(r, c.millis, c.loss)
		if v := r.findings(); len(v.Causes) != 1 || !strings.Contains(v.Headline, c.headline) || v.Workers.Killed != 1 {
			t.Errorf("%d ms, %+v: causes %+v, want %q", c.millis, c.loss, v.Causes, c.headline)
		}
	}
}

func TestKillIsTheFirstCause(t *testing.T) {
	r := example()
	r.program.Stop.Steps = []config.StopStep{{Wait: 2 * time.Second}}
	r.history.add(&supervisor.Update{Time: at(900), Program: "web", Report: program.Report{Kind: program.WorkerKilled}})
	lose(r, 901, resetReused)
	for range 10 {
		lose(r, 450, closed)
	}
	v := r.findings()
	if len(v.Causes) != 2 || v.Headline != killed.headline || v.Causes[0].Lost != 1 || v.Causes[1].Lost != 10 {
		t.Errorf("causes %+v", v.Causes)
	}
	if c := v.Causes[0]; !strings.Contains(c.Cause, "(2s)") || !strings.Contains(c.Remedy, "[program.web.stop]") {
		t.Errorf("the cause does not name the program's stop plan: %+v", c)
	}
}

// TestErrorsAreBlamedByTheirBeginningAndEnd has a reload that serves at 400 ms and has settled at 600.
func TestErrorsAreBlamedByTheirBeginningAndEnd(t *testing.T) {
	fresh, reused := unavailable, load.Lost{Kind: load.Status5, Reused: true,
		Text: "status 503"}
	listen := func(h socket.Handover) []socket.Spec { return []socket.Spec{{Handover: h}} }
	for name, c := range map[string]struct {
		from, to   int
		loss       load.Lost
		told, gone int // of the old worker
		listen     []socket.Spec
		want       *cause
	}{
		"continue when the old workers are gone":    {420, 970, fresh, 450, 600, nil, &earlyReady},
		"begin when the old workers are gone":       {602, 950, fresh, 450, 590, nil, &earlyReady},
		"long after the reload":                     {2000, 2100, fresh, 450, 590, nil, &ownError},
		"between TERM and the end of an old worker": {460, 600, reused, 450, 600, listen(socket.Steer), &stoppingError},
		"and on new connections, which it gets":     {460, 600, fresh, 450, 600, listen(socket.Share), &stoppingError},
		"and on new connections, which it gets not": {460, 600, fresh, 450, 600, listen(socket.Steer), &earlyReady},
		"begin before the old worker is told":       {420, 500, reused, 450, 600, listen(socket.Steer), &earlyReady},
		"begin before the first reload":             {100, 120, fresh, 450, 600, nil, &ownError},
		"while new workers start":                   {310, 600, fresh, 700, 800, nil, &startingError},
		"and after one of them was ready":           {380, 600, fresh, 700, 800, nil, &earlyReady},
		"as an old worker stops first":              {310, 450, fresh, 305, 440, nil, &stoppingError},
	} {
		r := example()
		r.took, r.program.Listen = 3*time.Second, c.listen
		stops(r, c.told, c.gone)
		r.history.add(&supervisor.Update{Time: at(375), Program: "web", Report: program.Report{Kind: program.WorkerReady}})
		n := 0
		for millis := c.from; millis <= c.to; millis += 50 {
			lose(r, millis, c.loss)
			n++
		}
		want := c.want.headline
		if c.from < 300 {
			want = "the service loses requests before anything is reloaded"
		}
		if v := r.findings(); len(v.Causes) != 1 || v.Headline != want || v.Causes[0].Lost != n {
			t.Errorf("%s: causes %+v, want %q", name, v.Causes, want)
		}
	}
	r := example()
	r.took = 3 * time.Second
	for _, millis := range []int{100, 590, 610, 2000} {
		lose(r, millis, fresh)
	}
	v := r.findings()
	if len(v.Causes) != 2 || v.Causes[0].Headline != ownError.headline || v.Causes[0].Lost != 3 {
		t.Errorf("with errors before the reload: causes %+v", v.Causes)
	}
}

func TestHeadlines(t *testing.T) {
	for want, change := range map[string]func(r *proof){
		"nothing was lost and every reload served": func(*proof) {},
		"1 of 1 reloads failed: start: exited with status 1": func(r *proof) {
			r.history.add(
				record(2, program.NotReady, 400, 0))
		},
		"your worker exits on TERM without finishing its requests": func(r *proof) {
			lose(r, 450, closedReused)
			for range 2 {
				lose(r, 450, reset)
			}
		},
		"interrupted after 1 of 3 reloads": func(r *proof) { r.interrupted, r.Reloads = true, 3 },
	} {
		r := example()
		change(r)
		if got := r.findings().Headline; got != want {
			t.Errorf("headline %q, want %q", got, want)
		}
	}
}

// textOf returns what people read, on one line.
func textOf(t *testing.T, v *Findings) string {
	t.Helper()
	var b bytes.Buffer
	must.Do(t, v.Text(&b, terminal.Palette{}))
	return strings.Join(strings.Fields(b.String()), " ")
}

func TestRemedyIsThatOfTheServer(t *testing.T) {
	term, quit := []config.StopStep{{Signal: syscall.SIGTERM}}, []config.StopStep{{Signal: syscall.SIGQUIT}}
	for name, c := range map[string]struct {
		program config.Program
		has     []string
		hasNot  string
	}{
		"nginx with TERM": {config.Program{Command: []string{"nginx"}, Stop: config.StopPolicy{Steps: term}},
			[]string{`write stop.signal = "QUIT" in [program.web]`, "keepalive_timeout 0",
				"(docs/servers.md#nginx)"}, "worker/graceful"},
		"nginx with QUIT": {config.Program{Command: []string{"nginx"}, Stop: config.StopPolicy{Steps: quit}},
			[]string{"keepalive_timeout 0"}, "stop.signal"},
		"nginx with QUIT for a reload": {config.Program{Command: []string{"nginx"},
			Stop: config.StopPolicy{Steps: term,
				ReloadSignal: syscall.SIGQUIT}}, []string{"keepalive_timeout 0"}, "stop.signal"},
		"gunicorn": {config.Program{Command: []string{"gunicorn", "app:app"},
			Ready: config.Ready{Check: ready.Check{Method: ready.Delay}}},
			[]string{`write ready.method = "notify"`, "the sync worker, its default"}, "worker/graceful"},
		"Node with a port of its own": {config.Program{Command: []string{"node", "app.js"}},
			[]string{"write the address that it opens as listen in [program.web]", "on TERM"}, "worker/graceful"},
		"Node with a listener": {config.Program{Command: []string{"node", "app.js"}, Listen: []socket.Spec{{}}},
			[]string{"on TERM"}, "write the address"},
		"an unknown one": {config.Program{Command: []string{"./web"}}, []string{"worker/graceful"}, "docs/servers.md"},
	} {
		r := example()
		c.program.Name = "web"
		r.program = &c.program
		lose(r, 450, closed)
		text := textOf(t, r.findings())
		for _, want := range c.has {
			if !strings.Contains(text, want) {
				t.Errorf("%s: there is no %q in\n%s", name, want, text)
			}
		}
		if strings.Contains(text, c.hasNot) {
			t.Errorf("%s: %q is in\n%s", name, c.hasNot, text)
		}
	}
}

func TestEveryLossIsExplained(t *testing.T) {
	r := example()
	for range mostTexts {
		lose(r, 450, closedReused)
	}
	lose(r, 460, load.Lost{Kind: load.Other, Reused: false, Text: "connect: cannot assign requested address"})
	v := r.findings()
	if len(v.Losses) != mostLosses || len(v.Causes) != 2 || v.Causes[0].Lost != mostTexts || v.Causes[1].Lost != 1 ||
		v.Causes[1].Headline != "this client ran out of ports" {
		t.Errorf("%d losses, causes %+v", len(v.Losses), v.Causes)
	}
}

func TestReloadThatFailedFails(t *testing.T) {
	for o, decided := range map[program.Outcome]int{program.NotReady: 400, program.Pending: 0} {
		r := example()
		r.history.add(record(2, o, decided, 0))
		if v := r.findings(); v.Verdict != "failed" {
			t.Errorf("%s: %s", o, v.Verdict)
		}
	}
}

func TestTargets(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:80": "127.0.0.1:80", ":80": "127.0.0.1:80", "0.0.0.0:80": "127.0.0.1:80", "[::]:80": "[::1]:80",
		"[::1]:80":     "[::1]:80",
		"localhost:80": "127.0.0.1:80", "127.8.8.8:80": "127.8.8.8:80", "unix:/run/x": "/run/x", "unix:@x": "@x",
		"192.0.2.1:80": "", "example.org:80": "", "udp:127.0.0.1:53": "", "127.0.0.1:0": "",
	} {
		all, err := targets(&config.Program{Name: "web", Listen: []socket.Spec{{Name: "a", Address: addr(address)}}},
			"/p?q=1")
		switch {
		case want == "" && err == nil:
			t.Errorf("%s: %v, want an error", address, all[0])
		case want != "" && (err != nil || all[0].address != want || all[0].url.RequestURI() != "/p?q=1"):
			t.Errorf("%s: %v, %v, want %s", address, all, err, want)
		}
	}
}

func TestJSONHasEmptyLists(t *testing.T) {
	text := must.Get(json.Marshal(example().findings()))(t)
	for _, key := range []string{"reasons", "losses", "causes", "died", "old", "left_behind"} {
		if !bytes.Contains(text, []byte(`"`+key+`":[]`)) {
			t.Errorf("%s is not an empty list in %s", key, text)
		}
	}
}

func TestTextNamesLossesAndRemedies(t *testing.T) {
	r := example()
	for range 3 {
		lose(r, 450, closedReused)
	}
	text := textOf(t, r.findings())
	for _, want := range []string{"100 answered, 3 lost", "3 closed while waiting", "151 ms after reload 1",
		"[program.web.stop]", "1 of 1 served",
		"FAILED: your worker closes idle connections on TERM while clients still use them (3 of 103"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
}

func TestQuietIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		unread   int
		text     string
		warnings int
	}{
		"nothing in hand": {0, "new workers served after 100 ms at most, old ones had nothing in hand within another 36 " +
			"ms, old ones were gone after 300 ms", 1},
		"out of time":     {300, "new workers served after 100 ms at most, old ones were gone after 300 ms", 2},
		"prove's clients": {1, "new workers served after 100 ms at most, old ones were gone after 300 ms", 1},
	} {
		r := example()
		u := record(2, program.Serves, 400, 600)
		u.Reload.Quiet = 36 * time.Millisecond
		if c.unread > 0 {
			u.Reload.Left = &program.Look{Unread: c.unread}
		}
		r.history.add(u)
		v := r.findings()
		text := textOf(t, v)
		if !strings.Contains(text, c.text) || *v.Reloads[0].Quiet != 36 ||
			v.Reloads[0].Busy != (c.unread > 0) || len(v.Warnings) != c.warnings || !v.Passed() {
			t.Errorf("%s: %+v, warnings %q\n%s", name, v.Reloads[0], v.Warnings, text)
		}
	}
}

func TestPlotOfNothingIsDrawn(t *testing.T) {
	v := &Findings{Scene: Scene{Program: "<&>"}}
	if svg := v.Plot(); !bytes.Contains(svg, []byte("&lt;&amp;&gt;")) || !bytes.HasSuffix(svg, []byte("</svg>\n")) {
		t.Errorf("%s", svg)
	}
}

// addr parses an address that must be valid.
func addr(s string) socket.Address {
	a, err := socket.ParseAddress(s)
	if err != nil {
		panic(err)
	}
	return a
}

func TestLoadThatTheMachineCannotBearIsGivenUp(t *testing.T) {
	r := &proof{Plan: Plan{Rate: 500, Timeout: 10 * time.Second}}
	for _, c := range []struct {
		took    time.Duration
		ended   int
		givesUp bool
	}{
		{19 * time.Second, 0, false}, // every request may still be answered in time
		{30 * time.Second, 5000, false},
		{30 * time.Second, 4900, true},
	} {
		r.tally.all = make(load.Attempts, c.ended)
		if why := r.overload(c.took); (why != "") != c.givesUp {
			t.Errorf("%d requests have ended after %s, at 500 a second: %q", c.ended, c.took, why)
		}
	}
}
