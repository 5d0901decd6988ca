package socket

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Update makes the table hold what the configuration wants: what is new is opened, what changed and can be changed in place
// (backlog, mode, owner, keep-alive, …) is changed, what is no longer wanted is closed once no generation holds it.
// It is all or nothing: on error the table is as it was.
//
// Two wants with one key share the socket if their options are equal; their names may differ. A unix socket whose path was
// removed or replaced by somebody meanwhile is bound anew, as far as what stands there now allows; workers that have the old
// one keep it.
//
// A PerSlot listener that shrinks sends new connections to the slots that remain from now on. If the trial for it fails,
// either Serve the generation that goes on, or Update with its wants again.
func (t *Table) Update(want []Want) error {
	wants, err := merge(want)
	if err != nil {
		return err
	}
	u := &update{table: t}
	for _, w := range wants {
		if err := u.stage(w); err != nil {
			u.rollBack()
			return err
		}
	}
	u.commit()
	return nil
}

// merge makes one of the wants that have one key.
func merge(want []Want) ([]Want, error) {
	var merged []Want
	place := make(map[string]int)
	for _, w := range want {
		i, shared := place[w.Key()]
		if !shared {
			place[w.Key()] = len(merged)
			merged = append(merged, w)
			continue
		}
		if names := differing(merged[i].Resolved, w.Resolved); len(names) > 0 {
			return nil, fmt.Errorf("the listeners %q and %q both want %s, but differ in %s: give them the same options or different addresses",
				merged[i].Name, w.Name, w.at, strings.Join(names, ", "))
		}
		merged[i].Slots = max(merged[i].Slots, w.Slots)
	}
	return merged, nil
}

// differing names the options in which two listeners of one address differ.
func differing(a, b Resolved) []string {
	names := fixed(a, b)
	for _, o := range tunables {
		if o.differ(a, b) {
			names = append(names, o.name)
		}
	}
	return names
}

// fixed names the options that differ and cannot be changed on a live socket. (Another interface is another key.)
func fixed(a, b Resolved) []string {
	var names []string
	for _, o := range []struct {
		name   string
		differ bool
	}{
		{"reuse_port", a.ReusePort != b.ReusePort},
		{"per_slot", a.PerSlot != b.PerSlot},
		{"ipv6_only", a.at.dual != b.at.dual},
		{"nonblock", a.NonBlock != b.NonBlock},
	} {
		if o.differ {
			names = append(names, o.name)
		}
	}
	return names
}

// update is an Update under way. Everything that it does can be undone until it commits.
type update struct {
	table  *Table
	stages []stage
	undo   []func()
}

// stage is one listener as it will be.
type stage struct {
	want    Want
	live    *listener // nil: new
	fresh   []*sock   // to be added to what is open
	replace bool      // fresh takes the place of what is open
}

func (u *update) rollBack() {
	for i := len(u.undo) - 1; i >= 0; i-- {
		u.undo[i]()
	}
}

func (u *update) stage(w Want) error {
	s := stage{want: w, live: u.table.listeners[w.Key()]}
	open := 0
	if s.live != nil {
		if names := fixed(s.live.r, w.Resolved); len(names) > 0 {
			return fmt.Errorf("cannot change %s of %s while it is open: take it back, use another address, or restart the supervisor",
				strings.Join(names, ", "), w.at)
		}
		s.replace = !s.live.slots[0].reachable(s.live.r)
		if !s.replace {
			open = len(s.live.slots)
		}
	}
	if err := u.retune(s); err != nil {
		return err
	}
	if err := u.grow(&s, open); err != nil {
		return err
	}
	u.stages = append(u.stages, s)
	return nil
}

// reachable tells whether clients still find the socket: its inode was not removed or replaced.
func (s *sock) reachable(r Resolved) bool {
	return s.file == (identity{}) || s.file.isAt(r.at.path)
}

// retune changes the options of what stays open.
func (u *update) retune(s stage) error {
	if s.live == nil || s.replace {
		return nil
	}
	for _, open := range s.live.slots {
		back, err := open.retune(s.live.r, s.want.Resolved)
		if err != nil {
			return err
		}
		u.undo = append(u.undo, back)
	}
	return nil
}

// grow opens the sockets that are missing, or takes ones that were offered.
func (u *update) grow(s *stage, open int) error {
	if open > 0 && open < s.want.sockets() {
		if err := s.live.fence(); err != nil {
			return refused(s.want.Resolved, err)
		}
		u.undo = append(u.undo, func() { s.live.among = 0; _ = s.live.steer() })
	}
	for slot := open; slot < s.want.sockets(); slot++ {
		fresh, err := u.obtain(s, slot)
		if err != nil {
			return err
		}
		s.fresh = append(s.fresh, fresh)
	}
	return nil
}

// fence keeps connections to the sockets that are active now, whatever joins the group.
func (l *listener) fence() error {
	if err := attach(l.slots[0].fd, firstOf(l.active)); err != nil {
		return err
	}
	l.steered, l.among = l.active, 0
	return nil
}

// obtain takes a socket that was offered for the slot, or opens one.
func (u *update) obtain(s *stage, slot int) (*sock, error) {
	if o := u.table.offered(s.want.Resolved, slot); o != nil {
		taken, back, err := o.adopt(s.want.Resolved)
		if err != nil {
			return nil, err
		}
		u.undo = append(u.undo, back)
		return taken, nil
	}
	r := s.want.Resolved
	if r.PerSlot && slot == 0 {
		if err := vacant(r); err != nil {
			return nil, err
		}
	}
	fresh, err := open(r, s.addressFor())
	if err != nil {
		return nil, err
	}
	u.undo = append(u.undo, func() { fresh.discard(r) })
	return fresh, nil
}

// addressFor is the address of the next socket: where the first one is bound, when the kernel chose the port or IPv6 is off.
func (s *stage) addressFor() address {
	at := s.want.at
	first := s.fresh
	if s.live != nil && !s.replace {
		first = s.live.slots
	}
	if len(first) == 0 || at.network == "unix" {
		return at
	}
	bound, err := unix.Getsockname(first[0].fd)
	if err != nil {
		return at
	}
	switch name := bound.(type) {
	case *unix.SockaddrInet4:
		at.port = uint16(name.Port)
		if at.dual {
			at.ip, at.dual = ip4(name), false
		}
	case *unix.SockaddrInet6:
		at.port = uint16(name.Port)
	}
	return at
}

// commit makes the staged listeners the table's. Nothing in it can fail.
func (u *update) commit() {
	known := make(map[string]bool)
	for _, s := range u.stages {
		key := s.want.Key()
		known[key] = true
		l := s.live
		if l == nil {
			l = &listener{holds: make(map[int]int)}
			u.table.listeners[key] = l
		}
		if s.replace {
			for _, old := range l.slots {
				old.discard(l.r) // the workers have their own
			}
			l.slots = nil
		}
		if len(l.slots) == 0 {
			l.active = s.want.sockets()
		}
		l.slots = append(l.slots, s.fresh...)
		l.r, l.wanted = s.want.Resolved, s.want.sockets()
		l.active = min(l.active, l.wanted)
	}
	for key, l := range u.table.listeners {
		if !known[key] {
			l.wanted = 0
		}
		u.table.settle(key, l)
	}
	u.table.settleOffers()
}
