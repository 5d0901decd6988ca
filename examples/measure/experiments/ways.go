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

const publishedWays = "the advice that most Go servers follow: `http.Server.Shutdown` on SIGTERM, and a service " +
	"manager that restarts the process."

type waysSize struct {
	rate   int // new connections a second, and as many requests on keep-alive ones
	length time.Duration
}

// bootDelay is what a worker of a middling size takes until it serves.
const bootDelay = "-boot-delay=300ms"

// restarter redeploys in some way, once.
type restarter struct {
	redeploy func(context.Context) error
	stop     func()
}

// distance is how far away the clients of runWays act to be.
const distance = 20 * time.Millisecond

// runWays draws the same load under three ways to redeploy a worker that only calls http.Server.Shutdown, one below the
// other. The picture has the new connections; the table the keep-alive ones, too.
func runWays(ctx context.Context, r *rig, c *chapter) error {
	var rows [][]string
	var panels []plot.Panel
	lost := 0
	for _, way := range []struct {
		name  string
		start func(ctx context.Context, address string) (*restarter, error)
	}{
		{"stop, then start again, as systemctl restart does", r.byHand},
		{"old and new workers share a socket, as under other supervisors", r.supervised(shared)},
		{"supervisord", r.supervised(steered)},
	} {
		p, kept, err := r.panel(ctx, way.start)
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		profile, keeping := profileOf(p.Attempts, []window{{0, p.Length}}), profileOf(kept, []window{{0, p.Length}})
		p.Title, p.Note = way.name, fmt.Sprintf("%s failed of %s · longest gap %s", count(profile.failed),
			count(profile.requests), load.Short(profile.gap))
		panels = append(panels, p)
		rows = append(rows, append(profile.row(way.name), count(keeping.requests), count(keeping.failed)))
		lost = profile.failed // of the last way in the end
	}
	c.say("The same load with three ways to redeploy, once a second. The worker is `examples/measure/naive`, a Go "+
		"server that calls "+
		"`http.Server.Shutdown` on TERM and nothing else; it takes 0.3 s to boot. The clients act as if they were %s away:",
		distance)
	c.table(append(slices.Clone(profileHead), "on keep-alive connections", "failed"), rows)
	c.say("**It means:** %s That is on new connections, with a worker that loses requests under the two other ways. On "+
		"keep-alive connections `Shutdown` closes "+
		"idle ones, some in the instant in which their client uses them again: that is the worker's own doing, and "+
		"`worker/graceful` does not.", verdict(lost, "supervisord"))
	title := fmt.Sprintf("A Go server with http.Server.Shutdown, redeployed every second, %s requests a second",
		count(r.ways.rate))
	return r.picture(c, "redeploys.svg",
		"requests answered and failed in each tenth of a second, under three ways to redeploy", drawCounts(title, panels))
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

// panel puts load on one way to redeploy: on new connections for the panel, and as many requests on keep-alive ones.
func (r *rig) panel(ctx context.Context, start func(context.Context, string) (*restarter, error)) (p plot.Panel,
	kept load.Attempts, err error) {
	address := kit.FreeAddress()
	way, err := start(ctx, address)
	if err != nil {
		return p, nil, err
	}
	defer func() { way.stop() }()
	t, k := newTraffic(), newTraffic()
	t.Rate(distant(address, 0), r.ways.rate)
	k.Rate(distant(address, 1+r.ways.rate/10), r.ways.rate)
	defer t.end()
	defer k.end()
	var redeploys []time.Duration
	bounded, cancel := context.WithTimeout(ctx, r.ways.length-500*time.Millisecond)
	defer cancel()
	err = kit.Each(bounded, time.Second, func() error {
		redeploys = append(redeploys, t.Now())
		return way.redeploy(ctx)
	})
	err = errors.Join(err, kit.Pause(ctx, r.ways.length-t.Now()))
	p.Length = t.Now()
	p.Attempts, p.Marks = t.end(), marks(redeploys)
	return p, k.end(), err
}

// distant returns a client that acts as if it were far away.
func distant(address string, keep int) *load.Driver {
	s := sender(address, get("/"), keep)
	s.RoundTrip = distance
	return s
}
