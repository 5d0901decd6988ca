// Package life has what can happen to a worker, as plain data. Package worker posts it, and the core of a program
// decides what follows: both speak of the same events.
//
// A worker goes through them from top to bottom. What is in brackets need not come:
//
//	[Filtered] ─► Spawned ─► [Awaited] [Strange] [Unseen] ─► ReadySaid ─► [Leaving] ─► [Outlived] ─► Exited
//	                 └─────────────────────────────────────► NeverReady
//
// Changed, StatusText, DrainsItself, Extend and Watchdog come at any time between Spawned and Exited, and Changed
// before.
package life

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/worker/spawn"
)

// Event is something that happened to a worker: one of the types below.
type Event interface{ event() }

// Changed: State or Descriptors say more than before, and no other event says so: the process was forked, or a part of
// a message came.
type Changed struct{}

// Filtered: the descriptor of its filter has come, and stays in the kernel until that is recorded. Spawned waits for
// that.
type Filtered struct{}

// Spawned: the command runs (the exec succeeded).
type Spawned struct{ PID int }

// ReadySaid: the worker is ready. It is sent once at most.
type ReadySaid struct{}

// NeverReady: the readiness method cannot tell whether the worker is ready. It is sent once at most, and no ReadySaid
// comes after it.
type NeverReady struct{ Err error }

// Unseen: it cannot be seen whether the worker accepts connections. It counts as ready when it has run for a while;
// without ReadyAfter because it has said so, or another method has.
type Unseen struct {
	Err        error
	ReadyAfter time.Duration
}

// Awaited: the worker is not ready after two seconds, and nothing is strange about it: Seen says what is awaited.
type Awaited struct{}

// Strange: the worker is not ready after two seconds or more, and there is something that may be why: Seen says what.
type Strange struct{}

// StatusText is the free text of STATUS= (one line of UTF-8 without control characters), and the error that came with
// it.
type StatusText struct {
	Text  string
	Errno syscall.Errno // from ERRNO=; 0: none
}

// Leaving: the worker said STOPPING=1 of its own accord.
type Leaving struct{}

// DrainsItself: the worker promised with X_SUPERVISORD_DRAINS=1 that it loses nothing when TERM comes while it is busy.
// That is said of connections: no worker knows when the last datagram has come. It is sent once at most, before a
// ReadySaid that the same message causes.
type DrainsItself struct{}

// Extend: the worker asks with EXTEND_TIMEOUT_USEC= for that much time from now, whatever it is doing.
type Extend struct{ Duration time.Duration }

// Watchdog: the worker said WATCHDOG=1 (it is well), or WATCHDOG=trigger (it is not).
type Watchdog struct{ Trigger bool }

// Outlived: the process has ended while it was stopped, and what it has started has not. First says how, and Left names
// the processes. It comes again when other ones take their place.
type Outlived struct{ First, Left string }

// Exited is the last event of every worker, also of one that could not be started: then Step says what failed ("exec",
// "user", "directory", "limits", …) and Err why.
type Exited struct {
	PID    int
	Status syscall.WaitStatus
	Known  bool   // false: the status is unknown (an adopted process)
	Step   string // "": it had been started
	Err    error
	Hint   string // for people: what to do about it; the supervisor adds it where the worker knows nothing
	// the kernel killed it for memory; known only where workers have control groups with the memory controller
	OOM  bool
	Tail []string // the last lines of stderr, where captured (oldest first)
	// sockets in which connections or datagrams wait that no other worker gets; the supervisor adds it
	Unaccepted int
	// the process of another supervisor could not be adopted: it may live, and nothing tells how it goes
	Unadopted bool
}

func (Changed) event()      {}
func (Filtered) event()     {}
func (Spawned) event()      {}
func (ReadySaid) event()    {}
func (NeverReady) event()   {}
func (Unseen) event()       {}
func (Awaited) event()      {}
func (Strange) event()      {}
func (StatusText) event()   {}
func (Leaving) event()      {}
func (DrainsItself) event() {}
func (Extend) event()       {}
func (Watchdog) event()     {}
func (Outlived) event()     {}
func (Exited) event()       {}

// String says how the worker ended: "exited with status 3", "killed by SIGSEGV (core dumped)",
// "cannot exec ./web: no such file or directory".
func (e Exited) String() string {
	text := Ending(e.Status, e.Known)
	switch {
	case e.OOM:
		text = "killed by the kernel for memory (OOM)"
	case e.Step != "" && e.Err != nil:
		text = spawn.Describe(e.Step, e.Err)
	}
	return text + e.Hint
}

// Clean reports whether the command has succeeded: it exited with status 0.
func (e Exited) Clean() bool { return e.Known && e.Status == 0 && e.Err == nil }

// Ending says how a process ended.
func Ending(status syscall.WaitStatus, known bool) string {
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
