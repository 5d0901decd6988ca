package supervisor

import (
	"fmt"
	"slices"
	"syscall"

	"go.uber.org/zap"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor/program"
)

// MaxWorkers is how many a program can have. A configuration may have as many.
const MaxWorkers = 10_000

// scaleSignal is for TTIN, which asks for one worker more, and TTOU, one less: as unicorn and gunicorn know them. Where there are
// several programs it is not known which is meant, and nothing happens.
func (s *Supervisor) scaleSignal(sig syscall.Signal) {
	by := 1
	if sig == syscall.SIGTTOU {
		by = -1
	}
	name := config.SignalName(sig)
	p, err := s.only()
	if err == nil {
		err = s.scale(p, program.Scale{Workers: p.core.Config.Workers + by, AskedBy: bySignal(sig)})
	}
	if err != nil {
		s.Log.Warn(name+": nothing is changed", zap.Error(err))
	}
}

// only returns the one program that there is.
func (s *Supervisor) only() (*runner, error) {
	var all []*runner
	for _, p := range s.programs {
		if !p.removed {
			all = append(all, p)
		}
	}
	if len(all) != 1 {
		return nil, fmt.Errorf("%w: there are %d programs; say which one, with `supervisord scale PROGRAM N`", ErrState, len(all))
	}
	return all[0], nil
}

// scale changes how many workers a program has, until the next configuration.
func (s *Supervisor) scale(p *runner, e program.Scale) error {
	switch {
	case s.stopping:
		return ErrStopping
	case e.Workers < 1:
		return fmt.Errorf("%w: %d workers; to have none, stop the program", ErrState, e.Workers)
	case e.Workers > MaxWorkers:
		return fmt.Errorf("%w: %d workers; at most %d", ErrState, e.Workers, MaxWorkers)
	}
	if t := p.core.Trial; t != nil && t.Canary > 0 && (p.perSlot() || e.Workers <= t.Canary) {
		return fmt.Errorf("%w: generation %d of program %s is a canary: promote or abort it first", ErrState, t.Number, p.core.Name)
	}
	if p.perSlot() {
		return s.scaleByReload(p, e)
	}
	s.reportScale(p, e)
	s.step(p, e)
	return nil
}

// perSlot reports whether a listener of the newest configuration has a socket for each slot.
func (p *runner) perSlot() bool {
	return slices.ContainsFunc(p.listeners, func(l socket.Resolved) bool { return l.PerSlot })
}

// scaleByReload makes a new generation of the new size: sockets for slots come and go with generations.
func (s *Supervisor) scaleByReload(p *runner, e program.Scale) error {
	if err := s.table.Update(s.wantedBy(p, e.Workers)); err != nil {
		return err
	}
	s.keeper.changed()
	s.reportScale(p, e)
	s.step(p, program.Reload{Config: program.WithWorkers(p.core.Config, e.Workers), Reason: fmt.Sprintf("scaled to %d workers", e.Workers), AskedBy: e.AskedBy})
	return nil
}

func (s *Supervisor) reportScale(p *runner, e program.Scale) {
	s.report(p, program.Report{Kind: program.Scaled, Reason: fmt.Sprintf("%d workers instead of %d", e.Workers, p.core.Config.Workers), AskedBy: e.AskedBy})
}
