package main

import (
	"context"
	"fmt"
	"time"

	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/internal/lab/plot"
)

const publishedCompare = "600 users: gRPC 59,373 calls a second at 10.07 ms, JSON 29,116 at 19.94 ms; 82.94 % and " +
	"0.31 % of them on a connection that was used before (MASHUP, 2024)."

type compareSize struct {
	users  int
	length time.Duration
}

// spread is the time over which the users begin.
const spread = 100 * time.Millisecond

// entrance is one way to the same service.
type entrance struct {
	name  string
	users func(t *crowd, n int, jsonAddress, grpcAddress string) (dials func() int)
}

func entrances() []entrance {
	json := func(keep bool) func(*crowd, int, string, string) func() int {
		return func(t *crowd, n int, address, _ string) func() int {
			return t.webUsers(n, spread, address, post("/hello", `{"name":"you"}`), keep)
		}
	}
	return []entrance{
		{"JSON, a new connection each", json(false)},
		{"JSON, keep-alive connections", json(true)},
		{"gRPC", func(t *crowd, n int, _, address string) func() int { return t.rpcUsers(n, spread, 0, address) }},
	}
}

func runCompare(ctx context.Context, r *rig, c *chapter) error {
	var rows [][]string
	var panels []plot.Panel
	lost := 0
	for _, e := range entrances() {
		for _, redeploys := range []bool{false, true} {
			p, dials, err := r.through(ctx, e, redeploys)
			if err != nil {
				return fmt.Errorf("%s: %w", e.name, err)
			}
			l := p.Attempts.Latencies()
			reused := max(0, 100*(1-float64(dials)/float64(max(1, len(p.Attempts)))))
			rows = append(rows, []string{e.name, fmt.Sprint(len(p.Marks)),
				fmt.Sprintf("%.0f", float64(len(l))/p.Length.Seconds()), count(failed(p.Attempts)),
				load.Short(l.Quantile(0.5)), load.Short(l.Quantile(0.99)), load.Short(l.Quantile(1)), count(dials), fmt.Sprintf(
					"%.2f %%", reused)})
			lost += failed(p.Attempts)
			if redeploys {
				panels = append(panels, p)
			}
		}
	}
	c.say("examples/json-vs-grpc, one worker, %d users who call again as soon as they are answered, for %s in each "+
		"row, without redeploys and with one a second:", r.compare.users, r.compare.length)
	c.table([]string{"", "redeploys", "calls/s", "failed", "p50", "p99", "max", "connections",
		"calls on a used connection"}, rows)
	c.say("**It means:** %s What JSON and gRPC cost depends on the connections: the published 0.31 %% comes from a "+
		"client that closes its own. A redeploy replaces every keep-alive connection, "+
		"once; between redeploys connections are reused as before.", verdict(lost, "supervisord"))
	return r.picture(c, "json-vs-grpc.svg", "latency over time of JSON and gRPC under redeploys",
		plot.Timeline("One service, two protocols, a redeploy every second", panelHeight, panels))
}

// through lets the users call through an entrance.
func (r *rig) through(ctx context.Context, e entrance, redeploys bool) (p plot.Panel, dials int, err error) {
	table := web("json", "", "1", r.command("json-vs-grpc")...)
	table.Listen = append(table.Listen, kit.ListenTable{Name: "grpc"})
	s, err := r.supervise(ctx, table)
	if err != nil {
		return p, 0, err
	}
	defer s.Abandon()
	t := newTraffic()
	defer t.end()
	dialed := e.users(t, r.compare.users, s.Addresses[0], s.Addresses[1])
	var deploys []time.Duration
	bounded, cancel := context.WithTimeout(ctx, r.compare.length)
	defer cancel()
	err = kit.Each(bounded, min(time.Second, r.compare.length/2), func() error {
		if !redeploys {
			return nil
		}
		deploys = append(deploys, t.Now())
		_, err := s.Redeploy(ctx)
		return err
	})
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	p = plot.Panel{Title: e.name, Marks: marks(deploys), Length: t.Now(), Attempts: t.end()}
	p.Note = fmt.Sprintf("%s failed of %s", count(failed(p.Attempts)), count(len(p.Attempts)))
	return p, dialed(), err
}
