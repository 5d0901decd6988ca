package socket

import (
	"errors"
	"slices"
)

// Lane is what one generation has of one listener: sockets of its own, or the one that all generations share. It is
// plain data for a record, which a later supervisor gives to Resume; the sockets are the table's, and its methods are
// for the goroutine of the table. A lane without sockets is valid: its generation has nothing of the listener.
type Lane struct {
	Listener Resolved // as the generation knows it
	Members  []int    // the numbers of its sockets among those of the listener; of n, slot s has the one at s modulo n

	of    *listener // nil: it has no sockets
	slots []*sock   // several may be one socket, where no better could be had
}

// Hold gives a generation of so many workers (0: as many as are configured) what it has of these listeners, keeps that
// open, and returns a lane for each, for Release. A listener that is not open has a lane without sockets. On error,
// which says which socket could not be opened and why, no lane has any.
func (t *Table) Hold(listeners []Resolved, workers int) (lanes []*Lane, err error) {
	for _, r := range listeners {
		lanes = append(lanes, &Lane{Listener: r})
	}
	for _, ln := range lanes {
		l := t.listeners[ln.Listener.Key()]
		if l == nil {
			continue
		}
		slots, err := t.lease(l, workers)
		if err != nil {
			return t.Release(lanes), err
		}
		ln.of, ln.slots = l, slots
		for _, m := range slots {
			ln.Members = append(ln.Members, m.number)
		}
		l.lanes = append(l.lanes, ln)
		_ = t.settle(l)
	}
	return lanes, nil
}

// lease finds, or makes, the sockets of the next generation.
func (t *Table) lease(l *listener, workers int) ([]*sock, error) {
	if m := l.shared; m != nil {
		slots := []*sock{m}
		if l.isHeld(m) {
			return slots, nil
		}
		return slots, refused(l.r, l.renew(slots, l.r))
	}
	size := max(1, l.size)
	if workers > 0 {
		size = l.r.sockets(workers)
	}
	u := &update{table: t}
	slots, err := u.compose(l, l.r, l.withUnit(size, workers))
	if err != nil {
		u.rollBack()
		return nil, err
	}
	if l.isQUIC() && slots[0].number >= lanesOfQUIC {
		return nil, refused(l.r, errors.New("too many generations have been alive at once: restart supervisord"))
	}
	l.inherit(slots)
	return slots, nil
}

// Release ends one Hold, or Resume, and closes what neither the configuration nor a generation needs. It returns lanes
// of the same listeners without sockets.
func (t *Table) Release(lanes []*Lane) (without []*Lane) {
	for _, ln := range lanes {
		without = append(without, &Lane{Listener: ln.Listener})
		if l := ln.of; l != nil {
			ln.of, ln.slots = nil, nil
			l.lanes = slices.DeleteFunc(l.lanes, func(o *Lane) bool { return o == ln })
			_ = t.settle(l)
		}
	}
	return without
}

// Sockets is how many sockets the lane has.
func (ln *Lane) Sockets() int { return len(ln.slots) }

// Own reports whether the sockets belong to this generation alone, so that its predecessor gets nothing new once
// connections are steered to it.
func (ln *Lane) Own() bool {
	return len(ln.slots) > 0 && ln.slots[0] != ln.of.shared && ln.of.holders(ln.slots[0]) == 1
}

// FD returns the descriptor for a worker in this slot. It stays the table's. Several slots may have the same one. -1:
// there is no socket for the slot.
func (ln *Lane) FD(slot int) int {
	if m := ln.socket(slot); m != nil {
		return m.fd
	}
	return -1
}

// socket finds the socket of a slot; nil: there is none.
func (ln *Lane) socket(slot int) *sock {
	n := len(ln.slots)
	if n == 0 || slot < 0 || ln.Listener.PerSlot && n != 1 && slot >= n {
		return nil
	}
	return ln.slots[slot%n]
}

// Address returns where the listener is bound, as Table.Address does; "": the lane has no sockets.
func (ln *Lane) Address() string {
	if ln.of == nil {
		return ""
	}
	return ln.of.address()
}

// chosen lists the sockets of these slots; none means all.
func (ln *Lane) chosen(slots []int) (sockets []*sock) {
	if len(slots) == 0 {
		return ln.slots
	}
	for i, m := range ln.slots {
		if slices.ContainsFunc(slots, func(slot int) bool { return slot%len(ln.slots) == i }) {
			sockets = append(sockets, m)
		}
	}
	return sockets
}
