package supervisor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"example.org/supervisord/supervisor/program"
)

// sampleInterval is how often the memory of a program's workers is measured, if it has a limit.
const sampleInterval = 10 * time.Second

// sampler is the watch over the memory of a program: it waits (there is a timer), or measures, or there is nothing to watch.
type sampler struct {
	timer     *time.Timer
	measuring bool
}

// watchMemory keeps the sampler running exactly as long as a serving worker has a limit.
func (p *runner) watchMemory() {
	m := &p.sampler
	limited := p.core.Goal == program.Run && p.core.Serving != nil && p.core.Serving.Config.MaxMemory > 0
	switch {
	case !limited && m.timer != nil:
		m.timer.Stop()
		m.timer = nil
	case limited && m.timer == nil && !m.measuring:
		m.timer = p.s.after(sampleInterval, p.sample)
	}
}

// sample measures off the loop: /proc may be slow for a worker with much memory or many processes.
func (p *runner) sample() {
	g := p.core.Serving
	if p.sampler.timer == nil || g == nil {
		return // it was stopped meanwhile
	}
	p.sampler = sampler{measuring: true}
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

// sampled asks for the replacement of the workers that use too much, the worst first: the core takes one at a time.
func (p *runner) sampled(over map[int]uint64, limit uint64) {
	p.sampler.measuring = false
	worst := slices.SortedFunc(maps.Keys(over), func(a, b int) int { return cmp.Compare(over[b], over[a]) })
	for _, number := range worst {
		reason := fmt.Sprintf("it uses %s of memory, more than max_memory, %s", mebibytes(over[number]), mebibytes(limit))
		p.step(program.OverLimit{Worker: number, Reason: reason})
	}
	p.watchMemory()
}

func mebibytes(n uint64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
