package socket

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Holding is what a live generation has of a listener, for Resume.
type Holding struct {
	Resolved
	Claim  string
	Serves bool // it is the serving generation
}

// Resume takes the sockets of live generations from those that were offered, and holds them: in a new table, before the first Update.
// It opens what was not offered. A problem with one socket does not keep the workers from the others: Resume returns all problems. A
// listener without any socket is not in the table.
func (t *Table) Resume(generations []Holding) []error {
	u := &update{table: t, resuming: true}
	for _, g := range generations {
		u.resume(g)
	}
	for _, l := range t.listeners {
		slices.SortFunc(l.lanes, func(a, b *lane) int { return a.number - b.number })
		l.closed = !slices.ContainsFunc(l.lanes, func(ln *lane) bool { return !ln.slots[0].silent })
		t.settle(l)
	}
	t.forgetTaken()
	return u.problems
}

func (u *update) resume(g Holding) {
	c := parseClaim(g.Claim)
	key := g.Key()
	l := u.table.listeners[key]
	if l == nil {
		l = &listener{key: key}
	}
	ln := l.lane(c.lane)
	if ln == nil {
		ln = &lane{number: c.lane, r: g.Resolved, holds: map[int]int{}}
	}
	slots := max(1, c.slots)
	u.fill(l, ln, slots)
	if len(ln.slots) == 0 {
		return
	}
	u.table.listeners[key] = l
	if l.lane(c.lane) == nil {
		l.lanes = append(l.lanes, ln)
	}
	ln.holds[slots]++
	if g.Serves || l.serves == nil {
		l.serves = ln
	}
	if g.Serves {
		ln.active = slots
	}
}

// fill gives a lane this many sockets, or none. A slot whose own socket cannot be had gets a duplicate of another one.
func (u *update) fill(l *listener, ln *lane, slots int) {
	s := stage{want: Want{Resolved: ln.r, Slots: slots}, listener: l, lane: ln, number: ln.number}
	missing := 0
	for slot := len(ln.slots); slot < slots; slot++ {
		fresh, err := u.obtain(&s, slot, opening{shared: len(l.lanes) > 0})
		if err != nil {
			u.problems = append(u.problems, err)
			missing++
			continue
		}
		ln.slots = append(ln.slots, fresh)
	}
	for ; missing > 0 && len(ln.slots) > 0; missing-- {
		fd, err := unix.FcntlInt(uintptr(ln.slots[0].fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			u.problems = append(u.problems, err)
			return
		}
		ln.slots = append(ln.slots, &sock{fd: fd, foreign: ln.slots[0].foreign})
	}
}

// Rehearse returns an error if a socket that a generation has was not offered. It opens and changes nothing, but the table is useless
// afterwards.
func (t *Table) Rehearse(generations []Holding) error {
	type member struct {
		key        string
		lane, slot int
	}
	had := map[member]bool{}
	for _, g := range generations {
		c := parseClaim(g.Claim)
		for slot := range max(1, c.slots) {
			m := member{g.Key(), c.lane, slot}
			if had[m] {
				continue
			}
			o := t.offered(g.Resolved, slot, c.lane)
			if o == nil {
				return fmt.Errorf("the socket of the listener %q on %s is not among those that are handed over", g.Name, g.at)
			}
			o.taken, had[m] = true, true
		}
	}
	return nil
}
