package config

import (
	"fmt"
	"strings"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/socket"
)

// bound is one address that a configuration listens on.
type bound struct {
	socket.Resolved
	at document.Problem // where it is written: file, line and key
}

// isSupervisors reports whether supervisord itself listens there.
func (b bound) isSupervisors() bool { return b.Program == "" }

// addresses finds listeners that want the same address, however it is spelt. It holds the listeners added so far, by
// site.
type addresses map[string][]bound

// add returns the problems of b with the listeners added before.
func (a addresses) add(b bound) []document.Problem {
	site := b.Site()
	if site == "" {
		return nil
	}
	for _, first := range a[site] {
		if first.Overlaps(b.Resolved) {
			return []document.Problem{b.conflict(first)}
		}
	}
	a[site] = append(a[site], b)
	return nil
}

// conflict says that b wants the address of first.
func (b bound) conflict(first bound) document.Problem {
	p := b.at
	verb := "is already"
	if first.Address != b.Address {
		verb = fmt.Sprintf("overlaps %s,", first.Address)
	}
	p.What = fmt.Sprintf("%s %s the address of %s (%s:%d)", b.Address, verb, strings.TrimSuffix(first.at.Key, ".address"),
		first.at.File, first.at.Line)
	p.Remedy = "give each listener an address of its own"
	switch {
	case first.isSupervisors() || b.isSupervisors():
		p.Remedy = "choose another port or path for one of them"
	case first.Program != b.Program:
		p.Remedy += "; a socket belongs to one program"
	}
	return p
}

// listener describes the listener i of p.
func (p *Program) listener(i int, r socket.Resolved) bound {
	return bound{Resolved: r, at: p.problem(listenKey(i, "address"), "", "")}
}

// addresses reports the listeners of p whose address is taken, as far as that is known without looking up host names.
func (l *loader) addresses(p *Program) {
	for i, s := range p.Listen {
		if s.Address != (socket.Address{}) {
			l.problems = append(l.problems, l.bound.add(p.listener(i, s.Literal()))...)
		}
	}
}

// ownAddresses does the same for what supervisord itself listens on.
func (l *loader) ownAddresses(v document.Value) {
	own := func(key string, a socket.Address) {
		if a != (socket.Address{}) {
			l.problems = append(l.problems, l.bound.add(bound{socket.Spec{Address: a}.Literal(), v.Child(key).Fault("", "")})...)
		}
	}
	own("control", l.config.Supervisor.controlAddress())
	own("http", l.config.Supervisor.HTTP)
}

// Overlaps reports the listeners that want the same address, with their host names looked up (resolved): by program, in
// the order of its listeners. The error is a *document.Error that names both listeners.
func (c *Config) Overlaps(resolved map[string][]socket.Resolved) error {
	all := addresses{}
	var problems []document.Problem
	for i := range c.Programs {
		p := &c.Programs[i]
		for n, r := range resolved[p.Name] {
			problems = append(problems, all.add(p.listener(n, r))...)
		}
	}
	if len(problems) > 0 {
		return &document.Error{Problems: document.SortProblems(problems, c.Files)}
	}
	return nil
}
