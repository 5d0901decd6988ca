package supervisor

import (
	"slices"

	"go.uber.org/zap"

	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor/program"
)

// watchSockets hears of every shutdown(2) on a listening socket. It takes the socket out of the hands of all processes that have it.
func (s *Supervisor) watchSockets() {
	if s.Hangups != nil {
		s.table.Watch(s.Hangups, func(key string) { s.post(func() { s.revive(key) }) })
	}
}

// revive lets a listener accept connections again: a TCP socket listens again, and for a unix socket, which cannot, there is a new one and a new
// generation.
func (s *Supervisor) revive(key string) {
	revived, err := s.table.Revive(key)
	if err != nil {
		s.Log.Error("cannot let a socket listen again that a process has shut down", zap.String("listener", key), zap.Error(err))
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
			case !l.Address.OnDisk(): // the old socket has the name
				p.log.Error("a process has shut down the listening socket, for all workers: clients are refused until you stop and start supervisord", zap.String("listener", l.Name))
			default:
				p.log.Warn("a process has shut down the listening socket, for all workers: a new one takes its place", zap.String("listener", l.Name))
				s.wantAgain(s.programs.wanted(p, p.core.Config.Workers))
				p.step(program.Reload{Reason: "a process has shut down the listening socket"})
			}
		}
	}
	s.tellNotices()
}

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
			log.Warn("a process has shut down the listening socket, for all workers: it listens again", append(whose, name, zap.Error(n.Err))...)
		case socket.StrangerInGroup:
			log.Warn("another process listens at the same address with SO_REUSEPORT: it gets connections until new ones are steered again; end it",
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
