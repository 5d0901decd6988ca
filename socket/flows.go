package socket

import (
	"errors"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket/flow"
)

// A UDP listener with handover = "flow" has a table in the kernel in place of a classic program: package flow. A lane of
// it is a socket, by its number. It lives while a generation has it or it serves.

// The origins of the descriptors of a table in an export name.
const (
	flowProgram = "p"
	flowMemory  = "m"
)

// DefaultFlows is how many entries a table has unless the configuration says otherwise. They take about 30 MB.
const DefaultFlows = 1 << 18

// Unpermitted returns an error if supervisord has not the privileges that the handover of s needs, or the kernel cannot
// do it; nil: it can. It asks the kernel.
func (s Spec) Unpermitted() *SpecError {
	if s.Handover != Flow {
		return nil
	}
	table, err := flow.New(1)
	switch {
	case err == nil:
		_ = table.Close()
		return nil
	case errors.Is(err, flow.ErrPrivilege):
		return &SpecError{"handover", `"flow" is not permitted: ` + err.Error(),
			`give supervisord CAP_BPF, as the drop-in flow.conf does, or write handover = "steer"`}
	}
	return &SpecError{"handover", `"flow" is impossible: ` + err.Error(), `use Linux 5.11 or newer, or write handover = "steer"`}
}

// followsFlows reports whether the listener has, or should have, a table of flows.
func (l *listener) followsFlows() bool {
	return l.r.Handover == Flow && l.shared == nil && l.r.at.isUDP()
}

// laneOf is the lane of a socket in the table of flows.
func laneOf(m *sock) int { return m.number % flow.Lanes }

// applyFlows lets the table of flows send new flows to what serves, and forget those whose generation is gone.
func (l *listener) applyFlows() error {
	fd := l.inGroup()
	if fd < 0 {
		return nil
	}
	var err error
	if l.flows == nil {
		if l.flows, err = l.openFlows(); err != nil {
			return err
		}
		l.unsure = true
	}
	if l.unsure {
		l.recount()
	}
	if err := l.ambiguity(); err != nil {
		return err
	}
	serves := l.served()
	for _, m := range l.members {
		if at := l.group.places(m.id); len(at) == 1 {
			l.flows.Place(laneOf(m), at[0])
		}
		if lane := laneOf(m); (serves[m] || l.isHeld(m)) && !l.flows.Lives(lane) {
			l.flows.Begin(lane)
		}
	}
	l.flows.Steer(l.flowShares())
	for _, m := range l.members {
		if !serves[m] && !l.isHeld(m) {
			l.flows.End(laneOf(m))
		}
	}
	l.mark()
	if l.unsure {
		err = l.flows.Attach(fd)
		l.unsure, l.program = err != nil, nil
	}
	return err
}

// flowShares divides new flows as the ways of a program do, and within a way evenly.
func (l *listener) flowShares() (shares []flow.Share) {
	const whole = 5040 // has all divisors up to 10
	for _, s := range l.serving {
		for _, m := range s.sockets {
			shares = append(shares, flow.Share{Lane: laneOf(m), Weight: max(1, s.weight*whole/len(s.sockets))})
		}
	}
	return shares
}

// openFlows takes the table that the supervisord before this one had, or makes one.
func (l *listener) openFlows() (*flow.Table, error) {
	fds := map[string]int{}
	for _, o := range l.table.offers {
		if (o.origin == flowProgram || o.origin == flowMemory) && o.isOf(l.r) && !o.taken {
			fds[o.origin], o.taken = o.FD, true
		}
	}
	program, has := fds[flowProgram]
	memory, complete := fds[flowMemory]
	if has && complete {
		if table, err := flow.Adopt(program, memory); err == nil {
			return table, nil
		}
	} else {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}
	return flow.New(l.r.Flows)
}

// closeFlows closes a table of flows that is not needed any more.
func (l *listener) closeFlows() {
	if l.flows != nil {
		_ = l.flows.Close()
		l.flows, l.unsure, l.program = nil, true, nil
	}
}

// exportFlows lists the descriptors of a table of flows.
func (l *listener) exportFlows() []Named {
	if l.flows == nil {
		return nil
	}
	program, memory := l.flows.FDs()
	return []Named{
		{Name: exportName(l.key, 0, flowProgram), FD: program},
		{Name: exportName(l.key, 0, flowMemory), FD: memory},
	}
}
