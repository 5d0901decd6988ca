package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const publishedLatency = "means and percentiles that hide it: a reload of HAProxy 1.5 every 100 ms failed 504 requests of 200,000, and with SYNs held back none of 1,000,000 at " +
	"p99 8 ms, max 29 ms (jolynch; Yelp, 2015). One slow request in 100,000 is in none of p50, p95, p99; so here is all of it."

func runLatency(ctx context.Context, b *bench, s *section) error {
	if err := b.alternate(ctx, s); err != nil {
		return err
	}
	if err := b.comparePanels(ctx, s); err != nil {
		return err
	}
	return b.slowNames(ctx, s)
}

// course is a load with stretches of time with redeploys, and as long ones without.
type course struct {
	all        samples
	with, calm []window
	deploys    []time.Duration
}

// take runs the course: a pause of settling after each stretch belongs to the one with redeploys, whose workers drain then.
func take(ctx context.Context, l *load, m *master, pairs int, stretch, every time.Duration) (*course, error) {
	c := &course{}
	for range pairs {
		from := l.now()
		if err := pause(ctx, stretch); err != nil {
			return nil, err
		}
		middle := l.now()
		c.calm = append(c.calm, window{from, middle})
		for l.now()-middle < stretch {
			c.deploys = append(c.deploys, l.now())
			if _, err := m.redeploy(ctx); err != nil {
				return nil, err
			}
			if err := pause(ctx, every-(l.now()-c.deploys[len(c.deploys)-1])); err != nil {
				return nil, err
			}
		}
		if err := m.settle(ctx); err != nil {
			return nil, err
		}
		c.with = append(c.with, window{middle, l.now()})
	}
	l.end()
	c.all = l.samples
	return c, nil
}

// alternate compares latency with redeploys and without, in turns.
func (b *bench) alternate(ctx context.Context, s *section) error {
	address, err := freeAddress()
	if err != nil {
		return err
	}
	m, err := startMaster(ctx, b.bin.Supervisord, b.dir, web([]string{b.bin.Hello}, "2", address))
	if err != nil {
		return err
	}
	defer m.stop()
	l, pace := steady("http://"+address+"/", b.size.rate), min(2*time.Second, b.size.stretch/2)
	defer l.end()
	c, err := take(ctx, l, m, b.size.pairs, b.size.stretch, pace)
	if err != nil {
		return err
	}
	with, calm := l.of(c.with...), l.of(c.calm...)
	head, rows := percentiles()
	rows = append(rows, row(fmt.Sprintf("%d redeploys, one every %s", len(c.deploys), pace), with, c.with), row("no redeploy", calm, c.calm), ratios(with, calm, c))
	s.say("examples/hello, 2 workers, vegeta at %d requests a second (half on new connections, half on kept ones), in turns of %s with redeploys and without:", b.size.rate, b.size.stretch)
	s.table(head, rows)
	a, z := with.latencies(), calm.latencies()
	s.say("**It means:** %s With redeploys p50 is %s times what it is without, p99 %s times, p99.9 %s times, the slowest request of all %s times: "+
		"what is above 1 is the CPU time that starting two processes takes from the clients and the workers beside them.",
		verdict(with.failed(), "supervisord"), ratio(a.at(0.5), z.at(0.5)), ratio(a.at(0.99), z.at(0.99)), ratio(a.at(0.999), z.at(0.999)), ratio(a.at(1), z.at(1)))
	return b.picture(s, "latency.svg", "histogram of latency with redeploys and without",
		drawHistogram("Every request: with redeploys and without", []series{{"no redeploy", calm.latencies()}, {"with redeploys", with.latencies()}}))
}

func percentiles() ([]string, [][]string) {
	return []string{"", "requests", "failed", "p50", "p95", "p99", "p99.9", "max", "slower than 100 ms", "longest gap"}, nil
}

func row(name string, all samples, windows []window) []string {
	l := all.latencies()
	cells := []string{name, count(len(all)), count(all.failed())}
	for _, part := range []float64{0.5, 0.95, 0.99, 0.999, 1} {
		cells = append(cells, short(l.at(part)))
	}
	return append(cells, count(slower(l, 100*time.Millisecond)), short(longestGap(all, windows)))
}

func ratios(with, calm samples, c *course) []string {
	a, b := with.latencies(), calm.latencies()
	cells := []string{"ratio", "", ""}
	for _, part := range []float64{0.5, 0.95, 0.99, 0.999, 1} {
		cells = append(cells, ratio(a.at(part), b.at(part)))
	}
	return append(cells, "", ratio(longestGap(with, c.with), longestGap(calm, c.calm)))
}

func slower(l spread, than time.Duration) int {
	n := 0
	for _, d := range l {
		if d > than {
			n++
		}
	}
	return n
}

func longestGap(all samples, windows []window) time.Duration {
	longest := time.Duration(0)
	for _, w := range windows {
		longest = max(longest, all.gap(w))
	}
	return longest
}

// bootDelay is what a worker of a middling size takes until it serves. It is for the picture, where all ways have it.
const bootDelay = "-boot-delay=300ms"

// restarter redeploys in some way, once.
type restarter struct {
	redeploy func(context.Context) error
	stop     func()
}

// comparePanels draws the same load under three ways to redeploy, one below the other.
func (b *bench) comparePanels(ctx context.Context, s *section) error {
	head, rows := percentiles()
	var panels []panel
	for _, way := range []struct {
		name  string
		start func(ctx context.Context, address string) (*restarter, error)
	}{
		{"no supervisor: stop, then start again", b.byHand},
		{"supervisord, but the worker only calls http.Server.Shutdown", b.supervised(b.bin.Self, shutdownRole, bootDelay)},
		{"supervisord, and a worker with worker/graceful", b.supervised(b.bin.Hello, bootDelay)},
	} {
		p, err := b.panel(ctx, way.name, way.start)
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		panels = append(panels, p)
		rows = append(rows, row(way.name, p.samples, []window{{0, p.length}}))
	}
	s.say("The same load under three ways to redeploy, once a second, a worker that takes 0.3 s to boot:")
	s.table(head, rows)
	title := fmt.Sprintf("A redeploy every second, %s requests a second, a worker that takes 0.3 s to boot", count(b.size.rate))
	return b.picture(s, "redeploys.svg", "latency over time under three ways to redeploy, failed requests in red", drawTimeline(title, panels))
}

func (b *bench) byHand(ctx context.Context, address string) (*restarter, error) {
	w, err := startAlone(ctx, address, b.bin.Hello, "-address", address, "-linger", "1ms", bootDelay) // lingering for connections helps nobody here
	if err != nil {
		return nil, err
	}
	r := &restarter{stop: func() { w.stop() }}
	r.redeploy = func(ctx context.Context) error {
		if err := w.signal(unix.SIGTERM); err != nil {
			return err
		}
		w.cmd.Wait() //nolint:errcheck // that it has ended is enough
		next, err := startAlone(ctx, address, w.cmd.Args...)
		if err == nil {
			w = next
		}
		return err
	}
	return r, nil
}

func (b *bench) supervised(command ...string) func(context.Context, string) (*restarter, error) {
	return func(ctx context.Context, address string) (*restarter, error) {
		m, err := startMaster(ctx, b.bin.Supervisord, b.dir, web(command, "2", address))
		if err != nil {
			return nil, err
		}
		return &restarter{func(ctx context.Context) error { _, err := m.redeploy(ctx); return err }, m.stop}, nil
	}
}

func (b *bench) panel(ctx context.Context, name string, start func(context.Context, string) (*restarter, error)) (panel, error) {
	address, err := freeAddress()
	if err != nil {
		return panel{}, err
	}
	r, err := start(ctx, address)
	if err != nil {
		return panel{}, err
	}
	defer func() { r.stop() }()
	l := steady("http://"+address+"/", b.size.rate)
	defer l.end()
	p := panel{title: name}
	bounded, cancel := context.WithTimeout(ctx, b.size.panel-500*time.Millisecond)
	defer cancel()
	err = each(bounded, time.Second, func() error {
		p.marks = append(p.marks, l.now())
		return r.redeploy(ctx)
	})
	err = errors.Join(err, pause(ctx, max(0, b.size.panel-l.now())))
	p.length = l.now()
	l.end()
	p.samples = l.samples
	p.note = fmt.Sprintf("%s failed of %s · p99 %s · longest gap %s", count(p.samples.failed()), count(len(p.samples)),
		short(p.samples.latencies().at(0.99)), short(p.samples.gap(window{0, p.length})))
	return p, err
}
