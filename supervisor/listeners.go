package supervisor

import (
	"example.org/supervisord/socket"
)

// ownListeners completes the record of a version that did not note whose a listener is: keys and claims are made of that.
func (st *Record) ownListeners() {
	for i := range st.Programs {
		p := &st.Programs[i]
		owned(p.Core.Name, p.Listeners)
		ownedSpecs(p.Core.Name, p.Core.Config.Listen)
		for _, g := range p.Core.Generations() {
			ownedSpecs(p.Core.Name, g.Config.Listen)
		}
		for n := range p.Generations {
			g := &p.Generations[n]
			owned(p.Core.Name, g.Listeners)
			g.Claims = socket.Renamed(g.Claims, g.Listeners)
		}
	}
}

func owned(program string, listeners []socket.Resolved) {
	for i := range listeners {
		listeners[i].Program = program
	}
}

func ownedSpecs(program string, specs []socket.Spec) {
	for i := range specs {
		specs[i].Program = program
	}
}
