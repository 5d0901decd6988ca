package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/load"
)

const publishedGaps = "`nginx -s reload` in a blue/green deploy: 0.2 s without service, 0.015 s after tuning " +
	"(velog, 2023)."

type gapsSize struct {
	rate    int
	pairs   int // of stretches without and with a redeploy
	stretch time.Duration
	workers []string
}

// busyClients is how many clients send a request as soon as they are answered, beside the constant rate.
const busyClients = 4

// gapping is the longest gap of each stretch.
type gapping struct {
	workers          string
	calm, with       load.Times
	requests, failed int
}

func (g gapping) ratio(q float64) string { return kit.Ratio(g.with.Quantile(q), g.calm.Quantile(q)) }

func runGaps(ctx context.Context, r *rig, c *chapter) error {
	var rows [][]string
	var all []gapping
	lost := 0
	var medians []float64
	for _, workers := range r.gaps.workers {
		g, err := r.measureGaps(ctx, workers)
		if err != nil {
			return fmt.Errorf("%s workers: %w", workers, err)
		}
		lost += g.failed
		rows = append(rows, []string{g.workers, count(g.requests), count(g.failed), load.Short(g.calm.Quantile(0.5)),
			load.Short(g.calm.Quantile(1)),
			load.Short(g.with.Quantile(0.5)), load.Short(g.with.Quantile(1)), g.ratio(0.5), g.ratio(1)})
		medians = append(medians, float64(g.with.Quantile(0.5))/float64(max(1, g.calm.Quantile(0.5))))
		all = append(all, g)
	}
	c.say("The longest time without an answer in each of %d stretches of %s without a redeploy and as many that begin "+
		"with one, alternating. The load: %d clients that send a request "+
		"as soon as the previous one is answered, and %d requests a second at a constant rate.", r.gaps.pairs, r.gaps.stretch,
		busyClients, r.gaps.rate)
	c.table([]string{"workers", "requests", "failed", "no redeploy: median", "longest", "redeploy: median", "longest",
		"ratio of medians", "ratio of longest"}, rows)
	c.say("**It means:** %s The longest gap with a redeploy is %.2f to %.2f times the one without (medians). A worker "+
		"accepts at every moment; a ratio above 1 comes from the CPU time "+
		"that starting workers takes from the clients and the other workers, and grows with how many start at once "+
		"(`reload.strategy = \"rolling\"` spreads it). "+
		"\"auto\" is one per CPU: if that is one of the numbers above, the two rows differ only by noise, and other rows "+
		"may differ by as much.",
		verdict(lost, "supervisord"), slices.Min(medians), slices.Max(medians))
	return r.picture(c, "gaps.svg", "longest gap of each stretch, with a redeploy and without",
		drawGaps("The longest time without an answer", all))
}

func (r *rig) measureGaps(ctx context.Context, workers string) (g gapping, err error) {
	s, err := r.supervise(ctx, web("http", "", workers, r.command("hello")...))
	if err != nil {
		return g, err
	}
	defer s.Abandon()
	t := steady(s.Addresses[0], r.gaps.rate)
	defer t.end()
	t.Loop(sender(s.Addresses[0], get("/"), busyClients), busyClients, 0, nil)
	calm, with, _, err := alternate(ctx, t, s, r.gaps.pairs, r.gaps.stretch, r.gaps.stretch)
	if err != nil {
		return g, err
	}
	for i := range with {
		with[i].to = with[i].from + r.gaps.stretch // as long as the others: the rest is old workers that drain
	}
	all := t.end()
	if workers == auto {
		workers = fmt.Sprintf("auto (%d here)", runtime.NumCPU())
	}
	return gapping{workers, longestGaps(all, calm), longestGaps(all, with), len(all), failed(all)}, nil
}
