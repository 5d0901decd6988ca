package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const publishedStopped = "5,000 gRPC virtual users (Go graceful shutdown guide, 2024), 1 s calls, server stopped: errors after 48.25 ms without graceful stop, 33 µs with; " +
	"100 HTTP users: 41.84 ms and 3.87 ms. Nothing took over in either."

// clientele is users of one protocol and the worker that serves them.
type clientele struct {
	protocol string
	listener string
	count    int
	worker   func(b *bench, address string) []string
	users    func(n int, address string) ([]user, error)
}

func clienteles(b *bench) []clientele {
	rpc := func(n int, address string) ([]user, error) {
		return newRPCUsers(n, address, b.size.call, new(atomic.Int64))
	}
	web := func(n int, address string) (all []user, _ error) {
		for range n {
			all = append(all, &webUser{caller: caller{keep: true}, method: "GET", url: "http://" + address + "/slow?d=" + b.size.call.String()})
		}
		return all, nil
	}
	var all []clientele
	for _, n := range b.size.users {
		all = append(all, clientele{"gRPC", "grpc", n, func(b *bench, address string) []string { return []string{b.bin.GRPC, "-address", address} }, rpc})
	}
	return append(all, clientele{"HTTP/1.1", "http", b.size.web, func(b *bench, address string) []string { return []string{b.bin.Hello, "-address", address} }, web})
}

// ways of making a server go.
var ways = []struct {
	name  string
	stage func(context.Context, *bench, clientele) (*ending, error)
}{
	{"killed", func(ctx context.Context, b *bench, c clientele) (*ending, error) {
		return c.stopped(ctx, b, unix.SIGKILL)
	}},
	{"stopped gracefully, nobody takes over", func(ctx context.Context, b *bench, c clientele) (*ending, error) {
		return c.stopped(ctx, b, unix.SIGTERM)
	}},
	{"redeployed by supervisord", func(ctx context.Context, b *bench, c clientele) (*ending, error) {
		return c.redeployed(ctx, b)
	}},
}

func runStopped(ctx context.Context, b *bench, s *section) error {
	var rows [][]string
	var panels []panel
	ours, lost := 0, []string(nil)
	for _, c := range clienteles(b) {
		for i, way := range ways {
			e, err := way.stage(ctx, b, c)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", c.protocol, way.name, err)
			}
			name := fmt.Sprintf("%s, %s users", c.protocol, count(c.count))
			rows = append(rows, append([]string{name, way.name}, e.row()...))
			fmt.Fprintf(os.Stderr, "%s, %s: %s\n", name, way.name, strings.Join(e.all.reasons(), "; "))
			if i == len(ways)-1 && e.all.failed() > 0 {
				ours += e.all.failed()
				lost = append(lost, name+": "+strings.Join(e.all.reasons(), "; "))
			}
			if c.count == b.size.users[0] {
				panels = append(panels, e.panel(name+", "+way.name))
			}
		}
	}
	s.table([]string{"users", "server", "times", "calls", "failed", "of them in hand at the stop", "stop to first error", "a later call fails within (p50)", "an answered call took (p50)"}, rows)
	if len(lost) > 0 {
		s.say("Failed while supervisord redeployed: %s.", strings.Join(lost, ". "))
	}
	s.say("**It means:** a graceful stop saves the calls that are in hand, and no more: those that come next find nobody, and are told so faster. "+
		"Only a successor that accepts before the old worker stops leaves no error to time. %s "+
		"The publication does not say from which moment it counts, so both are here: from the stop to the first error, and from the start of a call after the stop to its error. "+
		"All calls take %s; the users begin spread over that time, so that calls of every age are in hand; a user whose call failed waits for the rest of it. Where answered calls took much longer than that, the machine had not the CPUs for so many users.",
		verdict(ours, "supervisord's redeploys"), b.size.call)
	return b.picture(s, "stopped.svg", "calls answered and failed around a stop", drawCounts("A server goes: what its users see", panels))
}

// ending is what the users saw of a server that went.
type ending struct {
	all   samples
	stops []time.Duration // when it was told to go, since the calls began
	until time.Duration
}

// stopped starts a worker by hand and ends it under its calls.
func (c clientele) stopped(ctx context.Context, b *bench, sig unix.Signal) (*ending, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	w, err := startAlone(ctx, address, c.worker(b, address)...)
	if err != nil {
		return nil, err
	}
	defer w.stop()
	all, err := c.users(c.count, address)
	if err != nil {
		return nil, err
	}
	u := begin(all, b.size.call)
	defer u.end()
	if err := pause(ctx, b.size.before); err != nil {
		return nil, err
	}
	stop := u.now()
	err = errors.Join(w.signal(sig), pause(ctx, b.size.before))
	until := u.now()
	u.end()
	return &ending{all: u.samples, stops: []time.Duration{stop}, until: until}, err
}

// redeployed has supervisord replace the worker under its calls.
func (c clientele) redeployed(ctx context.Context, b *bench) (*ending, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	m, err := startMaster(ctx, b.bin.Supervisord, b.dir, program{name: "web", command: c.worker(b, address), workers: "1", listen: []listen{{c.listener, address}}})
	if err != nil {
		return nil, err
	}
	defer m.stop()
	all, err := c.users(c.count, address)
	if err != nil {
		return nil, err
	}
	u := begin(all, b.size.call)
	defer u.end()
	e := &ending{}
	wait := b.size.before
	for range b.size.redeploy {
		if err := pause(ctx, wait); err != nil {
			return nil, err
		}
		e.stops = append(e.stops, u.now())
		if _, err := m.redeploy(ctx); err != nil {
			return nil, err
		}
		wait = b.size.between
	}
	err = pause(ctx, b.size.before)
	e.until = u.now()
	u.end()
	e.all = u.samples
	return e, err
}

func (e *ending) row() []string {
	var errs, inHand, later []time.Duration
	for _, s := range e.all {
		if s.failure == "" {
			continue
		}
		errs = append(errs, s.end())
		if s.at < e.stops[0] {
			inHand = append(inHand, s.end())
		} else {
			later = append(later, s.latency)
		}
	}
	first, within := "none", "none"
	if len(errs) > 0 {
		first = short(slices.Min(errs) - e.stops[0])
	}
	if len(later) > 0 {
		slices.Sort(later)
		within = short(spread(later).at(0.5))
	}
	return []string{fmt.Sprint(len(e.stops)), count(len(e.all)), count(len(errs)), count(len(inHand)), first, within, short(e.all.latencies().at(0.5))}
}

func (e *ending) panel(title string) panel {
	return panel{title: title, note: fmt.Sprintf("%s failed of %s calls", count(e.all.failed()), count(len(e.all))), samples: e.all, marks: e.stops, length: e.until}
}
