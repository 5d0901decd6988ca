package main

import (
	"testing"
	"time"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

func TestProgressSaysWhatItWaitsFor(t *testing.T) {
	worker := func(number int, state program.WorkerState, since, left time.Duration) supervisor.WorkerStatus {
		deadline := noon.Add(left)
		return supervisor.WorkerStatus{Number: number, PID: 100 + number, State: state, Since: noon.Add(-since),
			Deadline: &deadline}
	}
	serving := supervisor.GenerationStatus{Number: 2, Role: program.RoleServing, Slots: 1,
		Workers: []supervisor.WorkerStatus{{Number: 2, PID: 102, State: program.Ready}}}
	till := noon.Add(3*time.Minute + 20*time.Second)
	for want, p := range map[string]supervisor.ProgramStatus{
		"worker 3 of generation 2 is not ready yet, 4s of 30s (1 of 2 are): migrating; generation 1 serves; it has not said READY=1": {Generations: []supervisor.GenerationStatus{
			{Number: 2, Role: program.RoleTrial, Slots: 2, Workers: []supervisor.WorkerStatus{
				{Number: 2, PID: 102, State: program.Ready},
				func() supervisor.WorkerStatus {
					w := worker(3, program.Starting, 4*time.Second, 26*time.Second)
					w.Text, w.Seen = "migrating", "it has not said READY=1"
					return w
				}(),
			}}, {Number: 1, Role: program.RoleServing}}},
		"prepares generation 2": {Generations: []supervisor.GenerationStatus{{Number: 2,
			Role: program.RoleTrial, Slots: 1, Workers: []supervisor.WorkerStatus{{Number: 2}}}}},
		"generation 2 is ready and serves in 5s": {Generations: []supervisor.GenerationStatus{{Number: 2,
			Role: program.RoleTrial, Slots: 1, Workers: []supervisor.WorkerStatus{worker(2, program.Soaking, time.Second,
				5*time.Second)}}}},
		"the canary, generation 2, is well and is promoted in 3m20s if it stays well": {Generations: []supervisor.GenerationStatus{{Number: 2, Role: program.RoleTrial, Held: true, HeldTill: &till}}},
		"the canary, generation 2, waits for promote or abort":                        {Generations: []supervisor.GenerationStatus{{Number: 2, Role: program.RoleTrial, Held: true}}},
		"generation 1 drains: 2 being answered, 10 idle; told to stop in 8s; generation 2 serves": {Generations: []supervisor.GenerationStatus{serving,
			{Number: 1, Role: program.RoleDraining, InHand: &program.Look{Answering: 2, Idle: 10},
				Workers: []supervisor.WorkerStatus{worker(1, program.Finishing, time.Second, 8*time.Second)}}}},
		"generation 1 stops: 2 workers left, next signal in 12s; generation 2 serves": {Generations: []supervisor.GenerationStatus{serving,
			{Number: 1, Role: program.RoleDraining,
				Workers: []supervisor.WorkerStatus{worker(1, program.Stopping, time.Second, 8*time.Second),
					worker(4, program.Stopping, time.Second, 12*time.Second)}}}},
		"a reload waits: for generation 1, which drains; generation 2 serves": {Generations: []supervisor.GenerationStatus{serving}, Due: &supervisor.DueReload{Waits: "for generation 1, which drains"}},
		"retrying in 3m20s": {State: program.Waiting, RetryAt: &till},
		"down":              {State: program.Down},
	} {
		if got := progress(p, noon); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}
