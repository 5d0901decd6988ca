package socket

import (
	"cmp"
	"fmt"
	"slices"
)

// Resume takes the sockets of live generations, whose lanes are from a record, from those that were offered, and holds
// them: in a new table, before the first Update. It opens what was not offered. A problem with one socket does not keep
// the workers from the others: Resume returns all problems. A listener without any socket is not in the table. New
// connections go to the first lane of a listener until Steer says something else.
func (t *Table) Resume(lanes []*Lane) []error {
	u := &update{table: t, resuming: true}
	for _, ln := range lanes {
		if len(ln.Members) == 0 {
			continue
		}
		l := t.listeners[ln.Listener.Key()]
		if l == nil {
			l = &listener{key: ln.Listener.Key(), r: ln.Listener, unsure: true, table: t}
			u.inheritGroup(l, ln.Listener)
		}
		u.resume(l, ln)
	}
	for _, l := range t.listeners {
		l.resumed, l.closed = true, l.isSilent()
		l.hushed = l.closed
		l.doubt()
		_ = t.settle(l)
	}
	t.forgetTaken()
	return u.problems
}

// inheritGroup takes those of the offered sockets that belong to the listener. Those with numbers are in the order
// of the kernel's group, behind that of a socket unit.
func (u *update) inheritGroup(l *listener, r Resolved) {
	if r.at.isUnix() {
		return
	}
	group := slices.DeleteFunc(slices.Clone(u.table.offers), func(o *offer) bool {
		return o.rank(r, o.number, u.resuming) == 0
	})
	slices.SortStableFunc(group, func(a, b *offer) int { return cmp.Or(a.age()-b.age(), a.number-b.number) })
	for _, o := range group {
		if u.table.isTaken(o) {
			continue // another descriptor of the same socket
		}
		if _, err := u.adopt(l, r, o); err != nil {
			u.problems = append(u.problems, err)
		}
	}
}

// age orders the sockets of a group: first that of a socket unit, then those with numbers, then those of orphaned
// workers.
func (o *offer) age() int {
	switch {
	case o.key != "":
		return 1
	case o.Ours:
		return 2
	}
	return 0
}

// doubt forgets the order of the kernel's group if some of it may have changed, so that the next apply asks for it:
// orphaned workers have sockets of it, or a number is missing, because a socket was closed.
func (l *listener) doubt() {
	unsure := false
	for i, m := range l.members {
		unsure = unsure || m.stray || m.number != i && l.r.at.isTCP()
	}
	if unsure && len(l.members) > 1 && !l.r.ReusePort {
		l.group = slices.Repeat(group{unplaced}, len(l.group))
	}
}

// inheritServing lets those sockets serve that got new connections before, or else all that orphaned workers accept
// from, until a generation does: the orphans are one lane.
func (l *listener) inheritServing() {
	l.doubt()
	strays := slices.DeleteFunc(slices.Clone(l.members), func(m *sock) bool { return !m.stray })
	all := l.members
	if len(strays) > 0 {
		l.renumber()
		all = strays
	}
	served := slices.DeleteFunc(slices.Clone(all), func(m *sock) bool { return !m.marked() })
	if len(served) == 0 {
		served = strays
	}
	if len(served) > 0 {
		l.serving = serveAll(served)
	}
}

// renumber numbers the members as the kernel does, where no generation has them.
func (l *listener) renumber() {
	for i, m := range l.members {
		m.number = i
	}
}

// isSilent reports whether a listener was closed: no socket listens. A worker may have shut down some of them.
func (l *listener) isSilent() bool {
	return !slices.ContainsFunc(l.members, func(m *sock) bool { return !m.silent(l.r.at) })
}

// resume gives a lane its sockets.
func (u *update) resume(l *listener, ln *Lane) {
	ln.slots = u.refill(l, ln.Listener, ln.Members)
	if len(ln.slots) == 0 {
		return
	}
	u.table.listeners[l.key] = l
	ln.of = l
	l.lanes = append(l.lanes, ln)
	if shared, _ := l.sharing(ln.Listener); shared {
		l.shared = ln.slots[0]
	}
	if len(l.serving) == 0 {
		l.serving = serveAll(ln.slots)
	}
}

// refill finds the members with these numbers, or opens others in their place, or none. A slot whose own socket cannot
// be had gets that of another slot.
func (u *update) refill(l *listener, r Resolved, numbers []int) (slots []*sock) {
	missing := 0
	for i, number := range numbers {
		m, err := u.member(l, r, number)
		if err != nil {
			u.problems = append(u.problems, err)
			missing++
			continue
		}
		numbers[i] = m.number
		slots = append(slots, m)
	}
	for ; missing > 0 && len(slots) > 0; missing-- {
		slots = append(slots, slots[0])
	}
	return slots
}

// member finds a member of a listener, or opens one in its place.
func (u *update) member(l *listener, r Resolved, number int) (*sock, error) {
	for _, m := range l.members {
		if m.number == number {
			return m, nil
		}
	}
	how, err := u.makeRoom(l, r)
	if err != nil {
		return nil, refused(r, err)
	}
	return u.obtain(l, r, number, how)
}

// Rehearse returns an error if a socket of these lanes was not offered. It opens and changes nothing, but the table is
// useless afterwards.
func (t *Table) Rehearse(lanes []*Lane) error {
	type member struct {
		key    string
		number int
	}
	had := map[member]bool{}
	for _, ln := range lanes {
		r := ln.Listener
		for _, number := range ln.Members {
			m := member{r.Key(), number}
			if had[m] {
				continue
			}
			o := t.offered(r, number, true)
			if o == nil {
				return fmt.Errorf("the socket of the listener %q on %s is not among those that are handed over", r.Name, r.at)
			}
			o.taken, had[m] = true, true
		}
	}
	return nil
}
