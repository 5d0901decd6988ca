package supervisor

import (
	"context"
	"errors"
	"fmt"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/dialect"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/supervisor/snapshot"
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/output"
)

// resources is what the workers of one generation are started with.
type resources struct {
	number    int
	listeners []socket.Resolved
	claims    []string // on the listeners, from the table
	abandon   func()   // ends its Prepare
	snapshot  *snapshot.Snapshot
	log       *output.Log // of the program; nil: nothing is captured
}

// prepare resolves the snapshot of a generation and runs its preflight, off the loop: files, the user database and the preflight
// may all be slow.
func (p *runner) prepare(cg *program.Generation) {
	ctx, cancel := context.WithCancel(p.s.ctx)
	g := &resources{number: cg.Number, listeners: p.listeners, abandon: cancel, log: p.capture.of(cg.Config)}
	var keys []string
	for _, l := range g.listeners {
		keys = append(keys, l.Key())
	}
	claims, err := p.s.table.Hold(keys, socket.Need{Slots: cg.Config.Workers})
	g.claims = claims
	p.generations[cg.Number] = g
	p.s.later(func() func() {
		defer cancel()
		snap, failure := p.gather(ctx, cg.Config, g.log)
		if err != nil {
			failure = &program.Failure{Step: program.StepPrepare, Reason: err.Error()}
		}
		return func() { p.prepared(g, snap, failure) }
	})
}

func (p *runner) prepared(g *resources, snap *snapshot.Snapshot, failure *program.Failure) {
	g.snapshot = snap
	if p.generations[g.number] != g { // gone meanwhile
		for _, f := range snap.Files() {
			p.closeLog(f)
		}
		return
	}
	p.step(program.Prepared{Generation: g.number, Failure: failure})
}

// gather makes the snapshot of a generation, and runs its preflight. It is not for the loop.
func (p *runner) gather(ctx context.Context, c *config.Program, log *output.Log) (*snapshot.Snapshot, *program.Failure) {
	snap, err := bounded(ctx, p.lookups, "looking up directory, user and environment", func() (*snapshot.Snapshot, error) { return snapshot.LookUp(c) })
	if snap == nil {
		snap = &snapshot.Snapshot{}
	}
	if err == nil {
		err = p.openLogs(ctx, snap, c, log)
	}
	if err != nil {
		return snap, &program.Failure{Step: program.StepPrepare, Reason: err.Error()}
	}
	if len(c.Reload.Preflight) == 0 {
		return snap, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Reload.PreflightTimeout, fmt.Errorf("not finished within %s", c.Reload.PreflightTimeout))
	defer cancel()
	spec := snap.Preflight(c)
	if log != nil {
		spec.Captured = log.Of(0)
	}
	if err := p.s.Launcher.Run(ctx, spec); err != nil {
		return snap, preflightFailure(err)
	}
	return snap, nil
}

func preflightFailure(err error) *program.Failure {
	if e, ok := errors.AsType[*worker.RunError](err); ok {
		return &program.Failure{Step: program.StepPreflight, Reason: e.Reason(), Tail: e.Exited.Tail}
	}
	return &program.Failure{Step: program.StepPreflight, Reason: err.Error()}
}

// workerSpec is what a worker of this generation is started with.
func (g *resources) workerSpec(t *socket.Table, c *config.Program, w *program.Worker) worker.Spec {
	seat := g.seat(w)
	for _, l := range g.listeners {
		claim := socket.ClaimOn(l, g.claims)
		seat.FDs = append(seat.FDs, t.FD(claim, w.Slot))
		seat.Sockets = append(seat.Sockets, dialect.Passed{Name: l.Name, Address: l.Address, Bound: t.Address(claim), Starter: l.StarterName})
	}
	spec := g.snapshot.Worker(c, seat)
	if g.log != nil {
		spec.Captured = g.log.Of(w.Number)
	}
	return spec
}

func (g *resources) seat(w *program.Worker) snapshot.Seat {
	return snapshot.Seat{Generation: g.number, Slot: w.Slot}
}
