package supervisor

import (
	"slices"

	"example.org/supervisord/supervisor/program"
)

// keepOrder starts the programs that have waited until others serve, and stops those that have waited until others have
// stopped. Any event of another program can cause either.
func (s *Supervisor) keepOrder() {
	again := false
	for _, p := range s.programs {
		again = again || p.ending != nil
		if p.core.AwaitsOthers() && !slices.Equal(p.awaits(), p.core.Awaits) {
			p.step(program.Tick{})
		}
	}
	for again { // a program without workers has stopped at once
		again = false
		for p := range s.programs.all() {
			if p.ending != nil && !p.needed() {
				e := *p.ending
				p.ending, again = nil, true
				p.step(e)
			}
		}
	}
}

// awaits returns the programs that must serve before p starts and do not yet serve. A program whose orphans serve does
// not wait: its start is a reload.
func (p *runner) awaits() (names []string) {
	if len(p.core.Config.After) == 0 || p.s.Orphans.Serve(p.core.Name) {
		return nil
	}
	for _, name := range p.core.Config.After {
		if other := p.s.programs[name]; other != nil && other.awaited() {
			names = append(names, name)
		}
	}
	return names
}

// awaited reports whether other programs have to wait for p: p is to serve, and does not. Nobody waits for a program
// that was stopped, or whose workers have all ended for good, because only a person starts it again; nor for one whose
// orphans serve.
func (p *runner) awaited() bool {
	return p.core.Goal == program.Run && !p.core.Serves() && p.core.State() != program.Down &&
		!p.s.Orphans.Serve(p.core.Name)
}

// end stops p as soon as every program has stopped that comes after it and stops, too.
func (p *runner) end(e program.Stop) { p.ending = &e }

// needed reports whether a program lives that comes after p, and stops.
func (p *runner) needed() bool { return len(p.users()) > 0 }

// users returns the programs that come after p, stop, and still live.
func (p *runner) users() (names []string) {
	for other := range p.s.programs.all() {
		stops := other.ending != nil || other.core.Goal == program.Halt && other.core.Live() > 0
		if stops && slices.Contains(other.core.Config.After, p.core.Name) {
			names = append(names, other.core.Name)
		}
	}
	return names
}
