package program

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/socket"
	"example.org/supervisord/worker/life"
)

var update = flag.Bool("update", false, "write the table in doc.go anew")

// states lists the states of a program in the order of the table.
var states = []State{Down, StartingUp, Up, Reloading, Waiting, ShuttingOff}

// inState returns a program of two workers with this strategy in this state.
func inState(t *testing.T, strategy config.Strategy, state State) *script {
	s := &script{t: t, p: New(testConfig(2, strategy)), now: time.Unix(1_000_000, 0)}
	if state != Down {
		s.send(Start{Config: s.p.Config})
		s.prepared()
	}
	switch state {
	case Up:
		s.allReady()
	case Reloading:
		s.allReady()
		s.send(Reload{Reason: "HUP"})
		s.prepared()
	case ShuttingOff:
		s.allReady()
		s.send(Stop{})
	case Waiting:
		s.exit(1)
		s.exit(2)
	case Down, StartingUp:
	}
	s.state(state)
	s.reset()
	return s
}

// A row is an event of the table. If the event cannot occur in a state, do reports false.
type row struct {
	event string
	do    func(*script) bool
}

// pauses gives the program a listener, without which there is nothing to pause, and pauses it.
func (s *script) pauses(d time.Duration) {
	c := *s.p.Config
	c.Listen = make([]socket.Spec, 1)
	s.p.Config = &c
	s.send(Pause{For: d, AskedBy: "alice"})
}

// A step of a row is what happens after the row has led to its situation: the table shows only this.
type step func(*script)

// then is the step in which an event comes.
func then(e Event) step { return func(s *script) { s.send(e) } }

// tick advances the clock to the next deadline.
func tick(s *script) { s.now = s.p.Next(s.now); s.send(Tick{}) }

func send(e Event) func(*script) bool { return during(states, then(e)) }

// during is the do of a row that is only for some states.
func during(some []State, next step) func(*script) bool {
	return func(s *script) bool {
		if !slices.Contains(some, s.p.State()) {
			return false
		}
		next(s)
		return true
	}
}

// stopping is the do of a row about a program that stops.
func stopping(next step) func(*script) bool { return during([]State{ShuttingOff}, next) }

// trial returns a row's do for an event that needs a worker on trial; w is the first one.
func trial(f func(s *script, w *Worker)) func(*script) bool {
	return ofFirst(func(s *script) *Generation { return s.p.Trial }, f)
}

// serving is trial for a serving worker.
func serving(f func(s *script, w *Worker)) func(*script) bool {
	return ofFirst(func(s *script) *Generation { return s.p.Serving }, f)
}

func ofFirst(of func(*script) *Generation, f func(s *script, w *Worker)) func(*script) bool {
	return func(s *script) bool {
		g := of(s)
		if g == nil || len(g.Workers) == 0 || !g.Workers[0].stays() {
			return false
		}
		f(s, g.Workers[0])
		return true
	}
}

// says is trial for what is said of the worker.
func says(e life.Event) func(*script) bool {
	return trial(func(s *script, w *Worker) { s.send(Did{w.Number, e}) })
}

// behind does next in the state in which a program is started that comes after another one, which does not serve.
func behind(next step) func(*script) bool {
	return during([]State{Down}, func(s *script) {
		s.p.Awaits = []string{"db"}
		next(s)
	})
}

// awaiting is behind after the start.
func awaiting(next step) func(*script) bool {
	return behind(func(s *script) {
		s.send(Start{Config: s.p.Config})
		s.reset()
		next(s)
	})
}

// reloading reloads in states where a reload begins at once.
func reloading(r Reload, next step) func(*script) bool {
	return func(s *script) bool {
		before := s.p.LastGeneration
		s.send(r)
		if s.p.Trial == nil || s.p.LastGeneration == before {
			return false
		}
		s.reset()
		next(s)
		return true
	}
}

// canary is reloading with a canary of 1 that is ready.
func canary(r Reload, next step) func(*script) bool {
	r.Canary = 1
	return reloading(r, func(s *script) {
		s.prepared()
		s.allReady()
		s.reset()
		next(s)
	})
}

// switched replaces the generation that serves by one that has sockets of its own, as it has. Without next it is this
// that the table shows.
func switched(keep time.Duration, next step) func(*script) bool {
	return beside(Reload{Reason: "HUP"}, keep, next)
}

// shared holds a canary of a share beside the generation that serves.
func shared(next step) func(*script) bool { return beside(Reload{Share: 500}, 0, next) }

func beside(r Reload, keep time.Duration, next step) func(*script) bool {
	return func(s *script) bool {
		if s.p.State() != Up || s.p.Config.Reload.Strategy != config.All {
			return false
		}
		s.p.Config.Drain.Timeout, s.p.Config.Reload.Keep, s.p.Serving.Steered = 10*time.Second, keep, true
		s.send(r)
		s.send(Prepared{Generation: 2, Steered: true})
		s.reset()
		s.allReady()
		if next != nil {
			s.reset()
			next(s)
		}
		return true
	}
}

// rows are the events of the table.
var rows = []row{
	{"Start", during(states, func(s *script) { s.send(Start{Config: s.p.Config}) })},
	{"Start while others are awaited", behind(func(s *script) { s.send(Start{Config: s.p.Config}) })},
	{"Reload while others are awaited", awaiting(then(Reload{Reason: "HUP"}))},
	{"Tick when those serve that were awaited", awaiting(func(s *script) { s.p.Awaits = nil; s.send(Tick{}) })},
	{"Reload", send(Reload{Reason: "HUP"})},
	{"Reload for a changed file, the fourth in a row", during(states, func(s *script) {
		s.p.Changes, s.p.ChangedAt = 3, s.now
		s.send(Reload{By: Changed})
	})},
	{"Reload of a canary of 1", send(Reload{Reason: "requested", Canary: 1})},
	{"ReadySaid by the canary", reloading(Reload{Reason: "requested", Canary: 1},
		func(s *script) { s.prepared(); s.reset(); s.allReady() })},
	{"Reload beside a held canary", canary(Reload{Reason: "requested"}, then(Reload{Reason: "HUP"}))},
	{"Promote of a held canary", canary(Reload{Reason: "requested"}, then(Promote{}))},
	{"Promote of another trial", trial(func(s *script, _ *Worker) { s.send(Promote{}) })},
	{"Abort of a held canary", canary(Reload{Reason: "requested"}, then(Abort{}))},
	{"Abort of another trial", trial(func(s *script, _ *Worker) { s.send(Abort{}) })},
	{"Exited of a held canary", canary(Reload{Reason: "requested"},
		func(s *script) { s.exit(s.p.Trial.Workers[0].Number) })},
	{"Tick after a canary was held for its time", canary(Reload{For: time.Hour}, tick)},
	{"Reload of a canary of 5%, then ReadySaid", shared(nil)},
	{"Promote of a canary to 25%", shared(then(Promote{Share: 2500}))},
	{"Promote of a canary of 5%", shared(then(Promote{}))},
	{"Abort of a canary of 5%", shared(then(Abort{}))},
	{"ReadySaid by every worker on trial, steered", switched(0, nil)},
	{"ReadySaid by every worker on trial, steered, with keep", switched(time.Hour, nil)},
	{"Looked, and quiet, of a finishing generation", switched(0, then(Looked{Generation: 1, Slot: -1, Quiet: true}))},
	{"Tick at the deadline of finishing workers", switched(0, tick)},
	{"Looked", switched(0, then(Looked{Generation: 1, Slot: -1}))},
	{"Refused", switched(0, then(Refused{1, 2}))},
	{"DrainsItself of a finishing worker", switched(0, then(Did{1, life.DrainsItself{}}))},
	{"Exited of a finishing worker", switched(0, func(s *script) { s.exit(1) })},
	{"Exited of a kept worker", switched(time.Hour, func(s *script) { s.exit(1) })},
	{"Tick when kept workers have been kept for their time", switched(time.Hour, tick)},
	{"Rollback to a kept generation", switched(time.Hour, then(Rollback{}))},
	{"Rollback without one", send(Rollback{})},
	{"Pause", during(states, func(s *script) { s.pauses(time.Second) })},
	{"Tick at the end of a pause", during(states, func(s *script) { s.pauses(time.Millisecond); s.reset(); tick(s) })},
	{"Unpause of a paused program",
		during(states, func(s *script) { s.pauses(time.Second); s.reset(); s.send(Unpause{}) })},
	{"Scale to 3 workers", send(Scale{Workers: 3})},
	{"Scale to 1 worker", send(Scale{Workers: 1})},
	{"Stop", send(Stop{})},
	{"Kill", send(Kill{})},
	{"Prepared", reloading(Reload{Reason: "HUP"}, (*script).prepared)},
	{"Prepared with a failure", reloading(Reload{Reason: "HUP"}, func(s *script) {
		s.send(Prepared{Generation: s.p.Trial.Number, Failure: &Failure{Step: "preflight"}})
	})},
	{"Spawned", says(life.Spawned{PID: 1000})},
	{"ReadySaid by the first worker on trial", says(life.ReadySaid{})},
	{"ReadySaid by every worker on trial", trial(func(s *script, _ *Worker) { s.allReady() })},
	{"ReadySaid by every worker on trial, with soak", trial(func(s *script, _ *Worker) { soak(s) })},
	{"Tick at the end of the soak", trial(func(s *script, _ *Worker) { soak(s); s.reset(); tick(s) })},
	{"Extend", says(life.Extend{Duration: time.Hour})},
	{"Leaving of a serving worker", serving(func(s *script, w *Worker) { s.send(Did{w.Number, life.Leaving{}}) })},
	{"NeverReady", says(life.NeverReady{Err: errors.New("cannot know")})},
	{"Exited of a worker on trial", trial(func(s *script, w *Worker) { s.exit(w.Number) })},
	{"Tick at the deadline of a worker on trial",
		trial(func(s *script, w *Worker) { s.now = w.Deadline; s.send(Tick{}) })},
	{"Exited of a serving worker", serving(func(s *script, w *Worker) { s.exit(w.Number) })},
	{"Exited of a serving worker that was stable",
		serving(func(s *script, w *Worker) { s.now = s.now.Add(30 * time.Second); s.exit(w.Number) })},
	{"Replace of a serving worker", serving(func(s *script, w *Worker) { s.send(Replace{Worker: w.Number}) })},
	{"Replace of a serving worker over a limit",
		serving(func(s *script, w *Worker) { s.send(Replace{Worker: w.Number, OverLimit: true}) })},
	{"Signalled of a stopping worker", stopping(then(Signalled{SendSignal{Worker: 1, Signal: syscall.SIGTERM}}))},
	{"Tick, when the signal to a stopping worker could not be sent", during([]State{Up}, func(s *script) {
		s.unsendable = true
		s.send(Stop{})
		s.reset()
		tick(s)
	})},
	{"Exited of a stopping worker", stopping(func(s *script) { s.exit(1) })},
	{"Exited of every stopping worker", stopping(func(s *script) { s.exit(1); s.exit(2) })},
	{"Tick at the next retry, or step of a stop plan", func(s *script) bool {
		if s.p.Trial != nil || s.p.Next(s.now).IsZero() {
			return false
		}
		tick(s)
		return true
	}},
}

// soak makes every worker on trial ready in states where that begins a soak.
func soak(s *script) {
	s.p.Trial.Config.Reload.Soak = 10 * time.Second
	s.allReady()
}

// reset forgets the actions so far, so that the table shows only what follows.
func (s *script) reset() { s.did, s.was = nil, s.p.State() }

// answers returns what a program does at an event: the answers with their strategies, and the state before the event,
// which differs from the given one if the row first leads elsewhere.
func answers(t *testing.T, r row, state State) (answers []string, of map[string][]string, was State) {
	of = map[string][]string{}
	for _, strategy := range []config.Strategy{config.All, config.Rolling, config.StopFirst} {
		s := inState(t, strategy, state)
		if !r.do(s) {
			continue
		}
		was = s.was
		answer := cmp.Or(shorten(s.did), "-")
		answer += unhurried(s.p)
		if after := s.p.State(); after != s.was {
			answer += " → " + string(after)
		}
		if of[answer] == nil {
			answers = append(answers, answer)
		}
		of[answer] = append(of[answer], string(strategy))
	}
	return answers, of, was
}

// unhurried names the workers that finish or are kept.
func unhurried(p *Program) (words string) {
	for w := range p.Workers() {
		if w.State == Finishing || w.State == Kept {
			words += fmt.Sprintf("; %d is %s", w.Number, w.State)
		}
	}
	return words
}

// table returns a line for each answer, with its states; a state names the strategies if only some give the answer.
func table(t *testing.T) string {
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "//\t%s\n", r.event)
		var order []string
		in := map[string][]string{}
		for _, state := range states {
			found, of, was := answers(t, r, state)
			for _, answer := range found {
				label := string(was)
				if len(found) > 1 {
					label += " (" + strings.Join(of[answer], ", ") + ")"
				}
				if in[answer] == nil {
					order = append(order, answer)
				}
				in[answer] = append(in[answer], label)
			}
		}
		for _, answer := range order {
			fmt.Fprintf(&b, "//\t    %s: %s\n", strings.Join(in[answer], ", "), answer)
		}
	}
	return b.String()
}

// The marks around the table in doc.go.
const (
	tableBegins = "// A test regenerates the table from the code.\n//\n"
	tableEnds   = "//\n// # What never happens"
)

func TestTableInDocMatchesCode(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	head, rest, begins := strings.Cut(string(text), tableBegins)
	old, tail, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		t.Fatal("doc.go has no table between its marks")
	}
	now := table(t)
	if *update {
		if err := os.WriteFile("doc.go", []byte(head+tableBegins+now+tableEnds+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old != now {
		t.Errorf("the table in doc.go is not what the code does; regenerate it with: go test ./supervisor/program -run "+
			"Table -update\n%s", now)
	}
}

func TestTableHasEveryEvent(t *testing.T) {
	var text []byte
	for _, file := range []string{"event.go", "step.go"} {
		part, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, part...)
	}
	// Of what happened to a worker the core answers only this.
	events := regexp.MustCompile(`(?m)^func \((\w+)\) event\(\)|^\tcase life\.(\w+):`).FindAllStringSubmatch(string(text),
		-1)
	if len(events) < 20 {
		t.Fatalf("event.go and step.go have %d events", len(events))
	}
	for _, e := range events {
		if e[1] == "Did" {
			continue
		}
		if e[1] += e[2]; !slices.ContainsFunc(rows, func(r row) bool { return strings.Fields(r.event)[0] == e[1] }) {
			t.Errorf("the table has no row for %s", e[1])
		}
	}
}
