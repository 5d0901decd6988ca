package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"example.org/supervisord/examples/measure/clock"
	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// stamps is what workers of package light recorded, by generation.
type stamps map[int]*moments

// moments is when the first worker of a generation began, and the last one said ready and got TERM, by the monotonic
// clock.
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

// stamped is a supervisord whose workers record what happens to them.
type stamped struct {
	side
	*kit.Subject
	file  string                // the stamps
	hups  map[int]time.Duration // when each generation was asked for
	first map[int]time.Duration // and when it answered first, if somebody asked
}

// serveStamped starts supervisord with so many workers of package light.
func (b *bench) serveStamped(ctx context.Context, s side, workers int, listener string) (*stamped, error) {
	file := filepath.Join(b.dir, fmt.Sprintf("stamps%d", time.Now().UnixNano()))
	subject, err := s.serve(ctx, b.light, fmt.Sprint(workers), fmt.Sprintf("environment = { BENCH_STAMPS = %q }", file),
		listener)
	return &stamped{s, subject, s.Path(file), map[int]time.Duration{}, map[int]time.Duration{}}, err
}

// reload reloads once. clients ask meanwhile.
func (s *stamped) reload(ctx context.Context, clients int) error {
	c := beginChat(s.Dial(s.Addresses[0]), clients)
	defer c.end()
	r, err := s.Replace(ctx)
	if err != nil {
		return err
	}
	s.hups[r.Generation] = r.HUP
	if clients == 0 {
		return nil
	}
	if s.first[r.Generation], err = c.await(ctx, r.Generation); err != nil {
		return err
	}
	if t := c.end(); t.Failed > 0 {
		return errors.New(t.String())
	}
	return nil
}

// since returns the times from one moment of each reload to another.
func (s *stamped) since(at stamps, from, to func(generation int, old, now *moments) time.Duration) load.Times {
	var all []time.Duration
	for generation := range s.hups {
		old, now := at[generation-1], at[generation]
		if old == nil || now == nil {
			continue
		}
		if begin, end := from(generation, old, now), to(generation, old, now); begin > 0 && end > 0 {
			all = append(all, end-begin)
		}
	}
	return sorted(all)
}

// rest is the pause between two reloads: supervisord writes the receipt of one, and systemd closes what the store held.
const rest = 20 * time.Millisecond

// measureStart reloads all sides in turn, and between them starts and stops the same worker with a bare fork and exec.
func (b *bench) measureStart(ctx context.Context, sides []side) error {
	f, err := newFloor(b.dir)
	if err != nil {
		return err
	}
	defer f.close()
	var single, double []*stamped
	// They share one socket: a steered worker that is told to stop has had time to finish what it had.
	for _, s := range sides {
		for workers, list := range map[int]*[]*stamped{1: &single, 2: &double} {
			subject, err := b.serveStamped(ctx, s.with(`log_level = "debug"`), workers, shared)
			if err != nil {
				return err
			}
			defer subject.Abandon()
			*list = append(*list, subject)
		}
	}
	measured := 0
	for range b.less(200, 20) {
		for _, k := range rand.Perm(len(sides)) {
			// in no fixed order: what follows a reload finds the caches as that left them
			measured++
			for _, do := range []func() error{
				func() error { return single[k].reload(ctx, 0) },
				func() error { return f.measure(b.light, measured) },
				func() error { return double[k].reload(ctx, 1) },
			} {
				if err := cmp.Or(do(), kit.Pause(ctx, rest)); err != nil {
					return err
				}
			}
		}
	}
	for k, s := range sides {
		b.side = s
		if err := cmp.Or(b.startRows(single[k], f), b.switchRows(double[k], single[k], f)); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) startRows(s *stamped, f *floor) error {
	at, err := readStamps(s.file)
	if err != nil {
		return err
	}
	hup := func(generation int, _, _ *moments) time.Duration { return s.hups[generation] }
	main := s.since(at, hup, func(_ int, _, now *moments) time.Duration { return now.main })
	bare := sorted(f.main)
	beyond := main.Quantile(0.5) - bare.Quantile(0.5)
	b.require("HUP → the worker's main, one worker, beyond a bare fork and exec of the same worker (p50)", "≤ 3 ms",
		fmt.Sprintf("%s; p50 / p99 / max of %d: %s, bare: %s", load.Short(beyond), len(main), main,
			bare), beyond <= 3*time.Millisecond)
	b.show("HUP → …, by log and worker, p50", s.parts(at))
	return nil
}

// parts says when things happened after HUP, by the log and by the worker.
func (s *stamped) parts(at stamps) string {
	zero, wall := clock.Monotonic(), time.Now()
	steps := map[string][]time.Duration{}
	all, _ := s.Since(0)
	received := time.Duration(0)
	for i := range all {
		u := &all[i]
		when := zero + u.Time.Sub(wall)
		if strings.HasPrefix(string(u.Kind), "HUP") {
			received = when
		}
		hup, now := s.hups[u.Generation], at[u.Generation]
		if hup == 0 || now == nil {
			continue
		}
		switch u.Kind {
		case program.TrialBegan:
			steps["received"] = append(steps["received"], received-hup)
			steps["read"] = append(steps["read"], when-hup)
			steps["main"] = append(steps["main"], now.main-hup)
			steps["ready"] = append(steps["ready"], now.ready-hup)
			steps["term"] = append(steps["term"], at[u.Generation-1].term-hup)
		case program.WorkerSpawned, program.WorkerReady, program.GenerationServes:
			steps[string(u.Kind)] = append(steps[string(u.Kind)], when-hup)
		}
	}
	p50 := func(what string) string { return load.Short(sorted(steps[what]).Quantile(0.5)) }
	return fmt.Sprintf("signal received %s, configuration read %s, exec confirmed %s, worker's main %s, READY=1 %s, "+
		"received %s, serves %s, the old worker has TERM %s",
		p50("received"), p50("read"), p50(string(program.WorkerSpawned)), p50("main"), p50("ready"), p50(
			string(program.WorkerReady)),
		p50(string(program.GenerationServes)), p50("term"))
}

func (b *bench) switchRows(s, single *stamped, f *floor) error {
	at, err := readStamps(s.file)
	if err != nil {
		return err
	}
	one, err := readStamps(single.file)
	if err != nil {
		return err
	}
	ready := func(_ int, _, now *moments) time.Duration { return now.ready }
	told := func(_ int, old, _ *moments) time.Duration { return old.term }
	term := s.since(at, ready, told)
	first := s.since(at, func(generation int, _, _ *moments) time.Duration { return s.hups[generation] },
		func(generation int, _, _ *moments) time.Duration { return s.first[generation] })
	b.require("last READY=1 → the last old worker has TERM, two workers, one busy client", "p50 ≤ 0.5, p99 ≤ 2 ms",
		fmt.Sprintf("%s of %d; with one worker and no client: %s; there a loop of one datagram and kill(2): %s", term,
			len(term),
			single.since(one, ready, told), sorted(f.term)),
		term.Quantile(0.5) <= 500*time.Microsecond && term.Quantile(0.99) <= 2*time.Millisecond)
	b.show("HUP → first answer of the new generation, two workers, one busy client", first.String())
	return nil
}

func sorted(list []time.Duration) load.Times { return load.Sort(slices.Values(list)) }

// gone returns what is true of the update that says so many generations are gone.
func gone(generations int) func(*supervisor.Update) bool {
	return func(u *supervisor.Update) bool {
		if u.Kind == program.GenerationGone {
			generations--
		}
		return generations == 0
	}
}
