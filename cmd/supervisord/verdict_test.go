package main

import (
	"testing"
	"time"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/terminal"
	"example.org/supervisord/supervisor/program"
)

// noon is a time today, as a clock shows it here.
var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.Local)

func TestVerdictsSayWhatBecomesOfConnections(t *testing.T) {
	record := func(change func(*program.ReloadRecord)) *program.ReloadRecord {
		r := &program.ReloadRecord{Generation: 8, Replaced: 7, Outcome: program.Serves,
			Durations: program.Durations{Took: 1300 * time.Millisecond}}
		change(r)
		return r
	}
	until := noon.Add(10 * time.Minute)
	for _, c := range []struct {
		want string
		v    control.ProgramVerdict
	}{
		{"web: generation 8 serves after 1.3s; generation 7 drains",
			control.ProgramVerdict{Outcome: program.Serves, Reload: record(func(r *program.ReloadRecord) {})}},
		{"web: generation 8 serves after 1.3s; generation 7 is kept for 10m0s: `supervisord rollback web` returns to it",
			control.ProgramVerdict{Outcome: program.Serves,
				Reload: record(func(r *program.ReloadRecord) { r.KeptTill = until })}},
		{"web: generation 8 serves after 1.3s; generation 7 has ended after 40ms",
			control.ProgramVerdict{Outcome: program.Serves, Reload: record(func(r *program.ReloadRecord) {
				r.Ended, r.Drain, r.KeptTill = noon, 40*time.Millisecond, until
			})}},
		{"web: generation 8 serves after 1.3s; generation 7 has ended after 10.1s; drain.timeout stopped it with " +
			"connections in use: 2 unread, 1 being answered, 5 idle; 3 connections were reset that waited",
			control.ProgramVerdict{Outcome: program.Serves, Reload: record(func(r *program.ReloadRecord) {
				r.Ended, r.Drain = noon, 10100*time.Millisecond
				r.Left, r.Reset = &program.Look{Unread: 2, Answering: 1, Idle: 5}, 3
			})}},
		{"web: the canary, generation 8, is well with 5% of the new connections and waits: promote or abort it",
			control.ProgramVerdict{Outcome: program.Held,
				Reload: record(func(r *program.ReloadRecord) { r.Outcome, r.Share = program.Held, 500 })}},
		{"web: the canary, generation 8, is well and waits: promote or abort it",
			control.ProgramVerdict{Outcome: program.Held,
				Reload: record(func(r *program.ReloadRecord) { r.Outcome, r.Canary = program.Held, 1 })}},
		{"web: generation 8 serves again; generation 9 is kept for 10m0s: `supervisord rollback web` returns to it",
			control.ProgramVerdict{Outcome: program.Serves, From: 9, Until: until}},
		{"web: generation 8 serves again; generation 9 gets no new connections and drains",
			control.ProgramVerdict{Outcome: program.Serves, From: 9}},
		{"web: generation 8 was rolled back: it served for 1m30s; generation 7 serves",
			control.ProgramVerdict{Outcome: control.RolledBack, Reason: "it served for 1m30s", Serving: 7}},
	} {
		c.v.Program, c.v.Generation = "web", 8
		if got := describe(c.v, noon, terminal.Palette{}); got != c.want {
			t.Errorf("%q instead of\n%q", got, c.want)
		}
	}
	if code := outcomeCodes[control.RolledBack]; code != exitSuperseded {
		t.Errorf("a reload that was rolled back exits with %d", code)
	}
}
