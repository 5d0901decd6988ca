package program

import (
	"fmt"
	"strings"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/worker/life"
)

// Event is something that a program answers in Step. An event for a worker or a generation that is gone does nothing.
type Event interface{ event() }

type (
	// Start makes the program run with this configuration.
	Start struct {
		Config  *config.Program // nil: the one that the program has
		AskedBy string
	}

	// Reload asks for a new generation. It never starts a program that was told to stop. A whole generation waits while
	// another is on trial, or too many drain. A canary never waits: it begins at once, or CanaryRefused says why not and
	// nothing changes.
	Reload struct {
		Config  *config.Program // nil: the one that the program has
		Reason  string          // for the log
		AskedBy string          // "": nobody
		// start this many workers and hold them beside the serving generation until Promote; 0: no canary
		Canary int
		// hold a whole generation beside the serving one with this share of the new connections, in parts of Whole; 0: no
		// canary
		Share int
		For   time.Duration // promote the canary by itself after it was well for this long; 0: wait for Promote or Abort
		By    Renewal       // why it begins by itself; "": it was requested

		Unsteered string // with Share: which listener cannot be shared out, and why; "": all can
	}

	// Promote lets a held canary become the whole generation, or changes its share of the new connections.
	Promote struct {
		Share   int // in parts of Whole; 0: everything
		AskedBy string
	}

	// Rollback makes the generation that is kept serve again, unless Refuses says why not: then nothing happens.
	Rollback struct{ AskedBy string }

	// Pause makes new connections wait in the kernel for a time, which begins anew if they wait already.
	Pause struct {
		For     time.Duration
		AskedBy string
	}

	// Unpause ends a pause.
	Unpause struct{ AskedBy string }

	// Abort ends the trial. A reload that waits behind a canary would deploy what the canary showed to be bad, so it is
	// dropped.
	Abort struct {
		Reason, AskedBy string
		ThenReload      bool // it is not
	}

	// Scale changes the number of workers until the next configuration.
	Scale struct {
		Workers int
		AskedBy string
	}

	// Stop ends the program: every worker goes through its stop plan.
	Stop struct {
		Reason      string // for the log; "": requested
		AskedBy     string
		Interrupted bool // by INT, which may have a stop signal of its own
		Handed      bool // another program gets the new connections: workers finish what they have, as in a reload
	}

	// Kill ends the program now: KILL to every worker.
	Kill struct{ Reason, AskedBy string }

	// Prepared says that the snapshot of a generation on trial is resolved and its preflight has passed, or why not.
	Prepared struct {
		Generation int
		Steered    bool // it has listening sockets of its own, so that the generation before gets nothing new after a switch
		Sockets    int  // see Generation
		BesideUnit bool // likewise
		Failure    *Failure
	}

	// Looked says what finishing workers have in hand. Unless that is nothing it decides nothing. It comes again and
	// again while they live.
	Looked struct {
		Generation int
		Slot       int  // -1: all
		Quiet      bool // nothing, so they may be stopped
		Unseen     bool // nobody has looked: they accept beside others, and do something about the signal
		Look
	}

	// Refused says how many connections were reset that waited in the queues of a generation, because none of its workers
	// is left.
	Refused struct{ Generation, Connections int }

	// Signalled says that the signal of this action was sent.
	Signalled struct{ SendSignal }

	// Did says what happened to a worker.
	Did struct {
		Worker int
		life.Event
	}

	// Replace asks for a successor of a worker that is unhealthy, or has said that it is going to stop. The worker serves
	// until the successor is ready.
	Replace struct {
		Worker int
		Reason string
		// it uses more than its limits allow: nothing happens if something is under way in the program, and the next
		// measurement asks again
		OverLimit bool
	}

	// Tick says that time has passed.
	Tick struct{}
)

// Whole is all new connections.
const Whole = 10_000

// Percentage returns a share in parts of Whole for people: "12.5%".
func Percentage(share int) string {
	return fmt.Sprintf("%g%%", float64(share)*100/Whole)
}

// Look is what workers have in hand at one time: connections, as the kernel sees them.
type Look struct {
	Queued     int `json:"queued"`     // not accepted yet
	Handshakes int `json:"handshakes"` // not established yet
	Unread     int `json:"unread"`     // with a request that the worker has not read
	Answering  int `json:"answering"`  // with a request without an answer, or an answer that has not arrived
	Active     int `json:"active"`     // silent for less than Within
	Idle       int `json:"idle"`       // kept open by their clients

	Within time.Duration `json:"within_ns,omitempty"` // drain.silence
}

// String says which connections are in use, for people.
func (l Look) String() string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{l.Queued, "waiting to be accepted"}, {l.Handshakes, "being opened"}, {l.Unread, "unread"}, {l.Answering,
		"being answered"},
		{l.Active, "active within " + Short(l.Within)}, {l.Idle, "idle"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	if len(parts) == 0 {
		return "no connection in use"
	}
	return strings.Join(parts, ", ")
}

// Failure is why a trial failed.
type Failure struct {
	Step    string   `json:"step"` // prepare, preflight, exec, user, …, start, ready, soak, serve, abort
	Reason  string   `json:"reason"`
	AskedBy string   `json:"asked_by,omitempty"` // who gave it up
	Worker  int      `json:"worker,omitempty"`   // 0: no worker in particular
	Slot    int      `json:"slot"`
	PID     int      `json:"pid,omitempty"`
	Wait    int      `json:"-"`              // the wait(2) status, where it is known
	Tail    []string `json:"tail,omitempty"` // its last lines of stderr
}

// LastLines is the last lines of the worker's stderr as a text that follows the failure's; "": there is none.
func (f *Failure) LastLines() string {
	if f == nil || len(f.Tail) == 0 {
		return ""
	}
	return "\nits last lines:\n  " + strings.Join(f.Tail, "\n  ")
}

// The steps of a failure that are not those of a spawn.
const (
	StepPrepare   = "prepare"
	StepPreflight = "preflight"
	stepReady     = "ready"
	stepAbort     = "abort" // the trial was aborted
)

func (Start) event()     {}
func (Reload) event()    {}
func (Promote) event()   {}
func (Abort) event()     {}
func (Scale) event()     {}
func (Stop) event()      {}
func (Kill) event()      {}
func (Prepared) event()  {}
func (Rollback) event()  {}
func (Pause) event()     {}
func (Unpause) event()   {}
func (Looked) event()    {}
func (Refused) event()   {}
func (Signalled) event() {}
func (Did) event()       {}
func (Replace) event()   {}
func (Tick) event()      {}

// Action is something that Step wants done. Actions are performed in order. None can fail: what goes wrong comes back
// as an event.
type Action interface{ action() }

type (
	// Prepare resolves the snapshot of a generation and runs its preflight. Prepared is the answer.
	Prepare struct{ Generation *Generation }

	// Abandon ends a Prepare whose result is not needed any more.
	Abandon struct{ Generation int }

	// Spawn starts a worker. life.Exited is the last answer, whatever happens.
	Spawn struct {
		Generation *Generation
		Worker     *Worker
	}

	// SendSignal sends a signal to a worker, or to its whole process group.
	SendSignal struct {
		Worker int
		Signal config.Signal
		Group  bool
	}

	// Steer says where new connections go from now on. It comes before any SendSignal of the same Step.
	Steer struct{ Shares []Share }

	// SetPaused says whether new connections wait in the kernel.
	SetPaused struct{ Paused bool }

	// Forget drops what was kept for a generation: it is gone.
	Forget struct{ Generation int }
)

// Share is the part of the new connections that a generation gets.
type Share struct {
	Generation int
	Slots      []int `json:",omitempty"` // only these, where each slot has a socket; nil: all
	Weight     int   // relative to those of the other shares
	// a socket of a socket unit has it, where there is one, in place of the generation's
	Unit bool `json:",omitempty"`
}

func (Prepare) action()    {}
func (Abandon) action()    {}
func (Spawn) action()      {}
func (SendSignal) action() {}
func (Steer) action()      {}
func (SetPaused) action()  {}
func (Forget) action()     {}
func (Report) action()     {}

// Origin is the kind of who asks for something. There are few, so that it can be a label of a metric.
type Origin string

// The origins.
const (
	askedControl Origin = "control"     // a user, at the control socket
	askedPage    Origin = "page"        // the holder of the page's token
	askedSignal  Origin = "signal"      // a signal to supervisord
	askedWatch   Origin = "watch"       // a file that has changed
	askedTimer   Origin = "timer"       // a time in the configuration is over
	askedNobody  Origin = "supervisord" // supervisord does it by itself: a first start, a replacement after a crash
)

// Origins lists the origins.
func Origins() []Origin {
	return []Origin{askedControl, askedPage, askedSignal, askedWatch, askedTimer, askedNobody}
}

// How texts of who asks begin; those of users do not contain ":" (see control.md), and only theirs contain "(uid".
const (
	signalText = "signal "
	watchText  = "watch: "
	timerText  = "timer: "
	tokenText  = "token holder "
)

// BySignal is who asks by a signal that came from this process: "bash (pid 4711, uid 0)".
func BySignal(name, from string) string { return signalText + name + " from " + from }

// ByWatch is who asks because what this path of the configuration leads to has changed.
func ByWatch(path string) string { return watchText + path }

// byTimer is who asks because the time of this key is over.
func byTimer(key string) string { return timerText + key }

// ByTokenHolder is who asks with the page's token from this address.
func ByTokenHolder(from string) string { return tokenText + "from " + from }

// OriginOf returns the kind of who asks. Everything that does not come from the functions above is a user.
func OriginOf(askedBy string) Origin {
	user := strings.Contains(askedBy, "(uid ") && !strings.HasPrefix(askedBy, watchText)
	switch {
	case askedBy == "":
		return askedNobody
	case strings.HasPrefix(askedBy, watchText):
		return askedWatch
	case strings.HasPrefix(askedBy, timerText):
		return askedTimer
	case strings.HasPrefix(askedBy, tokenText) && !user:
		return askedPage
	case strings.HasPrefix(askedBy, signalText) && !user:
		return askedSignal
	}
	return askedControl
}
