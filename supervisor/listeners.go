package supervisor

import (
	"errors"
	"slices"

	"go.uber.org/zap"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor/program"
)

// listen opens the listeners of a configuration, or leaves everything as it is.
func (s *Supervisor) listen(l *loaded) error {
	var want []socket.Want
	for i := range l.config.Programs {
		c := &l.config.Programs[i]
		for _, r := range l.listeners[c.Name] {
			want = append(want, s.programs[c.Name].want(c, r))
		}
	}
	err := s.table.Update(want)
	if change, is := errors.AsType[*socket.ChangeError](err); is {
		return l.config.Listener(change.Spec, change.Key, "cannot change while the socket is open: "+change.Why, change.Remedy)
	}
	return err
}

// want is a listener as a configuration of its program wants it now. p is nil if the program is new.
func (p *runner) want(c *config.Program, r socket.Resolved) socket.Want {
	w := socket.Want{Resolved: r, Slots: c.Workers, Together: c.Reload.Strategy == config.All, Unused: true}
	if p != nil {
		w.Unused = p.core.Live() == 0
		w.Together = w.Together && (p.core.Serving == nil || !p.core.Serving.StopFirst())
	}
	return w
}

// wantAgain opens what the configuration of before wants, as far as that can be had now.
func (s *Supervisor) wantAgain(want []socket.Want) {
	var had []socket.Want
	if s.table.Update(want) == nil {
		return
	}
	for _, w := range want {
		if err := s.table.Update(append(had, w)); err != nil {
			s.Log.Error("cannot listen as configured; workers keep the sockets that they have, and the next reload tries again", zap.String("program", w.Program), zap.Error(err))
			continue
		}
		had = append(had, w)
	}
}

// reach replaces the workers of the programs whose clients find a socket that no worker has: its path had been removed.
func (s *Supervisor) reach() {
	for p := range s.programs.all() {
		if slices.ContainsFunc(p.listeners, func(l socket.Resolved) bool { return s.table.Stranded(l.Key()) }) {
			p.step(program.Reload{Reason: "the path of a socket was gone; it is bound again"})
		}
	}
}

// perSlot reports whether a listener of the newest configuration has a socket for each slot.
func (p *runner) perSlot() bool {
	return slices.ContainsFunc(p.listeners, func(l socket.Resolved) bool { return l.PerSlot })
}
