package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.org/supervisord/examples/measure/clock"
	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/supervisor/program"
)

// measureCrowd measures the life of a supervisord with many programs, and of one with many workers.
func (b *bench) measureCrowd(ctx context.Context) error {
	programs, workers := b.less(300, 50), b.less(1000, 200)
	var many []kit.ProgramTable
	for i := range programs {
		many = append(many, kit.ProgramTable{Name: fmt.Sprintf("p%d", i), Command: []string{b.light, "block"},
			More: oneThread})
	}
	return errors.Join(
		b.measureLife(ctx, fmt.Sprintf("%d programs of one worker", programs), many),
		b.measureLife(ctx, fmt.Sprintf("one program of %d workers", workers),
			[]kit.ProgramTable{table(b.light, fmt.Sprint(workers), oneThread, "")}))
}

// oneThread keeps the worker's share of the measurement small.
const oneThread = `environment = { GOMAXPROCS = "1" }`

// measureLife starts a supervisord, reloads all of its programs, asks for the status, and stops it.
func (b *bench) measureLife(ctx context.Context, what string, programs []kit.ProgramTable) error {
	began := clock.Monotonic()
	s, err := b.side.Serve(ctx, programs...)
	if err != nil {
		return err
	}
	defer s.Abandon()
	started := clock.Monotonic() - began
	from, began := s.Len(), clock.Monotonic()
	if err := s.HUP(); err != nil {
		return err
	}
	if _, err := s.Await(ctx, from, gone(len(programs))); err != nil {
		return err
	}
	reloaded := clock.Monotonic() - began
	v, err := settled(s.PID())
	if err != nil {
		return err
	}
	began = clock.Monotonic()
	if _, err := s.Control().Status(ctx, "", false); err != nil {
		return err
	}
	asked := clock.Monotonic() - began
	began = clock.Monotonic()
	s.Stop(time.Minute)
	stopped, killed := clock.Monotonic()-began, s.Count(program.WorkerKilled)
	b.require(what+": start, HUP of all until the old workers are gone, status, stop", "0 killed",
		fmt.Sprintf("%s, %s, %s, %s; %s, %d descriptors%s", load.Short(started), load.Short(reloaded), load.Short(asked),
			load.Short(stopped), mib(v.pss), v.fds, troubled(killed, false)), killed == 0)
	return nil
}
