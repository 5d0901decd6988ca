package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/load"
)

// stamps is what workers of package light recorded, by generation.
type stamps map[int]*moments

// moments is when the first worker of a generation began, and the last one said ready and got TERM, by the monotonic clock.
type moments struct{ main, ready, term time.Duration }

func readStamps(path string) (stamps, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	all := stamps{}
	for line := range bytes.Lines(text) {
		var what string
		var generation, pid int
		var at time.Duration
		if _, err := fmt.Sscan(string(line), &what, &generation, &pid, (*int64)(&at)); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", path, line, err)
		}
		m := all[generation]
		if m == nil {
			m = &moments{main: at}
			all[generation] = m
		}
		switch what {
		case "main":
			m.main = min(m.main, at)
		case "ready":
			m.ready = max(m.ready, at)
		case "term":
			m.term = max(m.term, at)
		}
	}
	return all, nil
}

// handover is what was seen of a series of reloads.
type handover struct {
	redeploys []kit.Redeploy
	first     map[int]time.Duration // the first answer, by generation
	stamps    stamps
	floor     *floor
}

func (b *bench) measureHandover(ctx context.Context) error {
	dir, err := os.MkdirTemp(b.dir, "handover")
	if err != nil {
		return err
	}
	f, err := newFloor(dir)
	if err != nil {
		return err
	}
	defer f.close()
	path := filepath.Join(dir, "stamps")
	// A shared socket: a steered worker that is told to stop has had time to finish what it had.
	s, err := kit.Serve(ctx, b.supervisord, table(b.light, "2", fmt.Sprintf("environment = { BENCH_STAMPS = %q }", path), shared))
	if err != nil {
		return err
	}
	defer s.Abandon()
	h := handover{floor: f}
	c := beginChat(s.Addresses[0], 1)
	defer c.end()
	for range b.less(200, 20) {
		r, err := s.Replace(ctx)
		if err != nil {
			return err
		}
		h.redeploys = append(h.redeploys, r)
		if err := f.measure(b.light, r.Generation); err != nil {
			return err
		}
	}
	if t := c.end(); t.Failed > 0 {
		return errors.New(t.String())
	}
	s.Abandon()
	h.first = c.first
	if h.stamps, err = readStamps(path); err != nil {
		return err
	}
	h.rows(b)
	return nil
}

func (h *handover) rows(b *bench) {
	var told, term, answered, toMain, toReady, toTerm, toFirst []time.Duration
	for _, r := range h.redeploys {
		old, now := h.stamps[r.Generation-1], h.stamps[r.Generation]
		if old == nil || now == nil {
			continue
		}
		told, term = append(told, r.Served-now.ready), append(term, old.term-now.ready)
		toMain, toReady, toTerm = append(toMain, now.main-r.HUP), append(toReady, now.ready-r.HUP), append(toTerm, old.term-r.HUP)
		if first := h.first[r.Generation]; first > 0 {
			answered, toFirst = append(answered, first-now.ready), append(toFirst, first-r.HUP)
		}
	}
	const most = 5 * time.Millisecond
	b.require(fmt.Sprintf("last READY=1 → the new generation serves (log line read), %d reloads, p50 / p99 / max", len(told)), "≤ 5 ms (p99)",
		sorted(told).String(), sorted(told).Quantile(0.99) <= most)
	b.require("last READY=1 → the last old worker has TERM", "≤ 5 ms (p99)", sorted(term).String(), sorted(term).Quantile(0.99) <= most)
	b.show("the same by a loop of 20 lines: one datagram, then kill(2)", sorted(h.floor.term).String())
	b.show("last READY=1 → first answer of the new generation", sorted(answered).String())
	b.show("HUP → the worker's main begins", sorted(toMain).String())
	b.show("the same worker by a bare fork and exec → READY=1", sorted(h.floor.boot).String())
	b.show("HUP → last READY=1, two workers", fmt.Sprintf("%s; beyond the worker's own boot %s", sorted(toReady),
		load.Short(sorted(toReady).Quantile(0.5)-sorted(h.floor.boot).Quantile(0.5))))
	b.show("HUP → the last old worker has TERM", sorted(toTerm).String())
	b.show("HUP → first answer of the new generation", sorted(toFirst).String())
}

func sorted(list []time.Duration) load.Times { return load.Sort(slices.Values(list)) }
