package supervisor

import (
	"fmt"
	"syscall"

	"go.uber.org/zap"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/siginfo"
	"example.org/supervisord/supervisor/program"
)

// MaxWorkers is how many workers a program can have.
const MaxWorkers = 10_000

// scaleSignal answers TTIN, which asks for one worker more, and TTOU, one less, as in unicorn and gunicorn. With several programs it
// is not known which is meant, and nothing happens.
func (s *Supervisor) scaleSignal(sig siginfo.Signal) {
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
		return fmt.Errorf("%w: generation %d of program %s is a canary: promote or abort it first", ErrState, t.Number, p.core.Name)
	}
	var event program.Event = e
	if p.outgrows(e.Workers) { // sockets for slots come and go with generations
		if err := p.s.table.Update(p.s.programs.wanted(p, e.Workers)); err != nil {
			return err
		}
		event = program.Reload{Config: program.WithWorkers(p.core.Config, e.Workers), Reason: fmt.Sprintf("scaled to %d workers", e.Workers), AskedBy: e.AskedBy}
	}
	p.report(program.Report{Kind: program.Scaled, Reason: fmt.Sprintf("%d workers instead of %d", e.Workers, p.core.Config.Workers), AskedBy: e.AskedBy})
	p.step(event)
	return nil
}
