package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/internal/lab/plot"
)

const publishedLatency = "means and percentiles, which hide slow requests: a reload of HAProxy 1.5 every 100 ms failed 504 requests of 200,000, and with SYNs held back none of 1,000,000 at " +
	"p99 8 ms, max 29 ms (jolynch; Yelp, 2015). One slow request in 100,000 shows in none of p50, p95 and p99, so here is the whole distribution."

type latencySize struct {
	rate    int           // requests a second
	stretch time.Duration // with redeploys, and as long without
	pairs   int           // of such stretches
	panel   time.Duration // of the picture that compares ways to redeploy
}

func runLatency(ctx context.Context, r *rig, c *chapter) error {
	if err := r.compareStretches(ctx, c); err != nil {
		return err
	}
	if err := r.compareWays(ctx, c); err != nil {
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
	c.say("examples/hello, 2 workers, vegeta at %d requests a second (half on new connections, half on kept ones), in alternating stretches of %s without redeploys and with them:", size.rate, size.stretch)
	c.table(profileHead, [][]string{with.row(fmt.Sprintf("%d redeploys, one every %s", redeploys, every)), calm.row("no redeploy"), with.ratios(calm)})
	ratio := func(q float64) string { return kit.Ratio(with.latencies.Quantile(q), calm.latencies.Quantile(q)) }
	c.say("**It means:** %s With redeploys p50 is %s times what it is without, p99 %s times, p99.9 %s times, the slowest request of all %s times: "+
		"a ratio above 1 comes from the CPU time that starting two processes takes from the clients and the other workers.",
		verdict(with.failed, "supervisord"), ratio(0.5), ratio(0.99), ratio(0.999), ratio(1))
	return r.picture(c, "latency.svg", "histogram of latency with redeploys and without",
		drawHistogram("Every request: with redeploys and without", series{"no redeploy", calm.latencies}, series{"with redeploys", with.latencies}))
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
	profileHead      = []string{"", "requests", "failed", "p50", "p95", "p99", "p99.9", "max", "slower than 100 ms", "longest gap"}
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

// bootDelay is what a worker of a middling size takes until it serves.
const bootDelay = "-boot-delay=300ms"

// restarter redeploys in some way, once.
type restarter struct {
	redeploy func(context.Context) error
	stop     func()
}

// distance is how far away the clients of compareWays act to be.
const distance = 20 * time.Millisecond

// compareWays draws the same load under three ways to redeploy a worker that only calls http.Server.Shutdown, one below the other. The
// picture has the new connections; the table the kept ones, too.
func (r *rig) compareWays(ctx context.Context, c *chapter) error {
	var rows [][]string
	var panels []plot.Panel
	lost := 0
	for _, way := range []struct {
		name  string
		start func(ctx context.Context, address string) (*restarter, error)
	}{
		{"no supervisor: stop, then start again", r.byHand},
		{"one shared socket, TERM at once: handover = \"share\"", r.supervised(shared)},
		{"supervisord, steered", r.supervised(steered)},
	} {
		p, kept, err := r.panel(ctx, way.start)
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		profile, keeping := profileOf(p.Attempts, []window{{0, p.Length}}), profileOf(kept, []window{{0, p.Length}})
		p.Title, p.Note = way.name, fmt.Sprintf("%s failed of %s · p99 %s · longest gap %s", count(profile.failed), count(profile.requests),
			load.Short(profile.latencies.Quantile(0.99)), load.Short(profile.gap))
		panels = append(panels, p)
		rows = append(rows, append(profile.row(way.name), count(keeping.requests), count(keeping.failed)))
		lost = profile.failed // of the last way in the end
	}
	c.say("The same load with three ways to redeploy, once a second. The worker is `examples/measure/naive`, a Go server that calls "+
		"`http.Server.Shutdown` on TERM and nothing else; it takes 0.3 s to boot. The clients act as if they were %s away:", distance)
	c.table(append(slices.Clone(profileHead), "on kept connections", "failed"), rows)
	c.say("**It means:** %s That is on new connections, with a worker that loses requests under the two other ways. On kept connections `Shutdown` closes "+
		"idle ones, some in the instant in which their client uses them again: that is the worker's own doing, and `worker/graceful` does not.", verdict(lost, "supervisord"))
	title := fmt.Sprintf("Go with http.Server.Shutdown, redeployed every second, %s new connections a second", count(r.latency.rate/2))
	return r.picture(c, "redeploys.svg", "latency over time under three ways to redeploy, failed requests in colour", plot.Timeline(title, panelHeight, panels))
}

func (r *rig) byHand(ctx context.Context, address string) (*restarter, error) {
	command := r.command("naive", "-address", address, bootDelay)
	w, err := serveAlone(ctx, address, command...)
	if err != nil {
		return nil, err
	}
	return &restarter{func(ctx context.Context) error {
		if err := w.Cmd.Process.Signal(unix.SIGTERM); err != nil {
			return err
		}
		<-w.Ended
		next, err := serveAlone(ctx, address, command...)
		if err == nil {
			w = next
		}
		return err
	}, func() { w.Stop(5 * time.Second) }}, nil
}

func (r *rig) supervised(listener string) func(context.Context, string) (*restarter, error) {
	return func(ctx context.Context, address string) (*restarter, error) {
		table := web("http", address, "2", r.command("naive", bootDelay)...)
		table.Listen[0].More = listener
		s, err := r.supervise(ctx, table)
		if err != nil {
			return nil, err
		}
		return &restarter{func(ctx context.Context) error { _, err := s.Redeploy(ctx); return err }, s.Abandon}, nil
	}
}

// panel puts load on one way to redeploy: new connections for the panel, and as many requests on kept ones.
func (r *rig) panel(ctx context.Context, start func(context.Context, string) (*restarter, error)) (p plot.Panel, kept load.Attempts, err error) {
	address := kit.FreeAddress()
	way, err := start(ctx, address)
	if err != nil {
		return p, nil, err
	}
	defer func() { way.stop() }()
	t, k := newTraffic(), newTraffic()
	t.Rate(distant(address, 0), r.latency.rate/2)
	k.Rate(distant(address, 1+r.latency.rate/20), r.latency.rate/2)
	defer t.end()
	defer k.end()
	var redeploys []time.Duration
	bounded, cancel := context.WithTimeout(ctx, r.latency.panel-500*time.Millisecond)
	defer cancel()
	err = kit.Each(bounded, time.Second, func() error {
		redeploys = append(redeploys, t.Now())
		return way.redeploy(ctx)
	})
	err = errors.Join(err, kit.Pause(ctx, r.latency.panel-t.Now()))
	p.Length = t.Now()
	p.Attempts, p.Marks = t.end(), marks(redeploys)
	return p, k.end(), err
}

// distant returns a client that acts as if it were far away.
func distant(address string, keep int) *load.Sender {
	s := sender(address, get("/"), keep)
	s.RoundTrip = distance
	return s
}
