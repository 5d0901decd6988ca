package socket

import (
	"cmp"
	"fmt"
	"slices"
)

// Holding is what a live generation has of a listener, for Resume.
type Holding struct {
	Resolved
	Claim  string
	Serves bool // it is the serving generation
}

// Resume takes the sockets of live generations from those that were offered, and holds them: in a new table, before
// the first Update. It opens what was not offered. A problem with one socket does not keep the workers from the
// others: Resume returns all problems. A listener without any socket is not in the table. New connections go to the
// serving generation until Steer says something else.
func (t *Table) Resume(generations []Holding) []error {
	u := &update{table: t, resuming: true}
	for _, g := range generations {
		l := u.table.listeners[g.Key()]
		if l == nil {
			l = &listener{key: g.Key(), r: g.Resolved, unsure: true, table: t}
			u.inheritGroup(l, g.Resolved)
		}
		u.resume(l, g)
	}
	for _, l := range t.listeners {
		l.resumed, l.closed = true, l.isSilent()
		if _, err := l.findOrder(); err != nil {
			u.problems = append(u.problems, err)
		}
		t.settle(l)
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

// findOrder puts the members into the order of the kernel's group if some of it may have changed, and returns those
// that get new connections then. It has not changed where no number is missing, because nothing was closed.
func (l *listener) findOrder() (serving []*sock, err error) {
	if len(l.members) < 2 || !l.r.at.isTCP() || l.r.ReusePort {
		return nil, nil
	}
	sure := true
	for i, m := range l.members {
		sure = sure && m.number == i && !m.stray
	}
	if sure {
		return nil, nil
	}
	return l.order()
}

// inheritServing lets those sockets serve that orphaned workers accept from, or else those that got new connections
// before, until a generation does.
func (u *update) inheritServing(l *listener) {
	strays := slices.DeleteFunc(slices.Clone(l.members), func(m *sock) bool { return !m.stray })
	if len(strays) == 0 {
		if marked := slices.DeleteFunc(slices.Clone(l.members), func(m *sock) bool { return !m.marked() }); len(marked) > 0 {
			l.serving = serveAll(newLane(l.r, marked))
		}
		return
	}
	serving, err := l.findOrder()
	if err != nil {
		u.problems = append(u.problems, err)
	}
	if len(serving) == 0 {
		serving = strays
	}
	l.renumber()
	l.serving = serveAll(newLane(l.r, serving))
}

// renumber numbers the members as the kernel does, where no generation has a claim on them.
func (l *listener) renumber() {
	for i, m := range l.members {
		m.number = i
	}
}

// isSilent reports whether a listener was closed: no socket listens. A worker may have shut down some of them.
func (l *listener) isSilent() bool {
	return !slices.ContainsFunc(l.members, func(m *sock) bool { return !m.silent(l.r.at) })
}

// resume gives a generation its lane.
func (u *update) resume(l *listener, g Holding) {
	c := parseClaim(g.Claim)
	if len(c.members) == 0 {
		c.members = []int{0}
	}
	ln := l.lane(c.members[0])
	if ln == nil {
		ln = &lane{number: c.members[0], r: g.Resolved}
		ln.shared, _ = l.sharing(g.Resolved)
	}
	u.refill(l, ln, c.members)
	if len(ln.slots) == 0 {
		return
	}
	u.table.listeners[l.key] = l
	if l.lane(ln.number) == nil {
		l.lanes = append(l.lanes, ln)
	}
	ln.holds++
	if ln.shared {
		l.shared = ln
	}
	if g.Serves || len(l.serving) == 0 {
		l.serving = serveAll(ln)
	}
}

// refill gives a lane the members with these numbers, or none. A slot whose own socket cannot be had gets that of
// another slot.
func (u *update) refill(l *listener, ln *lane, numbers []int) {
	missing := 0
	for _, number := range numbers[min(len(ln.slots), len(numbers)):] {
		m, err := u.member(l, ln, number)
		if err != nil {
			u.problems = append(u.problems, err)
			missing++
			continue
		}
		ln.slots = append(ln.slots, m)
	}
	for ; missing > 0 && len(ln.slots) > 0; missing-- {
		ln.slots = append(ln.slots, ln.slots[0])
	}
}

// member finds a member of a listener, or opens one in its place.
func (u *update) member(l *listener, ln *lane, number int) (*sock, error) {
	for _, m := range l.members {
		if m.number == number {
			return m, nil
		}
	}
	how, err := u.makeRoom(l, ln.r)
	if err != nil {
		return nil, refused(ln.r, err)
	}
	return u.obtain(l, ln.r, number, how)
}

// Rehearse returns an error if a socket that a generation has was not offered. It opens and changes nothing, but
// the table is useless afterwards.
func (t *Table) Rehearse(generations []Holding) error {
	type member struct {
		key    string
		number int
	}
	had := map[member]bool{}
	for _, g := range generations {
		c := parseClaim(g.Claim)
		if len(c.members) == 0 {
			c.members = []int{0}
		}
		for _, number := range c.members {
			m := member{g.Key(), number}
			if had[m] {
				continue
			}
			o := t.offered(g.Resolved, number, true)
			if o == nil {
				return fmt.Errorf("the socket of the listener %q on %s is not among those that are handed over", g.Name, g.at)
			}
			o.taken, had[m] = true, true
		}
	}
	return nil
}
