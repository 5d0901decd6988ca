package observe

import (
	"time"

	"example.org/supervisord/supervisor"
)

// pace says when to look at the kernel next. There is a timer only while a reload is under way.
type pace struct {
	timer  *time.Timer
	since  time.Time          // when the reload began
	next   time.Time          // connections are not counted before
	fresh  bool               // the next look is at everything, whatever it costs
	status *supervisor.Status // as it was asked for last; nil: not since the reload began
}

// The intervals are short at first, when most happens, and long in a drain of hours.
const (
	often, atFirst = 100 * time.Millisecond, 10 * time.Second
	less, later    = time.Second, 2 * time.Minute
	seldom         = 5 * time.Second
	countAgain     = 500 * time.Millisecond
	soon           = 20 * time.Millisecond
	share          = 20 // counting connections takes at most 1/share of the time
)

func (p *pace) tick() <-chan time.Time {
	if p.timer == nil {
		return nil
	}
	return p.timer.C
}

// arm sets the timer if it is not set.
func (p *pace) arm(now time.Time) {
	if p.timer == nil {
		p.since = now
		p.timer = time.NewTimer(often)
	}
}

// soon makes the next look a complete one, after a moment: the new workers have begun to serve, the old ones finish, and both need the CPU.
func (p *pace) soon() {
	if p.timer != nil {
		p.timer.Reset(soon)
		p.fresh = true
	}
}

func (p *pace) again(now time.Time) {
	if p.timer == nil {
		return
	}
	switch running := now.Sub(p.since); {
	case running < atFirst:
		p.timer.Reset(often)
	case running < later:
		p.timer.Reset(less)
	default:
		p.timer.Reset(seldom)
	}
}

// counts reports whether this look counts connections.
func (p *pace) counts(now time.Time) bool {
	count := p.fresh || !now.Before(p.next)
	p.fresh = false
	return count
}

// counted records the cost of a count that began at this time.
func (p *pace) counted(began time.Time) {
	p.next = began.Add(max(countAgain, share*time.Since(began)))
}

// stop reports whether the timer was set.
func (p *pace) stop() bool {
	if p.timer == nil {
		return false
	}
	p.timer.Stop()
	p.timer, p.fresh, p.status = nil, false, nil
	return true
}
