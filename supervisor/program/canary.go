package program

import (
	"fmt"
	"time"

	"example.org/supervisord/internal/config"
)

// RefusesCanary says why the canary that r asks for cannot be tried with the configuration c now, and what to do about it; "": it
// can. A canary never waits and never grows: a request for less than everything gets exactly that, or nothing.
func (p *Program) RefusesCanary(r Reload, c *config.Program) string {
	t := p.Trial
	switch {
	case p.Goal == Halt:
		return "it is stopped: start it first"
	case t != nil && t.Canary > 0:
		return fmt.Sprintf("generation %d is a canary already: promote or abort that first", t.Number)
	case t != nil:
		return fmt.Sprintf("generation %d is on trial: wait for its end, or abort it", t.Number)
	case p.Serving == nil || !p.Serves():
		return "no generation serves beside which a canary could run: reload without --canary"
	case p.full():
		return p.tooMany() + ": wait until one has gone, or kill it"
	case p.Again != nil:
		return "a reload is due: wait for its end"
	case c.Reload.Strategy == config.StopFirst || p.Serving.StopFirst():
		return `with reload.strategy = "stop-first" no canary can run beside the generation that serves: reload without --canary`
	case r.Canary >= c.Workers:
		return fmt.Sprintf("%d of its %s would be the whole generation: ask for fewer, or reload without --canary", r.Canary, count(c.Workers, "worker"))
	}
	return ""
}

// canary puts a canary on trial, or refuses it. Only its own generation is made from its configuration.
func (p *Program) canary(now time.Time, e Reload) {
	c := p.Config
	if e.Config != nil {
		c = e.Config
	}
	if why := p.RefusesCanary(e, c); why != "" {
		p.report(Report{Kind: CanaryRefused, Serving: p.ServingNumber(), Reason: why, AskedBy: e.AskedBy})
		return
	}
	p.Candidate = e.Config
	p.try(now, e, c)
}

// hold keeps a canary whose workers are all ready until it is promoted or its time is over.
func (p *Program) hold(now time.Time) {
	t := p.Trial
	if t == nil || t.Canary == 0 || !t.allReady() {
		return
	}
	if t.Held {
		if !t.HeldTill.IsZero() && !now.Before(t.HeldTill) {
			p.promoteCanary("")
		}
		return
	}
	t.Held = true
	kind := CanaryHeld
	if t.For > 0 {
		kind, t.HeldTill = CanaryWatched, now.Add(t.For)
	}
	p.report(Report{Kind: kind, Generation: t.Number, Serving: p.ServingNumber(), After: t.For, Reload: p.setOutcome(t, Held)})
}

// promoteCanary ends the hold of a canary: the other slots are filled. What follows is made from its configuration, unless a newer
// one has come.
func (p *Program) promoteCanary(by string) {
	t := p.Trial
	if t == nil || t.Canary == 0 {
		return
	}
	p.report(Report{Kind: CanaryPromoted, Generation: t.Number, Serving: p.ServingNumber(), AskedBy: by, Reload: p.setOutcome(t, Pending)})
	t.Canary, t.HeldTill = 0, time.Time{}
	if p.Candidate != nil {
		p.Config, p.Candidate = p.Candidate, nil
	}
}

// waitsForPerson reports whether g is a canary that only Promote or Abort ends.
func (g *Generation) waitsForPerson() bool { return g.Canary > 0 && g.For == 0 }

// Knows reports whether c is not new: it is the configuration of the program, or of its last canary.
func (p *Program) Knows(c *config.Program) bool {
	return p.Config.Equal(*c) || p.Candidate != nil && p.Candidate.Equal(*c)
}
