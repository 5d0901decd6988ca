package supervisor

import (
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/epoll"
	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor/program"
)

// unowned watches the accept queues from which nobody accepts (socket.Queue). A client that ends its handshake there must learn that it has to
// connect again. The kernel wakes the loop when one comes, and never else: no queue of a generation is watched.
type unowned struct {
	watched map[string][]*watchedQueue // by the key of the listener
	had     map[uint64]owner           // by socket: who had it last
}

// owner is the generation of a program.
type owner struct {
	program    *runner
	generation int
}

type watchedQueue struct {
	socket.Queue
	source *epoll.Source // nil: it is not watched
}

// sweep resets what waits where nobody accepts, at listeners that have changed and at those with these keys, and watches these queues from now on.
// It is called when steering has changed or a generation is gone, and before a queue gets an owner again.
func (s *Supervisor) sweep(keys ...string) {
	u := &s.unowned
	unowned := s.table.Unowned(keys...)
	for key, queues := range unowned { // first: another listener may have the number of a descriptor by now
		u.watched[key] = slices.DeleteFunc(u.watched[key], func(w *watchedQueue) bool {
			gone := !slices.Contains(queues, w.Queue)
			if gone {
				s.Queues.Remove(w.source)
				delete(u.had, w.Socket)
			}
			return gone
		})
	}
	for key, queues := range unowned {
		for _, q := range queues {
			if !slices.ContainsFunc(u.watched[key], func(w *watchedQueue) bool { return w.Queue == q }) {
				u.watched[key] = append(u.watched[key], &watchedQueue{q, s.watchQueue(key, q)})
			}
		}
		for _, w := range u.watched[key] {
			s.refuse(key, w)
		}
		if len(queues) == 0 {
			delete(u.watched, key)
		}
	}
}

// watchQueue has the loop sweep when a connection comes to a queue.
func (s *Supervisor) watchQueue(key string, q socket.Queue) *epoll.Source {
	if s.Queues == nil {
		return nil
	}
	source, err := s.Queues.Add(q.FD, true, func(events uint32) {
		if events&unix.EPOLLIN != 0 {
			s.post(func() { s.sweep(key) })
		}
	})
	if err != nil {
		s.Log.Error("cannot watch the queue of a generation that is gone; a client that ends its handshake there later waits in vain",
			zap.String("listener", key), zap.Error(err))
	}
	return source
}

// refuse resets what waits in a queue, and tells whose it was.
func (s *Supervisor) refuse(key string, w *watchedQueue) {
	n, err := w.Refuse()
	switch {
	case err != nil: // no descriptor is left
		s.after(refuseRetry, func() { s.sweep(key) })
	case w.source != nil:
		s.Queues.Again(w.source)
	}
	was, known := s.unowned.had[w.Socket]
	switch {
	case n == 0:
	case known && s.programs[was.program.core.Name] == was.program:
		was.program.step(program.Refused{Generation: was.generation, Connections: n})
	default:
		s.Log.Warn("connections that waited were reset: the generation they waited for is gone", zap.String("listener", key), zap.Int("connections", n))
	}
}

// refuseRetry is how soon connections are reset that could not be.
const refuseRetry = time.Second

// release gives back the sockets of a generation that is gone.
func (p *runner) release(g *resources) {
	for _, target := range socket.Left(g.lanes, nil) {
		for _, id := range target.Queues {
			p.s.unowned.had[id] = owner{p, g.number}
		}
	}
	g.lanes = p.s.table.Release(g.lanes)
}

// releaseLast gives back the sockets of a generation that drains with its last worker, before the core hears of that: so the record of the
// reload says what was reset.
func (p *runner) releaseLast(worker int) {
	_, cg := p.core.Find(worker)
	if cg == nil || len(cg.Workers) > 1 || p.core.Role(cg) != program.RoleDraining || p.generations[cg.Number] == nil {
		return
	}
	g := p.generations[cg.Number]
	p.release(g)
	p.s.sweep(g.keys()...)
}
