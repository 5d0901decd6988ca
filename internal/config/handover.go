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

// handoverFits decides which listeners of the program v are steered, and reports the keys that ask for steering where
// it is impossible.
func handoverFits(v document.Value, p *Program) {
	listeners, _ := v.Child("listen").Elements()
	for i := range p.Listen {
		l := &p.Listen[i]
		why, change := p.cannotSteer(*l)
		switch {
		case l.Handover == socket.Share:
		case why != "" && l.Handover != "":
			listeners[i].Child("handover").Problem(fmt.Sprintf("%q is impossible: %s", l.Handover, why), "%s",
				either("remove handover", change))
			l.Handover = socket.Share
		case why != "":
			l.Handover, l.HandoverWhy = socket.Share, why
		case l.Handover == "":
			l.Handover = socket.Steer
		}
		if i < len(listeners) {
			flowFits(listeners[i], p, l)
		}
		if l.PerSlot && !l.ReusePort && !isSteered(*l) && l.Address.IsTCP() {
			why, change = p.shared(*l)
			listeners[i].Child("per_slot").Problem(
				"needs sockets of its own for each generation, and they share the listener: "+why,
				"%s", either("remove per_slot", change))
		}
		if isSteered(*l) && l.Slotting() == "auto" {
			l.SingleWhy = p.mayEnd()
			l.Single = l.SingleWhy != ""
		}
	}
	readDrain(v.Child("drain"), p)
	keepFits(v.Child("reload").Child("keep"), p)
}

// flowFits sets the size of a table of flows of the listener l, which v is, and reports what does not go with it.
func flowFits(v document.Value, p *Program, l *socket.Spec) {
	v.Useless("flows", l.Handover != socket.Flow, `without handover = "flow"`, "remove it")
	if l.Handover == socket.Flow && l.Flows == 0 {
		l.Flows = socket.DefaultFlows
	}
	if (l.Handover == socket.Flow || l.Handover == socket.QUIC) && p.Workers > 1 {
		v.Child("handover").Warn(fmt.Sprintf("the %d workers of a generation receive from one socket, so each may get "+
			"datagrams of any client", p.Workers), "write workers = 1, or make %d programs", p.Workers)
	}
}

// cannotSteer says why the kernel cannot send the new connections of the listener l to one generation, and what to
// change in the configuration. why is "" if it can; change is "" if nothing helps.
func (p *Program) cannotSteer(l socket.Spec) (why, change string) {
	perSlot := l.PerSlot || !l.Single && p.crowded() && l.Address.IsTCP() && p.mayEnd() == ""
	switch why, change = l.CannotSteer(); {
	case why != "":
		return why, change
	case p.Reload.Strategy == Rolling && l.Address.IsUDP():
		return `with strategy "rolling" old and new workers serve side by side`, `write strategy = "all"`
	case p.Reload.Strategy == Rolling && !perSlot:
		return `with strategy "rolling" old and new workers serve side by side, and without per_slot they have one socket`,
			`write strategy = "all" or per_slot = true`
	case l.Handover == socket.QUIC && p.Listen[slices.IndexFunc(p.Listen, isQUIC)] != l:
		return "another listener of the program has it, and a worker is told one lane", `write handover = "steer"`
	case l.Handover == socket.QUIC && (p.Reload.MaxDraining < 1 || p.Reload.MaxDraining > mostOfQUIC):
		return fmt.Sprintf("reload.max_draining = %d lets more generations live than one byte can name",
				p.Reload.MaxDraining),
			fmt.Sprintf("write max_draining = 1 to %d", mostOfQUIC)
	case p.Reload.Strategy == StopFirst:
		return `with strategy "stop-first" one generation ends before the next one begins`, `write strategy = "all"`
	}
	return "", ""
}

// mostOfQUIC is how many old generations of a QUIC listener may drain.
const mostOfQUIC = 200

func isQUIC(l socket.Spec) bool { return l.Handover == socket.QUIC }

// either is a remedy of one or two alternatives; the second may be "".
func either(one, other string) string {
	if other == "" {
		return one
	}
	return one + ", or " + other
}

// shared says why the generations share the listener l, and what to change in the configuration; change is "" if
// nothing helps.
func (p *Program) shared(l socket.Spec) (why, change string) {
	if why, change = p.cannotSteer(l); why != "" {
		return why, change
	}
	return l.WhyShared(), `write handover = "steer"`
}

// steered returns the first steered listener of p, or the first listener if none is steered; false: p has no listener.
func (p *Program) steered() (l socket.Spec, has bool) {
	if len(p.Listen) == 0 {
		return socket.Spec{}, false
	}
	return p.Listen[max(0, slices.IndexFunc(p.Listen, isSteered))], true
}

func isSteered(l socket.Spec) bool { return l.IsSteered() }

// readDrain reads [program.NAME.drain]; v may be missing. The default also applies where nothing is steered: a reload
// that changes a listener may leave the old generation with a socket of its own.
func readDrain(v document.Value, p *Program) {
	p.Drain = DrainPolicy{Timeout: 30 * time.Second, Silence: 5 * time.Second}
	d := p.Drain
	if v.Raw != nil && !document.Decode(v, &d, drainFields) {
		return
	}
	switch l, has := p.steered(); {
	case v.Raw == nil:
	case !has:
		v.Problem("does nothing without a listener", "remove the table")
	case !isSteered(l):
		why, change := p.shared(l)
		v.Warn(fmt.Sprintf("does nothing: the generations share the listener %q (%s)", l.Name, why), "%s",
			either("remove the table", change))
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
	at := slices.IndexFunc(p.Listen, func(l socket.Spec) bool { return !isSteered(l) })
	switch {
	case p.Reload.Keep == 0:
	case len(p.Listen) == 0:
		v.Problem("needs a listener: a rollback sends new connections to the old generation again", "remove it")
	case at >= 0:
		why, change := p.shared(p.Listen[at])
		v.Problem(fmt.Sprintf("needs sockets of its own for each generation: they share the listener %q (%s)",
			p.Listen[at].Name, why), "%s", either("remove it", change))
	}
}

// crowded reports whether p has so many workers that one socket for all of them is expensive.
func (p *Program) crowded() bool { return p.Workers > socket.SlotsOfSocket }

// mayEnd says why a socket could stay without a worker for good; "": it cannot.
func (p *Program) mayEnd() string {
	if p.Restart.When == Always {
		return ""
	}
	return fmt.Sprintf("with restart.when = %q a socket could be left without a worker", p.Restart.When)
}

// OneSocket says why many workers share one socket of the listener l without a key that asks for that, and what to
// change in the configuration. why is "" if they have several sockets or are few; change is "" if nothing helps.
func (p *Program) OneSocket(l socket.Spec) (why, change string) {
	switch {
	case !p.crowded(), l.Slotting() != "auto":
		return "", ""
	case l.Address.IsUnix():
		return "a unix socket has one queue", ""
	case l.Address.IsUDP():
		return "a generation has one socket of udp", ""
	case l.ReusePort:
		return "reuse_port lets other processes have sockets of the same address", "remove reuse_port"
	case p.mayEnd() != "":
		return p.mayEnd(), `write restart.when = "always"`
	case isSteered(l):
		return "", ""
	}
	why, change = p.shared(l)
	return why, either("write per_slot = false", change)
}

// eachListener returns what find says of each listener, in the order of the files. A key is that of the listener.
func (c *Config) eachListener(find func(p *Program, l socket.Spec) (key, what, remedy string),
	problem func(p *Program, key, what, remedy string) document.Problem) (found []document.Problem) {
	for i := range c.Programs {
		p := &c.Programs[i]
		for n, l := range p.Listen {
			if key, what, remedy := find(p, l); what != "" {
				found = append(found, problem(p, listenKey(n, key), what, remedy))
			}
		}
	}
	return document.SortProblems(found, c.Files)
}

// Crowded returns a note for each listener that has one socket for many workers without a key that asks for that.
func (c *Config) Crowded() []document.Problem {
	return c.eachListener(func(p *Program, l socket.Spec) (key, what, remedy string) {
		why, change := p.OneSocket(l)
		if why != "" {
			what = fmt.Sprintf("the listener %q has one socket for all %d workers, and a connection wakes each that waits "+
				"with epoll: %s", l.Name, p.Workers, why)
		}
		return "per_slot", what, change
	}, (*Program).note)
}

// Shared returns a note for each listener that the generations of its program share without a key that asks for that.
func (c *Config) Shared() []document.Problem {
	return c.eachListener(func(p *Program, l socket.Spec) (key, what, remedy string) {
		if l.HandoverWhy == "" {
			return "", "", ""
		}
		_, change := p.shared(l)
		return "handover", fmt.Sprintf("the generations share the listener %q: %s", l.Name, l.HandoverWhy), change
	}, (*Program).note)
}

// Unpermitted returns an error for each listener whose handover needs a privilege, or a kernel, that this process does
// not have. It asks the kernel.
func (c *Config) Unpermitted() []document.Problem {
	return c.eachListener(func(_ *Program, l socket.Spec) (key, what, remedy string) {
		if wrong := l.Unpermitted(); wrong != nil {
			return wrong.Key, wrong.What, wrong.Remedy
		}
		return "", "", ""
	}, (*Program).problem)
}

// Unusable is what is wrong with p's listener n on this machine, as an error of the configuration.
func (p *Program) Unusable(n int, wrong *socket.SpecError) *document.Error {
	problem := p.problem(listenKey(n, wrong.Key), wrong.What, wrong.Remedy)
	return &document.Error{Problems: []document.Problem{problem}}
}

// steers reports whether the kernel sends new connections of the listener with this name to one generation.
func (p *Program) steers(name string) bool {
	return slices.ContainsFunc(p.Listen, func(l socket.Spec) bool { return l.Name == name && isSteered(l) })
}
