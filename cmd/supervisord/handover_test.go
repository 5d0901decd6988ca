package main

import (
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/terminal"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// noon is a time today, as a clock shows it here.
var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.Local)

func TestVerdictsSayWhatBecomesOfConnections(t *testing.T) {
	record := func(change func(*program.ReloadRecord)) *program.ReloadRecord {
		r := &program.ReloadRecord{Generation: 8, Replaced: 7, Outcome: program.Serves, Took: 1300 * time.Millisecond}
		change(r)
		return r
	}
	until := noon.Add(10 * time.Minute)
	for want, v := range map[string]control.ProgramVerdict{
		"web: generation 8 serves after 1.3s; generation 7 drains": {Outcome: program.Serves,
			Reload: record(func(r *program.ReloadRecord) {})},
		"web: generation 8 serves after 1.3s; generation 7 is kept until 12:10:00: `supervisord rollback web` returns to it": {Outcome: program.Serves,
			Reload: record(func(r *program.ReloadRecord) { r.KeptTill = until })},
		"web: generation 8 serves after 1.3s; generation 7 has ended after 40ms": {Outcome: program.Serves,
			Reload: record(func(r *program.ReloadRecord) { r.Ended, r.Drain, r.KeptTill = noon, 40*time.Millisecond, until })},
		"web: generation 8 serves after 1.3s; generation 7 has ended after 10.1s; drain.timeout stopped it with " +
			"connections in use: " +
			"2 unread, 1 being answered, 5 idle; 3 connections were reset that waited": {Outcome: program.Serves,
			Reload: record(func(r *program.ReloadRecord) {
				r.Ended, r.Drain = noon, 10100*time.Millisecond
				r.Left, r.Reset = &program.Look{Unread: 2, Answering: 1, Idle: 5}, 3
			})},
		"web: generation 8 gets 5% of new connections and is well; `supervisord promote web`, `promote web --canary 25%` " +
			"or `abort web`": {Outcome: program.Held,
			Reload: record(func(r *program.ReloadRecord) { r.Outcome, r.Share = program.Held, 500 })},
		"web: generation 8 gets 50% of new connections and is well; `supervisord promote web` or `abort web`": {Outcome: program.Held,
			Reload: record(func(r *program.ReloadRecord) { r.Outcome, r.Share = program.Held, 5000 })},
		"web: generation 8: the canary is well and held; `supervisord promote web` or `abort web`": {Outcome: program.Held,
			Reload: record(func(r *program.ReloadRecord) { r.Outcome, r.Canary = program.Held, 1 })},
		"web: generation 8 serves again; generation 9 is kept until 12:10:00: `supervisord rollback web` returns to it": {Outcome: program.Serves, From: 9, Until: &until},
		"web: generation 8 serves again; generation 9 gets no new connections and drains":                               {Outcome: program.Serves, From: 9},
		"web: generation 8 was rolled back: it served for 1m30s; generation 7 serves":                                   {Outcome: control.RolledBack, Reason: "it served for 1m30s", Serving: 7},
	} {
		v.Program, v.Generation = "web", 8
		if got := describe(v, terminal.Palette{}); got != want {
			t.Errorf("%q instead of\n%q", got, want)
		}
	}
	if code := outcomeCodes[control.RolledBack]; code != exitSuperseded {
		t.Errorf("a reload that was rolled back exits with %d", code)
	}
}

func TestStatusShowsSharesAndWhatIsInHand(t *testing.T) {
	kept, worker := noon.Add(9*time.Minute), []supervisor.WorkerStatus{{Number: 1, PID: 1, State: program.Ready}}
	text := statusView{}.status(&supervisor.Status{Started: noon, Programs: []supervisor.ProgramStatus{{
		Name: "web", Summary: "web up", Paused: &supervisor.PauseStatus{Since: noon, Until: noon.Add(20 * time.Second),
			AskedBy: "alice"},
		Generations: []supervisor.GenerationStatus{
			{Number: 9, Role: program.RoleTrial, Held: true, Share: 1250, Workers: worker},
			{Number: 8, Role: program.RoleServing, Share: 8750, Workers: worker},
			{Number: 7, Role: program.RoleKept, KeptTill: &kept, Workers: worker},
			{Number: 6, Role: program.RoleDraining, InHand: &program.Look{Unread: 2, Idle: 5}, Workers: worker},
			{Number: 5, Role: program.RoleDraining, InHand: &program.Look{}, Workers: worker},
		},
	}}}, noon)
	for _, want := range []string{
		"\n  paused for 20s more, by alice: new connections wait; `supervisord resume web` ends it\n",
		"\n  generation 7 is kept for 9m0s: `supervisord rollback web` returns to it\n",
		"\n  generation 6 drains: 2 unread, 5 idle\n",
		"\n  generation 5 drains: no connection in use\n",
		" canary 12.5% ", " serving 87.5% ", " kept ", " draining ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
}

func TestStatusSaysThatTheLastReloadWasRolledBack(t *testing.T) {
	r := program.ReloadRecord{Generation: 8, Replaced: 7, Outcome: program.Serves, Decided: noon}
	r.RolledBack, r.RolledBackBy = noon.Add(time.Minute), "alice"
	p := supervisor.ProgramStatus{Name: "web", Reloads: []program.ReloadRecord{r}}
	for serving, want := range map[int]string{
		7: "  last reload: generation 8 was rolled back, 1m0s ago, by alice\n",
		8: "  last reload: generation 8 serves, 2m0s ago\n", // rolled back, and forth again
	} {
		p.Generations = []supervisor.GenerationStatus{{Number: serving, Role: program.RoleServing}}
		if text := (statusView{}).status(&supervisor.Status{Started: noon, Programs: []supervisor.ProgramStatus{p}},
			noon.Add(2*time.Minute)); !strings.Contains(text, want) {
			t.Errorf("generation %d serves: there is no %q in\n%s", serving, want, text)
		}
	}
}

func TestRollbackWithoutAProgramNamesThoseThatCan(t *testing.T) {
	until := noon.Add(time.Minute)
	st := &supervisor.Status{Programs: []supervisor.ProgramStatus{{Name: "api"},
		{Name: "web", Generations: []supervisor.GenerationStatus{
			{Number: 8, Role: program.RoleServing}, {Number: 7, Role: program.RoleKept, KeptTill: &until}}}}}
	if got := whichProgram(st).Error(); got != "name the program to roll back: web (generation 7 is kept until 12:01:00)" {
		t.Errorf("it says %q", got)
	}
	st.Programs = st.Programs[:1]
	if got := whichProgram(st).Error(); !strings.Contains(got, "no program keeps") ||
		!strings.Contains(got, "reload with the old version") || !strings.Contains(got, "api") {
		t.Errorf("it says %q", got)
	}
}

func TestCanaryFlagIsCheckedBeforeAnybodyIsAsked(t *testing.T) {
	for text, words := range map[string]string{"0": "--canary 0", "0%": "abort", "100%": "leave canary out", "x": "5%",
		"5.001%": "two decimals", "-1": "at least 1", "": "5%"} {
		f := &reloadFlags{wait: true, canary: text, hold: true}
		if err := f.check(func(name string) bool { return name == "canary" }); err == nil ||
			!strings.Contains(err.Error(), words) || !strings.Contains(err.Error(), "canary") {
			t.Errorf("--canary %q: %v, want words about %q", text, err, words)
		}
	}
	for text, want := range map[string]control.Canary{"2": {Workers: 2}, "12.5%": {Share: 1250}} {
		f := &reloadFlags{wait: true, canary: text, hold: true}
		if err := f.check(func(name string) bool { return name == "canary" }); err != nil || f.size == nil ||
			*f.size != want {
			t.Errorf("--canary %s: %v, %+v", text, err, f.size)
		}
	}
	f := &reloadFlags{wait: true}
	if err := f.check(func(string) bool { return false }); err != nil || f.size != nil {
		t.Errorf("without --canary: %v, %+v", err, f.size)
	}
}
