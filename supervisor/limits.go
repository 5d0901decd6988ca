package supervisor

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"example.org/supervisord/supervisor/program"
)

// sampleInterval is how often the memory of a program's workers is looked at, where it has a limit.
const sampleInterval = 10 * time.Second

// sampler is the watch over the memory of a program: it waits, or it measures, or (nil timer) there is nothing to watch.
type sampler struct {
	timer     *time.Timer
	measuring bool
}

// usage is the memory of one worker.
type usage struct {
	worker int
	used   uint64
	limit  uint64
}

// watchMemory keeps the sampler of a program running exactly as long as a serving worker has a limit.
func (s *Supervisor) watchMemory(p *runner) {
	limited := p.core.Goal == program.Run && p.core.Serving != nil && p.core.Serving.Config.MaxMemory > 0
	switch {
	case !limited && p.sampler.timer != nil:
		p.sampler.timer.Stop()
		p.sampler.timer = nil
	case limited && p.sampler.timer == nil && !p.sampler.measuring:
		p.sampler.timer = time.AfterFunc(sampleInterval, func() { s.post(func() { s.sample(p) }) })
	}
}

// sample measures off the loop: /proc may be slow where a worker has much memory or many processes.
func (s *Supervisor) sample(p *runner) {
	g := p.core.Serving
	if p.sampler.timer == nil || p.sampler.measuring || g == nil {
		return // it was stopped meanwhile
	}
	p.sampler.timer, p.sampler.measuring = nil, true
	limit := g.Config.MaxMemory
	handles := map[int]Handle{}
	for _, w := range g.Workers {
		if h := p.workers[w.Number]; h != nil && w.State == program.Ready {
			handles[w.Number] = h
		}
	}
	s.later(func() func() {
		var over []usage
		for number, h := range handles {
			if used, err := h.Memory(limit); err == nil && used > limit {
				over = append(over, usage{number, used, limit})
			}
		}
		return func() { s.sampled(p, over) }
	})
}

// sampled asks for the replacement of those that use too much, the worst first: the core takes one at a time.
func (s *Supervisor) sampled(p *runner, over []usage) {
	p.sampler.measuring = false
	slices.SortFunc(over, func(a, b usage) int { return cmp.Compare(b.used, a.used) })
	for _, u := range over {
		s.step(p, program.OverLimit{Worker: u.worker, Reason: fmt.Sprintf("it uses %s of memory, more than max_memory, %s", mebibytes(u.used), mebibytes(u.limit))})
	}
	s.watchMemory(p)
}

func mebibytes(n uint64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
