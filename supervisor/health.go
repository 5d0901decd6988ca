package supervisor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/life"
)

// pulse is the watch over the health of one worker, from when the worker is ready until it is on its way out.
type pulse struct {
	cancel func() // ends the probes

	watchdog time.Duration // 0: there is none
	heard    time.Time     // when WATCHDOG=1 came last, or the watch began
	timer    *time.Timer
	late     bool // the worker has a moment more: what it said may be in the mailbox
}

// watchHealth begins to watch workers that are ready, and ends the watch over those that are not any more. What is kept for a rollback
// must be well, too.
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

func watches(g *program.Generation) bool {
	return g.Config.Health.Method != "" || g.Config.Health.Watchdog > 0
}

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
	p.s.running.Go(func() {
		if reason := fails(ctx, c, program.Jitter(number, c.Interval/2), h); reason != "" {
			p.s.post(func() { p.step(program.Replace{Worker: number, Reason: reason}) })
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
	if w.pulse.timer != nil {
		w.pulse.timer.Stop()
	}
	w.pulse = nil
}

// fails probes until too many probes have failed in a row, and says why; or until ctx ends: "". The first probe comes sooner by
// early, so that workers which became ready together are not all probed together.
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
