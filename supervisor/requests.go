package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/siginfo"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/supervisor/snapshot"
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/output"
)

// The errors of requests, wrapped.
var (
	ErrNoProgram = errors.New("there is no such program")
	ErrRefused   = errors.New("the configuration was refused; nothing has changed")
	ErrCanary    = errors.New("the canary was refused; nothing has changed")
	ErrStopping  = errors.New("supervisord is stopping")
	ErrState     = errors.New("that is not possible now")
	ErrUpgrade   = errors.New("upgrade refused; the running supervisord stays")
)

// ReloadOptions says what to reload, and who asks.
type ReloadOptions struct {
	Programs []string // none: all of them
	Reason   string   // for the log; "": "requested"
	AskedBy  string
	Canary   int           // see program.Reload
	Share    int           // likewise
	For      time.Duration // see program.Reload
}

// SignalOptions says whom to send a signal, and who asks.
type SignalOptions struct {
	Program    string
	Generation int // 0: every worker that does not stop already
	Signal     syscall.Signal
	AskedBy    string
}

// Ticket names the generation whose reload record shows how a request went.
type Ticket struct {
	Program    string `json:"program"`
	Generation int    `json:"generation"`
	Instance   string `json:"instance"` // see Status: the numbers of another instance mean something else

	From  int        `json:"from,omitempty"`  // of a Rollback: the generation that served until now
	Until *time.Time `json:"until,omitempty"` // of a Rollback: until when From is kept; of a Pause: when it ends

	// of a Start: the program has served since then; there is nothing to wait for
	Since *time.Time `json:"since,omitempty"`
	// of a Stop: the program had stopped before; there is nothing to wait for
	Stopped bool `json:"stopped,omitempty"`
}

// Any goroutine but the loop's own may make the requests below. They return ErrStopping when the loop has ended, and
// the cause of ctx when ctx ends first.

// Reload reads the configuration again and replaces the workers of the named programs, or of all. It returns when
// supervisord has applied the configuration, with a Ticket for each program whose workers are replaced. All of the
// programs begin a canary, or Reload refuses with ErrCanary. Other errors: ErrNoProgram, ErrRefused, ErrState.
func (s *Supervisor) Reload(ctx context.Context, o ReloadOptions) ([]Ticket, error) {
	return ask(ctx, s.mailbox, func(reply func([]Ticket, error)) {
		if o.Reason == "" {
			o.Reason = "requested"
		}
		if !s.stopping() {
			s.Log.Info("reload: reading the configuration and replacing workers",
				zap.Strings("programs", o.Programs), zap.String("reason", o.Reason), askedBy(o.AskedBy))
		}
		s.reload(request{askers: []asker{{o.Programs, reply}}, Reload: program.Reload{
			Reason: o.Reason, AskedBy: o.AskedBy, Canary: o.Canary, Share: o.Share, For: o.For,
		}})
	})
}

// Act gives a program an event: program.Start (Config is not needed), Stop, Scale, Promote, Abort, Rollback, Pause or
// Unpause. Errors: ErrNoProgram, ErrState.
func (s *Supervisor) Act(ctx context.Context, name string, e program.Event) (Ticket, error) {
	return askOf(ctx, s, name, func(p *runner) (Ticket, error) { return p.act(e) })
}

// Signal sends a signal to workers. Errors: ErrNoProgram, ErrState if there is no such worker.
func (s *Supervisor) Signal(ctx context.Context, o SignalOptions) error {
	_, err := askOf(ctx, s, o.Program, func(p *runner) (struct{}, error) { return struct{}{}, p.signal(o) })
	return err
}

// SetLevel changes the log level until a reload reads another one. Errors: ErrState.
func (s *Supervisor) SetLevel(ctx context.Context, name, by string) error {
	level, err := zapcore.ParseLevel(name)
	if err != nil || level > zapcore.ErrorLevel {
		return fmt.Errorf("%w: log level %q is unknown: use debug, info, warn or error", ErrState, name)
	}
	_, err = askNow(ctx, s.mailbox, func() (struct{}, error) {
		if s.Level != nil {
			s.Level.SetLevel(level)
		}
		s.Log.Info("log level changed", zap.Stringer("level", level), askedBy(by))
		return struct{}{}, nil
	})
	return err
}

// Status describes everything as it is now.
func (s *Supervisor) Status(ctx context.Context) (*Status, error) {
	return askNow(ctx, s.mailbox, func() (*Status, error) { return s.Describe(), nil })
}

// Logs returns the captured output of a program's workers. The caller reads the Log without the loop; the Log ends with
// the program. Errors: ErrNoProgram, ErrState if nothing is captured.
func (s *Supervisor) Logs(ctx context.Context, name string) (*output.Log, error) {
	return askOf(ctx, s, name, func(p *runner) (*output.Log, error) {
		log := p.capture.log
		if log == nil {
			log = p.capture.of(p.core.Config) // nothing has started yet
		}
		if log == nil {
			return nil, fmt.Errorf("%w: no output of program %s is captured: write stdout = \"capture\" or stderr = \"capture\"",
				ErrState, name)
		}
		return log, nil
	})
}

// Subscribe returns every Update from now on. The loop never waits for a subscriber: it closes the channel when the
// reader is too slow, or on Unsubscribe.
func (s *Supervisor) Subscribe(ctx context.Context) (<-chan *Update, error) {
	return askNow(ctx, s.mailbox, func() (<-chan *Update, error) { return s.subscribers.add(), nil })
}

// SubscribeFirst is Subscribe before Start or Restore, so that the subscriber misses no update.
func (s *Supervisor) SubscribeFirst() <-chan *Update { return s.subscribers.add() }

// Unsubscribe ends a subscription.
func (s *Supervisor) Unsubscribe(updates <-chan *Update) {
	s.post(func() { s.subscribers.remove(updates) })
}

// Upgrade runs the pre-flight check of the binary at supervisord's path. If it fails, Upgrade returns ErrUpgrade. If it
// passes, the caller must call Switch, and can tell others before this image ends. Other errors: ErrState.
func (s *Supervisor) Upgrade(ctx context.Context, by string) error {
	_, err := ask(ctx, s.mailbox, func(reply func(struct{}, error)) {
		s.departure.upgrade(func(err error) { reply(struct{}{}, err) }, by)
	})
	return err
}

// Switch executes the binary that Upgrade has checked. It returns only if that fails: with ErrUpgrade, or ErrState.
func (s *Supervisor) Switch(ctx context.Context) error {
	_, err := askNow(ctx, s.mailbox, func() (struct{}, error) { return struct{}{}, s.departure.switchImage() })
	return err
}

// noProgram is ErrNoProgram with the names that exist.
func noProgram(name string, known []string) error {
	return fmt.Errorf("%w: %s; there are: %s", ErrNoProgram, name, strings.Join(known, ", "))
}

// ticket names the newest generation that was promised: its record answers all who wait.
func (p *runner) ticket() Ticket {
	return Ticket{Program: p.core.Name, Generation: p.core.Awaited(), Instance: p.s.instance}
}

// act gives a program an event from outside.
func (p *runner) act(e program.Event) (Ticket, error) {
	ticket := p.ticket()
	switch e := e.(type) {
	case program.Start:
		return p.start(e)
	case program.Stop:
		if p.core.Goal == program.Halt && p.core.Live() == 0 {
			ticket.Stopped = true
			return ticket, nil
		}
		e.Reason = cmp.Or(e.Reason, "requested")
		p.step(e)
	case program.Scale:
		if err := p.scale(e); err != nil {
			return ticket, err
		}
	case program.Promote:
		return p.promote(e)
	case program.Abort:
		if p.core.Trial == nil {
			return ticket, p.noTrial()
		}
		p.step(e)
	case program.Rollback:
		return p.rollBack(e)
	case program.Pause:
		return p.pauseFor(e)
	case program.Unpause:
		if p.core.Paused.Until.IsZero() {
			return ticket, fmt.Errorf("%w: program %s is not paused", ErrState, p.core.Name)
		}
		p.step(e)
	default:
		p.step(e)
	}
	return p.ticket(), nil
}

func (p *runner) noTrial() error {
	return fmt.Errorf("%w: %s has no canary or reload in progress", ErrState, p.core.Name)
}

// start starts a program, unless the program serves already.
func (p *runner) start(e program.Start) (Ticket, error) {
	ticket := p.ticket()
	if p.s.stopping() {
		return ticket, ErrStopping
	}
	if g := p.core.Serving; g != nil && p.core.Serves() {
		ticket.Generation, ticket.Since = g.Number, some(g.Served)
		return ticket, nil
	}
	e.Config = p.core.Config
	p.step(e)
	return p.ticket(), nil
}

// promote lets a canary become the whole generation, or gives it another share of the new connections.
func (p *runner) promote(e program.Promote) (Ticket, error) {
	ticket, t := p.ticket(), p.core.Trial
	if t == nil {
		return ticket, p.noTrial()
	}
	if e.Share > 0 {
		if why := p.core.RefusesShare(e.Share); why != "" {
			return ticket, fmt.Errorf("%w: program %s: %s", ErrState, p.core.Name, why)
		}
	}
	ticket.Generation = t.Number // even when a reload waits behind the canary
	p.step(e)
	return ticket, nil
}

// rollBack switches back to the generation that is kept. New connections go there when it returns.
func (p *runner) rollBack(e program.Rollback) (Ticket, error) {
	ticket := p.ticket()
	if why := p.core.RefusesRollback(); why != "" {
		return ticket, fmt.Errorf("%w: program %s: %s", ErrState, p.core.Name, why)
	}
	ticket.From = p.core.ServingNumber()
	p.step(e)
	ticket.Generation = p.core.ServingNumber()
	p.relisten()
	for w, g := range p.core.Workers() {
		if g.Number == ticket.From && w.State == program.Kept {
			ticket.Until = some(w.Deadline)
		}
	}
	return ticket, nil
}

// MaxPause is the longest pause: after it the kernels of clients stop retrying to connect (tcp_syn_retries in tcp(7)).
const MaxPause = 2 * time.Minute

// pauseFor makes new connections wait in the kernels of their clients.
func (p *runner) pauseFor(e program.Pause) (Ticket, error) {
	ticket := p.ticket()
	refuse := func(why string) (Ticket, error) {
		return ticket, fmt.Errorf("%w: program %s cannot be paused: %s", ErrState, p.core.Name, why)
	}
	switch {
	case p.s.stopping():
		return ticket, ErrStopping
	case e.For <= 0 || e.For > MaxPause:
		return refuse(fmt.Sprintf("%s is not a time of at most %s", e.For, MaxPause))
	case p.core.Goal == program.Halt:
		return refuse("it is stopped")
	case len(p.listeners) == 0:
		return refuse("it has no listener")
	}
	for _, l := range p.listeners {
		if !l.Address.IsTCP() {
			return refuse(fmt.Sprintf("the kernel cannot let what comes to its listener %s wait, only tcp", l.Name))
		}
	}
	if err := p.s.table.Pause(keysOf(p.listeners), true); err != nil {
		// now, so that it can be refused; a death in between undoes it
		return refuse(err.Error())
	}
	p.step(e)
	ticket.Until = some(p.core.Paused.Until)
	return ticket, nil
}

// signal sends a signal that a user asked for. The core does not know of it: it is not a step of a stop plan.
func (p *runner) signal(o SignalOptions) error {
	sent := false
	for w, g := range p.core.Workers() {
		if o.Generation != 0 && g.Number != o.Generation || o.Generation == 0 && w.State == program.Stopping {
			continue
		}
		sent = true
		if h := p.workers[w.Number]; h != nil {
			p.turned()
			if err := h.Signal(o.Signal, o.Signal == syscall.SIGKILL); err != nil {
				return err
			}
		}
	}
	if !sent {
		return p.nobody(o.Generation)
	}
	p.report(program.Report{Kind: program.SignalSent, Generation: o.Generation,
		Particulars: program.Particulars{Signal: config.SignalName(o.Signal)},
		AskedBy:     o.AskedBy})
	return nil
}

// nobody says why there was no worker to signal.
func (p *runner) nobody(generation int) error {
	var numbers []string
	for _, g := range p.core.Generations() {
		numbers = append(numbers, strconv.Itoa(g.Number))
	}
	if generation == 0 || len(numbers) == 0 {
		return fmt.Errorf("%w: program %s has no worker", ErrState, p.core.Name)
	}
	return fmt.Errorf("%w: program %s has no generation %d with a worker; those with workers: %s", ErrState, p.core.Name,
		generation, strings.Join(numbers, ", "))
}

// Command is what a command that belongs to a program (a hook) is run with.
type Command struct {
	Config *config.Program // the newest; not to be changed
	// directory, environment, user and limits as of a worker; no Command, no output; nil: see LookUp
	Spec *worker.Spec
}

// HookCommand returns what a hook of a program is run with, from the snapshot of this generation, or of the serving one
// if this one has none. Errors: ErrNoProgram, and those of every request.
func (s *Supervisor) HookCommand(ctx context.Context, name string, generation int) (*Command, error) {
	return askOf(ctx, s, name, func(p *runner) (*Command, error) {
		spec := p.commandOf(generation)
		if spec == nil {
			spec = p.commandOf(p.core.ServingNumber())
		}
		return &Command{p.core.Config, spec}, nil
	})
}

// commandOf returns nil if the generation is not prepared, or gone.
func (p *runner) commandOf(generation int) *worker.Spec {
	for _, cg := range p.core.Generations() {
		g := p.generations[cg.Number]
		failed := cg.Failure != nil && cg.Failure.Step == program.StepPrepare
		if cg.Number == generation && g != nil && g.snapshot != nil && cg.Prepared && !failed {
			return g.snapshot.Command(cg.Config)
		}
	}
	return nil
}

// LookUp looks up now what a generation of this program would be given. It may take a while: do not call it in the
// loop.
func LookUp(c *config.Program) (*worker.Spec, error) {
	snap, err := snapshot.LookUp(c)
	if err != nil {
		return nil, err
	}
	return snap.Command(c), nil
}

// MaxWorkers is how many workers a program can have.
const MaxWorkers = 10_000

// scaleSignal answers TTIN, which asks for one more worker, and TTOU, for one fewer, as in unicorn and gunicorn. With
// several programs the signal does not say which one it means, so scaleSignal does nothing.
func (s *Supervisor) scaleSignal(sig siginfo.Caught) {
	by := 1
	if sig.Number == syscall.SIGTTOU {
		by = -1
	}
	var all []*runner
	for p := range s.programs.all() {
		if !p.removed {
			all = append(all, p)
		}
	}
	err := fmt.Errorf("%w: there are %d programs; say which one, with `supervisord scale PROGRAM N`", ErrState, len(all))
	if len(all) == 1 {
		err = all[0].scale(program.Scale{Workers: all[0].core.Config.Workers + by, AskedBy: s.bySignal(sig)})
	}
	if err != nil {
		s.Log.Warn(config.SignalName(sig.Number)+": nothing is changed", zap.Error(err))
	}
}

// scale changes how many workers a program has, until the next configuration.
func (p *runner) scale(e program.Scale) error {
	switch t := p.core.Trial; {
	case p.s.stopping():
		return ErrStopping
	case e.Workers < 1:
		return fmt.Errorf("%w: cannot scale to %d: use `supervisord stop %s`", ErrState, e.Workers, p.core.Name)
	case e.Workers > MaxWorkers:
		return fmt.Errorf("%w: cannot scale to %d: at most %d workers", ErrState, e.Workers, MaxWorkers)
	case t != nil && (t.Share > 0 || t.Canary > 0 && (p.outgrows(e.Workers) || e.Workers <= t.Canary)):
		return fmt.Errorf("%w: generation %d of program %s is a canary: promote or abort it first", ErrState, t.Number,
			p.core.Name)
	}
	var event program.Event = e
	if p.outgrows(e.Workers) { // sockets for slots come and go with generations
		if err := p.s.table.Update(p.s.programs.wanted(p, e.Workers)); err != nil {
			return err
		}
		event = program.Reload{Config: program.WithWorkers(p.core.Config, e.Workers),
			Reason: fmt.Sprintf("scaled to %d workers", e.Workers), AskedBy: e.AskedBy}
	}
	p.report(program.Report{Kind: program.Scaled,
		Reason: fmt.Sprintf("%d workers instead of %d", e.Workers, p.core.Config.Workers), AskedBy: e.AskedBy})
	p.step(event)
	return nil
}
