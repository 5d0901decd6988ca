package supervisor

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/supervisor/record"
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/output"
)

// runner carries out what one program decides. It belongs to the loop: no other goroutine may read or change it. A call
// that takes a while goes through mailbox.later; its result is a call in the loop, which must check first whether the
// generation and the worker are still there.
type runner struct {
	s           *Supervisor
	core        *program.Program
	log         *zap.Logger          // with the name of the program
	listeners   []socket.Resolved    // those of core.Config
	generations map[int]*resources   // by number: from Prepare to Forget, so longer than the core's
	workers     map[int]*heldProcess // by number: from Spawn or Adopt to life.Exited
	quiet       map[finishing]*quiescence
	astray      string // why new connections do not go where they should; "": they do
	alarm       *alarm // nil: there is no deadline
	capture     capture
	upkeep
	lines   string        // what its status file should hold
	removed bool          // gone from the configuration: forget it when it is down
	ending  *program.Stop // follows as soon as those have stopped that come after it; nil: none does
}

// upkeep is what the loop looks after between steps.
type upkeep struct {
	samples bool // the workers' memory is measured, or will be soon
	glimpse glimpse
}

// heldProcess is what the loop keeps for a worker beside the core: only what the core does not decide by.
type heldProcess struct {
	Handle
	// how often the process has done something, or something was done to it: the record compares only this
	turn  int
	text  string // what the worker says of itself (STATUS=)
	left  string // what its first process, which has ended, has left; "": it has not
	pulse *pulse // the watch over its health; nil: none
}

func (s *Supervisor) newRunner(core *program.Program) *runner {
	log := s.Log.With(zap.String("program", core.Name))
	s.notifier.changed = true
	return &runner{
		s: s, core: core, log: log, generations: map[int]*resources{}, workers: map[int]*heldProcess{},
		quiet:   map[finishing]*quiescence{},
		capture: capture{errors: output.NewLogErrors(func(what string, err error) { log.Error(what, zap.Error(err)) })},
	}
}

func newHeld(h Handle) *heldProcess { return &heldProcess{Handle: h, turn: 1} }

// Signal and Stop are turns of the process.
func (w *heldProcess) Signal(sig syscall.Signal, group bool) error {
	w.turn++
	return w.Handle.Signal(sig, group)
}

func (w *heldProcess) Stop(sig syscall.Signal, group bool) error {
	w.turn++
	return w.Handle.Stop(sig, group)
}

// step gives a program an event and performs what the program decides, in this order: the core decides; keep records
// that if an action is lasting; perform carries out the actions. So a supervisord that dies in between leaves a record
// of more than has happened, never of less. step drops an event that comes after the program was forgotten, as its
// alarm may: another program can have the name by then.
func (p *runner) step(e program.Event) {
	if p.s.programs[p.core.Name] != p {
		return
	}
	now := time.Now()
	if p.alarm != nil && now.Sub(p.alarm.at) > late {
		p.core.Excuse(now) // it should have rung: first comes what is in the mailbox
	}
	p.core.Orphaned = p.s.Orphans.Serve(p.core.Name) || p.replaces() || p.core.Serving == nil && p.lends()
	p.core.Seen, p.core.Awaits, p.core.Unaccepted = p.seen(now), p.awaits(), p.deserted()
	p.core.Lent = p.lentTexts()
	before := p.core.Serving
	actions := p.core.Step(now, e)
	if slices.ContainsFunc(actions, lasting) {
		p.s.keep(p.core.Name)
	}
	steers := slices.ContainsFunc(actions, func(a program.Action) bool { _, is := a.(program.Steer); return is })
	if p.core.Serving != before && !steers { // connections may go to a program that the version replaces: see hasGiven
		p.steer()
	}
	for _, a := range actions {
		p.perform(a)
	}
	if !program.Ruled(e) {
		now = p.s.stepped[p] // what became due since then still is
	}
	p.s.stepped[p] = now
}

// turned has the loop attend to p and write it down, although p has not stepped: the record has the state of worker
// processes, too, which changes without the core.
func (p *runner) turned() {
	if _, has := p.s.stepped[p]; !has {
		p.s.stepped[p] = time.Time{}
	}
}

// lasting reports whether an action must be recorded before it is performed. The next supervisord must send clients
// where they are sent already, must not tell a worker twice to stop, and must know each number of a generation that
// somebody was told, and the outcome of it.
func lasting(a program.Action) bool {
	switch a := a.(type) {
	case program.Steer, program.SetPaused, program.SendSignal:
		return true
	case program.Report:
		return a.Decides() || a.Promises()
	}
	return false
}

// attend does what is needed once after one step or many. stepped is when the rules were last applied; zero: they were
// not. Each line makes something outside the core agree with it, and does nothing if it does already.
func (p *runner) attend(stepped time.Time) {
	if !stepped.IsZero() {
		p.arm(stepped)
	}
	p.quiesce()
	p.watchHealth()
	p.watchMemory()
	p.tend()
	p.glance()
	if p.core.Config.StatusFile != "" {
		p.lines = p.core.Lines()
	}
	if p.removed && p.ending == nil && p.core.State() == program.Down && p.core.Live() == 0 {
		delete(p.s.programs, p.core.Name)
		p.s.notifier.changed = true
		p.endLog()
	}
}

// late is the delay from which a deadline counts as seen too late: all timers are late after the machine, or this
// process, was suspended. The core then moves the deadline by program.Grace, once, because what the worker said in time
// may still be on its way.
const late = 100 * time.Millisecond

// alarm is the one timer of a program.
type alarm struct {
	at    time.Time
	timer *time.Timer
}

// arm sets the alarm to the next deadline after the given time. If that deadline has passed since, the alarm rings at
// once.
func (p *runner) arm(stepped time.Time) {
	next := p.core.Next(stepped)
	if p.alarm != nil {
		if next.Equal(p.alarm.at) {
			return
		}
		p.alarm.timer.Stop()
		p.alarm = nil
	}
	if !next.IsZero() {
		a := &alarm{at: next}
		a.timer = p.s.after(time.Until(next), func() { p.ring(a) })
		p.alarm = a
	}
}

// ring answers an alarm. It clears the alarm: if the alarm rang early by our clock, attend arms it again.
func (p *runner) ring(a *alarm) {
	p.step(program.Tick{})
	if p.alarm == a {
		p.alarm = nil
	}
}

// workerDid passes what a worker process did to the program, except for what decides nothing. life.ReadySaid and
// life.Filtered are acknowledged once they are recorded: until then the kernel keeps the message, and a supervisord
// that finds the worker in the record of before reads the message again.
func (p *runner) workerDid(number int, event life.Event) {
	w := p.workers[number]
	if w == nil {
		return // impossible: Exited is the last event
	}
	w.turn++
	p.turned()
	switch e := event.(type) {
	case life.Changed:
	case life.Unseen:
		p.unseen(number, e)
	case life.Awaited:
		p.late(number, program.WorkerAwaited)
	case life.Strange:
		p.late(number, program.WorkerStrange)
	case life.Outlived:
		p.outlived(number, e)
	case life.StatusText:
		w.text = e.Text
	case life.Watchdog:
		p.heard(number, e)
	case life.DrainsItself:
		if !p.awaitsDatagrams(number) { // else it says so too late, and is told like others
			p.step(program.Did{Worker: number, Event: e})
		}
	case life.Filtered:
		p.s.unsaved = append(p.s.unsaved, func() { w.Recorded(e) })
	case life.ReadySaid:
		p.step(program.Did{Worker: number, Event: e})
		p.s.unsaved = append(p.s.unsaved, func() { w.Recorded(e) })
	case life.Exited:
		p.exited(number, e)
	default:
		p.step(program.Did{Worker: number, Event: e})
	}
}

// exited forgets a worker that has ended. Paths and sockets are looked at before the core forgets the worker, too.
func (p *runner) exited(number int, e life.Exited) {
	p.workers[number].unwatch()
	e.Hint, e.Unaccepted = p.unbound(number, e), p.unaccepted(number)
	if e.Unaccepted == 0 {
		p.releaseLast(number)
	}
	delete(p.workers, number)
	if len(p.s.paths.watched) > 0 {
		p.s.lookAtPaths(false) // on some file systems the watch sees nothing
	}
	p.step(program.Did{Worker: number, Event: e})
}

// unaccepted is life.Exited.Unaccepted of a worker that may have an heir.
func (p *runner) unaccepted(number int) int {
	w, cg := p.core.Find(number)
	if w == nil || p.generations[cg.Number] == nil || !p.core.MayHaveHeir(cg, w) {
		return 0
	}
	return socket.Unaccepted(p.generations[cg.Number].lanes, []int{w.Slot})
}

// deserted is program.Unaccepted.
func (p *runner) deserted() []int {
	slots := p.core.Deserted()
	if len(slots) == 0 || p.generations[p.core.Serving.Number] == nil {
		return nil
	}
	lanes := p.generations[p.core.Serving.Number].lanes
	return slices.DeleteFunc(slots, func(slot int) bool { return socket.Unaccepted(lanes, []int{slot}) == 0 })
}

// unbound says what to do about a worker that ended before it was ready, as a worker does that cannot open its port
// because supervisord has it.
func (p *runner) unbound(number int, e life.Exited) string {
	w, cg := p.core.Find(number)
	if w == nil || w.State != program.Starting || e.Err != nil || e.Status.ExitStatus() <= 0 || e.Hint != "" {
		return e.Hint
	}
	if said := strings.Join(e.Tail, "\n"); said != "" && !strings.Contains(said, "EADDRINUSE") &&
		!strings.Contains(strings.ToLower(said), "in use") {
		return ""
	}
	g := p.generations[cg.Number]
	if g == nil || g.snapshot == nil || g.snapshot.Unbound == "" {
		return ""
	}
	return "; if that is because supervisord holds the port that it opens: " + g.snapshot.Unbound +
		", or let it use the inherited socket"
}

// outlived reports that a stopping worker continues in the processes that its first process has left.
func (p *runner) outlived(number int, e life.Outlived) {
	w, g := p.core.Find(number)
	if w == nil {
		return
	}
	p.workers[number].left = e.Left
	p.report(program.Report{Kind: program.WorkerOutlived, Generation: g.Number, Worker: number, Slot: w.Slot, PID: w.PID,
		Reason: fmt.Sprintf("PID %d %s; what it started is left: %s", w.PID, e.First, e.Left)})
}

// unseen logs, once for each generation, that its workers count as ready without being seen to accept.
func (p *runner) unseen(number int, e life.Unseen) {
	_, cg := p.core.Find(number)
	if cg == nil {
		return
	}
	if g := p.generations[cg.Number]; g != nil && !g.unseen {
		g.unseen = true
		text := "cannot see whether workers accept connections; they count as ready after some time"
		if e.ReadyAfter == 0 {
			text = "cannot see whether workers accept connections; they are believed to"
		}
		p.log.Warn(text, zap.Int("generation", cg.Number), zap.Duration("after", e.ReadyAfter), zap.Error(e.Err))
	}
}

// late reports, once for each generation, what a worker waits for, or why it may not get ready.
func (p *runner) late(number int, kind program.ReportKind) {
	w, cg := p.core.Find(number)
	if w == nil || w.State != program.Starting {
		return
	}
	if g := p.generations[cg.Number]; g != nil && !slices.Contains(g.told, kind) {
		g.told = append(g.told, kind)
		p.report(program.Report{Kind: kind, Generation: cg.Number, Worker: number, Slot: w.Slot, PID: w.PID,
			Reason: p.workers[number].Seen()})
	}
}

// seen returns why workers are not ready whose time is over, by number.
func (p *runner) seen(now time.Time) (seen map[int]string) {
	if p.alarm == nil || now.Before(p.alarm.at) {
		return nil
	}
	for w := range p.core.Workers() {
		if h := p.workers[w.Number]; h != nil && w.State == program.Starting && !now.Before(w.Deadline) {
			if seen == nil {
				seen = map[int]string{}
			}
			seen[w.Number] = h.Seen()
		}
	}
	return seen
}

// perform carries out an action. Nothing here fails or waits: a failure comes back as an event.
//
//	Prepare     ─► Prepared, with the failure if there was one
//	Spawn       ─► life.Exited as the end, also if nothing could be started
//	SendSignal  ─► Signalled; none if it failed, and then the core decides the same again
//	Steer       ─► nothing: steer itself tries again
func (p *runner) perform(a program.Action) {
	switch a := a.(type) {
	case program.Prepare:
		p.prepare(a.Generation)
	case program.Abandon:
		p.generations[a.Generation].abandon()
	case program.Spawn:
		p.spawn(a.Generation, a.Worker)
	case program.SendSignal:
		p.send(a)
	case program.Steer:
		p.steer()
	case program.SetPaused:
		p.pause(a.Paused)
	case program.Forget:
		p.forget(a.Generation)
	case program.Report:
		p.report(a)
	}
}

// spawn starts a worker. The table keeps the worker's sockets open as long as the generation lives, which is longer
// than the worker. The worker posts from its own goroutine; the mailbox brings its events into the loop.
func (p *runner) spawn(cg *program.Generation, w *program.Worker) {
	for _, l := range p.listeners {
		p.setOpen(l, true) // a worker can accept only from a socket that listens
	}
	if g := p.generations[cg.Number]; g != nil && len(cg.Workers) == 1 {
		for _, ln := range g.lanes {
			ln.LeaveGroups() // which the worker before it may have joined
		}
	}
	number := w.Number
	spec := p.specOf(cg, w)
	if p.s.Path != "" {
		spec.Environment = append(spec.Environment, record.ConfigVariable+"="+p.s.Path)
	}
	p.workers[number] = newHeld(p.s.Launcher.Start(spec, p.events(number)))
}

// specOf is what a worker is started with, or was, with the ways to its own sockets.
func (p *runner) specOf(cg *program.Generation, w *program.Worker) worker.Spec {
	g := p.generations[cg.Number]
	version, c := g, cg.Config
	if v := p.core.Generation(w.Version); v != nil { // else it is gone meanwhile
		if r := p.generations[v.Number]; r != nil && r.snapshot != nil { // else the record has nothing of it
			version, c = r, v.Config
		}
	}
	spec := g.workerSpec(version, c, w)
	spec.Dial, spec.Widen = p.dialer(g, w.Slot), p.widener(g, w.Slot)
	return spec
}

// events returns the callbacks for what happens to a worker.
func (p *runner) events(number int) func(life.Event) {
	return func(e life.Event) {
		if _, only := e.(life.Changed); only && p.s.Systemd == nil {
			return // nothing is written down
		}
		p.s.post(func() { p.workerDid(number, e) })
	}
}

// send sends a signal. If that fails, the core lets send try again.
func (p *runner) send(a program.SendSignal) {
	h := p.workers[a.Worker]
	if h == nil {
		return
	}
	if err := h.Stop(a.Signal, a.Group); err != nil {
		p.log.Error("cannot signal worker", zap.Int("worker", a.Worker), zap.String("signal", config.SignalName(a.Signal)),
			zap.Error(err))
		return
	}
	p.step(program.Signalled{SendSignal: a})
	// a supervisord that does not know it tells the worker again, and some workers then give up what they have in hand
	p.s.keep(p.core.Name)
}

// forget ends what the loop keeps for a generation whose workers are all gone: its lanes and its log files.
func (p *runner) forget(number int) {
	g := p.generations[number]
	delete(p.generations, number)
	p.release(g)
	p.closeFiles(g.snapshot)
	p.endUnusedLog()
}
