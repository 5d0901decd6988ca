package main

import (
	"testing"
	"time"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

func TestProgressSaysWhatItWaitsFor(t *testing.T) {
	worker := func(number int, state program.WorkerState, since, left time.Duration) supervisor.WorkerStatus {
		return supervisor.WorkerStatus{Standing: program.Standing{Number: number, PID: 100 + number, State: state,
			Since: noon.Add(-since), Deadline: noon.Add(left)}}
	}
	ready := supervisor.WorkerStatus{Standing: program.Standing{Number: 2, PID: 102, State: program.Ready}}
	serving := supervisor.GenerationStatus{Number: 2, Role: program.RoleServing, Slots: 1,
		Workers: []supervisor.WorkerStatus{ready}}
	till := noon.Add(3*time.Minute + 20*time.Second)
	late := worker(3, program.Starting, 4*time.Second, 26*time.Second)
	late.Text, late.Seen = "migrating", "it has not said READY=1"
	trial := func(workers ...supervisor.WorkerStatus) supervisor.GenerationStatus {
		return supervisor.GenerationStatus{Number: 2, Role: program.RoleTrial, Slots: len(workers), Workers: workers}
	}
	watched := trial()
	watched.Held, watched.HeldTill = true, till
	old := func(inHand *program.Look, workers ...supervisor.WorkerStatus) supervisor.GenerationStatus {
		return supervisor.GenerationStatus{Number: 1, Role: program.RoleDraining, InHand: inHand, Workers: workers}
	}
	of := func(generations ...supervisor.GenerationStatus) supervisor.ProgramStatus {
		return supervisor.ProgramStatus{Generations: generations}
	}
	waits := of(serving)
	waits.Due = &supervisor.DueReload{Reason: "HUP", Waits: "for generation 1, which drains"}
	for want, p := range map[string]supervisor.ProgramStatus{
		"worker 3 of generation 2 is not ready yet, 4s of 30s (1 of 2 are): migrating; " +
			"generation 1 serves; it has not said READY=1": of(
			trial(ready, late),
			supervisor.GenerationStatus{Number: 1, Role: program.RoleServing}),
		"prepares generation 2":                  of(trial(supervisor.WorkerStatus{})),
		"generation 2 is ready and serves in 5s": of(trial(worker(2, program.Soaking, time.Second, 5*time.Second))),
		"the canary, generation 2, is well, and is promoted in 3m20s if it stays well": of(watched),
		"generation 1 drains: 2 being answered, 10 idle; told to stop in 8s; generation 2 serves": of(serving,
			old(&program.Look{Answering: 2, Idle: 10}, worker(1, program.Finishing, time.Second, 8*time.Second))),
		"generation 1 stops: 2 workers left, next signal in 12s; generation 2 serves": of(serving,
			old(nil, worker(1, program.Stopping, time.Second, 8*time.Second),
				worker(4, program.Stopping, time.Second, 12*time.Second))),
		"a reload waits (HUP): for generation 1, which drains; generation 2 serves": waits,
		"retrying in 3m20s": {State: program.Waiting, RetryAt: till},
		"down":              {State: program.Down},
	} {
		if got := progress(p, noon); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}
