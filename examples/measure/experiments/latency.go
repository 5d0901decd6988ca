package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/load"
)

const publishedLatency = "means and percentiles, which hide slow requests: a reload of HAProxy 1.5 every 100 ms " +
	"failed 504 requests of 200,000, and with SYNs held back none of 1,000,000 at " +
	"p99 8 ms, max 29 ms (jolynch; Yelp, 2015). One slow request in 100,000 shows in none of p50, p95 and p99, so here " +
	"is the whole distribution."

type latencySize struct {
	rate    int           // requests a second
	stretch time.Duration // with redeploys, and as long without
	pairs   int           // of such stretches
}

func runLatency(ctx context.Context, r *rig, c *chapter) error {
	if err := r.compareStretches(ctx, c); err != nil {
		return err
	}
	return r.slowNames(ctx, c)
}

// compareStretches compares latency with redeploys and without.
func (r *rig) compareStretches(ctx context.Context, c *chapter) error {
	subject, err := r.supervise(ctx, web("http", "", "2", r.command("hello")...))
	if err != nil {
		return err
	}
	defer subject.Abandon()
	size, every := r.latency, min(2*time.Second, r.latency.stretch/2)
	t := steady(subject.Addresses[0], size.rate)
	defer t.end()
	calmly, redeploying, redeploys, err := alternate(ctx, t, subject, size.pairs, size.stretch, every)
	if err != nil {
		return err
	}
	all := t.end()
	with, calm := profileOf(all, redeploying), profileOf(all, calmly)
	c.say("examples/hello, 2 workers, vegeta at %d requests a second (half on new connections, half on keep-alive "+
		"ones), in alternating stretches of %s without redeploys and with them:", size.rate, size.stretch)
	c.table(profileHead, [][]string{with.row(fmt.Sprintf("%d redeploys, one every %s", redeploys, every)),
		calm.row("no redeploy"), with.ratios(calm)})
	ratio := func(q float64) string { return kit.Ratio(with.latencies.Quantile(q), calm.latencies.Quantile(q)) }
	c.say("**It means:** %s With redeploys p50 is %s times what it is without, p99 %s times, p99.9 %s times, the "+
		"slowest request of all %s times: "+
		"a ratio above 1 comes from the CPU time that starting two processes takes from the clients and the other workers.",
		verdict(with.failed, "supervisord"), ratio(0.5), ratio(0.99), ratio(0.999), ratio(1))
	return r.picture(c, "latency.svg", "histogram of latency with redeploys and without",
		drawHistogram("Every request: with redeploys and without", series{"no redeploy", calm.latencies},
			series{"with redeploys", with.latencies}))
}

// profile is the whole latency of the requests of some windows.
type profile struct {
	requests, failed int
	latencies        load.Times
	gap              time.Duration // the longest without an answer
}

func profileOf(all load.Attempts, windows []window) profile {
	some := within(all, windows)
	return profile{len(some), failed(some), some.Latencies(), longestGaps(all, windows).Quantile(1)}
}

var (
	profileHead = []string{"", "requests", "failed", "p50", "p95", "p99", "p99.9", "max", "slower than 100 ms",
		"longest gap"}
	profileQuantiles = []float64{0.5, 0.95, 0.99, 0.999, 1}
)

func (p profile) row(name string) []string {
	cells := []string{name, count(p.requests), count(p.failed)}
	for _, q := range profileQuantiles {
		cells = append(cells, load.Short(p.latencies.Quantile(q)))
	}
	faster, _ := slices.BinarySearch(p.latencies, 100*time.Millisecond+1)
	return append(cells, count(len(p.latencies)-faster), load.Short(p.gap))
}

func (p profile) ratios(calm profile) []string {
	cells := []string{"ratio", "", ""}
	for _, q := range profileQuantiles {
		cells = append(cells, kit.Ratio(p.latencies.Quantile(q), calm.latencies.Quantile(q)))
	}
	return append(cells, "", kit.Ratio(p.gap, calm.gap))
}
