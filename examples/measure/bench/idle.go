package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/load"
)

// pulses returns the vitals of processes after a time, with the CPU time and the wake-ups of that time only.
func pulses(ctx context.Context, d time.Duration, pids ...int) ([]vitals, error) {
	look := func() (all []vitals, err error) {
		for _, pid := range pids {
			v, e := vitalsOf(pid)
			all, err = append(all, v), errors.Join(err, e)
		}
		return all, err
	}
	before, err := look()
	if err == nil {
		err = kit.Pause(ctx, d)
	}
	if err != nil {
		return nil, err
	}
	after, err := look()
	for i := range after {
		after[i].cpu -= before[i].cpu
		after[i].woken += after[i].preempted - before[i].woken - before[i].preempted
	}
	return after, err
}

// measureIdle measures a master with ten idle workers beside a Go program that only waits for a signal, which shows what the Go
// runtime does by itself.
func (b *bench) measureIdle(ctx context.Context) error {
	s, err := b.serve(ctx, b.light, "10", "")
	if err != nil {
		return err
	}
	defer s.Abandon()
	bare := exec.Command(b.light, "block")
	if err := bare.Start(); err != nil {
		return err
	}
	defer func() {
		bare.Process.Kill() //nolint:errcheck // it is our own child
		bare.Wait()         //nolint:errcheck // likewise
	}()
	if err := kit.Pause(ctx, 3*time.Second); err != nil { // the start is over, and the runtime has noticed that there is nothing to do
		return err
	}
	d := time.Duration(b.less(60, 10)) * time.Second
	p, err := pulses(ctx, d, s.PID(), bare.Process.Pid)
	if err != nil {
		return err
	}
	b.idleRows(p[0], p[1], d)
	if _, err := s.Replace(ctx); err != nil {
		return err
	}
	v, err := vitalsOf(s.PID())
	b.require("memory of the master, ten workers, after a reload", "≤ 16 MiB", fmt.Sprintf("%s, of which %s its own", mib(v.rss), mib(v.own)), v.rss <= 16<<20)
	return err
}

func (b *bench) idleRows(ours, bare vitals, d time.Duration) {
	b.require(fmt.Sprintf("wake-ups of the idle master in %s, ten workers", d), "as many as Go's own",
		fmt.Sprintf("%d; a Go program that only waits: %d", ours.woken, bare.woken), ours.woken <= bare.woken+1)
	b.show("CPU meanwhile", fmt.Sprintf("%s; a Go program that only waits: %s", load.Short(ours.cpu), load.Short(bare.cpu)))
	b.require("memory of the master, ten workers", "≤ 16 MiB", fmt.Sprintf("%s, of which %s its own; a Go program that only waits: %s",
		mib(ours.rss), mib(ours.own), mib(bare.rss)), ours.rss <= 16<<20)
	b.show("descriptors and threads of the master, ten workers", fmt.Sprintf("%d and %d; a Go program that only waits: %d and %d",
		ours.fds, ours.threads, bare.fds, bare.threads))
}
