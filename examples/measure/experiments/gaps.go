package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
)

const publishedGaps = "`nginx -s reload` in a blue/green deploy: 0.2 s without service, 0.015 s after tuning (velog, 2023)."

// clients is how many ask again as soon as they are answered, beside the constant rate.
const clients = 4

func runGaps(ctx context.Context, b *bench, s *section) error {
	var rows [][]string
	var strips []strip
	failed := 0
	var parts []float64
	for _, workers := range b.size.workers {
		g, err := b.gaps(ctx, workers)
		if err != nil {
			return fmt.Errorf("%s workers: %w", workers, err)
		}
		name := strings.Trim(workers, `"`)
		if name == "auto" {
			name = fmt.Sprintf("auto (%d here)", runtime.NumCPU())
		}
		failed += g.failed
		rows = append(rows, []string{name, count(g.requests), count(g.failed), short(g.calm.at(0.5)), short(g.calm.at(1)), short(g.with.at(0.5)), short(g.with.at(1)),
			ratio(g.with.at(0.5), g.calm.at(0.5)), ratio(g.with.at(1), g.calm.at(1))})
		strips = append(strips, strip{"workers: " + name, g.calm, g.with})
		parts = append(parts, float64(g.with.at(0.5))/float64(max(1, g.calm.at(0.5))))
	}
	s.say("The longest time without an answer in each of %d stretches of %s without a redeploy, and as many with one in the middle, in turns. The load: %d clients that ask again as soon "+
		"as they are answered, and %d requests a second at a constant rate.", b.size.gapPairs, b.size.gapLong, clients, b.size.rate/2)
	s.table([]string{"workers", "requests", "failed", "no redeploy: median", "longest", "redeploy: median", "longest", "ratio of medians", "ratio of longest"}, rows)
	s.say("**It means:** %s The longest gap with a redeploy is %.2f to %.2f times the one without (medians). There is no moment without a worker that accepts; what is above 1 is the CPU time "+
		"that starting workers takes from the clients and the workers beside them, and it grows with how many start at once (`reload.strategy = \"rolling\"` spreads it). "+
		"\"auto\" is one per CPU: where that is one of the numbers above, the two rows differ by noise alone, and so may the others by as much.",
		verdict(failed, "supervisord"), slices.Min(parts), slices.Max(parts))
	return b.picture(s, "gaps.svg", "longest gap of each stretch, with a redeploy and without", drawStrips("The longest time without an answer", strips))
}

// gapping is the longest gap of each stretch, sorted.
type gapping struct {
	calm, with       spread
	requests, failed int
}

func (b *bench) gaps(ctx context.Context, workers string) (*gapping, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	m, err := startMaster(ctx, b.bin.Supervisord, b.dir, web([]string{b.bin.Hello}, workers, address))
	if err != nil {
		return nil, err
	}
	defer m.stop()
	l := steady("http://"+address+"/", b.size.rate/2)
	defer l.end()
	l.closed("http://"+address+"/", clients)
	var calm, with []window
	for range b.size.gapPairs {
		from := l.now()
		if err := pause(ctx, b.size.gapLong); err != nil {
			return nil, err
		}
		calm, from = append(calm, window{from, l.now()}), l.now()
		if err := pause(ctx, b.size.gapLong/2); err != nil {
			return nil, err
		}
		if _, err := m.redeploy(ctx); err != nil {
			return nil, err
		}
		if err := pause(ctx, max(0, from+b.size.gapLong-l.now())); err != nil {
			return nil, err
		}
		with = append(with, window{from, l.now()})
		if err := m.settle(ctx); err != nil {
			return nil, err
		}
	}
	l.end()
	return measureGaps(l, calm, with), nil
}

func measureGaps(l *load, calm, with []window) *gapping {
	all := samples(l.samples)
	g := &gapping{requests: len(all), failed: all.failed()}
	for i := range calm {
		g.calm = append(g.calm, all.gap(calm[i]))
		g.with = append(g.with, all.gap(with[i]))
	}
	slices.Sort(g.calm)
	slices.Sort(g.with)
	return g
}
