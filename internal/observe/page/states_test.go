package page

import (
	"fmt"
	"time"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// The states that the tests of the page show, as they would be at this time.
var today = time.Date(2026, 11, 22, 15, 4, 5, 0, time.FixedZone("", 3600))

func ago(d time.Duration) time.Time { return today.Add(-d) }

func ptr[T any](v T) *T { return &v }

// viewOf is a view with these programs.
func viewOf(programs ...supervisor.ProgramStatus) *View {
	v := &View{
		Now: today, Recent: []supervisor.Update{},
		Status: &supervisor.Status{PID: 812, Started: ago(74 * time.Hour), Version: "1.0.0", Host: "web-3.example.org",
			Config: "/etc/supervisord/config.toml", Programs: programs},
	}
	return v
}

// event is an event of a program, so long ago.
func event(d time.Duration, name string, r program.Report) supervisor.Update {
	return supervisor.Update{Time: ago(d), Program: name, Level: r.Level(), Text: r.Text(name), Report: r}
}

// workersOf are n workers that serve since then.
func workersOf(first, n int, state program.WorkerState, since time.Time) (list []supervisor.WorkerStatus) {
	for i := range n {
		list = append(list, supervisor.WorkerStatus{
			Standing: program.Standing{Number: first + i, Slot: i, PID: 20100 + 7*(first+i), State: state, Since: since},
			Usage: supervisor.Usage{CPUPercent: ptr(1.3 + float64(i)/2), Memory: ptr(int64(38+i) << 20),
				Connections: ptr(12 + 5*i)}})
	}
	return list
}

// up is a program whose generation serves.
func up(name string, generation, workers int, since time.Duration) supervisor.ProgramStatus {
	p := supervisor.ProgramStatus{
		Name: name, State: program.Up, Newest: generation, Awaited: generation,
		Generations: []supervisor.GenerationStatus{{Number: generation, Role: program.RoleServing, Reason: "requested",
			AskedBy: "deploy (uid 1001, pid 9120)", Slots: workers,
			GenerationTimes: program.GenerationTimes{Began: ago(since), Served: ago(since)},
			Workers:         workersOf(10*generation, workers, program.Ready, ago(since))}},
		Listeners: []supervisor.ListenerStatus{{Name: "http", Address: "0.0.0.0:8080", WhenDown: "queue", Handover: "steer",
			Queue: &supervisor.AcceptQueue{Limit: 4096}}},
	}
	for i := range 3 {
		r := served(generation-2+i, since+time.Duration(2-i)*26*time.Hour)
		if i < 2 {
			r.Retired, r.Gone = ago(since+time.Duration(1-i)*26*time.Hour), ago(
				since+time.Duration(1-i)*26*time.Hour-2*time.Second)
		}
		p.Reloads = append(p.Reloads, r)
	}
	p.Summary = fmt.Sprintf("%s up, generation %d (%d workers)", name, generation, workers)
	return p
}

// served is the record of a reload that went well.
func served(generation int, since time.Duration) program.ReloadRecord {
	began := ago(since + 180*time.Millisecond)
	return program.ReloadRecord{
		Generation: generation, Replaced: generation - 1, Outcome: program.Serves, Reason: "requested",
		AskedBy: "deploy (uid 1001, pid 9120)",
		Instants: program.Instants{Began: began, Spawned: began, Ready: ago(since), Decided: ago(since),
			Ended: ago(since - 2*time.Second)},
		Durations: program.Durations{Took: 180 * time.Millisecond, SpawnToReady: 171 * time.Millisecond,
			Overlap: 2180 * time.Millisecond, Drain: 2 * time.Second},

		Passage: program.Passage{Flipped: ago(since), Quiet: 1900 * time.Millisecond},
	}
}

// begun makes a trial of the next generation, so long ago, and returns it.
func begun(p *supervisor.ProgramStatus, workers int, since time.Duration) *supervisor.GenerationStatus {
	p.Newest++
	p.State = program.Reloading
	p.Summary = fmt.Sprintf("%s reloading, generation %d (%d workers), generation %d on trial (%d/%d ready)", p.Name,
		p.Generations[0].Number, workers, p.Newest, workers, workers)
	p.Reloads = append(p.Reloads, program.ReloadRecord{Generation: p.Newest, Replaced: p.Generations[0].Number,
		Outcome: program.Pending, Reason: "requested",
		AskedBy: "deploy (uid 1001, pid 9633)", Instants: program.Instants{Began: ago(since), Spawned: ago(since), Ready: ago(
			since - 160*time.Millisecond)}})
	p.Generations = append([]supervisor.GenerationStatus{{Number: p.Newest, Role: program.RoleTrial, Reason: "requested",
		AskedBy: "deploy (uid 1001, pid 9633)", Slots: workers,
		GenerationTimes: program.GenerationTimes{Began: ago(since)},
		Workers:         workersOf(10*p.Newest, workers, program.Ready, ago(since))}}, p.Generations...)
	return &p.Generations[0]
}

func idle() *View {
	worker := up("worker", 9, 2, 29*time.Hour)
	worker.Listeners = []supervisor.ListenerStatus{}
	v := viewOf(up("api", 41, 4, 3*time.Hour), up("web", 16, 3, 5*24*time.Hour), worker)
	v.Status.Programs[2].Restarts, v.Status.Programs[2].LastCrash = 2, &program.Crash{At: ago(7 * time.Hour),
		Generation: 9, Worker: 88, Slot: 1, Reason: "killed by SIGSEGV"}
	v.Recent = []supervisor.Update{
		event(7*time.Hour, "worker", program.Report{Kind: program.WorkerDied, Generation: 9, Worker: 88, Slot: 1, PID: 20716,
			Reason: "killed by SIGSEGV", Took: 22 * time.Hour}),
		event(7*time.Hour, "worker", program.Report{Kind: program.WorkerReady, Generation: 9, Worker: 91, Slot: 1, PID: 20737,
			Took: 160 * time.Millisecond}),
		event(3*time.Hour, "api", program.Report{Kind: program.GenerationServes, Generation: 41,
			AskedBy: "deploy (uid 1001, pid 9120)", Took: 180 * time.Millisecond}),
	}
	return v
}

// failedDeploy is a deploy that failed a minute ago.
func failedDeploy() *View {
	web := up("web", 16, 3, 5*24*time.Hour)
	web.Newest++
	web.Reloads = append(web.Reloads,
		program.ReloadRecord{Generation: 17, Replaced: 16, Outcome: program.WorkerDown, Reason: "requested",
			AskedBy: "deploy (uid 1001, pid 9633)",
			Instants: program.Instants{Began: ago(64 * time.Second), Spawned: ago(64 * time.Second),
				Decided: ago(63 * time.Second), Retired: ago(63 * time.Second), Gone: ago(62 * time.Second),
				Ended: ago(62 * time.Second)},
			Durations: program.Durations{Took: time.Second, Overlap: 2 * time.Second, Drain: time.Second},
			Failure: &program.Failure{Step: "start", Reason: "exited with status 1", Worker: 171, PID: 21297, Tail: []string{
				"web 2.14.0 starting", "cannot read /etc/web/database.toml: permission denied"}}})
	v := viewOf(up("api", 41, 4, 3*time.Hour), web)
	v.Recent = []supervisor.Update{
		event(26*time.Hour, "web", program.Report{Kind: program.GenerationGone, Generation: 15, Took: 2 * time.Second}),
		event(64*time.Second, "web", program.Report{Kind: program.TrialBegan, Generation: 17,
			AskedBy: "deploy (uid 1001, pid 9633)"}),
		event(63*time.Second, "web", program.Report{Kind: program.TrialFailed, Generation: 17,
			Reason: "exited with status 1"}),
	}
	return v
}

// canaryHeld is a canary after a failed deploy.
func canaryHeld() *View {
	v := failedDeploy()
	web := &v.Status.Programs[1]
	g := begun(web, 3, 42*time.Second)
	g.Held, g.Share, web.Generations[1].Share = true, 500, 9500
	web.Reloads[len(web.Reloads)-1].Outcome, web.Reloads[len(web.Reloads)-1].Share = program.Held, 500
	for i := range g.Workers {
		g.Workers[i].Connections, g.Workers[i].CPUPercent = ptr(1), ptr(.4)
	}
	v.Recent = append(v.Recent, event(42*time.Second, "web", program.Report{Kind: program.CanaryHeld, Generation: 18}))
	return v
}

// drainingLate is an old generation that has used more than half of its time.
func drainingLate() *View {
	web := up("web", 17, 3, 20*time.Second)
	last := &web.Reloads[len(web.Reloads)-1]
	last.Ended, last.Drain, last.Quiet, last.Overlap = time.Time{}, 0, 0, 20*time.Second
	old := workersOf(160, 2, program.Stopping, ago(20*time.Second))
	for i := range old {
		old[i].Deadline = today.Add(10 * time.Second)
	}
	web.Generations = append(web.Generations,
		supervisor.GenerationStatus{Number: 16, Role: program.RoleDraining, Reason: "requested", Slots: 2,
			GenerationTimes: program.GenerationTimes{Began: ago(time.Hour), Served: ago(time.Hour),
				Retired: ago(20 * time.Second)}, Workers: old})
	return viewOf(web)
}

// crashLoop is a program with 60 workers of which three are missing.
func crashLoop() *View {
	web := up("web", 17, 60, 2*time.Hour)
	g := &web.Generations[0]
	g.Workers = g.Workers[:57]
	g.Workers[5].State = program.Starting
	web.RetryAt = today.Add(4 * time.Second)
	web.Restarts, web.LastCrash = 128, &program.Crash{At: ago(3 * time.Second), Generation: 17, Worker: 231, Slot: 58,
		Reason: "exited with status 2", Tail: []string{"panic: runtime error: index out of range"}}
	v := viewOf(up("api", 41, 4, 3*time.Hour), web)
	for i := range 40 {
		v.Recent = append(v.Recent, event(time.Duration(60-i)*time.Second, "web",
			program.Report{Kind: program.WorkerDied, Generation: 17, Worker: 190 + i, Slot: 57 + i%3, PID: 30000 + i,
				Reason: "exited with status 2", Took: time.Second}))
	}
	v.Recent = append(v.Recent, event(time.Second, "api",
		program.Report{Kind: program.WorkerReady, Generation: 41, Worker: 412}))
	return v
}

// wall is twenty programs that are well.
func wall() *View {
	names := []string{"accounts", "admin", "api", "assets", "billing", "catalogue", "checkout", "gateway", "images",
		"mail", "mail-queue", "notifications",
		"orders", "payments", "recommendations", "search", "sessions", "shop", "web", "worker"}
	var programs []supervisor.ProgramStatus
	for i, name := range names {
		programs = append(programs, up(name, 10+i, 2+i%7, time.Duration(3+5*i)*time.Hour))
	}
	return viewOf(programs...)
}

// wallWithFailure is twenty programs of which one has failed to deploy, one has a canary, one reloads and one has been
// stopped.
func wallWithFailure() *View {
	v := wall()
	failed, canary := failedDeploy().Status.Programs[1], canaryHeld().Status.Programs[1]
	failed.Name, canary.Name = "billing", "web"
	p := v.Status.Programs
	p[4], p[18] = failed, canary
	begun(&p[15], 3, 2*time.Second)
	p[19].State, p[19].Generations, p[19].Stop =
		program.Down, []supervisor.GenerationStatus{}, &program.StopRecord{AskedBy: "root"}
	return viewOf(p...)
}

// states has the states by the names that stories and screenshots use.
var states = map[string]func() *View{
	"idle": idle, "failed": failedDeploy, "canary": canaryHeld, "draining": drainingLate, "crashing": crashLoop,
	"wall": wall, "wall-failed": wallWithFailure,
	"draining-early": func() *View {
		v := drainingLate()
		early := v.Status.Programs[0].Generations[1].Workers
		for i := range early {
			early[i].Deadline = today.Add(time.Minute)
		}
		return v
	},
	"down": func() *View {
		v := idle()
		v.Status.Programs[0].State, v.Status.Programs[0].Generations = program.Down, []supervisor.GenerationStatus{}
		return v
	},
	"paused": func() *View {
		v := idle()
		web := &v.Status.Programs[1]
		web.Paused = &program.PauseTime{Since: ago(time.Second), Until: today.Add(30 * time.Second), AskedBy: "root"}
		web.Generations = append(web.Generations, supervisor.GenerationStatus{Number: 15, Role: program.RoleKept, Slots: 3,
			GenerationTimes: program.GenerationTimes{Began: ago(time.Hour)}, KeptTill: today.Add(10 * time.Minute),
			Workers: workersOf(150, 3, program.Kept, ago(time.Minute))})
		return v
	},
	"first-start": func() *View {
		web := up("web", 1, 1, time.Minute)
		failed := failedDeploy().Status.Programs[1].Reloads[3]
		failed.Generation, failed.Replaced = 1, 0
		web.State, web.Failures, web.Generations = program.StartingUp, 1, []supervisor.GenerationStatus{}
		web.Reloads = []program.ReloadRecord{failed, {Generation: 2, Outcome: program.Pending,
			Instants: program.Instants{Began: ago(time.Second)}}}
		return viewOf(web)
	},
	"canary-and-failed": func() *View { // which stands before the canary
		v := canaryHeld()
		v.Status.Programs = append(v.Status.Programs, failedDeploy().Status.Programs[1])
		v.Status.Programs[2].Name = "shop"
		return v
	},
	"many-reloads": func() *View {
		web := up("web", 83, 3, time.Hour)
		for i := range 80 {
			web.Past = append(web.Past, &program.ReloadRecord{Generation: i + 1, Replaced: i, Outcome: program.Serves,
				AskedBy: "signal HUP", Instants: program.Instants{Decided: ago(time.Duration(30*24-i) * time.Hour)},
				Durations: program.Durations{Took: time.Second}})
		}
		web.Past[78].Outcome = program.NotReady
		web.Past[78].Failure = &program.Failure{Step: "ready", Reason: "not ready after 20s"}
		return viewOf(web)
	},
}
