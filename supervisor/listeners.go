package supervisor

import (
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor/program"
)

// listen opens the listeners of a configuration, or leaves everything as it is.
func (s *Supervisor) listen(l *loaded) error {
	var want []socket.Want
	for i := range l.config.Programs {
		c := &l.config.Programs[i]
		for _, r := range l.listeners[c.Name] {
			want = append(want, socket.Want{Resolved: r, Slots: c.Workers})
		}
	}
	err := s.table.Update(want)
	if change, is := errors.AsType[*socket.ChangeError](err); is {
		return l.config.Listener(change.Spec, change.Key, "cannot change while the socket is open: "+change.Why, change.Remedy)
	}
	return err
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

// relisten makes the listeners those of the generation that serves again.
func (p *runner) relisten() {
	g := p.core.Serving
	if g == nil || p.generations[g.Number] == nil {
		return
	}
	p.listeners = nil
	for _, ln := range p.generations[g.Number].lanes {
		p.listeners = append(p.listeners, ln.Listener)
	}
	p.s.wantAgain(p.s.programs.wanted(p, p.core.Config.Workers))
}

// reach replaces the workers of the programs whose clients do not find a socket that a worker has: its path had been removed.
func (s *Supervisor) reach() {
	for p := range s.programs.all() {
		if slices.ContainsFunc(p.listeners, func(l socket.Resolved) bool { return s.table.Stranded(l.Key()) }) {
			p.step(program.Reload{Reason: "the path of a socket was gone; it is bound again"})
		}
	}
}

// shared says why all generations accept from the same sockets of a listener; "": each has its own.
func (p *runner) shared(l socket.Resolved) string {
	switch {
	case l.Handover != socket.Steer && l.HandoverWhy != "":
		return l.HandoverWhy
	case l.Handover != socket.Steer:
		return `handover = "share"`
	}
	return p.s.table.Shared(l.Key())
}

// tellShared logs which listeners all generations share although nobody asked for that.
func (p *runner) tellShared() {
	for _, l := range p.listeners {
		if why := p.shared(l); why != "" && (l.Handover == socket.Steer || l.HandoverWhy != "") {
			p.log.Info("the generations share a listener, so the old one accepts until it is told to stop", zap.String("listener", l.Name), zap.String("reason", why))
		}
	}
}

// unsteered says why new connections cannot be divided between two generations by percentage; "": they can.
func (p *runner) unsteered() string {
	if len(p.listeners) == 0 {
		return "it has no listener"
	}
	for _, l := range p.listeners {
		if why := p.shared(l); why != "" {
			return fmt.Sprintf("its listener %s is shared (%s)", l.Name, why)
		}
	}
	return ""
}

// oneSocket says why so many workers have one socket of a listener although nobody asked for that; "": they have several, or are few.
func (p *runner) oneSocket(l socket.Resolved) string {
	why, _ := p.core.Config.OneSocket(l.Spec)
	if shared := p.s.table.Shared(l.Key()); why == "" && shared != "" && l.Slotting() == "auto" && p.core.Config.Workers > socket.SlotsOfSocket {
		return shared
	}
	return why
}

// outgrows reports whether so many workers need a generation with other sockets: with per_slot, or where a socket would have no worker.
func (p *runner) outgrows(workers int) bool {
	for _, g := range []*program.Generation{p.core.Serving, p.core.Trial} {
		if g != nil && workers < g.Sockets {
			return true
		}
	}
	return slices.ContainsFunc(p.listeners, func(l socket.Resolved) bool { return l.PerSlot })
}
