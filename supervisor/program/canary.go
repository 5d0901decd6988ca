package program

import (
	"cmp"
	"fmt"
	"time"

	"example.org/supervisord/internal/config"
)

// IsCanary reports whether r asks for less than a whole generation.
func (r Reload) IsCanary() bool { return r.Canary > 0 || r.Share > 0 }

// refusesCanary is Refuses for a canary. A canary never waits and never grows: a request for less than everything gets
// exactly that, or nothing.
func (p *Program) refusesCanary(r Reload) string {
	t, c := p.Trial, cmp.Or(r.Config, p.Config)
	switch {
	case p.Goal == Halt:
		return "it is stopped: start it first"
	case t != nil && t.IsCanary():
		return fmt.Sprintf("generation %d is a canary already: promote or abort that first", t.Number)
	case t != nil:
		return fmt.Sprintf("generation %d does not serve yet: wait for it, or abort it", t.Number)
	case p.Serving == nil || !p.Serves():
		return "no generation serves beside which a canary could run: reload without --canary"
	case p.full():
		return p.tooMany() + ": wait until one has gone, or kill it"
	case p.Again != nil:
		return "a reload is due: wait for its end"
	case c.Reload.Strategy == config.StopFirst || p.Serving.StopFirst():
		return `with reload.strategy = "stop-first" no canary can run beside the generation that serves: reload without ` +
			`--canary`
	case r.Share > 0:
		return p.refusesShare(r.Share, c, r.Unsteered)
	case r.Canary >= c.Workers:
		return fmt.Sprintf("%d of its %s would be the whole generation: ask for fewer, or reload without --canary", r.Canary,
			count(c.Workers, "worker"))
	}
	return ""
}

// refusesShare is refusesCanary for a share of the new connections.
func (p *Program) refusesShare(share int, c *config.Program, unsteered string) string {
	switch {
	case share >= Whole:
		return "100% would be the whole generation: ask for less, or reload without --canary"
	case c.Reload.Strategy != config.All:
		return fmt.Sprintf("with reload.strategy = %q a canary has no share of its own: ask for a number of workers, such "+
			"as --canary 1", c.Reload.Strategy)
	case unsteered != "":
		return unsteered + ": ask for a number of workers, such as --canary 1"
	case !p.Serving.Steered:
		return fmt.Sprintf("generation %d shares its sockets with the next: reload without --canary once, or ask for a "+
			"number of workers", p.Serving.Number)
	}
	return ""
}

// refusesPromotion is Refuses for a promotion, or for another share. A trial that is not a canary needs no promotion:
// there is nothing to refuse.
func (p *Program) refusesPromotion(e Promote) string {
	switch t := p.Trial; {
	case t == nil:
		return noTrial
	case e.Share == 0:
		return ""
	case !t.IsCanary():
		return fmt.Sprintf("generation %d is not a canary: it serves as soon as its workers are ready", t.Number)
	case e.Share >= Whole:
		return "100% is everything: promote without a share"
	case t.Prepared && !t.Steered || p.Serving == nil || !p.Serving.Steered:
		return fmt.Sprintf("generation %d has no sockets of its own: promote it without a share, or abort it", t.Number)
	}
	return ""
}

// canary puts a canary on trial. Only its own generation is made from its configuration.
func (p *Program) canary(now time.Time, e Reload) {
	p.Candidate = e.Config
	p.try(now, e, cmp.Or(e.Config, p.Config))
}

// hold keeps a canary whose workers are all ready until it is promoted or its time is over.
func (p *Program) hold(now time.Time) {
	t := p.Trial
	if t == nil || !t.IsCanary() || !t.allReady() {
		return
	}
	if t.Held {
		if !t.HeldTill.IsZero() && !now.Before(t.HeldTill) {
			p.promoteCanary(now, Promote{AskedBy: byTimer("--for")})
		}
		return
	}
	t.Held = true
	kind := CanaryHeld
	if t.For > 0 {
		kind, t.HeldTill = CanaryWatched, now.Add(t.For)
	}
	p.report(Report{Kind: kind, Generation: t.Number, Serving: p.ServingNumber(), After: t.For,
		Reload: p.edit(t.Number, func(r *ReloadRecord) { r.Outcome = Held })})
}

// promoteCanary changes the share of a canary, or ends its hold and fills the other slots. Later generations are made
// from the canary's configuration, unless a newer one has come.
func (p *Program) promoteCanary(now time.Time, e Promote) {
	t := p.Trial
	if !t.IsCanary() {
		return
	}
	told := Report{Kind: CanaryPromoted, Generation: t.Number, Serving: p.ServingNumber(), AskedBy: e.AskedBy}
	if e.Share > 0 {
		t.Share = e.Share
		if !t.HeldTill.IsZero() { // it has to be well for as long with this share
			t.HeldTill = now.Add(t.For)
		}
		told.Kind, told.After = ShareChanged, t.For
		told.Reload = p.edit(t.Number, func(r *ReloadRecord) { r.Share = t.Share })
		p.report(told)
		return
	}
	told.Reload = p.edit(t.Number, func(r *ReloadRecord) { r.Outcome = Pending })
	p.report(told)
	t.Canary, t.Share, t.HeldTill = 0, 0, time.Time{}
	if p.Candidate != nil {
		p.Config, p.Candidate = p.Candidate, nil
	}
}

// abort ends the trial. It drops the reload that waits behind a canary, unless the event says that it begins then.
func (p *Program) abort(now time.Time, e Abort) {
	due := p.Again
	waits := due != nil && p.Trial.IsCanary() && !e.ThenReload && p.Serving != nil
	if waits {
		p.Config, p.Candidate, p.Again = p.Serving.Config, p.Config, nil // as after a rollback
	}
	p.fail(now, Failure{Step: stepAbort, Reason: e.Reason, AskedBy: e.AskedBy})
	if waits {
		p.drop(now, *due, Aborted)
	}
}

// waitsForPerson reports whether g is a canary that only Promote or Abort ends.
func (g *Generation) waitsForPerson() bool { return g.IsCanary() && g.For == 0 }

// Knows reports whether c is a configuration of the program already: its own, that of its last canary, or the one that
// was rolled back.
func (p *Program) Knows(c *config.Program) bool {
	return p.Config.Equal(*c) || p.Candidate != nil && p.Candidate.Equal(*c)
}
