package program

import (
	"strings"
	"time"
)

// How reloads for watched files that change because of the reloads are slowed down: so many generations begin at once, each at
// most changeSoon after the one before; then the wait doubles from changeDelay to changeDelayMax.
const (
	changeSoon     = 5 * time.Second
	changesAtOnce  = 3
	changeDelay    = time.Second
	changeDelayMax = 30 * time.Second
)

// changed answers a change of a watched file. A worker that writes into its own watched folder would otherwise bring a new
// generation each moment, for ever. Whoever asks for a reload meanwhile gets it at once.
func (p *Program) changed(now time.Time, e Reload) {
	if p.Again != nil && (p.Again.By == Changed || !p.AgainAt.After(now)) {
		return // what is due will see the change
	}
	if now.Sub(p.ChangedAt) > changeSoon {
		p.Changes = 0
	}
	p.Changes++
	wait := changeWait(p.Changes)
	if wait == 0 {
		p.want(now, e)
		return
	}
	if p.Changes == changesAtOnce+1 {
		p.report(Report{Kind: ReloadDamped, Reason: "the workers may write there themselves: " + strings.Join(p.Config.Watch, ", "), After: wait})
	}
	p.again(e, now.Add(wait))
}

// changeWait is how long the generation for the nth change in a row waits.
func changeWait(n int) time.Duration {
	n -= changesAtOnce + 1
	switch {
	case n < 0:
		return 0
	case n > 10:
		return changeDelayMax
	}
	return min(changeDelay<<n, changeDelayMax)
}
