package supervisor

import (
	"example.org/supervisord/supervisor/handover"
	"example.org/supervisord/supervisor/program"
)

// claimOrphans finds out what each orphan waits for. It is called when the table has taken the sockets.
func (s *Supervisor) claimOrphans() {
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

// releaseOrphans ends the orphans that are not needed any more, each by the stop plan of the program whose worker it was, which has the
// last word on signals: the plan that the process was started with died with its supervisor.
func (s *Supervisor) releaseOrphans() {
	for _, o := range s.Orphans.Release(s.needsOrphan) {
		steps := handover.DefaultStop()
		if p := s.programs[o.Program]; p != nil && len(p.core.Config.Stop.Steps) > 0 {
			steps = p.core.Config.Stop.Steps
		}
		s.later(func() func() {
			o.End(steps)
			return func() { s.Orphans.Ended(o) }
		})
	}
}

// needsOrphan reports whether a program does not serve yet and is meant to.
func (s *Supervisor) needsOrphan(name string) bool {
	p := s.programs[name]
	if p == nil || p.removed || s.stopping() {
		return false
	}
	state := p.core.State()
	return state == program.StartingUp || state == program.Waiting
}
