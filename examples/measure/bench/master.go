package main

import (
	"context"
	"time"

	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// master is the supervisord that is measured. It runs one program, "w".
type master struct {
	*kit.Supervisord
	address string // of the program's only listener
}

// start starts the master with a worker, and more keys for its program and its listener.
func (b *bench) start(worker, workers, keys, listener string) (*master, error) {
	address, err := kit.FreeAddress()
	if err != nil {
		return nil, err
	}
	s, err := kit.Start(b.supervisord, kit.Program{Name: "w", Command: []string{worker}, Workers: workers, More: keys,
		Listen: []kit.Listen{{Name: "http", Address: address, More: listener}}})
	return &master{s, address}, err
}

// serving is start that returns when the first generation serves.
func (b *bench) serving(ctx context.Context, worker, workers, keys string) (*master, error) {
	m, err := b.start(worker, workers, keys, "")
	if err != nil {
		return nil, err
	}
	if _, err := m.Serves(ctx, 1); err != nil {
		m.abandon()
		return nil, err
	}
	return m, nil
}

// reload is one reload, seen from outside.
type reload struct{ hup, told time.Duration } // told: when the log said that the new generation serves

// replace reloads into a generation and waits until the one before is gone.
func (m *master) replace(ctx context.Context, generation int) (r reload, err error) {
	r.hup = kit.Monotonic()
	if err := m.HUP(); err != nil {
		return r, err
	}
	u, err := m.Serves(ctx, generation)
	if err != nil {
		return r, err
	}
	r.told = kit.Monotonic() - time.Since(u.Time)
	return r, m.until(ctx, program.GenerationGone, generation-1)
}

// until waits for an event of a generation; 0: of any.
func (m *master) until(ctx context.Context, kind program.ReportKind, generation int) error {
	_, err := m.Await(ctx, 0, func(u *supervisor.Update) bool {
		return u.Kind == kind && (generation == 0 || u.Generation == generation)
	})
	return err
}

// well reports whether no worker was killed and no generation failed so far.
func (m *master) well() bool {
	return m.Count(program.WorkerKilled)+m.Count(program.TrialFailed) == 0
}

// abandon ends a master that nobody measures any more.
func (m *master) abandon() { m.Stop(5 * time.Second) }
