package program

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/socket"
)

var update = flag.Bool("update", false, "write what is made of the code anew, in doc.go and docs/logs.md")

// states lists the states of a program in the order of the table, and the commands that lead there.
var states = []struct {
	State
	commands string
}{
	{Down, ""},
	{StartingUp, "start; prepared"},
	{Up, "start; prepared; ready all"},
	{Reloading, "start; prepared; ready all; reload; prepared"},
	{Waiting, "start; prepared; exits 1 2"},
	{ShuttingOff, "start; prepared; ready all; stop"},
}

// A row of testdata/events.table.
type row struct{ event, where, before, does string }

func rows(t *testing.T) (all []row) {
	t.Helper()
	text := must.Get(os.ReadFile("testdata/events.table"))(t)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		columns := strings.Split(line, "|")
		if len(columns) != 4 {
			t.Fatalf("not a row: %s", line)
		}
		for i, c := range columns {
			columns[i] = strings.TrimSpace(c)
		}
		all = append(all, row{columns[0], columns[1], columns[2], columns[3]})
	}
	return all
}

// where says where an event can occur; "begins" is where the reload that leads to it begins at once.
var where = map[string]func(s *transcript) bool{
	"any":      func(*transcript) bool { return true },
	"down":     func(s *transcript) bool { return s.p.State() == Down },
	"up":       func(s *transcript) bool { return s.p.State() == Up },
	"stopping": func(s *transcript) bool { return s.p.State() == ShuttingOff },
	"idle":     func(s *transcript) bool { return s.p.Trial == nil && !s.p.Next(s.now).IsZero() },
	"trial":    func(s *transcript) bool { return s.first(s.p.Trial) > 0 },
	"serving":  func(s *transcript) bool { return s.first(s.p.Serving) > 0 },
	"steered": func(s *transcript) bool { // generations have sockets of their own, and drain
		if s.p.State() != Up || s.p.Config.Reload.Strategy != config.All {
			return false
		}
		s.p.Config.Drain.Timeout, s.p.Serving.Steered, s.steered = 10*time.Second, true, true
		return true
	},
}

// first returns the first worker of a generation, 0 if there is none that stays.
func (s *transcript) first(g *Generation) int {
	if g == nil || len(g.Workers) == 0 || !g.Workers[0].stays() {
		return 0
	}
	return g.Workers[0].Number
}

// situations are commands that only the table needs.
var situations = map[string]func(s *transcript){
	"fourth":  func(s *transcript) { s.p.Changes, s.p.ChangedAt = 3, s.now }, // change in a row comes now
	"keep":    func(s *transcript) { s.p.Config.Reload.Keep = time.Hour },
	"soak":    func(s *transcript) { s.p.Trial.Config.Reload.Soak = 10 * time.Second },
	"stable":  func(s *transcript) { s.now = s.now.Add(30 * time.Second) },
	"due":     func(s *transcript) { s.now = s.p.Next(s.now); s.step(Tick{}) },
	"overdue": func(s *transcript) { s.now = s.p.Trial.Workers[0].Deadline; s.step(Tick{}) },
	"listens": func(s *transcript) { // without a listener there is nothing to pause
		c := *s.p.Config
		c.Listen = make([]socket.Spec, 1)
		s.p.Config = &c
	},
}

// tabled carries out commands of the table.
func (s *transcript) tabled(commands string) {
	first := func(g *Generation) string { return strconv.Itoa(s.first(g)) }
	for command := range strings.SplitSeq(commands, ";") {
		command = strings.TrimSpace(command)
		if situation := situations[command]; situation != nil {
			situation(s)
			continue
		}
		s.plays(strings.NewReplacer("$TRIAL", first(s.p.Trial), "$SERVING", first(s.p.Serving)).Replace(command))
	}
}

// answers returns what a program does at an event: the answers with their strategies, and the state before the event,
// which differs from the given one if the row first leads elsewhere.
func answers(t *testing.T, r row, commands string) (answers []string, of map[string][]string, was State) {
	of = map[string][]string{}
	for _, strategy := range []config.Strategy{config.All, config.Rolling, config.StopFirst} {
		s := newTranscript(t, testConfig(2, strategy))
		s.plays(commands)
		reload, then, _ := strings.Cut(r.before, ";")
		before := s.p.LastGeneration
		if can := where[r.where]; can != nil && !can(s) {
			continue
		}
		if s.tabled(reload); r.where == "begins" && (s.p.Trial == nil || s.p.LastGeneration == before) {
			continue
		}
		s.tabled(then)
		s.did, was = nil, s.p.State()
		s.tabled(r.does)
		answer := cmp.Or(shorten(s.did), "-")
		answer += unhurried(s.p)
		if after := s.p.State(); after != was {
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
	for _, r := range rows(t) {
		fmt.Fprintf(&b, "//\t%s\n", r.event)
		var order []string
		in := map[string][]string{}
		for _, state := range states {
			found, of, was := answers(t, r, state.commands)
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

// generated fails unless the part of a file between two marks, of which the second begins a line, is as wanted.
func generated(t *testing.T, file, begins, ends, want string) {
	t.Helper()
	text, err := os.ReadFile(file)
	before, rest, found := strings.Cut(string(text), begins)
	is, after, ended := strings.Cut(rest, "\n"+ends)
	switch {
	case err != nil || !found || !ended:
		t.Fatalf("%s has no part between its marks: %v", file, err)
	case *update:
		must.Do(t, os.WriteFile(file, []byte(before+begins+want+ends+after), 0o644))
	case is+"\n" != want:
		t.Errorf("%s does not say what the code does; regenerate it with: go test ./supervisor/program -run %s -update\n%s",
			file, t.Name(), want)
	}
}

func TestTableInDocMatchesCode(t *testing.T) {
	generated(t, "doc.go", "// A test regenerates the table from the code.\n//\n", "//\n// # What never happens", table(t))
}

func TestTableHasEveryEvent(t *testing.T) {
	var text []byte
	for _, file := range []string{"event.go", "step.go"} {
		part := must.Get(os.ReadFile(file))(t)
		text = append(text, part...)
	}
	// Of what happened to a worker the core answers only this.
	events := regexp.MustCompile(`(?m)^func \((\w+)\) event\(\)|^\tcase life\.(\w+):`).FindAllStringSubmatch(string(text),
		-1)
	table := rows(t)
	if len(events) < 20 {
		t.Fatalf("event.go and step.go have %d events", len(events))
	}
	for _, e := range events {
		if e[1] == "Did" {
			continue
		}
		if e[1] += e[2]; !slices.ContainsFunc(table, func(r row) bool { return strings.Fields(r.event)[0] == e[1] }) {
			t.Errorf("the table has no row for %s", e[1])
		}
	}
}
