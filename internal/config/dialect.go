package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"example.org/supervisord/socket"
)

// dialects reads the key dialect: one or several of the words that there are; an empty list is none.
func (v value) dialects(into *[]socket.Dialect) {
	items, ok := v.elements()
	if !ok {
		items = []value{v}
	}
	list := make([]socket.Dialect, 0, len(items))
	for _, item := range items {
		var word string
		if !item.text(&word) {
			continue
		}
		switch d := socket.Dialect(word); {
		case !slices.Contains(socket.Dialects(), d):
			item.unknownDialect(word)
		case slices.Contains(list, d):
			item.problem(strconv.Quote(word)+" is there twice", "remove one")
		default:
			list = append(list, d)
		}
	}
	*into = list
}

func (v value) unknownDialect(word string) {
	var known []string
	for _, d := range socket.Dialects() {
		known = append(known, string(d))
	}
	if k, ok := nearest(strings.ToLower(word), known); ok {
		v.problem(fmt.Sprintf("%q is not known", word), "did you mean %q?", k)
		return
	}
	v.problem(fmt.Sprintf("%q is not known", word), "known are %s", strings.Join(known, ", "))
}

// dialectFits reports what does not go with the dialects of the program v, and gives its sockets the mode that they ask for.
func (v value) dialectFits(p *Program) {
	at := v.child("dialect")
	if slices.Contains(p.Dialects, socket.Unicorn) && slices.Contains(p.Dialects, socket.Systemd) {
		at.problem("a unicorn that is told in both would take each socket twice", `write "unicorn" or "systemd" alone`)
	}
	for _, d := range p.Dialects {
		if d.IsUpgrade() && !slices.ContainsFunc(p.Listen, func(s socket.Spec) bool { return d == socket.Nginx || !isUDP(s) }) {
			at.problem(fmt.Sprintf("there is no socket to tell of in %q", d), "write [[program.%s.listen]]", p.Name)
		}
	}
	listeners, _ := v.child("listen").elements()
	for i := range p.Listen {
		if slices.Contains(p.Dialects, socket.Nginx) {
			listeners[i].forNginx(&p.Listen[i])
		}
		if slices.Contains(p.Dialects, socket.PHPFPM) {
			listeners[i].forFPM(p.Listen[i])
		}
	}
}

func isUDP(s socket.Spec) bool { return strings.HasPrefix(s.Address, "udp:") }

// forNginx: nginx takes an inherited socket to be non-blocking, as its own are, and never sets that.
func (v value) forNginx(s *socket.Spec) {
	switch {
	case !v.has("nonblock"):
		s.NonBlock = true
	case !s.NonBlock:
		v.child("nonblock").problem("an nginx that another one was faster than would hang in accept", "leave it out: it is true with dialect nginx")
	}
}

// forFPM: the children of php-fpm end when accept does not block, and its master removes the paths of its unix sockets.
func (v value) forFPM(s socket.Spec) {
	path := strings.TrimPrefix(s.Address, "unix:/")
	switch {
	case s.NonBlock:
		v.child("nonblock").problem("the children of php-fpm end when there is nothing to accept", "leave it out")
	case path == s.Address:
	case strings.Contains(path, ","):
		v.child("address").problem("a path with a comma cannot stand in FPM_SOCKETS", "use another one")
	default:
		v.child("address").warn("php-fpm removes the path of a unix socket when it ends, so that clients do not find its successor",
			"use a port, or a folder in which its user may not write")
	}
}
