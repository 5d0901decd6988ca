package config

import (
	"fmt"
	"slices"
	"strings"

	"example.org/supervisord/socket"
)

// stdin reads what a worker has as its standard input: nothing, or one of its listeners, which is then there and nowhere else.
func (v value) stdin(p *Program) {
	if v.raw == nil {
		return
	}
	var word string
	if !v.text(&word) || word == "null" {
		return
	}
	name, named := strings.CutPrefix(word, "socket:")
	at := 0
	switch {
	case word != "socket" && !named:
		v.problem(fmt.Sprintf("%q is not known", word), `write "null", "socket", or "socket:NAME" with the name of a listener`)
		return
	case len(p.Listen) == 0:
		v.problem("there is no listener to be stdin", "write [[program.%s.listen]]", p.Name)
		return
	case named:
		at = slices.IndexFunc(p.Listen, func(s socket.Spec) bool { return s.Name == name })
	case len(p.Listen) > 1:
		at = -1
	}
	if at < 0 {
		v.problem("it is not clear which listener is meant", `the listeners are %s: write one as in "socket:%s"`, strings.Join(listenerNames(p), ", "), p.Listen[0].Name)
		return
	}
	v.atStdin(p, at)
}

// atStdin gives the listener its place.
func (v value) atStdin(p *Program, at int) {
	first := slices.IndexFunc(p.Listen, func(s socket.Spec) bool { return s.FD == socket.FixedFD(0) })
	switch {
	case p.Listen[at].FD.Fixed && first != at:
		v.problem(fmt.Sprintf("the listener %s has its own fd, %d", p.Listen[at].Name, p.Listen[at].FD.Number), "remove one of the two keys")
	case first >= 0 && first != at:
		v.problem(fmt.Sprintf("the listener %s is stdin already, by fd = 0", p.Listen[first].Name), "remove one of the two keys")
	default:
		p.Listen[at].FD = socket.FixedFD(0)
	}
}

func listenerNames(p *Program) []string {
	var names []string
	for _, l := range p.Listen {
		names = append(names, l.Name)
	}
	return names
}
