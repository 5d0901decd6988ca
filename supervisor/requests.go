package supervisor

import (
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

	From  int       `json:"from,omitempty"` // of a Rollback: the generation that served until now
	Until time.Time `json:"until,omitzero"` // of a Rollback: until when From is kept; of a Pause: when it ends

	// of a Start: the program has served since then; there is nothing to wait for
	Since time.Time `json:"since,omitzero"`
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
// passes, the binary takes over when every client has its answer. Other errors: ErrState.
func (s *Supervisor) Upgrade(ctx context.Context, by string) error {
	_, err := ask(ctx, s.mailbox, func(reply func(struct{}, error)) {
		s.departure.upgrade(func(err error) { reply(struct{}{}, err) }, by)
	})
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

// act gives a program an event from outside, unless the core or the sockets refuse it. What could fail is done before
// the step, because no action may fail: Scale opens the sockets that a larger number of slots needs, and Pause parks
// the listeners. The Ticket says which generation's record answers the caller.
func (p *runner) act(e program.Event) (Ticket, error) {
	if err := p.refuses(e); err != nil {
		return Ticket{}, err
	}
	if t, is := p.isSo(e); is {
		return t, nil
	}
	if err := p.opens(e); err != nil {
		return Ticket{}, err
	}
	trial, serving := p.core.Trial, p.core.ServingNumber()
	p.step(e)
	ticket := p.ticket()
	switch e.(type) {
	case program.Promote:
		ticket.Generation = trial.Number // even when a reload waits behind the canary
	case program.Rollback: // new connections go there already
		ticket.From, ticket.Generation = serving, p.core.ServingNumber()
		ticket.Until = p.core.KeptTill(p.core.Generation(serving))
		p.relisten()
	case program.Pause:
		ticket.Until = p.core.Paused.Until
	}
	return ticket, nil
}

// isSo returns the Ticket of what an event asks for, if there is nothing to do and nothing to wait for.
func (p *runner) isSo(e program.Event) (ticket Ticket, is bool) {
	ticket = p.ticket()
	switch e.(type) {
	case program.Start:
		if is = p.core.Serving != nil && p.core.Serves(); is {
			ticket.Generation, ticket.Since = p.core.Serving.Number, p.core.Serving.Served
		}
	case program.Stop:
		is = p.core.Goal == program.Halt && p.core.Live() == 0
		ticket.Stopped = is
	}
	return ticket, is
}

// opens changes the sockets for an event. A death before the step undoes it: the record does not say so yet.
func (p *runner) opens(e program.Event) error {
	switch e := e.(type) {
	case program.Scale:
		if p.core.Outgrows() {
			return p.s.table.Update(p.s.programs.wanted(p, e.Workers))
		}
	case program.Pause:
		if err := p.s.table.Pause(keysOf(p.listeners), true); err != nil {
			return fmt.Errorf("%w: program %s: %w", ErrState, p.core.Name, err)
		}
	}
	return nil
}

// refuses returns the ErrState with the core's reason, or ErrStopping for what supervisord does not begin any more.
func (p *runner) refuses(e program.Event) error {
	switch e.(type) {
	case program.Start, program.Scale, program.Pause:
		if p.s.stopping() {
			return ErrStopping
		}
	}
	if why := p.core.Refuses(e); why != "" {
		return fmt.Errorf("%w: program %s: %s", ErrState, p.core.Name, why)
	}
	return nil
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
	cg, g := p.core.Generation(generation), p.generations[generation]
	if cg == nil || g == nil || g.snapshot == nil || !cg.Prepared ||
		cg.Failure != nil && cg.Failure.Step == program.StepPrepare {
		return nil
	}
	return g.snapshot.Command(cg.Config)
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
		_, err = all[0].act(program.Scale{Workers: all[0].core.Config.Workers + by, AskedBy: s.bySignal(sig)})
	}
	if err != nil {
		s.Log.Warn(config.SignalName(sig.Number)+": nothing is changed", zap.Error(err))
	}
}
