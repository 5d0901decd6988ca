package supervisor

import (
	"slices"

	"example.org/supervisord/supervisor/program"
)

// exited tells the core that a worker has ended. If it was the last one of a generation that is replaced, the core hears first what the
// generation has lost: who waits for the end of the reload is to see that, too.
func (p *runner) exited(e program.Exited) {
	w, cg := p.core.Find(e.Worker)
	if w == nil || len(cg.Workers) > 1 || p.core.Role(cg) != program.RoleDraining || p.core.Goal == program.Halt || p.generations[cg.Number] == nil {
		p.step(e)
		return
	}
	g := p.generations[cg.Number]
	lost := program.Lost{Queued: p.queued(g)}
	if len(g.cutOff) == 0 {
		p.ended(g.number, lost, e)
		return
	}
	p.s.later(func() func() {
		queued := 0
		for _, q := range g.cutOff {
			n := q.lost()
			lost.Reset += n.Reset
			queued += n.Queued
		}
		lost.Queued = max(lost.Queued, queued)
		return func() { p.ended(g.number, lost, e) }
	})
}

func (p *runner) ended(generation int, lost program.Lost, e program.Exited) {
	if lost != (program.Lost{}) {
		p.step(program.LossKnown{Generation: generation, Lost: lost})
	}
	p.step(e)
}

// queued counts the connections that wait in sockets which only this generation had, and which get no new connections: nobody accepts them.
func (p *runner) queued(g *resources) (n int) {
	for _, l := range g.listeners {
		for _, lane := range p.s.table.Lanes(l.Key()) {
			if lane.Share == 0 && slices.Contains(g.claims, lane.Claim) {
				n += lane.Queued
			}
		}
	}
	return n
}

// lost returns what the kernel says was lost since workers were told to stop with something in hand. What it does not say is not known.
func (q *quiescence) lost() (l program.Lost) {
	if n, err := q.watch.Reset(q.seen); err == nil {
		l.Reset = n
	}
	if look, err := q.watch.Look(); err == nil {
		l.Queued = look.Queued
	}
	return l
}
