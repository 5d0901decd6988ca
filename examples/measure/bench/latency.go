package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"example.org/supervisord/examples/measure/kit"
)

// measureLatency compares the same load without reloads, with a reload every second, and without again: the difference
// between the first and the last is what else happens on the machine.
func (b *bench) measureLatency(ctx context.Context) error {
	s, err := b.side.serve(ctx, b.hello, "2", "", "")
	if err != nil {
		return err
	}
	defer s.Abandon()
	const rate = 500
	d := time.Duration(b.less(20, 4)) * time.Second
	if err := kit.Pause(ctx, atRest); err != nil {
		return err
	}
	before, err := vitalsOf(s.PID())
	if err != nil {
		return err
	}
	calm, err := steady(ctx, s.Addresses[0], rate, d)
	if err != nil {
		return err
	}
	after, err := vitalsOf(s.PID())
	if err != nil {
		return err
	}
	woken := after.woken - before.woken
	b.require(fmt.Sprintf("wake-ups of the master during %d requests without a reload", calm.Requests), "0 per request",
		fmt.Sprint(woken), woken < calm.Requests/100)
	var busy steadyLoad
	err = kit.During(ctx, time.Second, s.HUP,
		func() (err error) { busy, err = steady(ctx, s.Addresses[0], rate, d); return err })
	if err != nil {
		return err
	}
	again, err := steady(ctx, s.Addresses[0], rate, d)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("latency at %d/s, new connections, p50 / p99 / max", rate)
	b.require(what+", no reload", "", calm.String(), calm.Failed == 0)
	b.require(what+", a HUP each second", "0 failed", busy.String(), busy.Failed == 0)
	b.require(what+", no reload, again", "", again.String(), again.Failed == 0)
	base := sorted(slices.Concat(calm.latency, again.latency))
	ratio := func(q float64) string { return kit.Ratio(busy.latency.Quantile(q), base.Quantile(q)) }
	b.show("with reloads : without, p50, p99, max, gap",
		fmt.Sprintf("%s, %s, %s, %s", ratio(0.5), ratio(0.99), ratio(1), kit.Ratio(busy.gap, max(calm.gap, again.gap))))
	return nil
}
