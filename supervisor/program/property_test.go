package program

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/socket"
	"example.org/supervisord/worker/life"
)

// history is a random history of a program and what the checks remember of it.
type history struct {
	*rapid.T
	p       *Program
	now     time.Time
	seen    map[int]bool // worker numbers ever spawned
	held    map[int]bool // generations prepared and not forgotten
	shutOff bool
	draw    func(*rapid.T) *config.Program
	canary  Reload    // the trial, not promoted yet; Canary 0: none
	till    time.Time // when it is promoted automatically; zero: never

	steered  map[int]bool          // generations that have got connections
	decided  map[int]ReloadRecord  // by generation: as decided, then as ended
	promised int                   // the newest number that a client may wait for
	paid     []time.Time           // when the crash budget paid for a replacement
	actions  []Action              // of the last step
	unsent   map[int]time.Duration // workers that were not sent the last signal that they were to be sent
	settled  bool                  // nothing fails any more
	follow   func([]Action)        // is told of them; may be nil
	memory
}

// pick draws one of some values.
func pick[V any](t *rapid.T, what string, of ...V) V { return rapid.SampledFrom(of).Draw(t, what) }

func drawConfig(t *rapid.T) *config.Program {
	c := testConfig(rapid.IntRange(1, 4).Draw(t, "workers"),
		pick(t, "strategy", config.All, config.Rolling, config.StopFirst))
	c.Reload.MaxSurge = pick(t, "surge", 1, 2)
	c.Reload.Soak = pick(t, "soak", 0, 0, 3*time.Second)
	c.Restart.When = pick(t, "when", config.Always, config.Always, config.OnFailure, config.Never)
	c.Restart.Generation = pick(t, "generation", config.Same, config.Same, config.New)
	c.Restart.Budget = pick(t, "budget", 0, 1, mostBudget)
	c.Reload.Retry = pick(t, "retry", 0, 0, time.Second)
	c.Reload.Every = pick(t, "every", 0, 0, 20*time.Second)
	c.Reload.MaxDraining = rapid.IntRange(0, 3).Draw(t, "max_draining")
	c.Stop.ReloadSignal = pick(t, "reload_signal", 0, syscall.SIGUSR1)
	c.Stop.IntSignal = pick(t, "int_signal", 0, syscall.SIGINT)
	c.Drain = config.DrainPolicy{Timeout: pick(t, "drain", 0, 10*time.Second, 10*time.Second),
		Spread: pick(t, "spread", 0, 0, 8*time.Second)}
	c.Reload.Keep = pick(t, "keep", 0, 20*time.Second)
	c.Listen = []socket.Spec{{
		PerSlot:  rapid.Bool().Draw(t, "per_slot"),
		Single:   rapid.Bool().Draw(t, "single"),
		Handover: pick(t, "handover", socket.Share, socket.Steer, socket.Steer),
	}}
	c.MaxAge = pick(t, "max_age", 0, 0, 10*time.Second, time.Minute)
	if rapid.Bool().Draw(t, "forever") {
		c.Stop.Steps[0].Wait = config.Forever
	} else if rapid.Bool().Draw(t, "steps") {
		c.Stop.Steps = append(c.Stop.Steps, config.StopStep{Signal: syscall.SIGQUIT, Wait: time.Second})
	}
	return c
}

// steered reports whether generations with this configuration have sockets of their own.
func steered(c *config.Program) bool {
	if len(c.Listen) == 0 {
		return false
	}
	alone := c.Reload.Strategy == config.All || c.Reload.Strategy == config.Rolling && !c.Listen[0].Single
	return c.Listen[0].Handover == socket.Steer && alone
}

// sockets is how many sockets a generation with this configuration has, if two workers share one unless it says
// otherwise, and a rolling one has two at least.
func sockets(c *config.Program) int {
	switch l := c.Listen[0]; {
	case l.PerSlot:
		return c.Workers
	case l.Single:
		return 1
	}
	if c.Reload.Strategy == config.Rolling {
		return max((c.Workers+1)/2, min(c.Workers, 2))
	}
	return (c.Workers + 1) / 2
}

// happening is something that may happen in a history.
type happening struct {
	what  string
	often int // beside the others
	may   func(*history) bool
	event func(*history) Event
}

func always(*history) bool    { return true }
func goes(h *history) bool    { return len(h.p.Draining) > 0 || h.p.any(Finishing) }
func onTrial(h *history) bool { return h.p.Trial != nil }
func begins(h *history) bool  { return h.p.Trial != nil && !h.p.Trial.Prepared }
func lives(h *history) bool   { return len(h.workers()) > 0 }
func mayStop(h *history) bool { return h.shutOff }

// it is an event that is always the same.
func it(e Event) func(*history) Event { return func(*history) Event { return e } }

// did is an event of any worker.
func did(e life.Event) func(*history) Event {
	return func(h *history) Event { return Did{h.worker(), e} }
}

// happenings could happen now. Most are plausible, some come too late.
var happenings = []happening{
	{"tick", 2, always, func(h *history) Event { h.pass(); return Tick{} }},
	{"reload", 1, always, (*history).reload},
	{"stale", 1, always, (*history).stale},
	{"scale", 1, always, func(h *history) Event { return Scale{Workers: rapid.IntRange(1, 5).Draw(h.T, "scale")} }},
	{"rollback", 1, always, it(Rollback{AskedBy: "alice"})},
	{"pause", 1, always, it(Pause{For: 5 * time.Second})},
	{"unpause", 1, always, it(Unpause{})},
	{"restore", 1, always, func(h *history) Event { h.restore(); return Tick{} }},
	{"others", 1, always, func(h *history) Event {
		h.p.Awaits = pick(h.T, "awaits", nil, []string{"db"}, []string{"cache", "db"})
		return Tick{}
	}},
	{"quieted", 2, goes, func(h *history) Event {
		g, slot, idle := h.look()
		return Looked{g, slot, true, false, Look{Idle: idle}}
	}},
	{"looked", 1, goes, func(h *history) Event {
		g, slot, idle := h.look()
		unread := rapid.IntRange(0, 1).Draw(h.T, "unread")
		return Looked{g, slot, false, false, Look{Unread: unread, Active: 1, Idle: idle}}
	}},
	{"loss", 1, goes, func(h *history) Event { g, _, idle := h.look(); return Refused{g, idle + 1} }},
	{"promote", 1, onTrial, func(h *history) Event { return Promote{Share: pick(h.T, "share", 0, 100, 2500)} }},
	{"abort", 1, onTrial, it(Abort{Reason: "requested"})},
	{"ready", 3, lives, did(life.ReadySaid{})},
	{"exit", 2, lives, func(h *history) Event {
		return Did{h.worker(), life.Exited{Known: rapid.Bool().Draw(h.T, "clean"),
			Unaccepted: rapid.IntRange(0, 1).Draw(h.T, "unaccepted")}}
	}},
	{"unadopted", 1, lives, did(life.Exited{Step: "adopt", Unadopted: true})},
	{"replace", 1, lives, func(h *history) Event { return Replace{Worker: h.worker(), Reason: "unhealthy"} }},
	{"overlimit", 1, lives, func(h *history) Event {
		return Replace{Worker: h.worker(), Reason: overLimit, OverLimit: true}
	}},
	{"extend", 1, lives, did(life.Extend{Duration: 10 * time.Second})},
	{"spawned", 1, lives, func(h *history) Event { w := h.worker(); return Did{w, life.Spawned{PID: w}} }},
	{"never ready", 1, lives, did(life.NeverReady{Err: errors.New("unknowable")})},
	{"drains itself", 1, lives, did(life.DrainsItself{})},
	{"prepared", 3, begins, func(h *history) Event { return h.prepared() }},
	{"unprepared", 1, begins, func(h *history) Event {
		return Prepared{Generation: h.p.Trial.Number, Failure: &Failure{Step: "preflight"}}
	}},
	{"stop", 1, mayStop, func(h *history) Event {
		return Stop{Interrupted: rapid.Bool().Draw(h.T, "interrupted"), Handed: rapid.Bool().Draw(h.T, "handed")}
	}},
	{"start", 1, mayStop, func(h *history) Event { return Start{Config: h.draw(h.T)} }},
	{"kill", 1, mayStop, it(Kill{})},
}

// event draws an event that could happen now.
func (h *history) event() Event {
	var names []string
	for _, e := range happenings {
		if e.may(h) {
			names = append(names, slices.Repeat([]string{e.what}, e.often)...)
		}
	}
	what := pick(h.T, "event", names...)
	return happenings[slices.IndexFunc(happenings, func(e happening) bool { return e.what == what })].event(h)
}

func (h *history) reload() Event {
	r := Reload{Config: h.draw(h.T), Reason: "HUP", Canary: pick(h.T, "canary", 0, 0, 0, 1, 2),
		Share: pick(h.T, "share", 0, 0, 500), For: pick(h.T, "for", 0, time.Minute), By: pick(h.T, "by", "", "", Changed)}
	if r.Canary > 0 {
		r.Share = 0
	}
	if r.Canary > 0 || r.Share > 0 {
		r.By = "" // a person asks for a canary
	}
	return r
}

// stale is an event about a worker that is gone.
func (h *history) stale() Event {
	n := rapid.IntRange(0, h.p.LastWorker).Draw(h.T, "stale")
	if w, _ := h.p.Find(n); w != nil {
		return Tick{}
	}
	return pick[Event](h.T, "late", Did{n, life.Exited{}}, Did{n, life.ReadySaid{}}, Replace{Worker: n},
		Prepared{Generation: n})
}

// restore continues as another supervisord does that finds the record.
func (h *history) restore() {
	h.p = recorded(h.T, h.p)
	h.p.Inherit(h.now)
	for worker := range h.unsent {
		h.unsent[worker] = doubtAfter
	}
}

func (h *history) prepared() Prepared {
	c := h.p.Trial.Config
	if !steered(c) {
		return Prepared{Generation: h.p.Trial.Number}
	}
	return Prepared{Generation: h.p.Trial.Number, Steered: true, Sockets: sockets(c)}
}

// look draws where a look at a generation finds how much.
func (h *history) look() (generation, slot, idle int) {
	g := pick(h.T, "generation", h.p.Generations()...)
	slot, idle = -1, rapid.IntRange(0, 1).Draw(h.T, "idle")
	if g.perSlot() {
		slot = rapid.IntRange(-1, len(g.Slots)).Draw(h.T, "slot")
	}
	return g.Number, slot, idle
}

func (h *history) workers() []*Worker {
	var workers []*Worker
	for w := range h.p.Workers() {
		workers = append(workers, w)
	}
	return workers
}

// worker draws the number of a worker that lives.
func (h *history) worker() int { return pick(h.T, "worker", h.workers()...).Number }

// pass advances the clock, at most to the next deadline.
func (h *history) pass() {
	if next := h.p.Next(h.now); !next.IsZero() && rapid.Bool().Draw(h.T, "deadline") {
		h.now = next
		return
	}
	h.now = h.now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(h.T, "ms")) * time.Millisecond)
}

func (h *history) step(e Event) {
	before, was, workers := h.inService(), *h.p, h.workersNow()
	failing := h.failing(e)
	kept := h.p.kept()
	if h.p.Refuses(Rollback{}) != "" {
		kept = nil
	}
	h.p.Unaccepted = slices.DeleteFunc(h.p.Deserted(), func(int) bool { return rapid.Bool().Draw(h.T, "nobody waits") })
	if _, is := e.(Tick); is {
		h.lend()
	}
	actions := slices.Clone(h.p.Step(h.now, e))
	h.checkInherited(was.Serving)
	if h.actions = actions; h.follow != nil {
		h.follow(actions)
	}
	h.perform(actions)
	for _, a := range actions {
		h.checkAction(a)
	}
	h.checkCovered(before, e)
	h.checkKilled(actions, workers, e)
	h.checkSteering(actions)
	h.checkStopped(actions, workers, e)
	h.checkStopPlan(workers, e)
	h.checkFinishing(workers, e)
	h.checkFinished(workers, actions, e)
	h.checkAlone(actions)
	h.checkBegins(&was, actions, e)
	h.checkTimes()
	h.checkRollback(kept, was.Trial, actions, e)
	h.checkCanary(&was, e)
	h.checkReload(&was, e)
	h.checkUnadopted(&was, workers, e)
	h.checkOneAtATime(actions)
	h.checkBudget(failing, actions)
	h.checkReloads(actions)
	h.checkState()
	h.checkSettled(e)
	h.checkUnsent()
}

// perform sends signals, or cannot send them.
func (h *history) perform(actions []Action) {
	for _, s := range of[SendSignal](actions) {
		if rapid.IntRange(0, 9).Draw(h.T, "sent") == 0 {
			h.unsent[s.Worker] = resendAfter
		} else {
			delete(h.unsent, s.Worker)
			h.p.Step(h.now, Signalled{s})
		}
	}
}

// checkInherited: who waits at a deserted socket of a generation is accepted also when another one serves.
func (h *history) checkInherited(served *Generation) {
	if served == nil || h.p.Serving == nil || h.p.Serving == served || h.p.Goal == Halt ||
		served.Config.Drain.Timeout == 0 || served.StopFirst() || h.p.Serving.StopFirst() {
		return
	}
	for _, slot := range h.p.Unaccepted {
		if !slices.ContainsFunc(served.Workers, func(w *Worker) bool { return w.Slot == slot && w.Version != 0 }) {
			h.Fatalf("connections wait in slot %d of generation %d, and nobody accepts them any more", slot, served.Number)
		}
	}
}

// checkUnsent: a signal that could not be sent is sent again soon, and by the next supervisord in time.
func (h *history) checkUnsent() {
	for w := range h.p.Workers() {
		within, unsent := h.unsent[w.Number]
		if unsent && h.p.Next(h.now).After(h.now.Add(within)) {
			h.Fatalf("worker %d was not sent its signal at %s, and nothing happens before %s", w.Number, h.now, h.p.Next(h.now))
		}
	}
}

// mostBudget is the largest crash budget in a random history.
const mostBudget = 3

// failing returns a copy of the worker that serves, has failed before in its slot, was not stable since, and fails now.
func (h *history) failing(e Event) *Worker {
	number, never := 0, false
	switch e := e.(type) {
	case Replace:
		if !e.OverLimit {
			number = e.Worker
		}
	case Did:
		_, ended := e.Event.(life.Exited)
		if _, never = e.Event.(life.NeverReady); ended || never {
			number = e.Worker
		}
	}
	if _, scaled := e.(Scale); scaled {
		clear(h.failures)
	}
	w, g := h.p.Find(number)
	_, replaced := e.(Replace)
	if w == nil || g != h.p.Serving || !w.stays() || replaced && w.State != Ready || never && w.State != Starting {
		return nil
	}
	before, slot := *w, [2]int{g.Number, w.Slot}
	if w.wasStable(h.now, g) {
		h.failures[slot] = 0
	}
	if h.failures[slot]++; h.failures[slot] == 1 {
		return nil
	}
	return &before
}

// checkBudget: what fails again is replaced without a wait only if it was ready, and never more often than the crash
// budget allows.
func (h *history) checkBudget(failing *Worker, actions []Action) {
	for _, r := range of[Report](actions) {
		if failing == nil || r.After > 0 ||
			r.Kind != SlotRetry && r.Kind != StartRetry && (r.Kind != WorkerLeaving || r.Worker != failing.Number) {
			continue
		}
		if failing.State != Ready {
			h.Fatalf("worker %d, which was %s, is replaced without a wait: %+v", failing.Number, failing.State, r)
		}
		if h.paid = append(h.paid, h.now); len(h.paid) > mostBudget &&
			h.now.Sub(h.paid[len(h.paid)-1-mostBudget]) < h.p.Config.Restart.StableAfter {
			h.Fatalf("the crash budget paid for %d replacements since %s", mostBudget+1, h.paid[len(h.paid)-1-mostBudget])
		}
		return
	}
}

// checkSettled: nothing is left to do at this instant, because no later event may trigger it.
func (h *history) checkSettled(e Event) {
	if !Ruled(e) {
		return
	}
	left := h.p.Step(h.now, Tick{})
	if len(left) > 0 {
		h.Fatalf("%T left %+v undone", e, left)
	}
}

// checkReloads: every promised number has a record, a record gets exactly one outcome, and every change of a record is
// reported.
func (h *history) checkReloads(actions []Action) {
	for _, r := range of[Report](actions) {
		if r.Reload != nil && !r.Reload.Outcome.Open() && r.Kind != ConnectionsReset {
			h.checkDecided(*r.Reload)
		}
	}
	known := map[int]bool{}
	for _, r := range h.p.Reloads {
		if known[r.Generation] {
			h.Fatalf("generation %d has two records", r.Generation)
		}
		known[r.Generation] = true
		told := h.decided[r.Generation]
		switch trial := h.p.Trial != nil && h.p.Trial.Number == r.Generation; {
		case trial != r.Outcome.Open():
			h.Fatalf("generation %d is on trial: %v, and its reload is %s", r.Generation, trial, r.Outcome)
		case !trial && (told.Outcome != r.Outcome || !told.Ended.Equal(r.Ended)):
			h.Fatalf("the record of generation %d is %+v, but no report says so: %+v", r.Generation, r, told)
		case !trial && r.Ended.IsZero() != (h.p.Generation(r.goes()) != nil) && (r.Ended.IsZero() || r.RolledBack.IsZero()):
			h.Fatalf("generation %d lives: %v, and the reload that waits for its end is %+v", r.goes(),
				h.p.Generation(r.goes()) != nil, r)
		}
	}
	for n := max(1, h.p.LastGeneration-keptReloads+1); n <= h.p.LastGeneration; n++ {
		if !known[n] {
			h.Fatalf("there is no record of generation %d", n)
		}
	}
	if h.promised > h.p.Awaited() {
		h.Fatalf("generation %d was promised, and %d is awaited", h.promised, h.p.Awaited())
	}
	h.promised = h.p.Awaited()
}

func (h *history) checkDecided(r ReloadRecord) {
	before, known := h.decided[r.Generation]
	switch {
	case known && !before.Ended.IsZero() && r.RolledBack.IsZero() && before.Gap != GapOpen:
		h.Fatalf("the finished reload of generation %d is reported again: %+v", r.Generation, r)
	case known && (before.Outcome != r.Outcome || !before.Decided.Equal(r.Decided)):
		h.Fatalf("the reload of generation %d was %+v, and is %+v", r.Generation, before, r)
	case r.Decided.IsZero():
		h.Fatalf("the time of the decision of %+v is unknown", r)
	}
	if h.decided == nil {
		h.decided = map[int]ReloadRecord{}
	}
	h.decided[r.Generation] = r
}

// overLimit is a reason that only a worker over a limit has here.
const overLimit = "over its limit"

// checkOneAtATime: a worker is replaced for a limit only while no other one is being replaced.
func (h *history) checkOneAtATime(actions []Action) {
	limited, leaving := 0, 0
	for _, r := range of[Report](actions) {
		if r.Kind == WorkerLeaving &&
			(r.Reason == overLimit || strings.Contains(r.Reason, "max_age")) {
			limited++
		}
	}
	for w := range h.p.Workers() {
		if w.State == Leaving {
			leaving++
		}
	}
	outage := h.p.Serving != nil && h.p.Serving.StopFirst() // a reload that waits begins then
	if limited > 1 || limited == 1 && (leaving > 1 || h.p.Trial != nil && !outage) {
		h.Fatalf("%d replaced for a limit, %d leaving, trial %v", limited, leaving, h.p.Trial)
	}
}

// inService lists the workers that clients depend on.
func (h *history) inService() map[int]*Worker {
	serving := map[int]*Worker{}
	for w, g := range h.p.Workers() {
		rolls := g.Config.Reload.Strategy == config.Rolling && !(g.Steered && g.IsCanary())
		took := g == h.p.Trial && rolls && w.State == Ready
		if w.State == Leaving || g == h.p.Serving && w.State == Ready || took {
			serving[w.Number] = w
		}
	}
	return serving
}

func (h *history) checkAction(a Action) {
	switch a := a.(type) {
	case Steer:
		for _, s := range a.Shares {
			h.steered[s.Generation] = true
		}
	case Prepare:
		h.held[a.Generation.Number] = true
	case Forget:
		if !h.held[a.Generation] {
			h.Fatalf("generation %d forgotten twice", a.Generation)
		}
		delete(h.held, a.Generation)
	case Spawn:
		if h.seen[a.Worker.Number] {
			h.Fatalf("worker number %d used twice", a.Worker.Number)
		}
		h.seen[a.Worker.Number] = true
	case SendSignal:
		if w, _ := h.p.Find(a.Worker); w == nil || w.State != Stopping {
			h.Fatalf("signal for worker %d, which is not stopping", a.Worker)
		}
	}
}

// checkCovered checks the promise: a serving worker is never told to stop before its replacement is ready.
func (h *history) checkCovered(before map[int]*Worker, e Event) {
	if _, back := e.(Rollback); back || h.p.Goal == Halt || h.p.exclusive() || h.p.makeRoom() {
		return
	}
	covered := map[int]bool{}
	for _, w := range h.inService() {
		covered[w.Slot] = true
	}
	for _, w := range before {
		inRange := h.p.Serving != nil && w.Slot < len(h.p.Serving.Slots)
		if (w.State == Stopping || w.State == Finishing || w.State == Kept) && !covered[w.Slot] && inRange {
			h.Fatalf("%T: worker %d in slot %d was told to stop and no replacement is ready", e, w.Number, w.Slot)
		}
	}
}

// checkKilled: a worker is killed only by the stop plan, or on request.
func (h *history) checkKilled(actions []Action, before map[int]workerOf, e Event) {
	if _, asked := e.(Kill); asked {
		return
	}
	for _, s := range of[SendSignal](actions) {
		if s.Signal != syscall.SIGKILL || before[s.Worker].Killed {
			continue
		}
		if w, g := h.p.Find(s.Worker); w.Step < len(g.Config.Stop.Steps) {
			h.Fatalf("%T: worker %d is killed at step %d of its stop plan", e, w.Number, w.Step)
		}
	}
}

// checkCanary: a canary begins exactly as requested or nothing changes, and it never grows before its promotion.
func (h *history) checkCanary(was *Program, e Event) {
	r, asked := e.(Reload)
	asked = asked && (r.Canary > 0 || r.Share > 0)
	began := h.p.LastGeneration > was.LastGeneration
	switch t := h.p.Trial; {
	case asked && began && (t == nil || t.Canary != r.Canary || t.Share != r.Share):
		h.Fatalf("the canary %+v was requested, got %+v", r, t)
	case asked && !began && (h.p.Config != was.Config || h.p.Candidate != was.Candidate || h.p.Trial != was.Trial ||
		h.p.Again != was.Again):
		h.Fatalf("a refused canary changed something")
	case asked && began:
		h.canary = r
	}
	promote, promoted := e.(Promote)
	promoted = promoted && promote.Share == 0
	if t := h.p.Trial; promoted || t == nil || began && !asked || !h.till.IsZero() && !h.now.Before(h.till) {
		h.canary = Reload{}
	}
	h.till = time.Time{}
	if t := h.p.Trial; t != nil {
		h.till = t.HeldTill
	}
	if n := h.canary.Canary; n > 0 {
		if len(h.p.Trial.Workers) > n || h.p.Trial.Canary != n {
			h.Fatalf("a canary of %d has %d workers", n, len(h.p.Trial.Workers))
		}
		if h.p.Serving != nil && h.p.Serving.Config == h.canary.Config {
			h.Fatalf("%T: the generation that serves has the configuration of a canary", e)
		}
	}
	if h.p.Again != nil && h.p.Again.Canary > 0 {
		h.Fatalf("a canary waits")
	}
}

// checkReload: a requested reload begins, or stays due until one has begun.
func (h *history) checkReload(was *Program, e Event) {
	if h.p.Goal == Halt {
		return
	}
	began := h.p.LastGeneration > was.LastGeneration
	if r, ok := e.(Reload); ok && r.Canary == 0 && r.Share == 0 && !began && h.p.Again == nil {
		h.Fatalf("a reload is lost")
	}
	if was.Again != nil && h.p.Again == nil && !began {
		h.Fatalf("%T: a reload that was due is lost", e)
	}
	if h.p.Again != nil && h.p.AgainAt.Before(h.now) && h.p.Trial == nil && !h.p.full() && !h.p.AwaitsOthers() {
		h.Fatalf("%T: a reload waits for nothing", e)
	}
	if h.p.full() && len(h.p.Draining) == 0 {
		h.Fatalf("a reload waits although nothing drains")
	}
}

func (h *history) checkState() {
	perSlot := map[[2]int]int{}
	generations := map[int]bool{}
	for w, g := range h.p.Workers() {
		generations[g.Number] = true
		endless := w.State == Stopping && !w.Killed &&
			g.Config.Stop.Steps[min(w.Step, len(g.Config.Stop.Steps)-1)].Wait == config.Forever
		lent := w.State == Kept && w.Deadline.IsZero() && (h.p.Lent[g.Number] != "" || g == h.p.Serving)
		timed := w.State == Starting || w.State == Soaking || w.State == Kept && !lent || w.State == Finishing ||
			w.State == Stopping && !w.Killed && !endless
		if timed != !w.Deadline.IsZero() {
			h.Fatalf("worker %d is %s with deadline %s", w.Number, w.State, w.Deadline)
		}
		d, starts := g.Config.Drain, time.Duration(0)
		if w.Version != 0 && !w.WasReady {
			starts = g.Config.Ready.Timeout
		}
		if w.State == Finishing && w.Deadline.Sub(w.Since) > max(d.Timeout, starts)+d.Spread && !w.Excused {
			h.Fatalf("worker %d may finish until %s, %s after it began", w.Number, w.Deadline, w.Deadline.Sub(w.Since))
		}
		if w.stays() {
			perSlot[[2]int{g.Number, w.Slot}]++
		}
	}
	for k, n := range perSlot {
		if n > 1 {
			h.Fatalf("generation %d has %d workers in slot %d", k[0], n, k[1])
		}
	}
	if len(h.held) != len(h.p.Generations()) {
		h.Fatalf("%d generations held, %d live", len(h.held), len(h.p.Generations()))
	}
	h.checkNotStranded()
}

// checkSteering: what Steer said last is what the state says, before anything else is done; new connections go to
// workers that live or are about to; and a trial gets none before all its workers were ready, unless nothing else can
// have them.
func (h *history) checkSteering(actions []Action) {
	for i, a := range actions {
		if s, ok := a.(Steer); ok && (i > 0 || !slices.EqualFunc(s.Shares, h.p.Steering, Share.equal)) {
			h.Fatalf("action %d is %+v, and the record says %+v", i, s, h.p.Steering)
		}
	}
	serving, t := h.p.Serving, h.p.Trial
	if nothing := serving == nil && t == nil; (nothing || h.p.Goal == Halt) && len(h.p.Steering) > 1 {
		h.Fatalf("while nothing serves, new connections wait in several places: %+v", h.p.Steering)
	}
	if serving == nil || h.p.Goal == Halt || h.p.makeRoom() {
		return
	}
	for _, share := range h.p.Steering {
		g := h.p.Generation(share.Generation)
		switch {
		case g == nil:
			h.Fatalf("generation %d gets connections, and does not live", share.Generation)
		case share.Weight <= 0:
			h.Fatalf("the weight of generation %d is %d", g.Number, share.Weight)
		case g == serving: // its workers are replaced when they end, if the restart policy wants that
		case g != serving && g.count(Ready)+g.count(Leaving) == 0:
			h.Fatalf("generation %d gets connections, and nobody accepts them", g.Number)
		case g.Failure != nil && g.Steered && !serving.StopFirst() &&
			(g.IsCanary() || g.Config.Reload.Strategy == config.All):
			h.Fatalf("generation %d gets connections, and has failed before it took a slot over", g.Number)
		case g == t && !t.Held && (t.Config.Reload.Strategy != config.Rolling || !t.perSlot() && !serving.perSlot()):
			h.Fatalf("generation %d on trial gets connections", g.Number)
		}
		for _, slot := range share.Slots {
			if g.count(Ready)+g.count(Leaving) > 0 && !slices.ContainsFunc(g.Workers,
				func(w *Worker) bool { return w.Slot == slot && (w.State == Ready || w.State == Leaving) }) {
				h.Fatalf("slot %d of generation %d gets connections, and nobody accepts them", slot, g.Number)
			}
		}
	}
}

// checkStopped: a worker that may have connections of its own is told to stop only after a time in which it got nothing
// new.
func (h *history) checkStopped(actions []Action, before map[int]workerOf, e Event) {
	if h.p.Goal == Halt || h.p.Serving == nil || h.p.makeRoom() {
		return
	}
	for _, s := range of[SendSignal](actions) {
		w, g := h.p.Find(s.Worker)
		was := before[w.Number].State
		accepted := was == Ready || was == Leaving || was == Kept
		covered := covers(h.p.Steering, g, w.Slot)
		replaced := g == h.p.Serving && covered // by a worker with the same socket, or scaled away
		switch {
		case was == Stopping || !g.Steered || replaced:
		case covered:
			h.Fatalf("%T: worker %d of generation %d is told to stop, and gets new connections: %+v", e, w.Number, g.Number,
				h.p.Steering)
		case accepted && g.Config.Drain.Timeout > 0 && !w.DrainsItself && !w.Killed && before[w.Number].served:
			h.Fatalf("%T: worker %d of generation %d, which was %s, is told to stop before it has finished: role %s, "+
				"steering %+v, worker %+v", e, w.Number, g.Number, was, h.p.Role(g), h.p.Steering, w)
		}
	}
}

// checkRollback: it starts no process but heirs unless one of the kept workers has ended, and what it brings back
// serves.
func (h *history) checkRollback(kept, trial *Generation, actions []Action, e Event) {
	if _, back := e.(Rollback); !back || kept == nil {
		return
	}
	if h.p.Serving != kept || h.p.Config != kept.Config || h.p.Trial != nil && trial == h.p.Trial {
		h.Fatalf("generation %d was kept, and now: %+v", kept.Number, h.p)
	}
	spawned := slices.DeleteFunc(of[Spawn](actions), func(s Spawn) bool { return s.Worker.Version != 0 })
	if len(spawned) > 0 && kept.count(Ready) == len(kept.Slots) {
		h.Fatalf("a rollback has started %d processes", len(spawned))
	}
}

// checkNotStranded: whenever nothing serves and nothing is starting, a retry is armed, or other programs are awaited.
func (h *history) checkNotStranded() {
	if h.p.AwaitsOthers() && h.p.Again == nil {
		h.Fatalf("the first start waits, and is not due")
	}
	if h.p.Goal == Halt || h.p.AwaitsOthers() || h.p.Live() > 0 || h.p.Trial != nil || h.p.State() == Down {
		return
	}
	if h.p.Next(h.now).IsZero() {
		h.Fatalf("nothing lives, nothing is starting and no retry is armed: %+v", h.p)
	}
}

// lend says now and then that another program is to have a listener of a generation, or that it serves there by now.
func (h *history) lend() {
	if h.settled || rapid.IntRange(0, 9).Draw(h.T, "lends") > 0 {
		return
	}
	all := slices.DeleteFunc(h.p.Generations(), func(g *Generation) bool { return g == h.p.Trial })
	if len(h.p.Lent) > 0 || len(all) == 0 {
		h.p.Lent = nil
		return
	}
	h.p.Lent = map[int]string{rapid.SampledFrom(all).Draw(h.T, "lent").Number: "there"}
}

// settleDown makes everything succeed from now on.
func (h *history) settleDown() {
	h.p.Awaits, h.p.Lent, h.settled = nil, nil, true
	h.step(Tick{})
	for range 200 {
		quiet := true
		h.step(Promote{}) // promotes a held canary
		if t := h.p.Trial; t != nil && !t.Prepared {
			h.step(h.prepared())
			quiet = false
		}
		for _, w := range h.workers() {
			switch w.State {
			case Starting:
				h.step(Did{w.Number, life.ReadySaid{}})
				quiet = false
			case Stopping:
				h.step(Did{w.Number, life.Exited{}})
				quiet = false
			}
		}
		next := h.p.Next(h.now)
		switch {
		case quiet && next.IsZero():
			return
		case quiet:
			h.now = next
			h.step(Tick{})
		}
	}
	h.Fatalf("never comes to rest: %s, %+v", h.p.State(), h.p)
}

func newHistory(t *rapid.T, shutOff bool) *history {
	return historyOf(t, drawConfig, shutOff)
}

func historyOf(t *rapid.T, draw func(*rapid.T) *config.Program, shutOff bool) *history {
	c := draw(t)
	h := &history{T: t, draw: draw, p: New(c), now: time.Unix(1_000_000, 0), seen: map[int]bool{}, held: map[int]bool{},
		unsent: map[int]time.Duration{}, steered: map[int]bool{}, shutOff: shutOff,
		memory: memory{resized: map[int]bool{}, failures: map[[2]int]int{}, finished: map[[2]int]bool{}}}
	if rapid.Bool().Draw(t, "awaits others") {
		h.p.Awaits = []string{"db"}
	}
	h.step(Start{Config: c})
	return h
}

// play lets this many events happen at most; with well, the trial is prepared and what starts is ready, now and then.
func (h *history) play(most int, well bool) {
	for range rapid.IntRange(0, most).Draw(h.T, "length") {
		h.step(h.event())
		if well && rapid.Bool().Draw(h.T, "goes well") {
			h.goesWell()
		}
	}
}

// comesToRest: after any history the newest generation serves, whole, and nothing else lives.
func (h *history) comesToRest() {
	newest := h.draw(h.T)
	newest.MaxAge, newest.Reload.Every = 0, 0 // with them it would never settle
	h.step(Start{Config: newest})
	h.step(Reload{Config: newest, Reason: "HUP"})
	h.settleDown()
	if h.p.State() != Up || h.p.Serving.Config != newest || len(h.p.Serving.Workers) != newest.Workers ||
		h.p.Live() != newest.Workers {
		h.Fatalf("at rest: %s, %d workers, %+v", h.p.State(), h.p.Live(), h.p)
	}
}

func TestAnyHistoryKeepsThePromiseAndEndsWithTheNewestGenerationServing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t, rapid.Bool().Draw(t, "may stop"))
		h.play(120, false)
		h.comesToRest()
	})
}

func TestAnySteeredHistoryKeepsThePromiseAndEndsWithTheNewestGenerationServing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := historyOf(t, drawSteered, rapid.Bool().Draw(t, "may stop"))
		h.play(80, true)
		h.comesToRest()
	})
}

// drawSteered draws a configuration whose generations have sockets of their own.
func drawSteered(t *rapid.T) *config.Program {
	c := drawConfig(t)
	if c.Reload.Strategy != config.All {
		c.Reload.Strategy, c.Listen[0].PerSlot = config.Rolling, true
	}
	c.Listen[0].Handover, c.Drain.Timeout, c.Restart.When = socket.Steer, 10*time.Second, config.Always
	return c
}

// goesWell lets the trial be prepared and what starts be ready.
func (h *history) goesWell() {
	if t := h.p.Trial; t != nil && !t.Prepared {
		h.step(h.prepared())
	}
	for _, w := range h.workers() {
		if w.State == Starting {
			h.step(Did{w.Number, life.ReadySaid{}})
		}
	}
}

func TestAnyHistoryCanBeStoppedWithNothingLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t, true)
		h.play(60, false)
		h.step(Stop{})
		h.settleDown()
		if h.p.State() != Down || h.p.Live() != 0 || len(h.held) != 0 {
			t.Fatalf("stopped: %s, %d workers, generations %v", h.p.State(), h.p.Live(), h.held)
		}
	})
}

func TestAnyRollingReloadStaysWithinItsSurge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := testConfig(rapid.IntRange(1, 5).Draw(t, "workers"), config.Rolling)
		c.Reload.MaxSurge = rapid.IntRange(1, 3).Draw(t, "surge")
		h := historyOf(t, func(*rapid.T) *config.Program { return c }, false)
		for range rapid.IntRange(0, 100).Draw(t, "length") {
			e := h.event()
			switch e.(type) {
			case Reload:
				e = Reload{Reason: "HUP"}
			case Scale:
				e = Tick{}
			}
			for _, s := range of[Spawn](h.p.Step(h.now, e)) {
				if n := h.p.Live(); s.Generation == h.p.Trial && h.p.Serving != nil && n > c.Workers+c.Reload.MaxSurge {
					t.Fatalf("%d workers live, %d are usual, %d may be more", n, c.Workers, c.Reload.MaxSurge)
				}
			}
		}
	})
}

func TestAnyStopFirstHistoryNeverRunsTwoGenerations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		historyOf(t, func(t *rapid.T) *config.Program {
			c := drawConfig(t)
			c.Reload.Strategy = config.StopFirst
			return c
		}, true).play(100, true) // checkAlone
	})
}

func TestAnyHistoryOfChangedFilesIsDamped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t, false)
		for range rapid.IntRange(0, 60).Draw(t, "length") {
			h.goesWell()
			switch pick(t, "what", "change", "change", "pass", "any") {
			case "change":
				h.step(Reload{Config: h.draw(t), Reason: "changed", By: Changed}) // checkBegan
			case "any":
				h.step(h.event())
			default:
				h.now = h.now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
				h.step(Tick{})
			}
		}
	})
}

func TestAnyHistoryOfCrashesStaysWithinItsBudget(t *testing.T) {
	paid := 0
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t, false)
		for range rapid.IntRange(0, 100).Draw(t, "length") {
			h.goesWell()
			serving := slices.DeleteFunc(h.workers(), func(w *Worker) bool { return w.State != Ready })
			switch what := pick(t, "what", "crash", "crash", "fail", "pass", "any"); {
			case what == "crash" && len(serving) > 0:
				h.step(Did{pick(t, "worker", serving...).Number, life.Exited{Known: true, Status: 11}})
			case what == "fail" && len(serving) > 0:
				h.step(Replace{Worker: pick(t, "worker", serving...).Number, Reason: "unhealthy"})
			case what == "any":
				h.step(h.event())
			default:
				h.pass()
				h.step(Tick{})
			}
		}
		paid += len(h.paid)
	})
	if paid == 0 {
		t.Error("the budget has never paid for anything")
	}
}
