package config

import (
	"fmt"
	"strings"

	"example.org/supervisord/socket"
)

// bound is one address that a configuration wants to listen on.
type bound struct {
	socket.Resolved
	host       string // a host that was not looked up; ""
	file       string
	line       int
	key        string // such as "program.web.listen[0].address", or "supervisor.http"
	supervisor bool   // supervisord's own
}

// addresses finds listeners that want one address, in whatever spelling.
type addresses map[string][]bound

// add adds b, or returns the problem that it has with one that was added before.
func (a addresses) add(b bound) (Problem, bool) {
	site := b.Site()
	if site == "" {
		return Problem{}, true
	}
	for _, first := range a[site] {
		if first.overlaps(b) {
			return b.problem(first), false
		}
	}
	a[site] = append(a[site], b)
	return Problem{}, true
}

func (b bound) overlaps(o bound) bool {
	if b.host != "" || o.host != "" {
		return b.host == o.host && b.Address != "" // how a host overlaps an address is known when it has been looked up
	}
	return b.Overlaps(o.Resolved)
}

// problem says that b wants what first has.
func (b bound) problem(first bound) Problem {
	owner := strings.TrimSuffix(first.key, ".address")
	what := fmt.Sprintf("%s is already the address of %s (%s:%d)", b.Address, owner, first.file, first.line)
	if first.Address != b.Address {
		what = fmt.Sprintf("%s overlaps %s, the address of %s (%s:%d)", b.Address, first.Address, owner, first.file, first.line)
	}
	remedy := "give each listener an address of its own"
	switch {
	case first.supervisor || b.supervisor:
		remedy = "choose another port or path for one of them"
	case first.Program != b.Program:
		remedy += "; a socket belongs to one program"
	}
	return Problem{File: b.file, Line: b.line, Key: b.key, What: what, Remedy: remedy}
}

// listener describes the listener i of p.
func (p *Program) listener(i int, r socket.Resolved, host string) bound {
	b := bound{Resolved: r, host: host, file: p.File}
	b.line, b.key = p.at(i, "address")
	return b
}

// addresses reports the listeners of p whose address another one has already, as far as that is known without a look-up of names.
func (l *loader) addresses(p *Program) {
	for i, s := range p.Listen {
		r, host, err := s.Literal()
		if err != nil { // it was reported
			continue
		}
		if problem, fits := l.bound.add(p.listener(i, r, host)); !fits {
			l.problems = append(l.problems, problem)
		}
	}
}

// ownAddresses does the same for what supervisord itself listens on.
func (l *loader) ownAddresses(v value) {
	own := map[string]string{"http": l.config.Supervisor.HTTP}
	if control := l.config.Supervisor.Control; control != "" {
		own["control"] = "unix:" + control
	}
	for key, address := range own {
		r, host, err := (socket.Spec{Address: address}).Literal()
		if err != nil { // nowhere, or it was reported
			continue
		}
		at := v.child(key)
		b := bound{Resolved: r, host: host, file: at.in.file, line: at.line(), key: at.path, supervisor: true}
		if problem, fits := l.bound.add(b); !fits {
			l.problems = append(l.problems, problem)
		}
	}
}

// Overlaps reports the listeners that want one address now that their hosts have been looked up: by program, in the order of its
// listeners. The error is an *Error that names both.
func (c *Config) Overlaps(resolved map[string][]socket.Resolved) error {
	all := addresses{}
	var problems []Problem
	for i := range c.Programs {
		p := &c.Programs[i]
		for n, r := range resolved[p.Name] {
			if problem, fits := all.add(p.listener(n, r, "")); !fits {
				problems = append(problems, problem)
			}
		}
	}
	if len(problems) > 0 {
		return &Error{Problems: sortProblems(problems, c.Files)}
	}
	return nil
}
