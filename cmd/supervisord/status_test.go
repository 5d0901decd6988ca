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
		LastCrash: &program.Crash{At: noon, Generation: 4, Worker: 9, Slot: 2, Reason: "exited with status 3",
			Tail: []string{"no \x1b[2Jdatabase"}},
		Reloads: []program.ReloadRecord{{Generation: 5, Replaced: 4, Outcome: program.WorkerDown, Decided: noon,
			AskedBy: "alice (uid 1000, pid 4711)",
			Failure: &program.Failure{Step: "start", Reason: "exited with status 1",
				Tail: []string{"cannot read /etc/web.conf"}}}},
		Listeners: []supervisor.ListenerStatus{{Name: "127.0.0.1:80", Address: "127.0.0.1:80"},
			{Name: "http", Address: "127.0.0.1:81"}},
		Generations: []supervisor.GenerationStatus{{Number: 4, Role: program.RoleServing,
			Workers: []supervisor.WorkerStatus{{Number: 12, Slot: 0, PID: 31313, State: program.Ready}}}},
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
