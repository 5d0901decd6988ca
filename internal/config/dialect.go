package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"example.org/supervisord/socket"
	"example.org/supervisord/socket/dialect"
)

// dialects reads the key dialect: one or several of the known words; an empty list is none.
func (v value) dialects(into *[]dialect.Name) {
	items, ok := v.elements()
	if !ok {
		items = []value{v}
	}
	list := make([]dialect.Name, 0, len(items))
	for _, item := range items {
		var word string
		if !item.text(&word) {
			continue
		}
		switch d := dialect.Name(word); {
		case !slices.Contains(dialect.All(), d):
			item.unknownDialect(word)
		case slices.Contains(list, d):
			item.problem(strconv.Quote(word)+" is listed twice", "remove one")
		default:
			list = append(list, d)
		}
	}
	*into = list
}

func (v value) unknownDialect(word string) {
	var known []string
	for _, d := range dialect.All() {
		known = append(known, string(d))
	}
	remedy := "known are " + strings.Join(known, ", ")
	if k, ok := nearest(strings.ToLower(word), known); ok {
		remedy = fmt.Sprintf("did you mean %q?", k)
	}
	v.problem(fmt.Sprintf("%q is not known", word), "%s", remedy)
}

// dialectFits reports what does not go with the dialects of the program v, and gives its sockets the mode that they need.
func (v value) dialectFits(p *Program) {
	speaks := func(d dialect.Name) bool { return slices.Contains(p.Dialects, d) }
	at := v.child("dialect")
	if speaks(dialect.Unicorn) && speaks(dialect.Systemd) {
		at.problem("unicorn would take each socket twice", `write "unicorn" or "systemd" alone`)
	}
	for _, d := range p.Dialects {
		fits := func(s socket.Spec) bool { return d == dialect.Nginx || !s.Address.IsUDP() }
		if d.IsUpgrade() && !slices.ContainsFunc(p.Listen, fits) {
			at.problem(fmt.Sprintf("%q needs a listener, and there is none that it can express", d), "write [[program.%s.listen]]", p.Name)
		}
	}
	listeners, _ := v.child("listen").elements()
	for i := range p.Listen {
		if speaks(dialect.Nginx) {
			listeners[i].forNginx(&p.Listen[i])
		}
		if speaks(dialect.PHPFPM) {
			listeners[i].forFPM(p.Listen[i])
		}
	}
}

// forNginx: nginx expects an inherited socket to be non-blocking, like its own, and never sets that.
func (v value) forNginx(s *socket.Spec) {
	switch {
	case !v.has("nonblock"):
		s.NonBlock = true
	case !s.NonBlock:
		v.child("nonblock").problem("nginx would hang in accept whenever another worker was faster", "leave it out: it is true with dialect nginx")
	}
}

// forFPM: the children of php-fpm exit when accept does not block, and its master removes the paths of its unix sockets.
func (v value) forFPM(s socket.Spec) {
	switch {
	case s.NonBlock:
		v.child("nonblock").problem("the children of php-fpm exit when there is nothing to accept", "leave it out")
	case !s.Address.OnDisk():
	case strings.Contains(s.Address.Path, ","):
		v.child("address").problem("a path with a comma cannot be written in FPM_SOCKETS", "use another one")
	default:
		v.child("address").warn("php-fpm removes the path of a unix socket when it exits, so that clients do not find its successor",
			"use a port, or a folder in which its user may not write")
	}
}
