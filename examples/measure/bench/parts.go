package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/supervisor/program"
)

// measureParts measures what is lost of answers that come in parts, from a worker that calls http.Server.Shutdown on
// TERM and nothing else: between two parts nothing moves on the connection.
func (b *bench) measureParts(ctx context.Context) error {
	var errs []error
	for _, c := range []struct {
		n     int
		pause time.Duration
	}{{4, 300 * time.Millisecond}, {3, 2 * time.Second}} {
		parts, short := load.Parts(c.n, c.pause), load.Get("http://bench/", nil)
		for on, ask := range map[string]load.Ask{"new connections": parts,
			"after two requests on a connection": load.InTurn(short, short, parts)} {
			row := fmt.Sprintf("failed requests, Go `Shutdown`: answers in %d parts, %v apart, %s, a HUP every second", c.n,
				c.pause, on)
			if err := b.measureAnswers(ctx, row, ask); err != nil {
				errs = append(errs, fmt.Errorf("parts %v apart: %w", c.pause, err))
			}
		}
	}
	return errors.Join(errs...)
}

func (b *bench) measureAnswers(ctx context.Context, row string, ask load.Ask) error {
	s, err := b.side.serve(ctx, b.naive, "1", "", steered)
	if err != nil {
		return err
	}
	defer s.Abandon()
	sent := 0
	var seen load.Collector
	err = kit.During(ctx, time.Second, func() error { sent++; return s.HUP() }, func() error {
		l := load.New(seen.Add)
		l.Loop(&load.Driver{Dial: load.Dial(s.Addresses[0]), Ask: ask}, 200, b.less(2_000, 800), nil)
		l.Wait()
		return nil
	})
	if err != nil {
		return err
	}
	all := seen.Attempts()
	lost, kinds := all.Lost()
	reloads, killed := s.Count(program.GenerationServes)-1, s.Count(program.WorkerKilled)
	text := fmt.Sprintf("%d failed of %d; %d HUPs, %d reloads", lost, len(all), sent, reloads)
	if lost+killed > 0 {
		text += fmt.Sprintf("; %v; %d workers were killed", kinds, killed)
	}
	b.require(row, "0", text,
		lost+killed == 0 && reloads > 0)
	return nil
}
