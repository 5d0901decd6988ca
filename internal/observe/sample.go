package observe

import (
	"runtime/debug"
	"time"
)

// pace says when to look at the kernel next. There is a timer only while a reload is under way.
type pace struct {
	timer *time.Timer
	since time.Time     // when the reload began
	next  time.Time     // when connections are to be counted, not before
	cost  time.Duration // of the last count
	fresh bool          // the next look is at everything, whatever that costs
}

// How often to look: often at first, when most happens, and seldom in a drain of hours.
const (
	often, atFirst = 100 * time.Millisecond, 10 * time.Second
	less, later    = time.Second, 2 * time.Minute
	seldom         = 5 * time.Second
	countAgain     = 500 * time.Millisecond
	soon           = 5 * time.Millisecond
	share          = 20 // counting connections takes at most one part in so many of the time
)

func (p *pace) tick() <-chan time.Time {
	if p.timer == nil {
		return nil
	}
	return p.timer.C
}

func (p *pace) interval(now time.Time) time.Duration {
	switch running := now.Sub(p.since); {
	case running < atFirst:
		return often
	case running < later:
		return less
	}
	return seldom
}

// arm sets the timer if it is not set.
func (p *pace) arm(now time.Time) {
	if p.timer == nil {
		p.since, p.cost = now, 0
		p.timer = time.NewTimer(often)
	}
}

// soon has everything counted in a moment: not in the one in which the old workers are told to go, who want the CPU themselves.
func (p *pace) soon() {
	if p.timer != nil {
		p.timer.Reset(soon)
		p.fresh = true
	}
}

func (p *pace) again(now time.Time) {
	if p.timer != nil {
		p.timer.Reset(p.interval(now))
	}
}

func (p *pace) stop() {
	if p.timer != nil {
		p.timer.Stop()
		p.timer, p.fresh = nil, false
	}
}

// settle keeps the timer running while a reload is under way, and only then.
func (o *Observer) settle() {
	o.mu.Lock()
	busy := o.recorder.Busy()
	o.mu.Unlock()
	if busy {
		o.pace.arm(time.Now())
		return
	}
	if o.pace.timer == nil {
		return
	}
	o.pace.stop()
	o.status = nil
	debug.FreeOSMemory() // the daemon sleeps now: what the reload has left behind goes back at once, not within minutes
}

// sample looks at the kernel. What a count of connections costs decides when the next one may come.
func (o *Observer) sample() {
	now := time.Now()
	count := o.pace.fresh || !now.Before(o.pace.next)
	o.pace.fresh = false
	if count || o.status == nil || now.Sub(o.pace.since) > atFirst {
		st, err := o.ask(o.ctx)
		if err != nil {
			o.pace.again(now)
			return
		}
		o.status = st
	}
	o.mu.Lock()
	o.sampler.Queues(o.status)
	if count {
		o.sampler.Connections(o.status, now)
		o.sampler.Refused()
		o.pace.cost = time.Since(now)
		o.pace.next = now.Add(max(countAgain, share*o.pace.cost))
	}
	o.mu.Unlock()
	o.pace.again(now)
	if count {
		o.notify()
	}
}
