package supervisor

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor/program"
)

// The socket table has the sockets, and this file tells it what is wanted of them: listen and wantAgain which there
// are, setOpen whether one accepts connections, revive what to do about one that a process has shut down. Where new
// connections go among the sockets of a listener is in steer.go. All keys are those of socket.Resolved.

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
		return l.config.Refusal(change.Spec, &socket.SpecError{Key: change.Key,
			What: "cannot change while the socket is open: " + change.Why, Remedy: change.Remedy})
	}
	return err
}

// wantAgain opens listeners that were open before, as far as that is possible now. It logs what is not.
func (s *Supervisor) wantAgain(want []socket.Want) {
	var had []socket.Want
	if s.table.Update(want) == nil {
		return
	}
	for _, w := range want {
		if err := s.table.Update(append(had, w)); err != nil {
			s.Log.Error("cannot listen as configured; workers keep the sockets that they have, and the next reload tries again",
				zap.String("program", w.Program), zap.Error(err))
			continue
		}
		had = append(had, w)
	}
}

// relisten makes the listeners those of the generation that serves again after a rollback, so that the next reload
// compares with what is there. The generation has held its sockets all the time.
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

// reach replaces the workers of programs whose clients cannot reach the socket that the workers have, because somebody
// had removed its path: the new workers get the socket that is bound there now.
func (s *Supervisor) reach() {
	for p := range s.programs.all() {
		if slices.ContainsFunc(p.listeners, func(l socket.Resolved) bool { return s.table.Stranded(l.Key()) }) {
			p.step(program.Reload{Reason: "the path of a socket was gone; it is bound again"})
		}
	}
}

// tellShared logs which listeners all generations share although nobody asked for that.
func (p *runner) tellShared() {
	for _, l := range p.listeners {
		if why, unasked := p.s.table.WhyShared(l); unasked {
			p.log.Info("the generations share a listener, so the old one accepts until it is told to stop",
				zap.String("listener", l.Name), zap.String("reason", why))
		}
	}
}

// unsteered says why the kernel cannot divide new connections between two generations by percentage; "": it can.
func (p *runner) unsteered() string {
	if len(p.listeners) == 0 {
		return "it has no listener"
	}
	for _, l := range p.listeners {
		if why, _ := p.s.table.WhyShared(l); why != "" {
			return fmt.Sprintf("its listener %s is shared (%s)", l.Name, why)
		}
	}
	return ""
}

// oneSocket says why so many workers have one socket of a listener although nobody asked for that; "": they have
// several, or are few.
func (p *runner) oneSocket(l socket.Resolved) string {
	why, _ := p.core.Config.Generations().WhyOneSocket(l.Spec)
	if why == "" && l.IsSteered() && l.Slotting() == "auto" && p.core.Config.Workers > socket.SlotsOfSocket {
		why, _ = p.s.table.WhyShared(l)
	}
	return why
}

// tend closes the listeners of a program that has been down for as long as they allow, and opens the others. The core's
// next deadline is not later than the next time when one is to be closed.
func (p *runner) tend() {
	if p.removed {
		return
	}
	now := time.Now()
	for _, l := range p.listeners {
		at := p.core.ClosesAt(l.WhenDown.After)
		p.setOpen(l, !l.WhenDown.Refuse || at.IsZero() || now.Before(at))
	}
}

// setOpen has a listener accept connections, or refuse them: see socket.Table.SetOpen. What changes is logged.
func (p *runner) setOpen(l socket.Resolved, open bool) {
	table := p.s.table
	was := table.Closed(l.Key())
	changed, err := table.SetOpen(l.Key(), open)
	if changed {
		p.s.watchPaths(false)
	}
	name := zap.String("listener", l.Name)
	switch now := table.Closed(l.Key()); {
	case err != nil:
		p.log.Error("cannot open or close a listener", name, zap.Error(err))
	case now && !was && p.core.Goal == program.Halt: // it was stopped
		p.log.Info("nothing serves: connections are refused from now on", name)
	case now && !was:
		p.log.Warn("nothing serves: connections are refused from now on", name)
	case was && !now:
		p.log.Info("connections are accepted again", name)
	}
}

// watchSockets reports every shutdown(2) on a listening socket. One call disables the socket for all processes that
// have it.
func (s *Supervisor) watchSockets() {
	if s.Hangups != nil {
		s.table.Watch(s.Hangups, func(key string) { s.post(func() { s.revive(key) }) })
	}
}

// revive makes a listener accept connections again: a TCP socket listens again; a unix or UDP socket cannot, so revive
// opens a new one and begins a new generation.
func (s *Supervisor) revive(key string) {
	revived, err := s.table.Revive(key)
	if err != nil {
		s.Log.Error("cannot let a socket listen again that a process has shut down", zap.String("listener", key),
			zap.Error(err))
		for p := range s.programs.all() {
			if p.listenerOf(key) != nil {
				p.steer() // which tries again
			}
		}
	}
	if !revived && s.table.Over(key) {
		for p := range s.programs.all() {
			switch l := p.listenerOf(key); {
			case l == nil:
			case l.Address.IsUnix() && !l.Address.OnDisk(): // the old socket has the name
				p.log.Error("a process has shut down the listening socket, for all workers: clients are refused until you stop "+
					"and start supervisord", zap.String("listener", l.Name))
			default:
				p.log.Warn("a process has shut down the listening socket, for all workers: a new one takes its place",
					zap.String("listener", l.Name))
				s.wantAgain(s.programs.wanted(p, p.core.Config.Workers))
				p.step(program.Reload{Reason: "a process has shut down the listening socket"})
			}
		}
	}
	s.tellNotices()
}

// listenerOf returns the configured listener with this key; nil: the program has none.
func (p *runner) listenerOf(key string) *socket.Resolved {
	for i := range p.listeners {
		if p.listeners[i].Key() == key {
			return &p.listeners[i]
		}
	}
	return nil
}

// tellNotices logs what other processes have done to listeners.
func (s *Supervisor) tellNotices() {
	for _, n := range s.table.Notices() {
		log := s.Log
		var whose []zap.Field
		if p := s.programs[n.Program]; p != nil {
			log, whose = p.log, p.holders(n.Lanes)
		}
		name := zap.String("listener", n.Listener)
		switch n.Kind {
		case socket.ShutDown:
			log.Warn("a process has shut down the listening socket, for all workers: it listens again",
				append(whose, name, zap.Error(n.Err))...)
		case socket.StrangerInGroup:
			log.Warn("another process listens at the same address with SO_REUSEPORT: it gets connections until new ones are "+
				"steered again; end it",
				name, zap.String("process", n.Holder), zap.Uint64("inode", n.Socket))
		case socket.StrangerBeside:
			log.Warn("another process listens at a more exact address of the port, and gets every connection to it: end it",
				name, zap.Stringer("address", n.Address), zap.String("process", n.Holder), zap.Uint64("inode", n.Socket))
		}
	}
}

// holders says which generations have these lanes, and which worker where there is only one.
func (p *runner) holders(lanes []*socket.Lane) (fields []zap.Field) {
	for _, cg := range p.core.Generations() {
		g := p.generations[cg.Number]
		if g == nil || !slices.ContainsFunc(g.lanes, func(ln *socket.Lane) bool { return slices.Contains(lanes, ln) }) {
			continue
		}
		fields = append(fields, zap.Int("generation", cg.Number))
		if len(cg.Workers) == 1 {
			fields = append(fields, zap.Int("worker", cg.Workers[0].Number), zap.Int("pid", cg.Workers[0].PID))
		}
	}
	return fields
}
