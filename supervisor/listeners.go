package supervisor

import (
	"errors"
	"maps"
	"slices"
	"time"

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
			want = append(want, s.want(c, r))
		}
	}
	err := s.table.Update(want)
	if change, is := errors.AsType[*socket.ChangeError](err); is {
		return l.config.Listener(change.Spec, change.Key, "cannot change while the socket is open: "+change.Why, change.Remedy)
	}
	return err
}

// want is a listener as the configuration of its program wants it now.
func (s *Supervisor) want(c *config.Program, r socket.Resolved) socket.Want {
	w := socket.Want{Resolved: r, Slots: c.Workers, Together: c.Reload.Strategy == config.All, Unused: true}
	if p := s.programs[c.Name]; p != nil {
		w.Unused = p.core.Live() == 0
		w.Together = w.Together && (p.core.Serving == nil || !p.core.Serving.StopFirst())
	}
	return w
}

// wantedBy lists the listeners of every program as they are, but with another number of workers for one of them.
func (s *Supervisor) wantedBy(scaled *runner, workers int) []socket.Want {
	var want []socket.Want
	for _, p := range s.programs {
		for _, l := range p.listeners {
			w := s.want(p.core.Config, l)
			if p == scaled {
				w.Slots = workers
			}
			if !p.removed {
				want = append(want, w)
			}
		}
	}
	return want
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
	for _, name := range slices.Sorted(maps.Keys(s.programs)) {
		p := s.programs[name]
		if slices.ContainsFunc(p.listeners, func(l socket.Resolved) bool { return s.table.Stranded(l.Key()) }) {
			s.step(p, program.Reload{Reason: "the path of a socket was gone; it is bound again"})
		}
	}
}

// lookAgain is how often it is looked whether a worker that has to wait may be told to go.
const lookAgain = 50 * time.Millisecond

// postponed reports whether a worker is told to go a little later: its successors have another socket of the same address, and a
// connection may still be on its way to the worker's own. It is for nobody who waits: the successors serve already.
func (s *Supervisor) postponed(p *runner, a program.Signal) bool {
	w, g := p.core.Find(a.Worker)
	if w == nil || w.Step > 0 || w.Killed || p.told[a.Worker] > 0 || p.core.Goal != program.Run || p.generations[g.Number] == nil {
		return false
	}
	if s.table.Quiet(p.generations[g.Number].claims, time.Now()) {
		return false
	}
	if len(p.postponed) == 0 {
		time.AfterFunc(lookAgain, func() { s.post(func() { s.quiet(p) }) })
	}
	p.postponed = append(p.postponed, a.Worker)
	return true
}

func (s *Supervisor) quiet(p *runner) {
	workers := p.postponed
	p.postponed = nil
	for _, number := range workers {
		s.resend(p, number)
	}
}

// ownListeners completes the record of a version that did not note whose a listener is: keys and claims are made of that.
func (st *Record) ownListeners() {
	for i := range st.Programs {
		p := &st.Programs[i]
		owned(p.Core.Name, p.Listeners)
		ownedSpecs(p.Core.Name, p.Core.Config.Listen)
		for _, g := range p.Core.Generations() {
			ownedSpecs(p.Core.Name, g.Config.Listen)
		}
		for n := range p.Generations {
			g := &p.Generations[n]
			owned(p.Core.Name, g.Listeners)
			g.Claims = socket.Renamed(g.Claims, g.Listeners)
		}
	}
}

func owned(program string, listeners []socket.Resolved) {
	for i := range listeners {
		listeners[i].Program = program
	}
}

func ownedSpecs(program string, specs []socket.Spec) {
	for i := range specs {
		specs[i].Program = program
	}
}
