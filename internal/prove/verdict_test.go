package prove

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/socket"
)

func TestKindOfError(t *testing.T) {
	for want, errs := range map[Kind][]error{
		Refused:  {syscall.ECONNREFUSED, syscall.ENOENT, syscall.EAGAIN},
		Reset:    {syscall.ECONNRESET, syscall.EPIPE},
		Closed:   {io.EOF, io.ErrUnexpectedEOF},
		TimedOut: {os.ErrDeadlineExceeded, context.DeadlineExceeded, syscall.ETIMEDOUT},
		Other:    {syscall.EADDRNOTAVAIL, syscall.EMFILE, errors.New("malformed HTTP response")},
	} {
		for _, err := range errs {
			wrapped := &net.OpError{Op: "read", Err: os.NewSyscallError("read", err)}
			if got := kindOf(wrapped); got != want {
				t.Errorf("%v is %q, want %q", wrapped, got, want)
			}
		}
	}
}

func TestKindOfStatus(t *testing.T) {
	for code, want := range map[int]Kind{200: Answered, 204: Answered, 302: Answered, 404: Other, 429: Other, 500: Status5, 503: Status5} {
		got := Answered
		if l := lostStatus(code, false); l != nil {
			got = l.kind
		}
		if got != want {
			t.Errorf("status %d is %q, want %q", code, got, want)
		}
	}
}

// at is a moment of the proofs below, which begin at 0.
func at(millis int) time.Time { return time.UnixMilli(int64(millis)) }

// tell makes a history of events: "hup", or a kind with its generation.
func tell(steps ...any) *history {
	h := newHistory()
	for i, s := range steps {
		if e, ok := s.(event); ok {
			e.at = at(100 * i)
			h.add(e)
			continue
		}
		h.hup(at(100 * i))
	}
	return h
}

func outcomes(h *history) []Outcome {
	var list []Outcome
	for _, r := range h.reloads {
		list = append(list, r.outcome)
	}
	return list
}

func TestOutcomesOfReloads(t *testing.T) {
	begin := func(g int) event { return event{kind: began, generation: g} }
	serve := func(g int) event { return event{kind: served, generation: g} }
	fail := func(g int) event { return event{kind: failed, generation: g, reason: "start: exit 1"} }
	end := func(g int) event { return event{kind: gone, generation: g} }
	for name, c := range map[string]struct {
		history *history
		want    []Outcome
		settled bool
	}{
		"served and settled":     {tell(begin(1), serve(1), "hup", begin(2), serve(2), end(1)), []Outcome{Served}, true},
		"old ones still drain":   {tell(begin(1), serve(1), "hup", begin(2), serve(2)), []Outcome{Served}, false},
		"failed":                 {tell(begin(1), serve(1), "hup", begin(2), fail(2), end(2)), []Outcome{Failed}, true},
		"failed, not yet gone":   {tell(begin(1), serve(1), "hup", begin(2), fail(2)), []Outcome{Failed}, false},
		"configuration refused":  {tell(begin(1), serve(1), "hup", event{kind: refused}), []Outcome{Failed}, true},
		"nothing came of it":     {tell(begin(1), serve(1), "hup"), []Outcome{Undecided}, false},
		"two during a trial":     {tell(begin(1), serve(1), "hup", begin(2), "hup", "hup", serve(2), begin(3), end(1), serve(3), end(2)), []Outcome{Served, Superseded, Served}, true},
		"settled only by order":  {tell(begin(1), serve(1), "hup", begin(2), serve(2), "hup", begin(3), serve(3), end(2)), []Outcome{Served, Served}, false},
		"one after a failed one": {tell(begin(1), serve(1), "hup", begin(2), fail(2), end(2), "hup", begin(3), serve(3), end(1)), []Outcome{Failed, Served}, true},
	} {
		if got := outcomes(c.history); !slices.Equal(got, c.want) || c.history.settled() != c.settled {
			t.Errorf("%s: %v, settled %v; want %v, %v", name, got, c.history.settled(), c.want, c.settled)
		}
	}
}

func TestOldWorkersThatLive(t *testing.T) {
	h := tell(event{kind: began, generation: 1}, event{kind: ready, generation: 1, pid: 10}, event{kind: ready, generation: 1, pid: 11}, event{kind: served, generation: 1},
		"hup", event{kind: began, generation: 2}, event{kind: ready, generation: 2, pid: 12}, event{kind: served, generation: 2}, event{kind: ended, generation: 1, pid: 10})
	if got := h.left(); !slices.Equal(got, []int{11}) {
		t.Errorf("left %v, want 11", got)
	}
}

// example is a proof of 1 s, with a reload at 300 ms that served at 400 and settled at 600.
func example() *proof {
	decided, settled := at(400), at(600)
	u, _ := url.Parse("http://127.0.0.1:8080/")
	r := &proof{
		Options: Options{Rate: 100, Reloads: 1}, program: &config.Program{Name: "web"}, target: &target{url: u, network: "tcp"},
		master: &master{pid: 1 << 30}, history: newHistory(), began: at(0), took: time.Second,
		before: map[string]int{"socket": 3, "pipe": 1}, after: map[string]int{"socket": 3, "pipe": 3},
	}
	r.history.reloads = []*reload{{at: at(300), generation: 2, decided: decided, settled: settled, outcome: Served}}
	for i := range 100 {
		r.tally.add(sample{at: time.Duration(i) * 10 * time.Millisecond, latency: time.Duration(i+1) * 100 * time.Microsecond})
	}
	return r
}

func lose(r *proof, millis int, l loss) {
	r.tally.add(sample{time.Duration(millis) * time.Millisecond, time.Millisecond, &l})
}

func TestNothingLostPasses(t *testing.T) {
	v := example().verdict()
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

func TestLossIsPlacedAndExplained(t *testing.T) {
	for _, c := range []struct {
		millis int
		loss   loss
		stage  Stage
		reload int
		cause  string
	}{
		{100, loss{Closed, true, "EOF"}, Before, 0, "before anything was reloaded"},
		{350, loss{Refused, false, "refused"}, Starting, 1, "nobody held the listening socket"},
		{450, loss{Closed, true, "EOF"}, Draining, 1, "closed idle keep-alive connections"},
		{450, loss{Closed, false, "EOF"}, Draining, 1, "accepted the connection and then ended"},
		{450, loss{Reset, true, "reset"}, Draining, 1, "with a request in it"},
		{450, loss{Reset, false, "reset"}, Draining, 1, "connections in hand"},
		{350, loss{TimedOut, false, "timeout"}, Starting, 1, "waited for a worker"},
		{450, loss{TimedOut, false, "timeout"}, Draining, 1, "did not answer"},
		{350, loss{Status5, false, "status 500"}, Starting, 1, "not enough for both"},
		{450, loss{Status5, false, "status 503"}, Draining, 1, "closed what it needs"},
		{1200, loss{Status5, false, "status 503"}, Idle, 1, "no reload was under way"},
		{450, loss{Other, false, "connect: cannot assign requested address"}, Draining, 1, "no port left"},
		{450, loss{Other, false, "status 404"}, Draining, 1, "not one that the target gives"},
	} {
		r := example()
		lose(r, c.millis, c.loss)
		v := r.verdict()
		l := v.Losses[0]
		if v.Passed() || l.Stage != c.stage || l.Reload != c.reload || len(v.Causes) != 1 || !strings.Contains(v.Causes[0].Cause, c.cause) {
			t.Errorf("%d ms, %+v: %+v with causes %+v; want %s of reload %d and %q", c.millis, c.loss, l, v.Causes, c.stage, c.reload, c.cause)
		}
	}
}

func TestLossAtTheMomentOfAKillIsThatOfTheKill(t *testing.T) {
	for _, c := range []struct {
		millis int
		loss   loss
		cause  string
	}{
		{500, loss{Reset, false, "reset"}, killedCause},
		{520, loss{Closed, true, "EOF"}, killedCause},
		{500, loss{Status5, false, "status 503"}, "closed what it needs"},
		{900, loss{Reset, false, "reset"}, "connections in hand"},
	} {
		r := example()
		r.history.add(event{at: at(505), kind: killed, generation: 1, pid: 7})
		lose(r, c.millis, c.loss)
		if v := r.verdict(); len(v.Causes) != 1 || !strings.Contains(v.Causes[0].Cause, c.cause) || v.Workers.Killed != 1 {
			t.Errorf("%d ms, %+v: causes %+v, want %q", c.millis, c.loss, v.Causes, c.cause)
		}
	}
}

func TestKillIsTheFirstCause(t *testing.T) {
	r := example()
	r.history.add(event{at: at(900), kind: killed})
	lose(r, 901, loss{Reset, true, "reset"})
	for range 10 {
		lose(r, 450, loss{Closed, false, "EOF"})
	}
	if v := r.verdict(); len(v.Causes) != 2 || v.Causes[0].Cause != killedCause || v.Causes[0].Lost != 1 || v.Causes[1].Lost != 10 {
		t.Errorf("causes %+v", v.Causes)
	}
}

func TestErrorsThatGoOnWhenTheOldWorkersHaveGoneAreThoseOfTheReload(t *testing.T) {
	failing := loss{Status5, false, "status 503"}
	r := example() // settled at 600
	for millis := 420; millis < 950; millis += 50 {
		lose(r, millis, failing)
	}
	if v := r.verdict(); len(v.Causes) != 1 || !strings.Contains(v.Causes[0].Cause, "served before it was able to") || v.Causes[0].Lost != 11 {
		t.Errorf("causes %+v", v.Causes)
	}
	r = example()
	r.took = 3 * time.Second
	lose(r, 450, failing)
	lose(r, 2000, failing) // after a pause
	if v := r.verdict(); len(v.Causes) != 2 {
		t.Errorf("with a pause: causes %+v", v.Causes)
	}
	r = example()
	lose(r, 100, failing) // before the reload
	lose(r, 590, failing)
	lose(r, 610, failing)
	if v := r.verdict(); len(v.Causes) != 3 || !strings.Contains(fmt.Sprint(v.Causes), "no reload was under way") {
		t.Errorf("with errors before the reload: causes %+v", v.Causes)
	}
}

func TestErrorsThatBeginRightAfterAReloadAreThoseOfTheReload(t *testing.T) {
	failing := loss{Status5, false, "status 503"}
	r := example() // settled at 600
	for millis := 602; millis < 950; millis += 50 {
		lose(r, millis, failing)
	}
	if v := r.verdict(); len(v.Causes) != 1 || !strings.Contains(v.Causes[0].Cause, "served before it was able to") || v.Causes[0].Lost != 7 {
		t.Errorf("causes %+v", v.Causes)
	}
	r = example()
	r.took = 3 * time.Second
	lose(r, 2000, failing)
	if v := r.verdict(); len(v.Causes) != 1 || !strings.Contains(v.Causes[0].Cause, "no reload was under way") {
		t.Errorf("long after the reload: causes %+v", v.Causes)
	}
}

func TestEveryLossIsExplained(t *testing.T) {
	r := example()
	for range mostTexts {
		lose(r, 450, loss{Closed, true, "EOF"})
	}
	lose(r, 460, loss{Other, false, "connect: cannot assign requested address"})
	v := r.verdict()
	if len(v.Losses) != mostLosses || len(v.Causes) != 2 || v.Causes[0].Lost != mostTexts || v.Causes[1].Lost != 1 || !strings.Contains(v.Causes[1].Cause, "no port left") {
		t.Errorf("%d losses, causes %+v", len(v.Losses), v.Causes)
	}
}

func TestReloadThatFailedFails(t *testing.T) {
	for _, o := range []Outcome{Failed, Undecided} {
		r := example()
		r.history.reloads[0].outcome = o
		if v := r.verdict(); v.Verdict != "failed" {
			t.Errorf("%s: %s", o, v.Verdict)
		}
	}
}

func TestLongestGap(t *testing.T) {
	var ta tally
	for _, millis := range []int{10, 20, 30, 200, 210, 290} {
		ta.add(sample{at: time.Duration(millis) * time.Millisecond, latency: time.Millisecond})
	}
	ta.add(sample{at: 100 * time.Millisecond, latency: time.Millisecond, loss: &loss{kind: Reset}}) // no answer
	if g := ta.longestGap(300 * time.Millisecond); g.from != 31*time.Millisecond || g.length != 170*time.Millisecond {
		t.Errorf("%+v", g)
	}
	if g := ta.longestGap(time.Second); g.length != 709*time.Millisecond {
		t.Errorf("%+v, want the silence at the end", g)
	}
}

func TestPercentileIsTheNearestRank(t *testing.T) {
	var list []time.Duration
	for i := range 10 {
		list = append(list, time.Duration(i+1))
	}
	for percent, want := range map[int]time.Duration{50: 5, 95: 10, 99: 10, 100: 10, 10: 1, 1: 1} {
		if got := percentile(list, percent); got != want {
			t.Errorf("p%d is %d, want %d", percent, got, want)
		}
	}
}

func TestLogLines(t *testing.T) {
	for text, want := range map[string]event{
		`{"level":"info","time":"x","msg":"new generation serves","program":"web","generation":3}`:                             {kind: served, generation: 3},
		`12:00:00.000  INFO  new generation serves  {"program": "web", "generation": 3}`:                                       {kind: served, generation: 3},
		`{"level":"error","msg":"new generation failed","program":"web","generation":4,"pid":9,"step":"exec","reason":"gone"}`: {kind: failed, generation: 4, pid: 9, reason: "exec: gone"},
		`{"level":"error","msg":"configuration refused; nothing has changed","reason":"HUP","error":"bad"}`:                    {kind: refused, reason: "bad"},
		`{"level":"warn","msg":"worker is killed","program":"web","generation":1,"worker":1,"pid":7,"reason":"late"}`:          {kind: killed, generation: 1, pid: 7, reason: "late"},
	} {
		l, ok := parseLine(text)
		got, tells := l.event("web", time.Time{})
		if !ok || !tells || got != want {
			t.Errorf("%s\n%+v %v %v, want %+v", text, got, ok, tells, want)
		}
	}
}

func TestOtherLinesTellNothing(t *testing.T) {
	for _, text := range []string{
		"", "{", "hello", `{"msg":"worker is ready"}`, `{"level":"info","msg":"worker is ready","program":"other"}`,
		`{"level":"info","msg":"supervisord starts"}`, "a  b  c  d", `"x"`, "[]", "null",
	} {
		if l, ok := parseLine(text); ok {
			if e, tells := l.event("web", time.Time{}); tells {
				t.Errorf("%s tells %+v", text, e)
			}
		}
	}
}

func TestLongLinesAreCut(t *testing.T) {
	var got []int
	readLines(strings.NewReader(strings.Repeat("x", 3*longestLine)+"\nshort\nno end"), func(s string) { got = append(got, len(s)) })
	if !slices.Equal(got, []int{longestLine, 5, 6}) {
		t.Errorf("lines of %v bytes", got)
	}
}

func TestTargets(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:80": "127.0.0.1:80", ":80": "127.0.0.1:80", "0.0.0.0:80": "127.0.0.1:80", "[::]:80": "[::1]:80", "[::1]:80": "[::1]:80",
		"localhost:80": "127.0.0.1:80", "127.8.8.8:80": "127.8.8.8:80", "unix:/run/x": "/run/x", "unix:@x": "@x",
		"192.0.2.1:80": "", "example.org:80": "", "udp:127.0.0.1:53": "", "127.0.0.1:0": "",
	} {
		all, err := targets(&config.Program{Name: "web", Listen: []socket.Spec{{Name: "a", Address: addr(address)}}}, "/p?q=1")
		switch {
		case want == "" && err == nil:
			t.Errorf("%s: %v, want an error", address, all[0])
		case want != "" && (err != nil || all[0].address != want || all[0].url.RequestURI() != "/p?q=1"):
			t.Errorf("%s: %v, %v, want %s", address, all, err, want)
		}
	}
}

func TestVerdictAsJSONHasEmptyLists(t *testing.T) {
	text, err := json.Marshal(example().verdict())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"reasons", "losses", "causes", "died", "old", "left_behind"} {
		if !bytes.Contains(text, []byte(`"`+key+`":[]`)) {
			t.Errorf("%s is no empty list in %s", key, text)
		}
	}
}

func TestTextNamesLossesAndRemedies(t *testing.T) {
	r := example()
	for range 3 {
		lose(r, 450, loss{Closed, true, "EOF"})
	}
	var b bytes.Buffer
	if err := r.verdict().Text(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"100 answered, 3 lost", "3 closed while waiting", "151 ms after reload 1", "[program.web.stop]", "1 of 1 served", "FAILED: 3 of 103 requests were lost"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("there is no %q in\n%s", want, &b)
		}
	}
}

// server answers HTTP on loopback until the test ends; on each connection it closes after some answers.
func server(t *testing.T, answers int) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, 4096)
			for range answers {
				if _, err := c.Read(buf); err != nil {
					break
				}
				fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
			}
			c.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-served })
	return ln.Addr().String()
}

func testClient(address string, keep int, roundTrip time.Duration) *client {
	t := &target{network: "tcp", address: address}
	return &client{wire: newWire(t, Options{Timeout: 5 * time.Second, RoundTrip: roundTrip}), keep: keep}
}

// get sends request number seq and returns its loss.
func get(t *testing.T, c *client, seq int) *loss {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://x/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Vegeta-Seq", fmt.Sprint(seq))
	if answer, err := c.RoundTrip(r); err == nil {
		answer.Body.Close()
	}
	n, known := c.note(uint64(seq))
	if !known {
		t.Fatal("nothing is known of the request")
	}
	return n.loss
}

func TestClosedIdleConnectionIsLostWithinARoundTrip(t *testing.T) {
	c := testClient(server(t, 1), 1, time.Minute)
	defer c.close()
	if l := get(t, c, 1); l != nil {
		t.Fatalf("the first request was lost: %v", l)
	}
	if l := get(t, c, 2); l == nil || l.kind != Closed && l.kind != Reset || !l.reused {
		t.Errorf("loss %+v, want that of a closed connection", l)
	}
	if l := get(t, c, 3); l != nil {
		t.Errorf("a request on a new connection was lost: %v", l)
	}
}

func TestConnectionClosedLongAgoIsReplaced(t *testing.T) {
	c := testClient(server(t, 1), 1, 0)
	defer c.close()
	for seq := range 3 {
		if l := get(t, c, seq); l != nil {
			t.Fatalf("request %d was lost: %v", seq, l)
		}
		if len(c.idle) > 0 {
			told := make(chan time.Time, 1)
			told <- <-c.idle[0].ended // the kernel has told us
			close(told)
			c.idle[0].ended = told
		}
	}
}

func TestConnectionsAreKept(t *testing.T) {
	address := server(t, 100)
	c := testClient(address, 1, time.Minute)
	defer c.close()
	for seq := range 20 {
		if l := get(t, c, seq); l != nil {
			t.Fatalf("request %d was lost: %v", seq, l)
		}
	}
	if c.open != 1 || len(c.conns) != 1 {
		t.Errorf("%d connections are open, want 1", c.open)
	}
}

func TestNoConnectionIsKeptWithoutKeep(t *testing.T) {
	c := testClient(server(t, 1), 0, time.Millisecond)
	defer c.close()
	for seq := range 5 {
		if l := get(t, c, seq); l != nil {
			t.Fatalf("request %d was lost: %v", seq, l)
		}
	}
	if c.open != 0 || len(c.conns) != 0 {
		t.Errorf("%d connections are open, want none", c.open)
	}
}

func TestNothingListensIsRefused(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	c := testClient(ln.Addr().String(), 0, 0)
	defer c.close()
	if l := get(t, c, 1); l == nil || l.kind != Refused {
		t.Errorf("loss %+v, want refused", l)
	}
}

func TestPlotOfNothingIsDrawn(t *testing.T) {
	v := &Verdict{Program: "<&>", Reloads: []Reload{}, Requests: Requests{Kinds: map[Kind]int{}}}
	if svg := v.Plot(); !bytes.Contains(svg, []byte("&lt;&amp;&gt;")) || !bytes.HasSuffix(svg, []byte("</svg>\n")) {
		t.Errorf("%s", svg)
	}
}

// addr is an address that is right.
func addr(s string) socket.Address {
	a, err := socket.ParseAddress(s)
	if err != nil {
		panic(err)
	}
	return a
}
