package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/internal/lab/plot"
)

const publishedStopped = "5,000 gRPC virtual users (Go graceful shutdown guide, 2024), 1 s calls, server stopped: " +
	"errors after 48.25 ms without graceful stop, 33 µs with; " +
	"100 HTTP users: 41.84 ms and 3.87 ms. Nothing took over in either."

type stoppedSize struct {
	rpc       []int         // users of gRPC
	web       int           // users of HTTP
	call      time.Duration // the length of their calls
	before    time.Duration // how long the calls last before the server is stopped, and after
	redeploys int
	between   time.Duration // two redeploys
}

// clientele is users of one protocol and the worker that serves them.
type clientele struct {
	protocol, worker, listener string
	count                      int
	users                      func(t *crowd, n int, address string)
}

func (c clientele) String() string { return fmt.Sprintf("%s, %s users", c.protocol, count(c.count)) }

func clienteles(r *rig) (all []clientele) {
	call := r.stopped.call
	for _, n := range r.stopped.rpc {
		all = append(all, clientele{"gRPC", "grpc", "grpc", n,
			func(t *crowd, n int, address string) { t.rpcUsers(n, call, call, address) }})
	}
	return append(all, clientele{"HTTP/1.1", "hello", "http", r.stopped.web, func(t *crowd, n int, address string) {
		t.webUsers(n, call, address, get("/slow?d="+call.String()), true)
	}})
}

const redeployed = "redeployed by supervisord"

func runStopped(ctx context.Context, r *rig, c *chapter) error {
	var rows [][]string
	var panels []plot.Panel
	ours, lost := 0, []string(nil)
	for _, users := range clienteles(r) {
		for _, way := range []struct {
			name  string
			stage func() (*ending, error)
		}{
			{"killed", func() (*ending, error) { return users.stopped(ctx, r, unix.SIGKILL) }},
			{"stopped gracefully, no successor", func() (*ending, error) { return users.stopped(ctx, r, unix.SIGTERM) }},
			{redeployed, func() (*ending, error) { return users.redeployed(ctx, r) }},
		} {
			e, err := way.stage()
			if err != nil {
				return fmt.Errorf("%s, %s: %w", users, way.name, err)
			}
			rows = append(rows, append([]string{users.String(), way.name}, e.row()...))
			fmt.Fprintf(os.Stderr, "%s, %s: %s\n", users, way.name, reasons(e.all))
			if n := failed(e.all); way.name == redeployed && n > 0 {
				ours += n
				lost = append(lost, users.String()+": "+reasons(e.all))
			}
			if users.count == r.stopped.rpc[0] {
				panels = append(panels, e.panel(users.String()+", "+way.name))
			}
		}
	}
	c.table([]string{"users", "server", "times", "calls", "failed", "of them in flight at the stop", "stop to first error",
		"a later call fails within (p50)", "an answered call took (p50)"}, rows)
	if len(lost) > 0 {
		c.say("Failed while supervisord redeployed: %s.", strings.Join(lost, ". "))
	}
	c.say("**It means:** a graceful stop completes the calls in flight, and only those: later calls find no server and "+
		"fail at once. "+
		"Only a successor that accepts before the old worker stops leaves no error to measure. %s "+
		"The publication does not say when its clock starts, so the table has both times: from the stop to the first "+
		"error, and from the start of a call after the stop to its error. "+
		"Every call takes %s. The users start spread over that time, so that calls of every age are in flight; after a "+
		"failed call, a user waits for the rest of it. "+
		"Where answered calls took much longer, the machine had too few CPUs for that many users.",
		verdict(ours, "supervisord's redeploys"), r.stopped.call)
	return r.picture(c, "stopped.svg", "calls answered and failed around a stop",
		drawCounts("A server goes: what its users see", panels))
}

// ending is what the users saw of a server that went.
type ending struct {
	all   load.Attempts
	stops []time.Duration // when it was told to stop, since the calls began
	until time.Duration
}

// stopped starts a worker by itself and ends it under its calls.
func (c clientele) stopped(ctx context.Context, r *rig, signal unix.Signal) (*ending, error) {
	address := kit.FreeAddress()
	w, err := serveAlone(ctx, address, r.command(c.worker, "-address", address)...)
	if err != nil {
		return nil, err
	}
	defer w.Stop(5 * time.Second)
	return c.watch(address, func(e *ending, t *crowd) error {
		if err := kit.Pause(ctx, r.stopped.before); err != nil {
			return err
		}
		e.stops = append(e.stops, t.Now())
		if err := w.Cmd.Process.Signal(signal); err != nil {
			return err
		}
		// On a busy machine the calls in flight may take longer than that.
		return errors.Join(kit.Pause(ctx, r.stopped.before), t.awaitLoss(ctx))
	})
}

// redeployed has supervisord replace the worker under its calls.
func (c clientele) redeployed(ctx context.Context, r *rig) (*ending, error) {
	s, err := r.supervise(ctx, web(c.listener, "", "1", r.command(c.worker)...))
	if err != nil {
		return nil, err
	}
	defer s.Abandon()
	return c.watch(s.Addresses[0], func(e *ending, t *crowd) error {
		wait := r.stopped.before
		for range r.stopped.redeploys {
			if err := kit.Pause(ctx, wait); err != nil {
				return err
			}
			e.stops = append(e.stops, t.Now())
			if _, err := s.Redeploy(ctx); err != nil {
				return err
			}
			wait = r.stopped.between
		}
		return kit.Pause(ctx, r.stopped.before)
	})
}

// watch lets the users call while the scene is played.
func (c clientele) watch(address string, scene func(e *ending, t *crowd) error) (*ending, error) {
	t, e := newTraffic(), &ending{}
	c.users(t, c.count, address)
	err := scene(e, t)
	e.until = t.Now()
	e.all = t.end()
	return e, err
}

func (e *ending) row() []string {
	var errs, later []time.Duration
	inHand := 0
	for _, a := range e.all {
		if a.Lost == nil {
			continue
		}
		errs = append(errs, a.End())
		if a.At < e.stops[0] {
			inHand++
		} else {
			later = append(later, a.Latency)
		}
	}
	first, within := "none", "none"
	if len(errs) > 0 {
		first = load.Short(slices.Min(errs) - e.stops[0])
	}
	if len(later) > 0 {
		within = load.Short(load.Sort(slices.Values(later)).Quantile(0.5))
	}
	return []string{fmt.Sprint(len(e.stops)), count(len(e.all)), count(len(errs)), count(inHand), first, within,
		load.Short(e.all.Latencies().Quantile(0.5))}
}

func (e *ending) panel(title string) plot.Panel {
	return plot.Panel{Title: title, Note: fmt.Sprintf("%s failed of %s calls", count(failed(e.all)), count(len(e.all))),
		Attempts: e.all, Marks: marks(e.stops), Length: e.until}
}
