package program

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/config"
)

var update = flag.Bool("update", false, "write the table in doc.go anew")

// states lists the states of a program in the order of the table.
var states = []State{Down, StartingUp, Up, Reloading, Waiting, ShuttingOff}

// inState returns a program of two workers in each state.
func inState(t *testing.T, state State) *script {
	s := &script{t: t, p: New(testConfig(2, config.All)), now: time.Unix(1_000_000, 0)}
	if state != Down {
		s.send(Start{Config: s.p.Config})
		s.prepared()
	}
	switch state {
	case Up, Reloading, ShuttingOff:
		s.allReady()
	case Waiting:
		s.exit(1)
		s.exit(2)
	case Down, StartingUp:
	}
	switch state {
	case Reloading:
		s.send(Reload{Reason: "HUP"})
		s.prepared()
	case ShuttingOff:
		s.send(Stop{})
	case Down, StartingUp, Up, Waiting:
	}
	s.state(state)
	s.did = nil
	return s
}

// cases are the events of the table. Where one can not come in a state, do reports false.
var cases = []struct {
	event string
	do    func(*script) bool
}{
	{"Start", func(s *script) bool { s.send(Start{Config: s.p.Config}); return true }},
	{"Reload", func(s *script) bool { s.send(Reload{Reason: "HUP"}); return true }},
	{"Reload of a canary of 1", func(s *script) bool { s.send(Reload{Reason: "asked to", Canary: 1}); return true }},
	{"Reload of a canary of 1 that gets ready", canaryHeld},
	{"Reload of a canary of 1 that gets ready, then Reload", func(s *script) bool {
		return canaryHeld(s) && then(s, Reload{Reason: "HUP"})
	}},
	{"Reload of a canary of 1 that gets ready, then Promote", func(s *script) bool { return canaryHeld(s) && then(s, Promote{}) }},
	{"Reload of a canary of 1 that gets ready, then Abort", func(s *script) bool { return canaryHeld(s) && then(s, Abort{}) }},
	{"Stop", func(s *script) bool { s.send(Stop{}); return true }},
	{"Kill", func(s *script) bool { s.send(Kill{}); return true }},
	{"Reload, then Prepared", func(s *script) bool {
		s.send(Reload{Reason: "HUP"})
		if s.p.Trial == nil || s.p.Trial.Prepared {
			return false
		}
		s.prepared()
		return true
	}},
	{"Reload, then Prepared with a failure", func(s *script) bool {
		s.send(Reload{Reason: "HUP"})
		if s.p.Trial == nil || s.p.Trial.Prepared {
			return false
		}
		s.send(Prepared{Generation: s.p.Trial.Number, Failure: &Failure{Step: "preflight"}})
		return true
	}},
	{"ReadySaid by the first worker on trial", func(s *script) bool {
		return onTrial(s, func() { s.send(ReadySaid{Worker: s.p.Trial.Workers[0].Number}) })
	}},
	{"ReadySaid by every worker on trial", func(s *script) bool { return onTrial(s, s.allReady) }},
	{"NeverReady of a worker on trial", func(s *script) bool {
		return onTrial(s, func() { s.send(NeverReady{Worker: s.p.Trial.Workers[0].Number}) })
	}},
	{"Exited of a worker on trial", func(s *script) bool {
		return onTrial(s, func() { s.exit(s.p.Trial.Workers[0].Number) })
	}},
	{"Tick at the deadline of a worker on trial", func(s *script) bool {
		return onTrial(s, func() { s.now = s.p.Next(s.now); s.send(Tick{}) })
	}},
	{"Exited of a serving worker", func(s *script) bool {
		return serving(s, func() { s.exit(1) })
	}},
	{"Exited of a serving worker that was stable", func(s *script) bool {
		return serving(s, func() { s.now = s.now.Add(30 * time.Second); s.exit(1) })
	}},
	{"Replace of a serving worker", func(s *script) bool {
		return serving(s, func() { s.send(Replace{Worker: 1}) })
	}},
	{"OverLimit of a serving worker", func(s *script) bool {
		return serving(s, func() { s.send(OverLimit{Worker: 1}) })
	}},
	{"Exited of a stopping worker", func(s *script) bool {
		if s.p.State() != ShuttingOff {
			return false
		}
		s.exit(1)
		return true
	}},
	{"Tick at the next deadline", func(s *script) bool {
		if s.p.Trial != nil || s.p.Next(s.now).IsZero() {
			return false
		}
		s.now = s.p.Next(s.now)
		s.send(Tick{})
		return true
	}},
}

// canaryHeld brings a canary up to where it waits.
func canaryHeld(s *script) bool {
	s.send(Reload{Reason: "asked to", Canary: 1})
	if s.p.Trial == nil || s.p.Trial.Canary == 0 {
		return false
	}
	s.prepared()
	s.allReady()
	return true
}

func then(s *script, e Event) bool {
	s.send(e)
	return true
}

func onTrial(s *script, f func()) bool {
	if s.p.Trial == nil {
		return false
	}
	f()
	return true
}

func serving(s *script, f func()) bool {
	if s.p.Serving == nil {
		return false
	}
	f()
	return true
}

func table(t *testing.T) string {
	var b strings.Builder
	for _, c := range cases {
		fmt.Fprintf(&b, "//\t%s\n", c.event)
		for _, state := range states {
			s := inState(t, state)
			cell := "impossible"
			if c.do(s) {
				cell = shorten(s.did)
				if cell == "" {
					cell = "-"
				}
				if after := s.p.State(); after != state {
					cell += "  → " + string(after)
				}
			}
			fmt.Fprintf(&b, "//\t    %-10s %s\n", state, cell)
		}
	}
	return b.String()
}

func TestTableInTheDocumentationIsWhatTheCodeDoes(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	const to = "// The other strategies"
	head, rest, _ := strings.Cut(string(text), "A test regenerates it from the code.\n//\n")
	old, tail, found := strings.Cut(rest, "//\n"+to)
	if !found {
		t.Fatal("doc.go has no table between its marks")
	}
	now := table(t)
	if *update {
		if err := os.WriteFile("doc.go", []byte(head+"A test regenerates it from the code.\n//\n"+now+"//\n"+to+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old != now {
		t.Errorf("the table in doc.go is not what the code does; regenerate it with: go test ./supervisor/program -run Table -update\n%s", now)
	}
}
