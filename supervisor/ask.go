package supervisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/supervisor/program"
)

// Request is something that an operator asks the supervisor for. Do answers it.
type Request interface{ request() }

type (
	// ReloadRequest reads the configuration again and replaces the workers of these programs, or of all.
	// The answer is one Ticket for each program that is replaced. A canary is begun for all of them or refused: ErrCanary.
	ReloadRequest struct {
		Programs []string // none: all of them
		Reason   string
		AskedBy  string        // who asks, for the log and everybody who looks
		Canary   int           // see Reload
		For      time.Duration // see Reload
	}

	// ProgramRequest gives a program an event: Start, Stop, Kill, Scale, Promote or Abort.
	ProgramRequest struct {
		Program string
		Event   program.Event
		AskedBy string
	}

	// SignalRequest sends a signal to every worker of a program that does not stop, or to those of one generation.
	SignalRequest struct {
		Program    string
		Generation int // 0: all
		Signal     syscall.Signal
		AskedBy    string
	}

	// LevelRequest changes the log level until the next configuration.
	LevelRequest struct{ Level, AskedBy string }

	// StatusRequest asks for a Status.
	StatusRequest struct{}

	// FollowRequest asks for every Update from now on. It is answered with a channel that is closed when the reader is
	// too slow, or after UnfollowRequest.
	FollowRequest struct{}

	// UnfollowRequest ends a FollowRequest.
	UnfollowRequest struct{ Updates <-chan *Update }

	// UpgradeRequest has the binary at supervisord's path tried, and is answered when that has ended: ErrUpgrade if it is no good.
	// If it is, a SwitchRequest must follow: whoever asked can tell others before this image ends.
	UpgradeRequest struct{ AskedBy string }

	// SwitchRequest has the binary that was tried take over. It is answered only if that fails: with ErrUpgrade.
	SwitchRequest struct{}
)

func (ReloadRequest) request()   {}
func (ProgramRequest) request()  {}
func (SignalRequest) request()   {}
func (LevelRequest) request()    {}
func (StatusRequest) request()   {}
func (FollowRequest) request()   {}
func (UnfollowRequest) request() {}
func (UpgradeRequest) request()  {}
func (SwitchRequest) request()   {}

// Ticket says which generation will show how a reload went: a GenerationServes or TrialFailed with its number.
type Ticket struct {
	Program    string `json:"program"`
	Generation int    `json:"generation"`
	Instance   string `json:"instance"` // see Status: the numbers of another one mean something else

	Since   *time.Time `json:"since,omitempty"`   // of a Start: it has served since then, and there is nothing to wait for
	Stopped bool       `json:"stopped,omitempty"` // of a Stop: it had stopped before, and there is nothing to wait for
}

// What Do answers when it cannot do what was asked.
var (
	ErrNoProgram = errors.New("there is no such program")
	ErrRefused   = errors.New("the configuration was refused; nothing has changed")
	ErrCanary    = errors.New("the canary was refused; nothing has changed")
	ErrStopping  = errors.New("supervisord is stopping")
	ErrState     = errors.New("that is not possible now")
	ErrUpgrade   = errors.New("upgrade refused; this supervisord goes on")
)

// answer is the end of a request.
type answer struct {
	value any
	err   error
}

// askNote is a request on its way to the loop.
type askNote struct {
	request Request
	reply   chan answer // with room for one: the loop never waits for whoever asked
}

func (askNote) note() {}

// Do has the loop answer a request: []Ticket for a ReloadRequest, a Ticket for a ProgramRequest, *Status for a StatusRequest, *worker.Log for a LogsRequest, a <-chan *Update for a
// FollowRequest, a *Command for a CommandRequest, nil for the others. It is safe to call from any goroutine. Errors: ErrNoProgram, ErrRefused, ErrCanary, ErrStopping and
// ErrState (wrapped), or the end of ctx.
func (s *Supervisor) Do(ctx context.Context, r Request) (any, error) {
	n := askNote{r, make(chan answer, 1)}
	select {
	case s.queue <- n:
	case <-s.done:
		return nil, ErrStopping
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case a := <-n.reply:
		return a.value, a.err
	case <-s.done:
		return nil, ErrStopping
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *Supervisor) asked(n askNote) {
	switch r := n.request.(type) {
	case ReloadRequest:
		s.reloadAsked(r, n.reply)
	case ProgramRequest:
		t, err := s.programAsked(r)
		n.reply <- answer{t, err}
	case SignalRequest:
		n.reply <- answer{nil, s.signalAsked(r)}
	case CommandRequest:
		c, err := s.commandAsked(r)
		n.reply <- answer{c, err}
	case LevelRequest:
		n.reply <- answer{nil, s.levelAsked(r)}
	case LogsRequest:
		log, err := s.logsAsked(r)
		n.reply <- answer{log, err}
	case StatusRequest:
		n.reply <- answer{s.Status(), nil}
	case FollowRequest:
		n.reply <- answer{s.follow(), nil}
	case UnfollowRequest:
		s.unfollow(r.Updates)
		n.reply <- answer{}
	case UpgradeRequest:
		s.upgrade(n.reply, r.AskedBy)
	case SwitchRequest:
		n.reply <- answer{nil, s.switchImage()}
	}
}

// reloadAsked begins what SIGHUP would, for some programs perhaps, and answers when the configuration has been applied.
func (s *Supervisor) reloadAsked(r ReloadRequest, reply chan answer) {
	if s.stopping {
		reply <- answer{nil, ErrStopping}
		return
	}
	reason := r.Reason
	if reason == "" {
		reason = "asked to"
	}
	s.Log.Info("reload: reading the configuration and replacing workers", zap.Strings("programs", r.Programs), zap.String("reason", reason), askedBy(r.AskedBy))
	s.reload(request{reason: reason, askedBy: r.AskedBy, canary: r.Canary, hold: r.For, askers: []asker{{r.Programs, reply}}})
}

// tickets says which generations will answer a reload of these programs, or of all, that has just been applied.
func (s *Supervisor) tickets(names []string) []Ticket {
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(s.programs))
	}
	var tickets []Ticket
	for _, name := range names {
		if p := s.programs[name]; p.core.Goal == program.Run {
			tickets = append(tickets, s.ticket(p))
		}
	}
	return tickets
}

func (s *Supervisor) noProgram(name string) error {
	return noProgram(name, slices.Sorted(maps.Keys(s.programs)))
}

func noProgram(name string, known []string) error {
	return fmt.Errorf("%w: %s; there are: %s", ErrNoProgram, name, strings.Join(known, ", "))
}

// programAsked returns the ticket of the generation that will show how it went.
func (s *Supervisor) programAsked(r ProgramRequest) (Ticket, error) {
	p := s.programs[r.Program]
	if p == nil {
		return Ticket{}, s.noProgram(r.Program)
	}
	switch r.Event.(type) {
	case program.Start:
		if !s.stopping && p.core.Serves() && p.core.Serving != nil {
			served := p.core.Serving.Served
			return Ticket{Program: p.core.Name, Generation: p.core.Serving.Number, Instance: s.instance, Since: &served}, nil
		}
	case program.Stop:
		if p.core.Goal == program.Halt && p.core.Live() == 0 {
			return Ticket{Program: p.core.Name, Generation: p.core.LastGeneration, Instance: s.instance, Stopped: true}, nil
		}
	}
	tried := p.core.LastGeneration
	err := s.give(p, r.Event, r.AskedBy)
	ticket := s.ticket(p)
	if _, promoted := r.Event.(program.Promote); promoted {
		ticket.Generation = tried // also when a reload follows the canary
	}
	return ticket, err
}

func (s *Supervisor) ticket(p *runner) Ticket {
	return Ticket{Program: p.core.Name, Generation: p.core.Awaited(), Instance: s.instance}
}

// give gives a program an event that an operator wants it to have.
func (s *Supervisor) give(p *runner, e program.Event, by string) error {
	switch given := e.(type) {
	case program.Start:
		if s.stopping {
			return ErrStopping
		}
		given.Config, given.AskedBy = p.core.Config, by
		e = given
	case program.Stop:
		given.Reason, given.AskedBy = "asked to", by
		e = given
	case program.Promote:
		given.AskedBy = by
		e = given
	case program.Abort:
		given.AskedBy = by
		e = given
	case program.Scale:
		given.AskedBy = by
		return s.scale(p, given)
	}
	switch e.(type) {
	case program.Promote, program.Abort:
		if p.core.Trial == nil {
			return fmt.Errorf("%w: program %s has no trial", ErrState, p.core.Name)
		}
	}
	s.step(p, e)
	return nil
}

func (s *Supervisor) signalAsked(r SignalRequest) error {
	p := s.programs[r.Program]
	if p == nil {
		return s.noProgram(r.Program)
	}
	sent := false
	for w, g := range p.core.Workers() {
		if r.Generation != 0 && g.Number != r.Generation || r.Generation == 0 && w.State == program.Stopping {
			continue
		}
		sent = true
		if h := p.workers[w.Number]; h != nil {
			if err := h.Signal(r.Signal, r.Signal == syscall.SIGKILL); err != nil {
				return err
			}
		}
	}
	if !sent {
		return p.nobody(r.Generation)
	}
	s.report(p, program.Report{Kind: program.SignalSent, Generation: r.Generation, Signal: config.SignalName(r.Signal), AskedBy: r.AskedBy})
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
	return fmt.Errorf("%w: program %s has no generation %d with a worker; there is %s", ErrState, p.core.Name, generation, strings.Join(numbers, ", "))
}

func (s *Supervisor) levelAsked(r LevelRequest) error {
	level, err := zapcore.ParseLevel(r.Level)
	if err != nil || level > zapcore.ErrorLevel {
		return fmt.Errorf("%w: %q is no log level: use debug, info, warn or error", ErrState, r.Level)
	}
	if s.Level != nil {
		s.Level.SetLevel(level)
	}
	s.Log.Info("log level changed", zap.Stringer("level", level), askedBy(r.AskedBy))
	return nil
}
