package program

import (
	"strings"
	"time"
)

// A worker that writes into its own watched folder would cause new generations forever, one after the other. So reloads for changes that
// follow within changeSoon of one another are damped: changesAtOnce begin at once, then each waits twice as long as the one before,
// from changeDelay to changeDelayMax.
const (
	changeSoon     = 5 * time.Second
	changesAtOnce  = 3
	changeDelay    = time.Second
	changeDelayMax = 30 * time.Second
)

// changed answers a change of a watched file. A reload that is requested meanwhile is not delayed.
func (p *Program) changed(now time.Time, e Reload) {
	if p.Again != nil && (p.Again.By == Changed || !p.AgainAt.After(now)) {
		return // the reload that is due will see the change
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

// changeWait is how long the reload for the nth change in a row waits.
func changeWait(n int) time.Duration {
	switch n -= changesAtOnce + 1; {
	case n < 0:
		return 0
	case n > 10:
		return changeDelayMax
	}
	return min(changeDelay<<n, changeDelayMax)
}
