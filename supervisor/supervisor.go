// Package supervisor runs programs: it carries out what package program decides.
//
// Supervisor.Run is the one goroutine that owns all state, and this package has no mutex. Run takes events from one
// mailbox, lets the program step, and performs the actions in order. Everything that may take a while runs in a
// goroutine of its own, and posts its result to the mailbox:
//
//	kernel, timers, clients ─► mailbox ─► runner.step ─► program.Step ─► actions ─► workers, sockets, record, reports
//	                              ▲                                          │
//	                              └────────── later, after, worker events ◄──┘
//
// Methods of runner, and those of Supervisor without a context, belong to the loop, unless their comments say
// otherwise. The files, from the outside in:
//
//	supervisor.go   Options, the loop and its mailbox, signals
//	requests.go     what clients ask for, from any goroutine
//	apply.go        from a request to reload, by way of the files of the configuration, to the programs
//	programs.go     all programs, and the order in which they start and stop
//	runner.go       one program: events go in, actions come out and are performed
//	resources.go    what one generation has: lanes, snapshot, log files
//	listeners.go    the listeners: opened, closed while nothing serves, shut down by other processes
//	steer.go        where new connections go, and what old workers still have in hand
//	health.go       probes, watchdogs and memory of workers
//	watch.go        files that change, and the paths of unix sockets
//	report.go       reports, for the log and subscribers; the state, for systemd
//	status.go       the state as plain data, for everybody else
//	upgrade.go      how this process hands over to the next one
//	restore.go      what it hands over, and how the next one continues
//
// Goroutines besides the loop get values, never what the loop owns (TestGoroutinesGetValuesOnly):
//
//	mailbox.later             reads files, looks up names, prepares generations, asks the kernel; Supervisor.ctx ends it
//	watchWorker               probes one worker; pulse.cancel ends it
//	closeLog                  writes the rest of a log file; logEndTimeout ends it
//	launcher, pollers, watchers  belong to the caller of New; they post, or have a channel that wait reads
//
// Run waits for the first three before it returns.
//
// Descriptors, and who closes them:
//
//	listening sockets         the socket.Table: when no lane has them any more, or at the end of Run
//	what a worker has         the launcher: after life.Exited
//	log files                 closeFiles, when the generation is forgotten
//	memfds of the record      the record.Store, with the duplicates for systemd, which it closes once they are sent
package supervisor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/epoll"
	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/siginfo"
	"example.org/supervisord/internal/statusfile"
	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/supervisor/record"
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/ready"
)

// ProcessLauncher starts processes. The real one is worker.Launcher; tests have one without processes.
type ProcessLauncher interface {
	// Start starts a worker and returns at once. It posts what happens to the worker, in order; life.Exited is always the
	// last.
	Start(worker.Spec, func(life.Event)) Handle
	// Adopt makes a process that another image started a worker again.
	Adopt(worker.Adoption, func(life.Event)) Handle
	// Freeze holds back everything that could happen to a worker until Thaw, so that its State is complete. Freeze
	// waits at most patience for what is under way. After an error it holds back nothing.
	Freeze(patience time.Duration) error
	Thaw()
	// ReadOn takes over the pipes of a worker that is not adopted, by the names of its streams, and reads them until
	// their ends or until the caller calls finish.
	ReadOn(pid int, streams map[string]int, spec worker.Spec) (finish func())
	// KeepFilter takes over a descriptor and answers for the processes that outlive a worker: see worker.Launcher. The
	// next image gets Filters.
	KeepFilter(name string, fd int)
	Filters() map[string]record.Adoptable
	// FilterEnded gets a value when Filters has become shorter.
	FilterEnded() <-chan struct{}
	// Run runs a command other than a worker until it ends.
	Run(context.Context, worker.Spec) error
	// Owner returns the worker to which one of these processes belongs, or belonged until a moment ago; nil: no worker.
	Owner(pids []int) Handle
}

// Handle is the loop's hold on a started worker. Its methods may be called from any goroutine, and only Probe and
// Memory wait.
type Handle interface {
	Signal(sig syscall.Signal, group bool) error
	Stop(sig syscall.Signal, group bool) error // Signal for a step of the stop plan
	record.Adoptable                           // for the next image
	Recorded(life.Event)                       // what it says is in the state that is kept

	// Serves reports whether the worker has listening sockets.
	Serves() bool

	// Memory measures how much memory the worker and the processes below it use, in bytes; more exactly above limit.
	Memory(limit uint64) (uint64, error)
	// Seen returns why the worker is not ready, as far as supervisord can see; "": the worker is ready, or nothing is
	// known.
	Seen() string
	// Probe asks the worker once whether it is well.
	Probe(context.Context, ready.Check) error
}

// Options is what a Supervisor needs from outside.
type Options struct {
	Load     func() (*config.Config, error) // reads the configuration again
	Launcher ProcessLauncher
	Log      *zap.Logger
	// is told of every report, with the newest configuration, instead of Log; it must not wait; may be nil
	Report func(*config.Program, program.Report)
	Level  *zap.AtomicLevel // changed when the configuration's log_level changes; may be nil
	Watch  FileWatcher      // may be nil
	Paths  PathWatcher      // may be nil
	// watches the queues from which nobody accepts; it runs elsewhere; may be nil
	Queues   *epoll.Poller
	Systemd  Systemd         // may be nil
	Upgrader Upgrader        // may be nil
	Orphans  *record.Orphans // may be nil
	Hangups  *epoll.Poller   // tells of listening sockets that a process has shut down; may be nil
	Version  string          // of supervisord, for the status
	// of the configuration, for the workers' environment; "": it is in no file
	Path string

	// A second stop signal within this time of the first is taken for a duplicate and ignored; a later one means stop now.
	DuplicateStopWindow time.Duration
}

// Supervisor runs programs. Its fields belong to the goroutine in Run; other goroutines reach them only through the
// mailbox. It owns the listening sockets (in table) and, through the Handles, the workers.
type Supervisor struct {
	Options
	*mailbox
	programs programs
	listening
	configured
	files    *statusfile.Files
	disks    *foreign.Looks // files that are read off the loop
	store    *record.Store  // nil: there is no file-descriptor store
	notifier serviceNotifier
	identity
	round

	subscribers subscribers
	departure   departure
	orphaned    map[*record.Orphan]func() // whose output is read, and how to end that
	stopRequest
}

// listening is the sockets of all programs, and what the loop knows of them besides the table.
type listening struct {
	table    *socket.Table
	paths    paths
	unowned  unowned
	vacating bool // see vacate
}

// configured is the configuration in force, and the way to the next one.
type configured struct {
	settings settings
	reader   configReader
	watching watching
}

// stopRequest is how far a signal to stop was followed.
type stopRequest struct {
	stopped   time.Time // when the last signal to stop came; zero: none has
	delayEnds time.Time // when TERM stops the programs (stop_delay); zero: there is no delay, or it is over
}

// identity is what a status says about this supervisor.
type identity struct {
	began    time.Time
	clock    time.Time // see followClock
	instance string    // the same as long as the numbers of generations continue
	resumed  bool      // by Restore
}

// round is what has happened since the loop last attended to it. A round of the loop is
//
//	attend ─► keepAll ─► acknowledge ─► tell ─► wait ─► handleMore
//
// so whatever the calls of one round change is written down once, then workers and systemd are told, and only then the
// next event is taken. Before that, step has recorded what must not be lost if supervisord dies in the middle: see
// lasting.
type round struct {
	// those that stepped, or whose workers did something: when their rules were last applied; zero: they were not
	stepped map[*runner]time.Time
	unsaved []func() // what must not be before the record is written: workers are told what the kernel keeps until then
}

// New returns a supervisor without programs.
func New(o Options) *Supervisor {
	q := newMailbox()
	s := &Supervisor{
		Options: o, mailbox: q, programs: programs{},
		listening: listening{
			table:   socket.NewTable(),
			paths:   paths{cares: map[string]*pathCare{}},
			unowned: unowned{watched: map[string][]*watchedQueue{}, had: map[uint64]owner{}},
		},
		disks:    &foreign.Looks{Each: maxStuck},
		files:    statusfile.New(o.Log, &q.running),
		notifier: newServiceNotifier(o.Systemd, o.Log),
		round:    round{stepped: map[*runner]time.Time{}},
		identity: identity{began: time.Now(), clock: time.Now(), instance: rand.Text()},
	}
	s.departure.s = s
	s.watchSockets()
	if o.Systemd != nil {
		s.store = record.NewStore(o.Systemd, o.Log)
	}
	if o.Orphans == nil {
		s.Orphans = &record.Orphans{}
	}
	return s
}

// Start begins with the first configuration and the sockets in h, which may be nil. It takes over the descriptors in h.
// Start retries nothing: its errors, such as an address in use, are for the person who starts the daemon.
func (s *Supervisor) Start(c *config.Config, h *record.Inheritance) error {
	l, err := resolve(s.ctx, c, nil)
	if err != nil {
		return err
	}
	if h != nil {
		s.tellProblems(h)
		s.store.Inherit(h)
		s.table.Offer(h.Sockets)
	}
	if err := s.apply(l, request{Reload: program.Reload{Reason: "start"}, itself: true}); err != nil {
		return err
	}
	if h != nil {
		s.dropSockets()
		h.Drop(s.Launcher.KeepFilter)
	}
	s.claimOrphans()
	return nil
}

// Run is the loop: it carries the programs until a signal ends it. HUP reloads, USR1 reopens log files, TTIN and TTOU
// scale, TERM and INT stop (a second one stops now), QUIT stops at once. Run returns when every worker is gone and
// every listener closed; or it returns ErrLeft.
func (s *Supervisor) Run(signals Signals) error {
	s.watching.runs = true
	for s.attend(); !s.stopping() || !s.programs.down() || len(s.Orphans.Ending()) > 0; s.attend() {
		s.keepAll()
		s.acknowledge()
		s.tell()
		for !s.wait(signals) {
		}
		s.handleMore()
		if s.departure.goOn(); s.departure.state == left {
			return ErrLeft
		}
	}
	s.tell()
	s.files.Close()
	s.cancel()
	close(s.done)
	for _, p := range s.programs {
		p.endLog()
	}
	if !s.awaitRunning(endTimeout) {
		s.Log.Error("no longer waiting for a disk or a name server that does not answer", zap.Duration("took", endTimeout))
	}
	s.subscribers.end()
	if err := s.store.Empty(emptyTimeout); err != nil {
		s.Log.Warn("cannot tell systemd", zap.Error(err))
	}
	return s.table.Close()
}

// keep writes what has changed of these programs into the record for the next supervisord.
func (s *Supervisor) keep(programs ...string) {
	s.tellNotices()
	s.followClock()
	s.store.Keep(recordSource{s}, programs)
}

// keepAll writes what has changed of the programs that have stepped.
func (s *Supervisor) keepAll() {
	var programs []string
	for p := range s.stepped {
		programs = append(programs, p.core.Name)
	}
	clear(s.stepped)
	s.keep(programs...)
}

// emptyTimeout bounds how long systemd may take to empty its store for us. The store must be empty at our end, because
// systemd keeps it when it restarts the service.
const emptyTimeout = 5 * time.Second

// endTimeout is how long the end of Run waits for other goroutines: longer than logEndTimeout, so that they can report
// lost lines.
const endTimeout = logEndTimeout + time.Second

// acknowledge tells the workers of which the record says more now.
func (s *Supervisor) acknowledge() {
	for _, tell := range s.unsaved {
		tell()
	}
	s.unsaved = s.unsaved[:0]
}

// wait takes the next event. It returns false if the event changes nothing that has to be recorded or told.
func (s *Supervisor) wait(signals Signals) bool {
	changes, troubles := watched(s.Watch)
	select {
	case sig := <-signals.Reload:
		by := s.bySignal(sig)
		s.Log.Info("HUP: reading the configuration and replacing the workers of every program", askedBy(by))
		s.reload(request{Reload: program.Reload{Reason: "HUP", AskedBy: by}, itself: true, all: true})
	case sig := <-signals.Reopen:
		s.Log.Info("USR1: reopening log files", askedBy(s.bySignal(sig)))
		s.programs.reopen()
	case sig := <-signals.Upgrade:
		s.departure.upgrade(nil, s.bySignal(sig))
	case sig := <-signals.Scale:
		s.scaleSignal(sig)
	case sig := <-signals.Leave:
		s.departure.askToLeave(s.bySignal(sig))
	case sig := <-signals.Stop:
		if !s.refuses(sig) {
			s.stop(sig.Number, s.bySignal(sig))
		}
	case paths := <-changes:
		s.changed(paths)
	case err := <-troubles:
		s.looked(err)
	case <-s.pathChanges():
		s.lookAtPaths(true)
	case <-s.Launcher.FilterEnded(): // which the store has to lose
	case call := <-s.calls:
		call()
	case <-s.notifier.watchdog():
		s.notifier.alive()
		return false
	case <-s.store.Writable():
		s.store.Push()
		return !s.store.Busy()
	}
	return true
}

// batch is how many calls the loop makes before it writes the record and tells others: in a storm, once for many.
const batch = 64

// handleMore makes the calls that have come in already.
func (s *Supervisor) handleMore() {
	for range batch {
		if s.departure.state == left {
			return
		}
		select {
		case call := <-s.calls:
			call()
		case <-s.store.Writable():
			s.store.Push()
		default:
			return
		}
	}
}

// stop ends every program: on TERM by the stop plans after stop_delay, on QUIT or a second signal at once. A second
// signal during stop_delay ends only the delay.
func (s *Supervisor) stop(sig syscall.Signal, by string) {
	again := s.stopping()
	if again && sig != syscall.SIGQUIT && time.Since(s.stopped) < s.DuplicateStopWindow {
		return
	}
	s.stopped, s.notifier.changed = time.Now(), true
	now := sig == syscall.SIGQUIT || again && s.delayEnds.IsZero()
	if d := s.settings.StopDelay; d > 0 && !again && sig == syscall.SIGTERM {
		s.Log.Info("serving until stop_delay is over; /readyz fails from now on", zap.Duration("stop_delay", d), askedBy(by))
		s.delayEnds = s.stopped.Add(d)
		s.after(d, func() {
			if !s.delayEnds.IsZero() {
				s.stopPrograms(sig, by, false)
			}
		})
		return
	}
	s.stopPrograms(sig, by, now)
}

// stopPrograms begins the stop plans of all workers, or kills them now, and hurries the orphans.
func (s *Supervisor) stopPrograms(sig syscall.Signal, by string, now bool) {
	s.delayEnds = time.Time{}
	name := config.SignalName(sig)
	s.Log.Info("stopping every program", zap.String("signal", name), zap.Bool("now", now), askedBy(by))
	for _, p := range s.programs {
		if now {
			p.ending = nil
			p.step(program.Kill{Reason: name, AskedBy: by})
		} else {
			p.end(program.Stop{Reason: name, AskedBy: by, Interrupted: sig == syscall.SIGINT})
		}
	}
	s.keepOrder()
	s.Orphans.Hurry()
	if now {
		s.releaseOrphans()
		s.Orphans.Kill()
	}
}

// stopping reports whether supervisord was told to stop.
func (s *Supervisor) stopping() bool { return !s.stopped.IsZero() }

// attend does for the programs that have stepped what is not needed at every step: in a storm, once for many.
func (s *Supervisor) attend() {
	s.keepOrder()
	for p, at := range s.stepped {
		p.attend(at)
	}
	if len(s.stepped) > 0 {
		s.files.Want(s.programs.statusTexts())
	}
	s.releaseOrphans()
	s.sweep()
}

// Signals is what the operator asks for. HUP and USR1 have a channel each, so that a storm of them cannot crowd out the
// others.
type Signals struct {
	Reload  <-chan siginfo.Caught // HUP
	Reopen  <-chan siginfo.Caught // USR1
	Upgrade <-chan siginfo.Caught // USR2
	Leave   <-chan siginfo.Caught // RTMIN+1
	Scale   <-chan siginfo.Caught // TTIN, TTOU
	Stop    <-chan siginfo.Caught // TERM, INT, QUIT
}

// bySignal is who asks by a signal: "signal HUP from bash (pid 4711, uid 0)".
func (s *Supervisor) bySignal(sig siginfo.Caught) string {
	name := config.SignalName(sig.Number)
	if sig.Number == record.LeaveSignal {
		name = "RTMIN+1"
	}
	switch {
	case sig.Code == siginfo.FromKernel:
		return program.BySignal(name, "the terminal")
	case sig.PID == 0:
		return program.BySignal(name, "outside this PID namespace")
	}
	process := fmt.Sprintf("%s (pid %d, uid %d)", senderName(sig), sig.PID, sig.UID)
	if p, w := s.programs.worker(s.Launcher.Owner(sig.Sender.Lineage)); w > 0 {
		process += fmt.Sprintf(" of worker %d of program %s", w, p.core.Name)
	}
	return program.BySignal(name, process)
}

// notInNames keeps a process from choosing a name that would look like part of the description of its sender.
var notInNames = strings.NewReplacer("(", "?", ")", "?", ",", "?", ":", "?")

// senderName describes the process that sent a signal, as far as the kernel says.
func senderName(sig siginfo.Caught) string {
	if name := notInNames.Replace(output.Printable(sig.Sender.Name)); name != "" {
		return name
	}
	return "a process that has ended"
}

// worker returns the program and the number of a worker; 0: it has none any more.
func (programs programs) worker(h Handle) (*runner, int) {
	if h == nil {
		return nil, 0
	}
	for _, p := range programs {
		for number, w := range p.workers {
			if w.Handle == h {
				return p, number
			}
		}
	}
	return nil, 0
}

// refuses reports whether supervisord ignores a signal to stop, because a worker with listening sockets, or a process
// that the worker started, has sent it: programs that replace themselves stop their parent, which they take for their
// predecessor. The worker has failed then. Workers without listeners, such as one that watches over a container, may
// stop supervisord.
func (s *Supervisor) refuses(sig siginfo.Caught) bool {
	h := s.Launcher.Owner(sig.Sender.Lineage)
	if h == nil || !h.Serves() {
		return false
	}
	name := config.SignalName(sig.Number)
	s.Log.Warn("a worker told supervisord to stop; that is not obeyed", zap.String("signal", name),
		askedBy(s.bySignal(sig)))
	p, number := s.programs.worker(h)
	if number == 0 {
		return true
	}
	reason := fmt.Sprintf("%s (pid %d) sent %s to supervisord, its parent: configure the program not to stop its parent",
		senderName(sig), sig.PID, name)
	if w, _ := p.core.Find(number); w != nil && w.State == program.Starting {
		p.step(program.Did{Worker: number, Event: life.NeverReady{Err: errors.New(reason)}})
	} else {
		p.step(program.Replace{Worker: number, Reason: reason})
	}
	return true
}

// clockStep is how far the wall clock may differ from the monotonic clock before supervisord assumes that somebody has
// set it.
const clockStep = 10 * time.Millisecond

// followClock moves the times of all programs when somebody has set the wall clock. Within the process the times
// compare by their monotonic readings; a record and a status have only the wall clock's.
func (s *Supervisor) followClock() {
	now := time.Now()
	if step := now.Round(0).Sub(s.clock.Round(0)) - now.Sub(s.clock); step.Abs() < clockStep {
		return
	}
	s.clock = now
	s.store.All()
	for _, p := range s.programs {
		p.core.Rebase(now, now)
	}
}

// readTimeout bounds how long reading the files for a reload may take: a disk that does not answer must not hold up
// later reloads, or the end.
const readTimeout = time.Minute

// maxStuck is how many calls of one kind may hang at a time. The next one fails at once.
const maxStuck = 4

// bounded returns what f returns, or an error when that takes longer than readTimeout, or ctx has ended. what says what
// f does, for the program of this name ("": for all).
func bounded[T any](ctx context.Context, disks *foreign.Looks, name, what string, f func() (T, error)) (result T,
	err error) {
	late := fmt.Errorf("%s has not ended within %s: see whether a file system does not answer", what, readTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, readTimeout, late)
	defer cancel()
	finish, err := foreign.Look(ctx, disks, [2]string{name, what}, func() func() (T, error) {
		result, err := f()
		return func() (T, error) { return result, err }
	})
	switch {
	case errors.Is(err, foreign.ErrStuck):
		return result, fmt.Errorf("%s: %d earlier attempts still hang: see whether a file system does not answer", what,
			disks.Each)
	case err != nil:
		return result, err
	}
	return finish()
}

// mailbox is how everything reaches the loop: a call waits in the channel until the loop makes it. The loop itself must
// not use post, which would wait for the loop. The channel has no room, so a caller of post knows that the loop has
// begun with its call, and calls of one goroutine keep their order.
type mailbox struct {
	calls   chan func()   // for the loop to call
	done    chan struct{} // closed when the loop reads no more calls
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup // the goroutines that Run waits for
}

func newMailbox() *mailbox {
	ctx, cancel := context.WithCancel(context.Background())
	return &mailbox{calls: make(chan func()), done: make(chan struct{}), ctx: ctx, cancel: cancel}
}

// post has the loop call f. It is for every goroutine except the loop's own.
func (m *mailbox) post(f func()) {
	select {
	case m.calls <- f:
	case <-m.done:
	}
}

// later calls work in a goroutine of its own, and has the loop call what work returned.
func (m *mailbox) later(work func() func()) {
	m.running.Go(func() { m.post(work()) })
}

// after has the loop call f when d has passed. A timer that is stopped too late posts f all the same: f has to see for
// itself whether it is still wanted.
func (m *mailbox) after(d time.Duration, f func()) *time.Timer {
	return time.AfterFunc(d, func() { m.post(f) })
}

// awaitRunning waits until no goroutine is running, and reports whether that took less than limit.
func (m *mailbox) awaitRunning(limit time.Duration) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.running.Wait()
	}()
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-done:
		return true
	case <-timeout.C:
		return false
	}
}

// ask has the loop call f and waits until f, or something that f has begun, replies. Errors: ErrStopping, or the cause
// of ctx.
func ask[T any](ctx context.Context, m *mailbox, f func(reply func(T, error))) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	answers := make(chan answer, 1) // the loop never waits for the caller
	call := func() { f(func(v T, err error) { answers <- answer{v, err} }) }
	select {
	case m.calls <- call:
	case <-m.done:
		return none, ErrStopping
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	select {
	case a := <-answers:
		return a.value, a.err
	case <-m.done:
		return none, ErrStopping
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// askNow is ask for an f that replies before it returns.
func askNow[T any](ctx context.Context, m *mailbox, f func() (T, error)) (T, error) {
	return ask(ctx, m, func(reply func(T, error)) { reply(f()) })
}

// askOf is askNow about one program. Errors: ErrNoProgram, too.
func askOf[T any](ctx context.Context, s *Supervisor, name string, f func(*runner) (T, error)) (T, error) {
	return askNow(ctx, s.mailbox, func() (T, error) {
		p := s.programs[name]
		if p == nil {
			var none T
			return none, noProgram(name, s.programs.names())
		}
		return f(p)
	})
}
