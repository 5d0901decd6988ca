package supervisor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/life"
)

// pulse is the watch over the health of one worker, from the moment when the worker is ready until it is told to stop.
// It is not part of the core's state, and is not recorded: the next supervisord begins a new one. What it finds goes to
// the core as program.Replace, once; the core replaces the worker, whose end then ends the pulse.
type pulse struct {
	cancel func() // ends the probes

	watchdog time.Duration // 0: there is none
	heard    time.Time     // when WATCHDOG=1 came last, or the watch began
	timer    *time.Timer
	late     bool // the worker has a moment more: what it said may be in the mailbox
}

// watchHealth begins to watch workers that have become ready, and stops watching the others. A worker that is kept for
// a rollback has to be healthy, too.
func (p *runner) watchHealth() {
	if !slices.ContainsFunc(p.core.Generations(), func(g *program.Generation) bool { return watches(g) }) {
		return
	}
	for w, g := range p.core.Workers() {
		h := p.workers[w.Number]
		well := w.State == program.Ready || w.State == program.Soaking || w.State == program.Kept
		switch {
		case h == nil:
		case !well:
			h.unwatch()
		case h.pulse == nil && watches(g) && p.generations[g.Number] != nil:
			h.pulse = p.watchWorker(w, g, h.Handle)
		}
	}
}

// watches reports whether the health of a generation's workers is watched: by probes, by a watchdog, or both.
func watches(g *program.Generation) bool {
	return g.Config.Health.Method != "" || g.Config.Health.Watchdog > 0
}

// watchWorker begins the watch over a worker. The probes run on a goroutine of their own, which reaches the loop by
// post and ends with pulse.cancel.
func (p *runner) watchWorker(w *program.Worker, g *program.Generation, h Handle) *pulse {
	c, number := g.Config.Health, w.Number
	ctx, cancel := context.WithCancel(p.s.ctx)
	u := &pulse{cancel: cancel, watchdog: c.Watchdog, heard: time.Now()}
	if c.Watchdog > 0 {
		u.timer = p.s.after(c.Watchdog, func() { p.silent(number, u) })
	}
	if c.Method == "" {
		return u
	}
	of := p.generations[g.Number]
	c.Check = of.snapshot.Probe(g.Config, of.seat(w), c.Check)
	loop := p.s.mailbox
	loop.running.Go(func() {
		if reason := fails(ctx, c, program.Jitter(number, c.Interval/2), h); reason != "" {
			loop.post(func() { p.step(program.Replace{Worker: number, Reason: reason}) })
		}
	})
	return u
}

// unwatch ends the watch over the health of a worker.
func (w *heldProcess) unwatch() {
	if w.pulse == nil {
		return
	}
	w.pulse.cancel()
	w.pulse = nil
}

// fails probes until too many probes in a row have failed, and returns why; or until ctx ends, and returns "". It makes
// the first probe sooner by early, so that workers which became ready together are probed at different times. It runs
// on the goroutine of the watch.
func fails(ctx context.Context, c config.Health, early time.Duration, h Handle) string {
	pause := time.NewTimer(c.Interval - early)
	defer pause.Stop()
	for failures := 0; ; pause.Reset(c.Interval) {
		select {
		case <-ctx.Done():
			return ""
		case <-pause.C:
		}
		err := probeOnce(ctx, c, h)
		switch {
		case ctx.Err() != nil:
			return ""
		case err == nil:
			failures = 0
			continue
		}
		if failures++; failures >= c.Failures {
			return fmt.Sprintf("its health check failed %s in a row: %s", times(failures), worker.OneLine(err))
		}
	}
}

// probeOnce makes one probe, which may take health.timeout. It waits: it runs on the goroutine of the watch.
func probeOnce(ctx context.Context, c config.Health, h Handle) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("no answer within %s", c.Timeout))
	defer cancel()
	return h.Probe(ctx, c.Check)
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// heard notes a worker's WATCHDOG= message.
func (p *runner) heard(number int, e life.Watchdog) {
	u := p.workers[number].pulse
	switch {
	case u == nil || u.watchdog == 0: // it has no watchdog
	case e.Trigger:
		p.step(program.Replace{Worker: number, Reason: "it sent WATCHDOG=trigger"})
	default:
		u.heard, u.late = time.Now(), false // the timer finds out by itself
	}
}

// silent is called when the time of a watchdog is over. A message does not reset the timer, so silent checks itself
// whether WATCHDOG=1 came meanwhile. The time is not a deadline of the core: each message would move it, and each move
// would be recorded.
func (p *runner) silent(number int, u *pulse) {
	if h := p.workers[number]; h == nil || h.pulse != u {
		return
	}
	if left := u.watchdog - time.Since(u.heard); left > 0 {
		u.timer.Reset(left)
		return
	}
	if !u.late {
		u.late = true
		u.timer.Reset(min(program.Grace, u.watchdog))
		return
	}
	p.step(program.Replace{Worker: number, Reason: fmt.Sprintf("no WATCHDOG=1 within %s", u.watchdog)})
}

// sampleInterval is how often the memory of a program's workers is measured, if it has a limit.
const sampleInterval = 10 * time.Second

// watchMemory measures the memory of a program's workers from time to time, as long as a serving worker has a limit:
// after sampleInterval sample measures on a goroutine, and sampled calls watchMemory again.
func (p *runner) watchMemory() {
	if p.limited() && !p.samples {
		p.samples = true
		p.s.after(sampleInterval, p.sample)
	}
}

// limited reports whether a serving worker has a limit (max_memory).
func (p *runner) limited() bool {
	return p.core.Goal == program.Run && p.core.Serving != nil && p.core.Serving.Config.MaxMemory > 0
}

// sample measures off the loop: /proc may be slow for a worker with much memory or many processes.
func (p *runner) sample() {
	if p.samples = p.limited(); !p.samples {
		return
	}
	g := p.core.Serving
	handles := map[int]Handle{}
	for _, w := range g.Workers {
		if h := p.workers[w.Number]; h != nil && w.State == program.Ready {
			handles[w.Number] = h.Handle
		}
	}
	limit := g.Config.MaxMemory
	p.s.later(func() func() {
		over := map[int]uint64{}
		for number, h := range handles {
			if used, err := h.Memory(limit); err == nil && used > limit {
				over[number] = used
			}
		}
		return func() { p.sampled(over, limit) }
	})
}

// sampled asks the core to replace the workers that use too much, the worst first: the core replaces one at a time.
func (p *runner) sampled(over map[int]uint64, limit uint64) {
	p.samples = false
	worst := slices.SortedFunc(maps.Keys(over), func(a, b int) int { return cmp.Compare(over[b], over[a]) })
	for _, number := range worst {
		reason := fmt.Sprintf("it uses %s of memory, more than max_memory, %s", mebibytes(over[number]), mebibytes(limit))
		p.step(program.Replace{Worker: number, Reason: reason, OverLimit: true})
	}
	p.watchMemory()
}

func mebibytes(n uint64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
