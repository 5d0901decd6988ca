// Package program decides when the workers of a program start and stop. It carries nothing out: package supervisor does.
//
// A program is a series of generations; a generation is a number of workers, one for each slot, started from one snapshot of the
// configuration. At most one generation serves, at most one is on trial, any number are draining. A trial whose workers are all
// ready becomes the one that serves, and the one before it begins to drain. A trial that fails goes away; the serving one was
// never touched, so rolling back needs no code. Whatever wants new workers asks in the same word, Reload.
//
// Program.Step is pure: plain data, no clock, no goroutine, no system call. Deadlines are part of the data, so a timer that fires
// late finds nothing to do, and a state that was written down and read again goes on where it was. A test keeps clocks,
// goroutines, channels and system calls out of this package.
//
// # The table
//
// What a program of two workers with the strategy "all" answers to each event in each state: its actions (worker 1 and 2 are the
// first generation, 3 and 4 the second), and the state afterwards where it changes. "-" is nothing. A test regenerates it from the code.
//
//	Start
//	    down       prepare 1  → starting
//	    starting   -
//	    up         -
//	    reloading  -
//	    waiting    -
//	    stopping   prepare 2  → starting
//	Reload
//	    down       -
//	    starting   -
//	    up         prepare 2  → reloading
//	    reloading  -
//	    waiting    prepare 2  → starting
//	    stopping   -
//	Reload of a canary of 1
//	    down       -
//	    starting   -
//	    up         prepare 2  → reloading
//	    reloading  -
//	    waiting    -
//	    stopping   -
//	Reload of a canary of 1 that gets ready
//	    down       impossible
//	    starting   impossible
//	    up         prepare 2, spawn 2/0  → reloading
//	    reloading  impossible
//	    waiting    impossible
//	    stopping   impossible
//	Reload of a canary of 1 that gets ready, then Reload
//	    down       impossible
//	    starting   impossible
//	    up         prepare 2, spawn 2/0  → reloading
//	    reloading  impossible
//	    waiting    impossible
//	    stopping   impossible
//	Reload of a canary of 1 that gets ready, then Promote
//	    down       impossible
//	    starting   impossible
//	    up         prepare 2, spawn 2/0, spawn 2/1  → reloading
//	    reloading  impossible
//	    waiting    impossible
//	    stopping   impossible
//	Reload of a canary of 1 that gets ready, then Abort
//	    down       impossible
//	    starting   impossible
//	    up         prepare 2, spawn 2/0, serve 1, TERM 3
//	    reloading  impossible
//	    waiting    impossible
//	    stopping   impossible
//	Stop
//	    down       -
//	    starting   TERM 1, TERM 2  → stopping
//	    up         TERM 1, TERM 2  → stopping
//	    reloading  TERM 3, TERM 4, TERM 1, TERM 2  → stopping
//	    waiting    -  → down
//	    stopping   -
//	Kill
//	    down       -
//	    starting   KILL 1, KILL 2  → stopping
//	    up         KILL 1, KILL 2  → stopping
//	    reloading  KILL 3, KILL 4, KILL 1, KILL 2  → stopping
//	    waiting    -  → down
//	    stopping   KILL 1, KILL 2
//	Reload, then Prepared
//	    down       impossible
//	    starting   impossible
//	    up         prepare 2, spawn 2/0, spawn 2/1  → reloading
//	    reloading  impossible
//	    waiting    prepare 2, spawn 2/0, spawn 2/1  → starting
//	    stopping   impossible
//	Reload, then Prepared with a failure
//	    down       impossible
//	    starting   impossible
//	    up         prepare 2, serve 1, forget 2
//	    reloading  impossible
//	    waiting    prepare 2, forget 2
//	    stopping   impossible
//	ReadySaid by the first worker on trial
//	    down       impossible
//	    starting   -
//	    up         impossible
//	    reloading  -
//	    waiting    impossible
//	    stopping   impossible
//	ReadySaid by every worker on trial
//	    down       impossible
//	    starting   serve 1  → up
//	    up         impossible
//	    reloading  serve 2, TERM 1, TERM 2  → up
//	    waiting    impossible
//	    stopping   impossible
//	NeverReady of a worker on trial
//	    down       impossible
//	    starting   TERM 1, TERM 2  → waiting
//	    up         impossible
//	    reloading  serve 1, TERM 3, TERM 4  → up
//	    waiting    impossible
//	    stopping   impossible
//	Exited of a worker on trial
//	    down       impossible
//	    starting   TERM 2  → waiting
//	    up         impossible
//	    reloading  serve 1, TERM 4  → up
//	    waiting    impossible
//	    stopping   impossible
//	Tick at the deadline of a worker on trial
//	    down       impossible
//	    starting   TERM 1, TERM 2  → waiting
//	    up         impossible
//	    reloading  serve 1, TERM 3, TERM 4  → up
//	    waiting    impossible
//	    stopping   impossible
//	Exited of a serving worker
//	    down       impossible
//	    starting   impossible
//	    up         spawn 1/0
//	    reloading  spawn 1/0
//	    waiting    impossible
//	    stopping   impossible
//	Exited of a serving worker that was stable
//	    down       impossible
//	    starting   impossible
//	    up         spawn 1/0
//	    reloading  spawn 1/0
//	    waiting    impossible
//	    stopping   impossible
//	Replace of a serving worker
//	    down       impossible
//	    starting   impossible
//	    up         spawn 1/0
//	    reloading  spawn 1/0
//	    waiting    impossible
//	    stopping   impossible
//	OverLimit of a serving worker
//	    down       impossible
//	    starting   impossible
//	    up         spawn 1/0
//	    reloading  -
//	    waiting    impossible
//	    stopping   impossible
//	Exited of a stopping worker
//	    down       impossible
//	    starting   impossible
//	    up         impossible
//	    reloading  impossible
//	    waiting    impossible
//	    stopping   -
//	Tick at the next deadline
//	    down       impossible
//	    starting   impossible
//	    up         impossible
//	    reloading  impossible
//	    waiting    prepare 2  → starting
//	    stopping   KILL 1, KILL 2
//
// The other strategies differ in who goes when. rolling: a new worker that is ready ends the old one in its slot at once, and at
// most max_surge more workers than usual live; when it fails, workers of the old generation are spawned in the slots that were
// replaced, and only when these are ready the new ones in their place go. stop-first: the old generation goes as soon as the new
// one is prepared, and the new one is spawned when nothing of the old one lives; when it fails, the old one is spawned again.
//
// Two things never happen. A canary never becomes more than was asked for: it begins at once as it is, or it is refused and
// nothing changes (canary.go). And a reload never costs a worker that still drains: when as many generations drain as
// max_draining allows, the reload waits, unless nothing serves or the configuration says to kill (Program.full).
package program
