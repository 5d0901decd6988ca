package main

import (
	"strings"
	"testing"
	"time"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// crowded is a status with a crash, a failed reload and a listener that is named after its address.
func crowded() *supervisor.Status {
	return &supervisor.Status{Version: "1.2.3", PID: 27052, Started: noon, Programs: []supervisor.ProgramStatus{{
		Name: "web", State: program.Up, Summary: "web up, generation 4 (1 worker)", Restarts: 3,
		History: supervisor.History{LastCrash: &program.Crash{At: noon, Generation: 4, Worker: 9, Slot: 2,
			Reason: "exited with status 3",
			Tail:   []string{"no \x1b[2Jdatabase"}}, Reloads: []program.ReloadRecord{{Generation: 5, Replaced: 4,
			Outcome: program.WorkerDown, Instants: program.Instants{Decided: noon},
			AskedBy: "alice (uid 1000, pid 4711)",
			Failure: &program.Failure{Step: "start", Reason: "exited with status 1",
				Tail: []string{"cannot read /etc/web.conf"}}}}},

		Listeners: []supervisor.ListenerStatus{{Name: "127.0.0.1:80", Address: "127.0.0.1:80"},
			{Name: "http", Address: "127.0.0.1:81"}},
		Generations: []supervisor.GenerationStatus{{Number: 4, Role: program.RoleServing,
			Workers: []supervisor.WorkerStatus{{Standing: program.Standing{Number: 12, PID: 31313, State: program.Ready}}}}},
	}}}
}

func TestStatusHasCrashesAndTheLastLinesOfAFailedReload(t *testing.T) {
	text := statusView{}.status(crowded(), noon.Add(33*time.Second))
	for _, want := range []string{
		"supervisord 1.2.3, PID 27052, up 33s\n",
		"  3 restarts since the generation began\n",
		"  last crash: worker 9 (slot 2, generation 4): exited with status 3, 33s ago\n    | no ^[[2Jdatabase\n",
		"  last reload: generation 5 failed at step start: exited with status 1, 33s ago, by alice (uid 1000, pid 4711)\n" +
			"    | cannot read /etc/web.conf\n",
		"  listener 127.0.0.1:80\n",
		"  listener http at 127.0.0.1:81\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "31313") || strings.Contains(text, "WORKER") || strings.Contains(text, "\x1b") {
		t.Errorf("the status shows too much:\n%s", text)
	}
	if text := (statusView{verbose: true}).status(crowded(), noon); !strings.Contains(text, "WORKER  PID") ||
		!strings.Contains(text, "12      31313") {
		t.Errorf("-v does not show the worker and its PID:\n%s", text)
	}
}

func TestStatusShowsSharesAndWhatIsInHand(t *testing.T) {
	kept, worker := noon.Add(9*time.Minute), []supervisor.WorkerStatus{
		{Standing: program.Standing{Number: 1, PID: 1, State: program.Ready}}}
	text := statusView{}.status(&supervisor.Status{Started: noon, Programs: []supervisor.ProgramStatus{{
		Name: "web", Summary: "web up", Paused: &program.PauseTime{Since: noon, Until: noon.Add(20 * time.Second),
			AskedBy: "alice"},
		Generations: []supervisor.GenerationStatus{
			{Number: 9, Role: program.RoleTrial, Held: true, Share: 1250, Workers: worker},
			{Number: 8, Role: program.RoleServing, Share: 8750, Workers: worker},
			{Number: 7, Role: program.RoleKept, KeptTill: kept, Workers: worker},
			{Number: 6, Role: program.RoleDraining, InHand: &program.Look{Unread: 2, Idle: 5}, Workers: worker},
			{Number: 5, Role: program.RoleDraining, InHand: &program.Look{}, Workers: worker},
		},
	}}}, noon)
	for _, want := range []string{
		"\n  paused for 20s more, by alice: new connections wait; `supervisord resume web` ends the pause\n",
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
	r := program.ReloadRecord{Generation: 8, Replaced: 7, Outcome: program.Serves,
		Instants: program.Instants{Decided: noon}}
	r.RolledBack, r.RolledBackBy = noon.Add(time.Minute), "alice"
	p := supervisor.ProgramStatus{Name: "web", History: supervisor.History{Reloads: []program.ReloadRecord{r}}}
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
