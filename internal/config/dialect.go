package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/dialect"
)

// readDialects reads the key dialect: one or several of the known words; an empty list is none.
func readDialects(v document.Value, into *[]dialect.Name) {
	items, ok := v.Elements()
	if !ok {
		items = []document.Value{v}
	}
	list := make([]dialect.Name, 0, len(items))
	for _, item := range items {
		var word string
		if !item.Text(&word) {
			continue
		}
		switch d := dialect.Name(word); {
		case !slices.Contains(dialect.All(), d):
			unknownDialect(item, word)
		case slices.Contains(list, d):
			item.Problem(strconv.Quote(word)+" is listed twice", "remove one")
		default:
			list = append(list, d)
		}
	}
	*into = list
}

func unknownDialect(v document.Value, word string) {
	var known []string
	for _, d := range dialect.All() {
		known = append(known, string(d))
	}
	remedy := "known are " + strings.Join(known, ", ")
	if k, ok := document.Nearest(strings.ToLower(word), known); ok {
		remedy = fmt.Sprintf("did you mean %q?", k)
	}
	v.Problem(fmt.Sprintf("%q is not known", word), "%s", remedy)
}

// dialectFits reports what does not go with the dialects of the program v, and gives its sockets the mode that they need.
func dialectFits(v document.Value, p *Program) {
	speaks := func(d dialect.Name) bool { return slices.Contains(p.Dialects, d) }
	at := v.Child("dialect")
	if speaks(dialect.Unicorn) && speaks(dialect.Systemd) {
		at.Problem("unicorn would take each socket twice", `write "unicorn" or "systemd" alone`)
	}
	for _, d := range p.Dialects {
		fits := func(s socket.Spec) bool { return d == dialect.Nginx || !s.Address.IsUDP() }
		if d.IsUpgrade() && !slices.ContainsFunc(p.Listen, fits) {
			at.Problem(fmt.Sprintf("%q needs a listener, and there is none that it can express", d), "write [[program.%s.listen]]", p.Name)
		}
	}
	listeners, _ := v.Child("listen").Elements()
	for i := range p.Listen {
		if speaks(dialect.Nginx) {
			forNginx(listeners[i], &p.Listen[i])
		}
		if speaks(dialect.PHPFPM) {
			forFPM(listeners[i], p.Listen[i])
		}
	}
}

// forNginx: nginx expects an inherited socket to be non-blocking, like its own, and never sets that.
func forNginx(v document.Value, s *socket.Spec) {
	switch {
	case !v.Has("nonblock"):
		s.NonBlock = true
	case !s.NonBlock:
		v.Child("nonblock").Problem("nginx would hang in accept whenever another worker was faster", "leave it out: it is true with dialect nginx")
	}
}

// forFPM: the children of php-fpm exit when accept does not block, and its master removes the paths of its unix sockets.
func forFPM(v document.Value, s socket.Spec) {
	switch {
	case s.NonBlock:
		v.Child("nonblock").Problem("the children of php-fpm exit when there is nothing to accept", "leave it out")
	case !s.Address.OnDisk():
	case strings.Contains(s.Address.Path, ","):
		v.Child("address").Problem("a path with a comma cannot be written in FPM_SOCKETS", "use another one")
	default:
		v.Child("address").Warn("php-fpm removes the path of a unix socket when it exits, so that clients do not find its successor",
			"use a port, or a folder in which its user may not write")
	}
}
