package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.org/supervisord/examples/measure/clock"
	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/internal/proc"
)

// measureLanes measures steering itself: how fast and how exactly new connections move, and what it costs.
func (b *bench) measureLanes(ctx context.Context) error {
	return errors.Join(b.measureSwitch(ctx), b.measureWrong(ctx), b.measureShare(ctx), b.measureRollback(ctx),
		b.measureCost(ctx))
}

// steer starts supervisord with the light worker on a steered listener.
func (b *bench) steer(ctx context.Context, keys string) (*kit.Subject, error) {
	return b.side.serve(ctx, b.light, "1", keys, steered)
}

// measureSwitch measures from READY=1 to the first connection at the new generation, beside a loop of a few lines that
// does the same: one datagram, one setsockopt.
func (b *bench) measureSwitch(ctx context.Context) error {
	dir, err := os.MkdirTemp(b.dir, "switch")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "stamps")
	s, err := b.steer(ctx, fmt.Sprintf("environment = { BENCH_STAMPS = %q }", path))
	if err != nil {
		return err
	}
	defer s.Abandon()
	p, err := newPoints(b.light, dir)
	if err != nil {
		return err
	}
	defer p.close()
	c := beginChat(s.Dial(s.Addresses[0]), 1)
	defer c.end()
	for range b.less(200, 20) {
		if _, err := s.Replace(ctx); err != nil {
			return err
		}
		if err := p.measure(ctx); err != nil {
			return err
		}
	}
	if t := c.end(); t.Failed > 0 {
		return errors.New(t.String())
	}
	s.Abandon()
	at, err := readStamps(path)
	if err != nil {
		return err
	}
	var ours, term []time.Duration
	for generation, now := range at {
		if first := c.first[generation]; first > 0 && generation > 1 {
			ours = append(ours, first-now.ready)
		}
		if old := at[generation-1]; old != nil && old.term > 0 {
			term = append(term, old.term-now.ready)
		}
	}
	loop, err := p.switched()
	if err != nil {
		return err
	}
	mine, theirs := sorted(ours), sorted(loop)
	beyond := mine.Quantile(0.5) - theirs.Quantile(0.5)
	b.require(fmt.Sprintf(
		"steered: READY=1 → first answer of the new generation, %d reloads, p50 / p99 / max", len(ours)),
		"≤ 1 ms beyond the loop (p50)",
		fmt.Sprintf("%s; a loop of one datagram and one setsockopt: %s", mine, theirs), beyond <= time.Millisecond)
	b.show("steered: READY=1 → the old worker, which has nothing in hand, has TERM", sorted(term).String())
	return nil
}

// measureWrong counts connections that began after the new generation had answered, and were answered by the one
// before.
func (b *bench) measureWrong(ctx context.Context) error {
	s, err := b.steer(ctx, "")
	if err != nil {
		return err
	}
	defer s.Abandon()
	n := b.less(100_000, 10_000)
	w := newWitness()
	reloads := 0
	err = kit.During(ctx, 50*time.Millisecond, func() error { reloads++; return s.HUP() }, func() error {
		l := load.New(w.collector.Add)
		for range 8 {
			l.Repeat(w.client(s.Addresses[0]), 1, n/8, nil)
		}
		defer context.AfterFunc(ctx, l.Abandon)()
		l.Wait()
		return context.Cause(ctx)
	})
	if err != nil {
		return err
	}
	wrong, flips := w.wrong()
	lost, _ := w.collector.Attempts().Lost()
	b.require("steered: connections at the old generation after the first one at the new", "0",
		fmt.Sprintf("%d of %d, %d switches, %d failed", wrong, len(w.seen), flips, lost), wrong == 0 && lost == 0 &&
			flips >= 10)
	return nil
}

// witness remembers which generation answered which connection.
type witness struct {
	collector load.Collector
	mu        sync.Mutex
	seen      []seen
}

// seen is a connection: when it began, when it was answered, and by which generation.
type seen struct {
	began, ended time.Duration
	generation   int
}

func newWitness() *witness { return &witness{} }

// client returns a client that makes one connection after the other.
func (w *witness) client(address string) func(time.Time) load.Attempt {
	generation := 0
	s := &load.Driver{Dial: load.Dial(address),
		Ask: load.Get("http://bench/", func(_ *http.Response, body []byte) (err error) {
			generation, err = strconv.Atoi(strings.TrimSpace(string(body)))
			return err
		})}
	return func(since time.Time) load.Attempt {
		began := clock.Monotonic()
		a := s.Send(since)
		if a.Lost == nil {
			w.mu.Lock()
			w.seen = append(w.seen, seen{began, clock.Monotonic(), generation})
			w.mu.Unlock()
		}
		return a
	}
}

// wrong counts connections that began when a newer generation than the one that answered had already answered another,
// and the generations that answered after the first.
func (w *witness) wrong() (wrong, flips int) {
	first := map[int]time.Duration{}
	for _, s := range w.seen {
		if at, ok := first[s.generation]; !ok || s.ended < at {
			first[s.generation] = s.ended
		}
	}
	for _, s := range w.seen {
		for generation, at := range first {
			if generation > s.generation && at < s.began {
				wrong++
				break
			}
		}
	}
	return wrong, len(first) - 1
}

// measureShare measures which share of 10,000 connections a canary gets.
func (b *bench) measureShare(ctx context.Context) error {
	s, err := b.steer(ctx, "")
	if err != nil {
		return err
	}
	defer s.Abandon()
	c := s.Control()
	defer c.Close()
	n := b.less(10_000, 4_000)
	var off float64
	var parts []string
	for i, share := range []int{5, 25, 50} {
		if err := b.canary(ctx, c, share, i == 0); err != nil {
			return err
		}
		w := newWitness()
		l := load.New(w.collector.Add)
		for range 8 {
			l.Repeat(w.client(s.Addresses[0]), 1, n/8, nil)
		}
		l.Wait()
		got := 0
		for _, seen := range w.seen {
			if seen.generation == 2 {
				got++
			}
		}
		percent := 100 * float64(got) / float64(len(w.seen))
		off = max(off, math.Abs(percent-float64(share)))
		parts = append(parts, fmt.Sprintf("%d %%: %.2f %%", share, percent))
	}
	within := b.lessFloat(1, 2)
	b.require(fmt.Sprintf("steered: the share of %d new connections that a canary with one worker gets", n),
		fmt.Sprintf("within %g points", within),
		strings.Join(parts, ", "), off <= within)
	return nil
}

// canary begins a canary with a share of the connections, or gives it another one.
func (b *bench) canary(ctx context.Context, c *control.Client, percent int, begin bool) error {
	share := control.Canary{Share: percent * 100}
	if !begin {
		_, err := c.Ask(ctx, control.OfProgram("web", "promote", control.PromoteBody{Canary: &share}))
		return err
	}
	request := control.OfReload(control.ReloadBody{Canary: &share, Hold: true})
	verdict, err := c.Await(ctx, request, "held", kit.Patience, func(control.WaitLine) {})
	if err == nil && verdict.Outcome != "held" {
		err = fmt.Errorf("the canary is not held: %+v", verdict)
	}
	return err
}

// measureRollback measures from the request to the first answer of the generation that serves again.
func (b *bench) measureRollback(ctx context.Context) error {
	s, err := b.steer(ctx, `reload.keep = "1h"`)
	if err != nil {
		return err
	}
	defer s.Abandon()
	c := s.Control()
	defer c.Close()
	var took []time.Duration
	started := 0
	for range b.less(50, 10) {
		if _, err := s.Redeploy(ctx); err != nil {
			return err
		}
		before := proc.Children(s.PID())
		d, err := rolledBack(ctx, c, s.Addresses[0])
		if err != nil {
			return err
		}
		took = append(took, d)
		for _, pid := range proc.Children(s.PID()) {
			if !slices.Contains(before, pid) {
				started++
			}
		}
	}
	b.require(fmt.Sprintf("rollback → first answer of the generation before, %d times, p50 / p99 / max", len(took)),
		"≤ 5 ms (p50), no process started",
		fmt.Sprintf("%s; %d processes started", sorted(took), started), sorted(took).Quantile(0.5) <= 5*time.Millisecond &&
			started == 0)
	return nil
}

// rolledBack returns how long it takes from the request until generation 1 answers.
func rolledBack(ctx context.Context, c *control.Client, address string) (time.Duration, error) {
	w := newWitness()
	ask := w.client(address)
	began := clock.Monotonic()
	if _, err := c.Ask(ctx, control.OfProgram("web", "rollback", nil)); err != nil {
		return 0, err
	}
	for clock.Monotonic()-began < kit.Patience {
		if a := ask(time.Now()); a.Lost != nil {
			return 0, a.Lost
		}
		if last := w.seen[len(w.seen)-1]; last.generation == 1 {
			return last.ended - began, nil
		}
	}
	return 0, errors.New("generation 1 does not answer after the rollback")
}

// measureCost compares throughput and latency of a shared socket and of lanes, in turn in one run.
func (b *bench) measureCost(ctx context.Context) error {
	var subjects [2]*kit.Subject
	for i, listener := range []string{shared, steered} {
		s, err := b.side.serve(ctx, b.light, "2", "", listener)
		if err != nil {
			return err
		}
		defer s.Abandon()
		subjects[i] = s
		if _, err := s.Replace(ctx); err != nil { // so that there are two lanes
			return err
		}
	}
	var perSecond [2][]float64
	var latency [2]load.Times
	for range b.less(10, 3) {
		for i, s := range subjects {
			var r load.Collector
			l := load.New(r.Add)
			l.Loop(client(s.Addresses[0], 0), 64, b.less(20_000, 4_000), nil)
			l.Wait()
			all := r.Attempts()
			if lost, _ := all.Lost(); lost > 0 {
				return fmt.Errorf("%d requests failed without a reload", lost)
			}
			perSecond[i] = append(perSecond[i], float64(len(all))/l.Now().Seconds())
			latency[i] = append(latency[i], all.Latencies()...)
		}
	}
	for i := range perSecond {
		slices.Sort(perSecond[i])
		slices.Sort(latency[i])
	}
	middle := func(all []float64) float64 { return all[len(all)/2] }
	ratio := middle(perSecond[1]) / middle(perSecond[0])
	b.require("throughput and latency with lanes : with a shared socket, new connections, 64 clients, in turn",
		"no difference beyond the noise (0.9 to 1.1)",
		fmt.Sprintf("%.2f (%.0f/s : %.0f/s, medians); p50 %s, p99 %s", ratio, middle(perSecond[1]), middle(perSecond[0]),
			kit.Ratio(latency[1].Quantile(0.5), latency[0].Quantile(0.5)), kit.Ratio(latency[1].Quantile(0.99),
				latency[0].Quantile(0.99))), ratio >= 0.9)
	return nil
}
