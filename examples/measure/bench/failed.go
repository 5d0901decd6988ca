package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/supervisor/program"
)

// generator is a load generator.
type generator struct {
	name string
	keep bool // connections
	run  func(ctx context.Context, t *kit.Totals, address string, requests int, keep bool) error
}

func generators() []generator {
	ab := func(ctx context.Context, t *kit.Totals, address string, requests int, keep bool) error {
		return t.AB(ctx, "http://"+address+"/healthz", 1000, requests, keep)
	}
	all := []generator{{"new connection per request", false, hammer}, {"keep-alive", true, hammer},
		{"ab -c 1000", false, ab}, {"ab -k -c 1000", true, ab}}
	if !kit.HasAB() {
		all = all[:2]
	}
	return all
}

func (b *bench) measureFailed(ctx context.Context) error {
	var errs []error
	for _, every := range []time.Duration{time.Second, 100 * time.Millisecond} {
		for _, g := range generators() {
			if err := b.measureGenerator(ctx, g, table(b.hello, "2", "", ""), every, 1); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", g.name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// measureStorm is measureFailed of so many new connections that a fault of one in a million shows. One worker of one
// thread answers nearly twice as many on two CPUs as two workers do, which take the CPUs from the clients.
func (b *bench) measureStorm(ctx context.Context) error {
	return b.measureGenerator(ctx, generators()[0], table(b.hello, "1", oneThread, ""), time.Second, b.requests)
}

// measureGenerator generates load while HUPs come: at least so many requests, until three HUPs have come.
func (b *bench) measureGenerator(ctx context.Context, g generator, p kit.ProgramTable, every time.Duration,
	least int) error {
	s, err := b.side.Serve(ctx, p)
	if err != nil {
		return err
	}
	defer s.Abandon()
	var t kit.Totals
	sent := 0
	err = kit.During(ctx, every, func() error { sent++; return s.HUP() }, func() (err error) {
		for began := time.Now(); err == nil && (t.Requests < least || time.Since(began) < 3*every+every/2); {
			err = g.run(ctx, &t, s.Addresses[0], b.less(100_000, 10_000), g.keep)
		}
		return err
	})
	if err != nil {
		return err
	}
	reloads, killed, failed := s.Count(program.GenerationServes)-1, s.Count(program.WorkerKilled), s.Count(
		program.TrialFailed)
	trouble := ""
	if killed+failed > 0 {
		trouble = fmt.Sprintf("; %d workers were killed, %d generations failed", killed, failed)
	}
	b.require(fmt.Sprintf("failed requests: %s, 1,000 connections, a HUP every %s", g.name, every), "0",
		fmt.Sprintf("%s, %s/s; %d HUPs, %d reloads%s", &t, t.PerSecond(), sent, reloads, trouble), t.Failed == 0 &&
			trouble == "" && reloads > 0)
	return nil
}
