package config

import (
	"fmt"
	"slices"
	"time"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/socket"
)

// drainFields are the keys of [program.NAME.drain].
var drainFields = document.Fields[DrainPolicy]{
	"timeout": func(d *DrainPolicy, v document.Value) { v.Duration(&d.Timeout, 0) },
	"silence": func(d *DrainPolicy, v document.Value) { v.Duration(&d.Silence, 0) },
	"spread":  func(d *DrainPolicy, v document.Value) { v.Duration(&d.Spread, 0) },
}

// Generations is what socket asks of a program to say which sockets its generations have.
func (p *Program) Generations() socket.Generations {
	g := socket.Generations{Slots: p.Workers, Rolling: p.Reload.Strategy == Rolling,
		StopFirst: p.Reload.Strategy == StopFirst, MaxDraining: p.Reload.MaxDraining, Restart: string(p.Restart.When)}
	if at := slices.IndexFunc(p.Listen, func(l socket.Spec) bool { return l.Handover == socket.QUIC }); at >= 0 {
		g.QUIC = p.Listen[at].Name
	}
	return g
}

// handoverFits has the listeners of the program v settled, and reports the keys that do not go together.
func handoverFits(v document.Value, p *Program) {
	listeners, _ := v.Child("listen").Elements()
	for i := range p.Listen {
		l, at := &p.Listen[i], v.Child("listen")
		if i < len(listeners) {
			at = listeners[i]
		}
		for _, wrong := range p.Generations().Settle(l) {
			inListener(at, wrong.Key).Problem(wrong.What, "%s", wrong.Remedy)
		}
		if (l.Handover == socket.Flow || l.Handover == socket.QUIC) && p.Workers > 1 {
			at.Child("handover").Warn(fmt.Sprintf("the %d workers of a generation receive from one socket, so each may get "+
				"datagrams of any client", p.Workers), "write workers = 1, or make %d programs", p.Workers)
		}
	}
	readDrain(v.Child("drain"), p)
	keepFits(v.Child("reload").Child("keep"), p)
}

// either is a remedy of one or two alternatives; the second may be "".
func either(one, other string) string {
	if other == "" {
		return one
	}
	return one + ", or " + other
}

// readDrain reads [program.NAME.drain]; v may be missing.
func readDrain(v document.Value, p *Program) {
	p.Drain = DrainPolicy{Timeout: 30 * time.Second, Silence: 5 * time.Second}
	d := p.Drain
	if v.Raw != nil && !document.Decode(v, &d, drainFields) {
		return
	}
	switch {
	case v.Raw == nil:
	case len(p.Listen) == 0:
		v.Problem("does nothing without a listener", "remove the table")
	default:
		for _, key := range []string{"silence", "spread"} {
			v.Useless(key, d.Timeout == 0, `with timeout = "0s": old workers are stopped at once`,
				"remove it, or write a longer timeout")
		}
		p.Drain = d
	}
}

// keepFits reports a keep that would do harm: an old generation keeps serving if it shares a listener and is not told
// to stop.
func keepFits(v document.Value, p *Program) {
	at := slices.IndexFunc(p.Listen, func(l socket.Spec) bool { return !l.IsSteered() })
	switch {
	case p.Reload.Keep == 0:
	case len(p.Listen) == 0:
		v.Problem("needs a listener: a rollback sends new connections to the old generation again", "remove it")
	case at >= 0:
		why, change := p.Generations().WhyShared(p.Listen[at])
		v.Problem(fmt.Sprintf("needs sockets of its own for each generation: they share the listener %q (%s)",
			p.Listen[at].Name, why), "%s", either("remove it", change))
	}
}

// Check returns what is to be said of a valid configuration on this machine, by file and line: with Warnings, errors of
// environment files that exist and would be refused at a start, commands that their user may not execute, wrappers of
// servers, listeners that generations or many workers share although no key asks for that, and handovers that need a
// privilege, or a kernel, that this process does not have. It asks the kernel, some of it as the users of the programs,
// which needs root.
func (c *Config) Check() []document.Problem {
	found := slices.Clone(c.Warnings)
	for i := range c.Programs {
		p := &c.Programs[i]
		say := func(severity document.Severity, key, what, remedy string) {
			if what != "" {
				problem := p.problem(key, what, remedy)
				problem.Severity = severity
				found = append(found, problem)
			}
		}
		say("", "", p.refusedEnvironment(), "no generation of the program starts with it")
		what, remedy := p.unexecutable()
		say(document.Warning, "command", what, remedy)
		what, remedy = p.wrapped()
		say(document.Note, "command", what, remedy)
		for n, l := range p.Listen {
			if why := l.HandoverWhy; why != "" {
				_, change := p.Generations().WhyShared(l)
				say(document.Note, listenKey(n, "handover"), fmt.Sprintf("the generations share the listener %q: %s", l.Name, why),
					change)
			}
			if why, change := p.Generations().WhyOneSocket(l); why != "" {
				say(document.Note, listenKey(n, "per_slot"), fmt.Sprintf("the listener %q has one socket for all %d workers, "+
					"and a connection wakes each that waits with epoll: %s", l.Name, p.Workers, why), change)
			}
			if wrong := l.Unpermitted(); wrong != nil {
				say("", listenKey(n, wrong.Key), wrong.What, wrong.Remedy)
			}
		}
	}
	return document.SortProblems(found, c.Files)
}
