package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"example.org/supervisord/examples/measure/clock"
	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/supervisor/program"
)

// herd is a supervisord with many programs of one worker.
type herd struct {
	*kit.Subject
	wall, cpu []time.Duration // of each reload of all programs
	slow      bool
}

// measureMany reloads many programs at once, under systemd, which stores the descriptors of all workers, and without,
// in turn.
func (b *bench) measureMany(ctx context.Context, sides []side) error {
	n := b.less(600, 100)
	var herds []*herd
	for _, s := range sides {
		var programs []kit.ProgramTable
		for i := range n {
			programs = append(programs, kit.ProgramTable{Name: fmt.Sprintf("p%d", i), Command: []string{b.light, "block"},
				More: `environment = { GOMAXPROCS = "1" }`})
		}
		subject, err := s.Serve(ctx, programs...)
		if err != nil {
			return err
		}
		defer subject.Abandon()
		herds = append(herds, &herd{Subject: subject})
	}
	for range 3 {
		for _, h := range herds {
			if err := h.reload(ctx, n); err != nil {
				return err
			}
		}
	}
	for i, s := range sides {
		for k, other := range sides {
			if s.Lab != nil && other.Lab == nil && s.before == other.before {
				b.side = other
				b.manyRow(n, herds[i], herds[k])
			}
		}
	}
	return nil
}

func (b *bench) manyRow(n int, stored, plain *herd) {
	under, without := sorted(stored.wall).Quantile(0.5), sorted(plain.wall).Quantile(0.5)
	b.require(fmt.Sprintf("HUP of %d programs of one worker, wall, under systemd : without, medians of at most 3", n),
		"≤ 1.3",
		fmt.Sprintf("%s (%s : %s)", kit.Ratio(under, without), stored, plain), !stored.slow && !plain.slow &&
			float64(under) <= 1.3*float64(without))
}

// reload replaces the workers of all programs, unless that took too long before.
func (h *herd) reload(ctx context.Context, n int) error {
	if h.slow || len(h.wall) > 0 && h.wall[0] > 15*time.Second {
		return nil
	}
	before, err := clock.CPU(h.PID())
	if err != nil {
		return err
	}
	began, from, failed := clock.Monotonic(), h.Len(), h.Count(program.TrialFailed)
	h.slow, err = within(ctx, time.Minute, h.HUP, func(ctx context.Context) error {
		_, err := h.Await(ctx, from, gone(n))
		return err
	})
	after, e := clock.CPU(h.PID())
	h.wall, h.cpu = append(h.wall, clock.Monotonic()-began), append(h.cpu, after-before)
	if failed := h.Count(program.TrialFailed) - failed; failed > 0 {
		e = fmt.Errorf("%d reloads failed", failed)
	}
	return errors.Join(err, e)
}

func (h *herd) String() string {
	var text strings.Builder
	if h.slow {
		text.WriteString("more than ")
	}
	fmt.Fprintf(&text, "%s with %s of the master's CPU", load.Short(sorted(h.wall).Quantile(0.5)),
		load.Short(sorted(h.cpu).Quantile(0.5)))
	return text.String()
}
