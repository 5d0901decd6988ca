package config

import (
	"fmt"
	"strings"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/config/reach"
	"example.org/supervisord/internal/pattern"
	"example.org/supervisord/socket"
	"example.org/supervisord/worker/ready"
)

// probe is a probe of a program that connects to something, and the key that says where.
type probe struct {
	table, key string // "ready" or "health"; "url" or "address"
	text       string // as written
	to         reach.Aim
}

// probes returns the probes of a program that connect to an address, without those that name a listener.
func (p *Program) probes() []probe {
	var list []probe
	add := func(table string, r ready.Check) {
		switch {
		case r.Listener != "":
		case r.Method == ready.HTTP:
			list = append(list, probe{table, "url", r.URL, reach.URL(r.URL)})
		case r.Method == ready.TCP:
			list = append(list, probe{table, "address", r.Address, reach.Address(r.Address)})
		}
	}
	add("ready", p.Ready.Check)
	add("health", p.Health.Check)
	return list
}

// isOwn reports whether, as far as the text shows, no two workers that run at the same time have this address.
func (pr probe) isOwn(p *Program) bool {
	has := func(placeholder string) bool { return strings.Contains(pr.text, placeholder) }
	return has("{pid}") || (has("{generation}") || p.Reload.Strategy == StopFirst) && (has("{slot}") || p.Workers == 1)
}

// refusal says why a probe of p must not connect to e, and what to do.
func (pr probe) refusal(p *Program, e reach.Endpoint) (what, remedy string) {
	own := fmt.Sprintf(`or let each worker answer at an address of its own, such as "unix:/run/%s/{pid}.sock"`, p.Name)
	remedy = `write method = "notify" or "accept", ` + own
	if pr.table == "health" {
		remedy = `let the workers send WATCHDOG=1 and write watchdog = "30s", ` + own
	}
	switch {
	case e.Program == "":
		what = fmt.Sprintf("reaches supervisord itself at %s, and no worker", e.Address)
	case e.Program != p.Name:
		what = fmt.Sprintf("reaches the listener %q of program %s at %s: its workers would answer, and no worker of %s",
			e.Name, e.Program, e.Address, p.Name)
	case p.steers(e.Name):
		what = fmt.Sprintf("reaches the listener %q at %s, where the generation that serves answers: it would answer for "+
			"the one on trial", e.Name, e.Address)
		if pr.table == "health" {
			what = fmt.Sprintf("reaches the listener %q at %s, where any worker of the generation that serves answers", e.Name,
				e.Address)
		}
		remedy = fmt.Sprintf("write %s = %q to reach the worker's own generation", pr.key, reach.ToListener(pr.text, e.Name))
	case pr.table == "health":
		what = fmt.Sprintf("reaches the listener %q at %s, which all workers of %s share: a healthy one would answer for "+
			"one that hangs", e.Name, e.Address, p.Name)
	default:
		what = fmt.Sprintf("reaches the listener %q at %s, which all generations of %s share: an old worker would answer "+
			"for a new one", e.Name, e.Address, p.Name)
	}
	return what, remedy
}

// endpoints lists the addresses that the configuration listens on.
func (c *Config) endpoints() []reach.Endpoint {
	var list []reach.Endpoint
	for _, p := range c.Programs {
		for _, l := range p.Listen {
			list = append(list, reach.Endpoint{Program: p.Name, Name: l.Name, Address: l.Address})
		}
	}
	for _, own := range []socket.Address{c.Supervisor.HTTP, c.Supervisor.controlAddress()} {
		if own != (socket.Address{}) {
			list = append(list, reach.Endpoint{Address: own})
		}
	}
	return list
}

// CheckProbes returns a *document.Error if a probe of a program in c reaches one of the open endpoints. Load has
// checked the listeners of c as they are written; only a running supervisord knows the ports that the kernel chose, and
// the listeners that are open but no longer configured.
func (c *Config) CheckProbes(open []reach.Endpoint) error {
	var problems []document.Problem
	for i := range c.Programs {
		p := &c.Programs[i]
		for _, pr := range p.probes() {
			if e, ok := reach.First(pr.to, open); ok {
				what, remedy := pr.refusal(p, e)
				problems = append(problems, p.problem(pr.table+"."+pr.key, what, remedy))
			}
		}
	}
	if len(problems) > 0 {
		return &document.Error{Problems: document.SortProblems(problems, c.Files)}
	}
	return nil
}

// probes reports the probes that another process than the worker in question would answer.
func (l *loader) probes() {
	endpoints := l.config.endpoints()
	for i := range l.config.Programs {
		p := &l.config.Programs[i]
		for _, pr := range p.probes() {
			l.probe(p, pr, endpoints)
		}
		for table, check := range map[string]ready.Check{"ready": p.Ready.Check, "health": p.Health.Check} {
			if check.Method == ready.Exec {
				l.probeCommand(l.written[p.Name].Child(table).Child("command"), check.Command, endpoints)
			}
		}
	}
}

func (l *loader) probe(p *Program, pr probe, endpoints []reach.Endpoint) {
	at := l.written[p.Name].Child(pr.table).Child(pr.key)
	e, reached := reach.First(pr.to, endpoints)
	switch {
	case reached:
		what, remedy := pr.refusal(p, e)
		l.problems = append(l.problems, at.Fault(what, remedy))
	case !pr.isOwn(p):
		l.warnings = append(l.warnings,
			at.Warning("is the address of several workers: an old worker that still has it answers for the new one",
				`put {pid} into it, or {generation} and {slot}, or write strategy = "stop-first" in [`+
					document.Key("program", p.Name)+`.reload]`))
	}
}

// urlInCommand finds the URLs in a word of a command.
var urlInCommand = pattern.Lazy(`https?://[^\s"'<>|;&]+`)

// probeCommand warns of the URL of a listener in a command.
func (l *loader) probeCommand(at document.Value, command []string, endpoints []reach.Endpoint) {
	for _, found := range urlInCommand().FindAllString(strings.Join(command, "\n"), -1) {
		if e, ok := reach.First(reach.URL(found), endpoints); ok {
			l.warnings = append(l.warnings,
				at.Warning(fmt.Sprintf("%s reaches the listener %q of program %s, where any worker answers", found, e.Name,
					e.Program),
					"ask the worker itself: its PID is {pid}"))
		}
	}
}
