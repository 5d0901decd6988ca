package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

const publishedCompare = "600 users: gRPC 59,373 calls a second at 10.07 ms, JSON 29,116 at 19.94 ms; 82.94 % and 0.31 % of them on a connection that was used before (MASHUP, 2024)."

// door is one way to the same service.
type door struct {
	name  string
	users func(n int, jsonAddress, grpcAddress string, dials *atomic.Int64) ([]user, func() int64, error)
}

var doors = []door{
	{"JSON, a new connection each", jsonUsers(false)},
	{"JSON, kept connections", jsonUsers(true)},
	{"gRPC", func(n int, _, address string, dials *atomic.Int64) ([]user, func() int64, error) {
		all, err := newRPCUsers(n, address, 0, dials)
		return all, dials.Load, err
	}},
}

func jsonUsers(keep bool) func(int, string, string, *atomic.Int64) ([]user, func() int64, error) {
	return func(n int, address, _ string, _ *atomic.Int64) ([]user, func() int64, error) {
		var all []user
		for range n {
			all = append(all, &webUser{caller: caller{keep: keep}, method: "POST", url: "http://" + address + "/hello", body: `{"name":"you"}`})
		}
		return all, func() int64 {
			sum := int64(0)
			for _, u := range all {
				sum += u.(*webUser).dials.Load()
			}
			return sum
		}, nil
	}
}

func runCompare(ctx context.Context, b *bench, s *section) error {
	var rows [][]string
	var panels []panel
	failed := 0
	for _, d := range doors {
		for _, redeploys := range []bool{false, true} {
			r, err := b.through(ctx, d, redeploys)
			if err != nil {
				return fmt.Errorf("%s: %w", d.name, err)
			}
			rows = append(rows, r.row(d))
			failed += r.all.failed()
			if redeploys {
				panels = append(panels, panel{title: d.name, note: fmt.Sprintf("%s failed of %s", count(r.all.failed()), count(len(r.all))),
					samples: r.all, marks: r.deploys, length: r.took})
			}
		}
	}
	s.say("examples/json-vs-grpc, one worker, %d users who call again as soon as they are answered, for %s each, without redeploys and with one a second:", b.size.compared, b.size.comparedLong)
	s.table([]string{"", "redeploys", "calls/s", "failed", "p50", "p99", "max", "connections", "calls on a used connection"}, rows)
	s.say("**It means:** %s What gRPC and JSON cost is a matter of the connections: the published 0.31 %% is a client that closes its own. A redeploy sends every client to a new connection, once: "+
		"each kept connection is replaced once per redeploy, and the rest is reused as before.", verdict(failed, "supervisord"))
	return b.picture(s, "json-vs-grpc.svg", "latency over time of JSON and gRPC under redeploys", drawTimeline("One service, two doors, a redeploy every second", panels))
}

// passage is what went through a door.
type passage struct {
	all     samples
	deploys []time.Duration
	took    time.Duration
	dials   int64
}

func (r *passage) row(d door) []string {
	l := r.all.latencies()
	reused := 100 * (1 - float64(r.dials)/float64(max(1, len(r.all))))
	return []string{d.name, fmt.Sprint(len(r.deploys)), fmt.Sprintf("%.0f", float64(len(l))/r.took.Seconds()), count(r.all.failed()), short(l.at(0.5)), short(l.at(0.99)), short(l.at(1)),
		count(int(r.dials)), fmt.Sprintf("%.2f %%", max(0, reused))}
}

func (b *bench) through(ctx context.Context, d door, redeploys bool) (*passage, error) {
	jsonAddress, err := freeAddress()
	if err != nil {
		return nil, err
	}
	grpcAddress, err := freeAddress()
	if err != nil {
		return nil, err
	}
	m, err := startMaster(ctx, b.bin.Supervisord, b.dir, program{name: "both", command: []string{b.bin.Both}, workers: "1",
		listen: []listen{{"json", jsonAddress}, {"grpc", grpcAddress}}})
	if err != nil {
		return nil, err
	}
	defer m.stop()
	all, dials, err := d.users(b.size.compared, jsonAddress, grpcAddress, new(atomic.Int64))
	if err != nil {
		return nil, err
	}
	u := begin(all, 100*time.Millisecond)
	defer u.end()
	r := &passage{}
	bounded, cancel := context.WithTimeout(ctx, b.size.comparedLong)
	defer cancel()
	err = each(bounded, min(time.Second, b.size.comparedLong/2), func() error {
		if !redeploys {
			return nil
		}
		r.deploys = append(r.deploys, u.now())
		_, err := m.redeploy(ctx)
		return err
	})
	r.took = u.now()
	u.end()
	r.all, r.dials = u.samples, dials()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return r, err
}
