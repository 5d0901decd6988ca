package supervisor

import (
	"context"
	"crypto/rand"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/output"
)

// Launcher starts processes. The real one is worker.Launcher; tests have one without processes.
type Launcher interface {
	// Start starts a worker and returns at once. What happens to it is posted, in order; worker.Exited is always the last.
	Start(worker.Spec, func(worker.Event)) Handle
	// Adopt makes a process that another image started a worker again.
	Adopt(worker.Adoption, func(worker.Event)) Handle
	// Freeze holds back everything that could happen to a worker until Thaw, so that its State is complete. It waits at most
	// patience for what is under way; an error means that nothing is held back.
	Freeze(patience time.Duration) error
	Thaw()
	// Run runs a command that is no worker until it ends.
	Run(context.Context, worker.Spec) error
}

// Handle is the master's hold on a started worker.
type Handle interface {
	Signal(sig syscall.Signal, group bool) error
	State() worker.State         // for the next image
	Descriptors() map[string]int // likewise, by worker.FD…; the numbers hold until Thaw
	// Duplicate returns a duplicate of one of them, for the caller to close, or -1 if the worker does not have it any more.
	Duplicate(name string) (int, error)
	Recorded() // what was posted so far is in the state that is kept

	// Memory measures what the worker and the processes below it use, in bytes; more exactly where it is more than limit.
	Memory(limit uint64) (uint64, error)
	// Probe asks the worker once whether it is well.
	Probe(context.Context, worker.Ready) error
}

// Options is what a Supervisor needs from outside.
type Options struct {
	Load     func() (*config.Config, error) // reads the configuration again
	Launcher Launcher
	Log      *zap.Logger
	Report   func(*config.Program, program.Report) // is told of every report, with the newest configuration, instead of Log; it must not wait; may be nil
	Level    *zap.AtomicLevel                      // changed when the configuration's log_level changes; may be nil
	Watch    Watcher                               // may be nil
	Systemd  Systemd                               // may be nil
	Upgrader Upgrader                              // may be nil
	Orphans  *Orphans                              // may be nil
	Version  string                                // of supervisord, for the status
	Path     string                                // of the configuration, for the workers' environment; "": it is in no file

	// A second stop signal within this time of the first is taken for a duplicate and ignored; a later one means stop now.
	DuplicateStopWindow time.Duration
}

// Supervisor runs programs. Everything that it knows belongs to the goroutine in Run;
// other goroutines reach it only through its one queue.
type Supervisor struct {
	Options
	table    *socket.Table
	programs map[string]*runner
	config   config.Supervisor
	sources  []string // the files of the configuration
	files    statusFiles
	keeper   *keeper // nil: there is no file-descriptor store
	teller   teller

	queue   chan note
	done    chan struct{} // closed when nobody reads the queue any more
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup // the goroutines that Run has to wait for

	reader   reader
	watching watching
	stopping bool
	stopped  time.Time // when a signal to stop came first

	runs bool // Run has begun

	stepped     map[*runner]time.Time // since the last attend, and when their rules were last applied; zero: they were not
	unsaved     []Handle              // workers that have said that they are ready, which is not written down yet
	subscribers []chan *Update
	began       time.Time
	clock       time.Time // see followClock
	instance    string    // the same as long as the numbers of generations go on
	upgrading   bool      // a new binary is being tried
	passed      bool      // it has passed, and may take over
	ending      []*orphan // that were told to go
	leaving     bool      // as soon as systemd has everything
	left        bool      // the workers are left to the next supervisord
	stumbled    string    // why the last upgrade failed
}

// program is what the loop keeps for a Program: what is not a decision.
type runner struct {
	core        *program.Program
	listeners   []socket.Resolved // those of core.Config
	generations map[int]*resources
	workers     map[int]Handle
	texts       map[int]string  // what workers say of themselves (STATUS=)
	downSince   time.Time       // since when nothing serves; zero: something does
	downTimer   *time.Timer     // when a listener is to be closed; nil: none is
	postponed   []int           // workers that are told to go when their sockets are quiet
	told        map[int]int     // steps of the stop plan that were performed, by worker
	alarm       *alarm          // nil: there is no deadline
	log         *output.Log     // what is captured; nil: nothing is
	logEnded    <-chan struct{} // closed when the file of the log before has everything; nil: there was none
	logErrors   *output.LogErrors
	lookups     calls          // of snapshots
	pulses      map[int]*pulse // the watch over the workers' health
	sampler     sampler        // the watch over their memory
	removed     bool           // gone from the configuration: forget it when it is down
}

func (s *Supervisor) newRunner(core *program.Program) *runner {
	return &runner{core: core, logErrors: s.logErrors(core.Name), generations: map[int]*resources{}, workers: map[int]Handle{}, told: map[int]int{}, texts: map[int]string{}, pulses: map[int]*pulse{}, lookups: newCalls()}
}

// upgradeNote is the end of the trial of a new binary.
type upgradeNote struct {
	err   error
	reply func(error) // see Upgrade; nil: nobody waits
}

func (upgradeNote) note() {}

// New returns a supervisor without programs.
func New(o Options) *Supervisor {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Supervisor{
		Options: o, table: socket.NewTable(), programs: map[string]*runner{}, reader: reader{calls: newCalls()}, watching: watching{calls: newCalls()},
		began: time.Now(), clock: time.Now(), instance: rand.Text(), stepped: map[*runner]time.Time{}, queue: make(chan note), done: make(chan struct{}), ctx: ctx, cancel: cancel,
	}
	if o.Systemd != nil {
		s.keeper = newKeeper(o.Systemd)
	}
	s.teller = newTeller(o.Systemd)
	return s
}

// Start begins with the first configuration and the sockets that were handed over (h may be nil). What it returns is for
// whoever started the daemon to mend: an address that is in use is not retried.
func (s *Supervisor) Start(c *config.Config, h *Handover) error {
	l, err := resolve(s.ctx, c, nil)
	if err != nil {
		return err
	}
	if h != nil {
		s.tellProblems(h)
		s.keeper.inherit(h)
		s.table.Offer(h.sockets)
	}
	if err := s.apply(l, request{reason: "start", itself: true}); err != nil {
		return err
	}
	if h != nil {
		s.drop(h)
	}
	s.claimOrphans()
	return nil
}

// Signals is what the operator asks for. HUP and USR1 have a channel each, so that a storm of them can not crowd out the others.
type Signals struct {
	Reload  <-chan os.Signal // HUP
	Reopen  <-chan os.Signal // USR1
	Upgrade <-chan os.Signal // USR2
	Leave   <-chan os.Signal // RTMIN+1
	Scale   <-chan os.Signal // TTIN, TTOU
	Stop    <-chan os.Signal // TERM, INT, QUIT
}

// Run carries the programs until a signal ends it: HUP reloads, USR1 reopens log files, TTIN and TTOU scale, TERM and INT stop (a second
// one stops now), QUIT stops at once. It returns when every worker is gone and every listener closed; or with ErrLeft.
func (s *Supervisor) Run(signals Signals) error {
	s.runs = true
	for s.attend(); !s.finished(); s.attend() {
		s.keep()
		s.acknowledge()
		s.tell()
		s.wait(signals)
		s.handleMore()
		if s.left {
			return ErrLeft
		}
	}
	s.tell()
	s.endFiles()
	s.cancel()
	close(s.done)
	for _, p := range s.programs {
		s.endLog(p)
	}
	s.awaitRunning()
	for _, c := range s.subscribers {
		close(c)
	}
	s.keeper.empty()
	return s.table.Close()
}

// endTimeout is how long the end waits for what other goroutines do: longer than logEndTimeout, so that they can say what is lost.
const endTimeout = logEndTimeout + time.Second

// awaitRunning waits for the goroutines that were started, unless a disk or the like holds them up.
func (s *Supervisor) awaitRunning() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.running.Wait()
	}()
	timeout := time.NewTimer(endTimeout)
	defer timeout.Stop()
	select {
	case <-done:
	case <-timeout.C:
		s.Log.Error("supervisord does not wait any longer for a disk or a name server that does not answer", zap.Duration("took", endTimeout))
	}
}

// acknowledge tells the workers that have become ready that this is written down.
func (s *Supervisor) acknowledge() {
	for _, h := range s.unsaved {
		if h != nil {
			h.Recorded()
		}
	}
	s.unsaved = s.unsaved[:0]
}

// wait takes the next thing that happens.
func (s *Supervisor) wait(signals Signals) {
	select {
	case <-signals.Reload:
		s.Log.Info("HUP: reading the configuration and replacing the workers of every program")
		s.reload(request{reason: "HUP", askedBy: bySignal(syscall.SIGHUP), itself: true, all: true})
	case <-signals.Reopen:
		s.reopen()
	case <-signals.Upgrade:
		s.upgrade(nil, bySignal(syscall.SIGUSR2))
	case sig := <-signals.Scale:
		s.scaleSignal(sig.(syscall.Signal))
	case <-signals.Leave:
		s.askToLeave()
	case sig := <-signals.Stop:
		s.stopAsked(sig.(syscall.Signal))
	case names := <-s.changes():
		s.changed(names)
	case err := <-s.watchErrors():
		s.Log.Error("cannot watch files; reload with HUP", zap.Error(err))
	case n := <-s.queue:
		s.handle(n)
	case <-s.teller.watchdog():
		s.teller.alive()
	}
}

// batch is how many notes are handled before the state is written down and told: in a storm once for many.
const batch = 64

// handleMore handles what has come in already.
func (s *Supervisor) handleMore() {
	for range batch {
		if s.left {
			return
		}
		select {
		case n := <-s.queue:
			s.handle(n)
		default:
			return
		}
	}
}

func (s *Supervisor) finished() bool {
	if !s.stopping {
		return false
	}
	for _, p := range s.programs {
		if p.core.State() != program.Down || p.core.Live() > 0 {
			return false
		}
	}
	return len(s.ending) == 0
}

func (s *Supervisor) handle(n note) {
	switch n := n.(type) {
	case call:
		n()
	case upgradeNote:
		s.tried(n)
	case leaveNote:
		s.leave(n)
	case orphanNote:
		s.orphanEnded(n)
	}
}

// stopAsked answers a signal to stop: QUIT means now, and so does a second one.
func (s *Supervisor) stopAsked(sig syscall.Signal) {
	again := !s.stopped.IsZero()
	if again && sig != syscall.SIGQUIT && time.Since(s.stopped) < s.DuplicateStopWindow {
		return
	}
	if !again {
		s.stopped = time.Now()
	}
	s.stop(sig, s.stopping || sig == syscall.SIGQUIT)
}

// stop ends everything, now or in each program's own time.
func (s *Supervisor) stop(sig syscall.Signal, now bool) {
	var e program.Event = program.Stop{Reason: config.SignalName(sig), AskedBy: bySignal(sig), Interrupted: sig == syscall.SIGINT}
	if now {
		e = program.Kill{Reason: config.SignalName(sig), AskedBy: bySignal(sig)}
	}
	s.Log.Info("stopping every program", zap.String("signal", config.SignalName(sig)), zap.Bool("now", now))
	s.stopping = true
	for _, p := range s.programs {
		s.step(p, e)
	}
	if now {
		s.killOrphans()
	}
}

// step gives a program an event and performs what it decides.
func (s *Supervisor) step(p *runner, e program.Event) {
	now := time.Now()
	if p.alarm != nil && now.Sub(p.alarm.at) > late {
		p.core.Excuse(now) // it should have rung: first comes what is in the queue
	}
	actions := p.core.Step(now, e)
	if slices.ContainsFunc(actions, isSignal) {
		s.keep() // a worker is told to go once: whoever restores the state must not have to guess
	}
	for _, a := range actions {
		s.perform(p, a)
	}
	if _, idle := e.(program.Spawned); idle {
		now = s.stepped[p] // no rule was applied: what became due since then still is
	}
	s.stepped[p] = now
}

// attend does for the programs that have stepped what need not be done at every step: in a storm, once for many.
func (s *Supervisor) attend() {
	for p, at := range s.stepped {
		if !at.IsZero() {
			s.arm(p, at)
		}
		s.watchHealth(p)
		s.watchMemory(p)
		s.tend(p)
		if p.removed && p.core.State() == program.Down && p.core.Live() == 0 {
			delete(s.programs, p.core.Name)
			p.stopTending()
			s.endLog(p)
		}
	}
	if len(s.stepped) > 0 {
		s.tellFiles()
	}
	s.releaseOrphans()
	clear(s.stepped)
}

func isSignal(a program.Action) bool { _, ok := a.(program.Signal); return ok }

// alarm is the one timer of a program.
type alarm struct {
	at    time.Time
	timer *time.Timer
}

// arm keeps the alarm of a program at its next deadline after the step that took place at the given time. The deadline may have
// passed since then; the alarm rings at once then.
func (s *Supervisor) arm(p *runner, stepped time.Time) {
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
		a.timer = time.AfterFunc(time.Until(next), func() { s.post(func() { s.ring(p, a) }) })
		p.alarm = a
	}
}

// ring answers an alarm. It is forgotten, so that it is set again if its time has not come by this clock.
func (s *Supervisor) ring(p *runner, a *alarm) {
	s.step(p, program.Tick{})
	if p.alarm == a {
		p.alarm = nil
	}
}

// workerDid gives a program what one of its worker processes did.
func (s *Supervisor) workerDid(p *runner, number int, event worker.Event) {
	s.keeper.changed() // with what happens to a worker its descriptors come and go
	switch e := event.(type) {
	case worker.Spawned:
		s.step(p, program.Spawned{Worker: number, PID: e.PID})
		s.resend(p, number)
	case worker.ReadySaid:
		s.step(p, program.ReadySaid{Worker: number})
		s.unsaved = append(s.unsaved, p.workers[number])
	case worker.NeverReady:
		s.step(p, program.NeverReady{Worker: number, Reason: e.Err.Error()})
	case worker.Leaving:
		s.step(p, program.Replace{Worker: number, Reason: "it said that it is stopping"})
	case worker.Extend:
		s.step(p, program.Extend{Worker: number, By: e.Duration})
	case worker.Exited:
		delete(p.workers, number)
		delete(p.told, number)
		delete(p.texts, number)
		s.step(p, program.Exited{Worker: number, Exit: program.Exit{Clean: e.Known && e.Status == 0 && e.Err == nil, Step: e.Step, Reason: e.String(), Wait: int(e.Status), Tail: e.Tail}})
	case worker.Status:
		p.texts[number] = e.Text
	case worker.Watchdog:
		s.heard(p, number, e)
	}
}
