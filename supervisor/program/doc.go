// Package program decides when the workers of a program start and stop. It carries nothing out: package supervisor
// does.
//
// A program is a series of generations. A generation is a number of workers, one for each slot, started from one
// snapshot of the configuration. At most one generation serves, at most one is on trial, and any number drain. A trial
// whose workers are all ready becomes the one that serves, and the one before it begins to drain. A trial that fails
// goes away; the serving one was never touched, so rolling back needs no code. Everything that wants new workers asks
// with the same event, Reload.
//
// Program.Step is pure: plain data in, actions out. Deadlines are part of the data, so a timer that fires late finds
// nothing to do, and a state that was written down and read again continues where it was. A test keeps clocks,
// goroutines, channels and system calls out of this package. step.go answers events, reconcile.go draws the
// consequences, reloads.go records how each reload goes.
//
// # New connections
//
// Program.steering says where they go, and only it. An old worker that gets no new ones finishes what it has before it
// is told to stop (Finishing), or stands by for a rollback (Kept). Where generations share a socket it accepts beside
// its successor meanwhile. If it says that it drains itself, it is told to stop at once: but not before it has received
// its datagrams.
//
// # Strategies
//
// all: every new worker starts beside the old ones. rolling: a new worker that is ready ends the old one in its slot,
// and at most max_surge more workers than usual live; if the trial fails, workers of the old generation are spawned in
// the slots that were replaced, and the new ones there go only when these are ready. stop-first: the old generation
// goes as soon as the new one is prepared, and the new one is spawned when nothing of the old one lives; if the trial
// fails, the old one is spawned again.
//
// # Events and states
//
// What a program of two workers answers to each event in each state: its actions, and the state afterwards if it
// changes. Workers 1 and 2 are the first generation, 3 and 4 the second. "-" is nothing. An event cannot come in a
// state that is not listed. A state is followed by strategies where these differ. An event for a worker or a generation
// that is gone does nothing.
// A test regenerates the table from the code.
//
//	Start
//	    down: prepare 1 → starting
//	    starting, up, reloading, waiting: -
//	    stopping: prepare 2 → starting
//	Start while others are awaited
//	    down: - → waiting
//	Reload while others are awaited
//	    waiting: -
//	Tick when those serve that were awaited
//	    waiting: prepare 1 → starting
//	Reload
//	    down, starting, reloading, stopping: -
//	    up: prepare 2 → reloading
//	    waiting: prepare 2 → starting
//	Reload for a changed file, the fourth in a row
//	    down, starting, up, reloading, waiting, stopping: -
//	Reload of a canary of 1
//	    down, starting, up (stop-first), reloading, waiting, stopping: -
//	    up (all, rolling): prepare 2 → reloading
//	ReadySaid by the canary
//	    reloading: -
//	Reload beside a held canary
//	    reloading: -
//	Promote of a held canary
//	    reloading (all): spawn 2/1
//	    reloading (rolling): TERM 1
//	Promote of another trial
//	    starting, reloading: -
//	Abort of a held canary
//	    reloading: TERM 3 → up
//	Abort of another trial
//	    starting: TERM 1, TERM 2 → waiting
//	    reloading (all): TERM 3, TERM 4 → up
//	    reloading (rolling): TERM 3 → up
//	Exited of a held canary
//	    reloading: forget 2 → up
//	Tick after a canary was held for its time
//	    reloading (all): spawn 2/1
//	    reloading (rolling): TERM 1
//	Reload of a canary of 5%, then ReadySaid
//	    reloading: steer 1:9500 2:500
//	Promote of a canary to 25%
//	    reloading: steer 1:7500 2:2500
//	Promote of a canary of 5%
//	    reloading: steer 2; 1 is finishing; 2 is finishing → up
//	Abort of a canary of 5%
//	    reloading: steer 1; 3 is finishing; 4 is finishing → up
//	ReadySaid by every worker on trial, steered
//	    reloading: steer 2; 1 is finishing; 2 is finishing → up
//	ReadySaid by every worker on trial, steered, with keep
//	    reloading: steer 2; 1 is kept; 2 is kept → up
//	Looked, and quiet, of a finishing generation
//	    up: TERM 1, TERM 2
//	Tick at the deadline of finishing workers
//	    up: TERM 1, TERM 2
//	Looked
//	    up: -; 1 is finishing; 2 is finishing
//	Refused
//	    up: -; 1 is finishing; 2 is finishing
//	DrainsItself of a finishing worker
//	    up: TERM 1; 2 is finishing
//	Exited of a finishing worker
//	    up: -; 2 is finishing
//	Exited of a kept worker
//	    up: -; 2 is kept
//	Tick when kept workers have been kept for their time
//	    up: -; 1 is finishing; 2 is finishing
//	Rollback to a kept generation
//	    up: steer 1; 3 is finishing; 4 is finishing
//	Rollback without one
//	    down, starting, up, reloading, waiting, stopping: -
//	Pause
//	    down, stopping: -
//	    starting, up, reloading, waiting: pause
//	Tick at the end of a pause
//	    down: -
//	    starting, up, reloading, waiting: resume
//	    stopping: KILL 1, KILL 2
//	Unpause of a paused program
//	    down, stopping: -
//	    starting, up, reloading, waiting: resume
//	Scale to 3 workers
//	    down, starting, reloading, waiting, stopping: -
//	    up: spawn 1/2
//	Scale to 1 worker
//	    down, starting, reloading, waiting, stopping: -
//	    up: TERM 2
//	Stop
//	    down, stopping: -
//	    starting, up: TERM 1, TERM 2 → stopping
//	    reloading (all): TERM 3, TERM 4, TERM 1, TERM 2 → stopping
//	    reloading (rolling): TERM 3, TERM 1, TERM 2 → stopping
//	    reloading (stop-first): forget 2 → stopping
//	    waiting: - → down
//	Kill
//	    down: -
//	    starting, up: KILL 1, KILL 2 → stopping
//	    reloading (all): KILL 3, KILL 4, KILL 1, KILL 2 → stopping
//	    reloading (rolling): KILL 3, KILL 1, KILL 2 → stopping
//	    reloading (stop-first): KILL 1, KILL 2, forget 2 → stopping
//	    waiting: - → down
//	    stopping: KILL 1, KILL 2
//	Prepared
//	    reloading (all): spawn 2/0, spawn 2/1
//	    reloading (rolling): spawn 2/0
//	    reloading (stop-first): steer 2, TERM 1, TERM 2
//	    starting: steer 2, spawn 2/0, spawn 2/1
//	Prepared with a failure
//	    reloading: forget 2 → up
//	    starting: forget 2 → waiting
//	Spawned
//	    starting, reloading: -
//	ReadySaid by the first worker on trial
//	    starting, reloading (all): -
//	    reloading (rolling): TERM 1
//	ReadySaid by every worker on trial
//	    starting: - → up
//	    reloading (all): steer 2, TERM 1, TERM 2 → up
//	    reloading (rolling): TERM 1
//	ReadySaid by every worker on trial, with soak
//	    starting: - → up
//	    reloading: -
//	Tick at the end of the soak
//	    up: -
//	    reloading (all): steer 2, TERM 1, TERM 2 → up
//	    reloading (rolling): TERM 1
//	Extend
//	    starting, reloading: -
//	Leaving of a serving worker
//	    up (all, rolling), reloading (all): spawn 1/0
//	    up (stop-first): TERM 1
//	    reloading (rolling): -
//	NeverReady
//	    starting: TERM 1, TERM 2 → waiting
//	    reloading (all): TERM 3, TERM 4 → up
//	    reloading (rolling): TERM 3 → up
//	Exited of a worker on trial
//	    starting: TERM 2 → waiting
//	    reloading (all): TERM 4 → up
//	    reloading (rolling): forget 2 → up
//	Tick at the deadline of a worker on trial
//	    starting: TERM 1, TERM 2 → waiting
//	    reloading (all): TERM 3, TERM 4 → up
//	    reloading (rolling): TERM 3 → up
//	Exited of a serving worker
//	    up, reloading: spawn 1/0
//	Exited of a serving worker that was stable
//	    up, reloading: spawn 1/0
//	Replace of a serving worker
//	    up (all, rolling), reloading (all): spawn 1/0
//	    up (stop-first): TERM 1
//	    reloading (rolling): -
//	Replace of a serving worker over a limit
//	    up (all, rolling): spawn 1/0
//	    up (stop-first): TERM 1
//	    reloading: -
//	Signalled of a stopping worker
//	    stopping: -
//	Tick, when the signal to a stopping worker could not be sent
//	    stopping: TERM 1, TERM 2
//	Exited of a stopping worker
//	    stopping: -
//	Exited of every stopping worker
//	    stopping: forget 1 → down
//	Tick at the next retry, or step of a stop plan
//	    waiting: prepare 2 → starting
//	    stopping: KILL 1, KILL 2
//
// # What never happens
//
// A canary never becomes more than was asked for: it begins at once as it is, or it is refused and nothing changes
// (canary.go).
//
// A reload never costs a worker that still drains: when as many generations drain as max_draining allows, the reload
// waits, unless nothing serves or the configuration says to kill (Program.full).
package program
