package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// many is a status of so many programs, of which the last is down after a failed deploy.
func many(n int) *supervisor.Status {
	st := &supervisor.Status{Version: "1.2.3", PID: 27052, Started: noon}
	for i := range n {
		cpu, memory, conns := 12.5, int64(300<<20), 1200
		st.Programs = append(st.Programs,
			supervisor.ProgramStatus{Name: fmt.Sprintf("a-program-with-a-long-name-%d", i), State: program.Up,
				History: supervisor.History{Reloads: []program.ReloadRecord{{Generation: 1, Outcome: program.Serves,
					Instants: program.Instants{Decided: noon},
					AskedBy:  "somebody-else (uid 1000, pid 1)"}}},
				Generations: []supervisor.GenerationStatus{{Number: 1, Role: program.RoleServing, Slots: 1,
					Workers: []supervisor.WorkerStatus{{
						Standing: program.Standing{State: program.Ready},
						Usage:    supervisor.Usage{CPUPercent: &cpu, Memory: &memory, Connections: &conns}}}}}})
	}
	st.Programs[n-1].Reloads[0].Outcome = program.NotReady
	return st
}

func TestOverviewFitsEveryWidth(t *testing.T) {
	for width, want := range map[int]string{
		0:   "a-program-with-a-long-name-0  up             1    1/1    12%  300M  1200   1h somebody-else ok",
		100: "a-program-with-a-lo…  up             1    1/1    12%  300M  1200   1h somebody-else ok",
		80:  "a-program-with-…  up             1    1/1    12%  300M  1200   1h somebody-else…",
		50:  "a-program…  up             1    1/1    12%  300M …",
		20:  "a-prog…  up        …",
	} {
		text := statusView{width: width}.status(many(5), noon.Add(time.Hour))
		lines := strings.Split(text, "\n")
		if width >= 50 && !strings.Contains(lines[2], "deploy failed") {
			t.Errorf("%d columns: the failed deploy is not first:\n%s", width, text)
		}
		if got := lines[3]; got != want {
			t.Errorf("%d columns:\n%s\nwant\n%s", width, got, want)
		}
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); width > 0 && n > width {
				t.Errorf("a line has %d columns of %d: %s", n, width, line)
			}
		}
	}
}

func TestWhoAskedIsShortInTheOverview(t *testing.T) {
	for who, want := range map[string]string{
		"":                                            "",
		"alice (uid 1000, pid 4711)":                  "alice",
		"uid 1000 (pid 4711)":                         "uid 1000",
		"root (uid 0, pid 4711, login alice)":         "alice",
		"token holder from 192.0.2.7":                 "token holder",
		"signal HUP from bash (pid 4711, uid 0)":      "HUP",
		"signal INT from the terminal":                "INT",
		"signal TERM from outside this PID namespace": "TERM",
		"watch: /srv/app/current":                     "watch",
		"timer: reload.every":                         "timer",
	} {
		if got := asker(who); got != want {
			t.Errorf("%s: %q, want %q", who, got, want)
		}
	}
}
