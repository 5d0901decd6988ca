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
	reloads map[int]reload // by the new generation
	first   map[int]time.Duration
	stamps  stamps
	floor   *floor
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
	m, err := b.serving(ctx, b.light, "2", fmt.Sprintf("environment = { BENCH_STAMPS = %q }", path))
	if err != nil {
		return err
	}
	defer m.abandon()
	h := handover{reloads: map[int]reload{}, floor: f}
	c := beginChat(m.address, 1)
	defer c.end()
	for generation := 2; generation < b.less(200, 20)+2; generation++ {
		if h.reloads[generation], err = m.replace(ctx, generation); err != nil {
			return err
		}
		if err := f.measure(b.light, generation); err != nil {
			return err
		}
	}
	if t := c.end(); t.Failed > 0 {
		return errors.New(t.String())
	}
	m.abandon()
	h.first = c.first
	if h.stamps, err = readStamps(path); err != nil {
		return err
	}
	h.rows(b)
	return nil
}

func (h *handover) rows(b *bench) {
	var told, term, answered, toMain, toReady, toTerm, toFirst []time.Duration
	for generation, r := range h.reloads {
		old, now := h.stamps[generation-1], h.stamps[generation]
		if old == nil || now == nil {
			continue
		}
		told, term = append(told, r.told-now.ready), append(term, old.term-now.ready)
		toMain, toReady, toTerm = append(toMain, now.main-r.hup), append(toReady, now.ready-r.hup), append(toTerm, old.term-r.hup)
		if first := h.first[generation]; first > 0 {
			answered, toFirst = append(answered, first-now.ready), append(toFirst, first-r.hup)
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
