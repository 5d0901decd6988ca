package worker

import (
	"fmt"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/worker/spawn"
)

// Event is something that happened to a worker: Changed, Spawned, ReadySaid, NeverReady, Unseen, Strange, Status, Leaving, DrainsItself, Extend,
// Watchdog, Outlived or Exited.
type Event interface{ event() }

// Changed: State or Descriptors say more than before, and no other event says so: the process was forked, or a part of a message came.
type Changed struct{}

// Spawned: the command runs (the exec succeeded).
type Spawned struct{ PID int }

// ReadySaid: the worker is ready. It is sent once at most.
type ReadySaid struct{}

// NeverReady: the readiness method cannot tell whether the worker is ready. It is sent once at most, and no ReadySaid comes after it.
type NeverReady struct{ Err error }

// Unseen: it cannot be seen whether the worker accepts connections. It counts as ready when it has run for a while; without ReadyAfter
// because it has said so, or another method has.
type Unseen struct {
	Err        error
	ReadyAfter time.Duration
}

// Strange: the worker is not ready after two seconds or more, and there is something that may be why: Seen says what.
type Strange struct{}

// Status is the free text of STATUS= (one line of UTF-8 without control characters), and the error that came with it.
type Status struct {
	Text  string
	Errno syscall.Errno // from ERRNO=; 0: none
}

// Leaving: the worker said STOPPING=1 of its own accord.
type Leaving struct{}

// DrainsItself: the worker promised with X_SUPERVISORD_DRAINS=1 that it loses nothing when TERM comes while it is busy. It is sent once at
// most, before a ReadySaid that the same message causes.
type DrainsItself struct{}

// Extend: the worker asks with EXTEND_TIMEOUT_USEC= for that much time from now, whatever it is doing.
type Extend struct{ Duration time.Duration }

// Watchdog: the worker said WATCHDOG=1 (it is well), or WATCHDOG=trigger (it is not).
type Watchdog struct{ Trigger bool }

// Outlived: the process has ended while it was stopped, and what it has started has not. First says how, and Left names the processes. It
// comes again when other ones take their place.
type Outlived struct{ First, Left string }

// Exited is the last event of every worker, also of one that could not be started: then Step says what failed ("exec", "user",
// "directory", "limits", …) and Err why.
type Exited struct {
	PID    int
	Status syscall.WaitStatus
	Known  bool   // false: the status is unknown (an adopted process)
	Step   string // "": it had been started
	Err    error
	OOM    bool     // the kernel killed it for memory; known only where workers have control groups with the memory controller
	Tail   []string // the last lines of stderr, where captured (oldest first)
}

func (Changed) event()      {}
func (Spawned) event()      {}
func (ReadySaid) event()    {}
func (NeverReady) event()   {}
func (Unseen) event()       {}
func (Strange) event()      {}
func (Status) event()       {}
func (Leaving) event()      {}
func (DrainsItself) event() {}
func (Extend) event()       {}
func (Watchdog) event()     {}
func (Outlived) event()     {}
func (Exited) event()       {}

// String says how the worker ended: "exited with status 3", "killed by SIGSEGV (core dumped)",
// "cannot exec ./web: no such file or directory".
func (e Exited) String() string {
	switch {
	case e.OOM:
		return "killed by the kernel for memory (OOM)"
	case e.Step == "" || e.Err == nil:
		return describe(e.Status, e.Known)
	}
	return spawn.Describe(e.Step, e.Err)
}

func describe(status syscall.WaitStatus, known bool) string {
	switch {
	case !known:
		return "ended, with a status that is not known"
	case status.Signaled():
		core := ""
		if status.CoreDump() {
			core = " (core dumped)"
		}
		return "killed by " + signalName(status.Signal()) + core
	}
	return fmt.Sprintf("exited with status %d", status.ExitStatus())
}

func signalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(sig))
}

// queue passes a worker's events, in order, to the goroutine that posts them. put does not wait, so that a slow receiver holds up its own
// worker only; what a worker can repeat at will is kept once, so that the queue cannot grow without limit.
type queue struct {
	wake chan struct{}

	mu     sync.Mutex
	events []Event
}

func newQueue() queue { return queue{wake: make(chan struct{}, 1)} }

func (q *queue) put(e Event) {
	q.mu.Lock()
	if i := q.older(e); i >= 0 {
		q.events[i] = e
	} else {
		q.events = append(q.events, e)
	}
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// older returns the index of an event that e replaces, or -1.
func (q *queue) older(e Event) int {
	for i, have := range q.events {
		switch have.(type) {
		case Changed:
			if _, same := e.(Changed); same {
				return i
			}
		case Status:
			if _, same := e.(Status); same {
				return i
			}
		case Extend:
			if _, same := e.(Extend); same {
				return i
			}
		case Watchdog:
			if new, same := e.(Watchdog); same && !have.(Watchdog).Trigger || same && new.Trigger {
				return i
			}
		}
	}
	return -1
}

// take waits for events and takes all there are.
func (q *queue) take() []Event {
	<-q.wake
	q.mu.Lock()
	defer q.mu.Unlock()
	events := q.events
	q.events = nil
	return events
}
