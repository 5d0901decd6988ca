package supervisor

import (
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/socket/diag"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/supervisor/record"
	"example.org/supervisord/supervisor/snapshot"
	"example.org/supervisord/worker"
)

// claimOrphans finds out what each orphan waits for, and reads its output. It is called when the table has taken the sockets.
func (s *Supervisor) claimOrphans() {
	s.orphaned = map[*record.Orphan]func(){}
	for _, o := range s.Orphans.Serving() {
		if streams := o.Streams(); len(streams) > 0 {
			s.orphaned[o] = s.Launcher.ReadOn(o.PID(), streams, s.outputOf(o))
		}
	}
	known := func(name string) bool { return s.programs[name] != nil }
	s.Orphans.Claim(known, func(yield func(program string, fd int) bool) {
		for name, p := range s.programs {
			for _, l := range p.listeners {
				for _, fd := range s.table.FDs(l.Key()) {
					if !yield(name, fd) {
						return
					}
				}
			}
		}
	})
}

// outputOf says where the output of an orphan goes: to where that of its program's next generation does, or, if there is no such
// program any more, to supervisord's own.
func (s *Supervisor) outputOf(o *record.Orphan) (spec worker.Spec) {
	p := s.programs[o.Program]
	if p == nil {
		return spec
	}
	if p.capture.orphans == nil {
		p.capture.orphans = &snapshot.Snapshot{Credential: o.Credential()}
		p.capture.orphans.UseLogs(p.core.Config, p.capture.errors)
	}
	spec.Stdout, spec.Stderr = p.capture.orphans.Stdout, p.capture.orphans.Stderr
	if log := p.capture.of(p.core.Config); log != nil {
		log.UseFile(p.capture.orphans.LogFile(p.core.Config))
		spec.Captured = log.Of(0)
	}
	return spec
}

// releaseOrphans ends the orphans that are not needed any more, each by the stop plan of the program whose worker it was, which has the
// last word on signals: the plan that the process was started with died with its supervisor. Where connections are steered away from
// an orphan, it finishes first what it has in hand, like any old worker.
func (s *Supervisor) releaseOrphans() {
	for _, o := range s.Orphans.Release(s.needsOrphan) {
		stop, drain := record.DefaultStop(), config.DrainPolicy{}
		if p := s.programs[o.Program]; p != nil {
			if len(p.core.Config.Stop.Steps) > 0 {
				stop = p.core.Config.Stop
			}
			if !s.stopping() {
				drain = p.core.Config.Drain
			}
		}
		watch := diag.NewWatch(s.table.LeftOf(o.Sockets()), drain.Silence)
		s.later(func() func() {
			o.Await(func(age time.Duration) (bool, time.Duration) {
				look, err := watch.Look()
				return err == nil && look.Quiet(), look.Next(age)
			}, drain.Timeout)
			o.End(stop)
			return func() { s.orphanEnded(o) }
		})
	}
}

func (s *Supervisor) orphanEnded(o *record.Orphan) {
	s.Orphans.Ended(o)
	if finish := s.orphaned[o]; finish != nil {
		finish()
	}
	if s.Orphans.Gone() {
		for p := range s.programs.all() {
			p.closeFiles(p.capture.orphans)
			p.capture.orphans = nil
		}
		s.table.OrphansGone()
	}
}

// needsOrphan reports whether a program is meant to serve, and does not yet or cannot be sent its new connections.
func (s *Supervisor) needsOrphan(name string) bool {
	p := s.programs[name]
	if p == nil || p.removed || s.stopping() {
		return false
	}
	state := p.core.State()
	return state == program.StartingUp || state == program.Waiting || p.astray != "" && p.core.Goal == program.Run
}
