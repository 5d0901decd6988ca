package supervisor

import (
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/proc"
	"example.org/supervisord/socket/diag"
	"example.org/supervisord/supervisor/program"
)

// watch returns the watch over the connections of workers that get no new ones, and keeps it until their generation is forgotten; nil: they share their sockets.
func (p *runner) watch(g *resources, f finishing) *diag.Watch {
	if w := g.watches[f.slot]; w != nil {
		return w
	}
	left := p.s.table.Left(g.claims, f.slots())
	if len(left) == 0 {
		return nil
	}
	w := diag.NewWatch(left)
	w.Keep()
	if g.watches == nil {
		g.watches = map[int]*diag.Watch{}
	}
	g.watches[f.slot] = w
	return w
}

// closeWatches forgets what is known of the connections of a generation that is gone.
func (g *resources) closeWatches() {
	for _, w := range g.watches {
		w.Close()
	}
	g.watches = nil
}

// watchesOver lists the watches over the connections of a worker.
func (g *resources) watchesOver(w *program.Worker, h *heldProcess) (all []*diag.Watch) {
	for slot, watch := range g.watches {
		if slot == everySlot || slot == w.Slot {
			all = append(all, watch)
		}
	}
	if h.held != nil {
		all = append(all, h.held)
	}
	return all
}

// lookPatience is how long a signal waits for a look that takes about a millisecond: a worker must not lose more of its stop.timeout.
const lookPatience = time.Second

// looksFirst reports whether a signal has to wait until it is known what the worker has in hand, and begins to look: at the first signal that stops a
// worker which gets no new connections, and at KILL, whatever sockets the worker has.
func (p *runner) looksFirst(a program.SendSignal) bool {
	w, cg := p.core.Find(a.Worker)
	h := p.workers[a.Worker]
	if w == nil || w.State != program.Stopping || p.generations[cg.Number] == nil || h.looked == a.Signal {
		return false
	}
	if h.looking == a.Signal {
		return true
	}
	g, kill := p.generations[cg.Number], a.Signal == config.SIGKILL
	if !kill && (w.Step > 0 || !cg.Steered || p.watch(g, p.finishingOf(w, cg)) == nil) {
		return false
	}
	watches := g.watchesOver(w, h)
	if len(watches) == 0 && len(g.listeners) > 0 {
		h.held = diag.NewWatchOf(p.portsOf(g), func() map[uint64]bool { return socketsOf(w.PID) })
		watches = []*diag.Watch{h.held}
	}
	if len(watches) == 0 {
		return false
	}
	h.looking = a.Signal
	send := func() {
		if now, stops := p.core.StopStep(a.Worker); stops && now == a && h.looking == a.Signal {
			h.looking, h.looked = 0, a.Signal
			p.send(a)
		}
	}
	limit := p.s.after(lookPatience, send)
	p.s.later(func() func() {
		for _, watch := range watches {
			_ = watch.Mark(kill) // what is not seen is not known
		}
		limit.Stop()
		return send
	})
	return true
}

func (p *runner) portsOf(g *resources) (ports []uint16) {
	for _, t := range p.s.table.Accepted(g.claims) {
		ports = append(ports, t.Port)
	}
	return ports
}

// socketsOf returns the inodes of the sockets that a process and its descendants have, as far as this process may look.
func socketsOf(pid int) map[uint64]bool {
	inodes := map[uint64]bool{}
	for _, pid := range append(proc.Descendants(pid), pid) {
		links, _ := proc.Descriptors(pid)
		for _, link := range links {
			if inode, is := proc.SocketInode(link); is {
				inodes[inode] = true
			}
		}
	}
	return inodes
}

// exited tells the core that a worker has ended. If the worker got no new connections, the core hears first what was lost: who waits for the end of
// the reload is to see that, too. Of one that served it hears later, because its successor must not wait.
func (p *runner) exited(e program.Exited) {
	h := p.workers[e.Worker]
	delete(p.workers, e.Worker)
	w, cg := p.core.Find(e.Worker)
	if w == nil || p.generations[cg.Number] == nil {
		p.step(e)
		return
	}
	g, died := p.generations[cg.Number], !e.Exit.Clean
	watches := g.watchesOver(w, h)
	if len(watches) == 0 {
		serves := p.core.Serving == cg && w.State != program.Starting
		p.ended(g, e, program.Lost{})
		if serves && died {
			p.autopsy(g, e.Worker)
		}
		return
	}
	p.s.later(func() func() {
		lost := lostOf(watches, died)
		return func() {
			if h.held != nil {
				h.held.Close()
			}
			p.ended(g, e, lost)
		}
	})
}

// lostOf adds up what is known. What the kernel does not say is not known.
func lostOf(watches []*diag.Watch, died bool) (all program.Lost) {
	for _, w := range watches {
		if l, err := w.Lost(died); err == nil {
			all = all.Plus(program.Lost{Unread: l.Unread, Unanswered: l.Unanswered, Unsent: l.Unsent})
		}
	}
	return all
}

// ended tells the core that a worker has ended, and what was lost. With the last one of a generation that goes, what waits in sockets that only it had would be
// accepted by nobody before the next reload, if ever: those clients learn now that they must ask again.
func (p *runner) ended(g *resources, e program.Exited, lost program.Lost) {
	_, cg := p.core.Find(e.Worker)
	if cg != nil && len(cg.Workers) == 1 && p.core.Role(cg) == program.RoleDraining && p.core.Goal != program.Halt {
		lost.Queued = p.s.table.Refuse(g.claims)
	}
	p.lost(g.number, e.Worker, lost)
	p.step(e)
}

func (p *runner) lost(generation, worker int, lost program.Lost) {
	if lost != (program.Lost{}) {
		p.step(program.LossKnown{Generation: generation, Worker: worker, Lost: lost})
	}
}

// autopsy looks at what the kernel still shows of a worker that died while it served: connections that are not closed at both ends.
func (p *runner) autopsy(g *resources, worker int) {
	targets := p.s.table.Accepted(g.claims)
	if len(targets) == 0 {
		return
	}
	p.s.later(func() func() {
		watch := diag.NewWatch(targets)
		watch.Keep()
		defer watch.Close()
		lost := lostOf([]*diag.Watch{watch}, true)
		return func() { p.lost(g.number, worker, lost) }
	})
}
