package socket

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket/inherit"
)

// Update makes the table hold what the configuration wants: it opens what is new and changes what changed, in place (backlog, mode,
// owner, keep-alive, reuse_port, …), by more or fewer sockets (per_slot), or by another lane (nonblock). What is no longer wanted closes
// when no generation holds it. Update is all or nothing: on error the table is as it was. A change that is impossible while the socket
// is open is a *ChangeError; two wants with one key are an error.
//
// A unix socket whose path was removed or replaced meanwhile is bound again, unless a process uses what is there now; the generations
// that have the old socket keep it. See Stranded.
//
// A PerSlot listener that shrinks sends new connections to the remaining slots from now on. If the trial for it fails, either Serve the
// generation that goes on, or Update with its wants again.
func (t *Table) Update(want []Want) error {
	u := &update{table: t}
	seen := map[string]bool{}
	for _, w := range want {
		var err error
		if seen[w.Key()] {
			err = refused(w.Resolved, unix.EADDRINUSE) // it looks in /proc for who has the address
		} else {
			err = u.stage(w)
		}
		seen[w.Key()] = true
		if err != nil {
			u.rollBack()
			return err
		}
	}
	u.commit()
	return nil
}

// update is an Update in progress. Everything that it does can be undone until it commits.
type update struct {
	table  *Table
	stages []stage
	undo   []func()

	resuming bool    // see Resume
	problems []error // likewise
}

// stage is one listener as it will be.
type stage struct {
	want     Want
	listener *listener // nil: new
	lane     *lane     // nil: new
	number   int       // of the lane
	fresh    []*sock   // to be added to what is open
}

func (u *update) rollBack() {
	for i := len(u.undo) - 1; i >= 0; i-- {
		u.undo[i]()
	}
}

func (u *update) stage(w Want) error {
	s := stage{want: w, listener: u.table.listeners[w.Key()]}
	if s.listener != nil {
		if err := u.choose(&s); err != nil {
			return err
		}
	} else if err := u.table.mayAdd(w); err != nil {
		return err
	}
	if s.lane != nil {
		if err := u.retune(s); err != nil {
			return err
		}
	}
	if err := u.grow(&s); err != nil {
		return err
	}
	u.stages = append(u.stages, s)
	return nil
}

// choose finds the lane that is, or can become, what is wanted. Without one there will be a new lane.
func (u *update) choose(s *stage) error {
	l, w := s.listener, s.want
	for _, ln := range slices.Backward(l.lanes) {
		if ln.reachable() && ln.r.NonBlock == w.NonBlock && ln.r.at.dual == w.at.dual {
			s.lane = ln
			return l.mayGrow(ln, w)
		}
	}
	newest := l.newest()
	s.number = l.nextNumber()
	switch {
	case !newest.reachable():
		return nil
	case newest.r.at.dual != w.at.dual:
		return &ChangeError{w.Spec, "ipv6_only", "it is fixed when the socket is bound", bindAgain}
	case w.Unused && !newest.foreign():
		s.lane = newest
		return u.block(newest, w.NonBlock)
	}
	return l.mayMove(w)
}

// block changes O_NONBLOCK of a lane that no process has.
func (u *update) block(ln *lane, nonBlock bool) error {
	for _, s := range ln.slots {
		if err := unix.SetNonblock(s.fd, nonBlock); err != nil {
			return refused(ln.r, err)
		}
		u.undo = append(u.undo, func() { _ = unix.SetNonblock(s.fd, !nonBlock) })
	}
	return nil
}

// retune changes the options of what stays open.
func (u *update) retune(s stage) error {
	for _, open := range s.lane.slots {
		back, err := open.retune(s.lane.r, s.want.Resolved)
		if err != nil {
			return err
		}
		u.undo = append(u.undo, back)
	}
	return nil
}

// grow opens the sockets that are missing, or takes ones that were offered.
func (u *update) grow(s *stage) error {
	have := 0
	if s.lane != nil {
		have = len(s.lane.slots)
	}
	if have >= s.want.sockets() {
		return nil
	}
	how, err := u.makeRoom(s)
	if err != nil {
		return refused(s.want.Resolved, err)
	}
	for slot := have; slot < s.want.sockets(); slot++ {
		fresh, err := u.obtain(s, slot, how)
		if err != nil {
			return err
		}
		s.fresh = append(s.fresh, fresh)
		if how.deaf {
			if err := u.hear(s, fresh); err != nil {
				return refused(s.want.Resolved, err)
			}
			how.deaf = false
		}
	}
	return nil
}

// makeRoom prepares the open sockets for others at their address, and returns how to open these.
func (u *update) makeRoom(s *stage) (how opening, err error) {
	l := s.listener
	if l == nil || len(l.lanes) == 0 {
		return opening{}, nil
	}
	if s.want.at.isUnix() {
		return opening{silent: true}, nil // settle lets it listen when a generation accepts from it
	}
	for _, ln := range l.lanes {
		for _, open := range ln.slots {
			if err := open.setReusePort(true); err != nil {
				return how, err
			}
		}
	}
	u.undo = append(u.undo, l.share, func() { l.steered = "?"; _ = l.steer() })
	if l.closed {
		return opening{shared: true, silent: true}, nil
	}
	if err = l.fence(); errors.Is(err, unix.EINVAL) { // there is no group yet
		return opening{shared: true, deaf: true}, nil
	}
	return opening{shared: true}, err
}

// hear lets a deaf socket that has joined the group hear, now that a program protects it.
func (u *update) hear(s *stage, fresh *sock) error {
	if err := s.listener.fence(); err != nil {
		return err
	}
	return fresh.hear()
}

// fence keeps connections in the sockets that get them now, whatever joins the group.
func (l *listener) fence() error {
	program := firstOf(l.serves.active)
	if len(l.lanes) > 1 {
		program = always(slices.Index(l.lanes, l.serves))
	}
	l.steered = "?"
	return attach(l.lanes[0].slots[0].fd, program)
}

// obtain takes a socket that was offered for the slot, or opens one.
func (u *update) obtain(s *stage, slot int, how opening) (*sock, error) {
	r := s.want.Resolved
	lane := anyLane
	if u.resuming {
		lane = s.number
	}
	if o := u.table.offered(r, slot, lane); o != nil {
		taken, back, err := o.adopt(r)
		if err != nil && u.resuming {
			u.problems = append(u.problems, err) // its workers use it as it is
		} else if err != nil {
			back()
			return nil, err
		}
		u.undo = append(u.undo, back)
		return taken, nil
	}
	if r.PerSlot && slot == 0 && !how.shared {
		if err := vacant(r); err != nil {
			return nil, err
		}
	}
	fresh, err := open(r, s.addressFor(), how)
	if err != nil {
		return nil, err
	}
	u.undo = append(u.undo, func() {
		if how.shared {
			fresh.withdraw()
		}
		fresh.discard(r)
	})
	return fresh, nil
}

// addressFor is the address of the next socket: where the first one is bound, when the kernel chose the port or IPv6 is off.
func (s *stage) addressFor() bindAddr {
	at := s.want.at
	first := s.fresh
	if s.listener != nil && len(s.listener.lanes) > 0 {
		first = s.listener.lanes[0].slots
	} else if s.lane != nil {
		first = s.lane.slots
	}
	if len(first) == 0 || at.isUnix() {
		return at
	}
	bound, err := unix.Getsockname(first[0].fd)
	if err != nil {
		return at
	}
	if name, ok := inherit.AddrPort(bound); ok {
		at.port = name.Port()
		if at.dual && name.Addr().Is4() {
			at.ip, at.dual = name.Addr(), false
		}
	}
	return at
}

// commit makes the staged listeners the table's. Nothing in it can fail.
func (u *update) commit() {
	known := make(map[string]bool)
	for _, s := range u.stages {
		known[s.want.Key()] = true
		u.table.commit(s)
	}
	for key, l := range u.table.listeners {
		if !known[key] {
			l.wanted = nil
		}
		for _, ln := range l.lanes {
			if ln != l.wanted {
				ln.wanted = 0
			}
		}
		u.table.settle(l)
	}
	u.table.forgetTaken()
}

func (t *Table) commit(s stage) {
	l, ln := s.listener, s.lane
	if l == nil {
		l = &listener{key: s.want.Key()}
		t.listeners[l.key] = l
	}
	if ln == nil {
		ln = &lane{number: s.number, holds: map[int]int{}, active: s.want.sockets()}
		l.lanes = append(l.lanes, ln)
	}
	ln.slots = append(ln.slots, s.fresh...)
	ln.r, ln.wanted = s.want.Resolved, s.want.sockets()
	if ln.r.PerSlot || !ln.held() {
		ln.setActive(min(ln.active, ln.wanted))
	}
	l.wanted = ln
	if l.serves == nil {
		l.serves = ln
		l.closed = ln.slots[0].silent
	}
}
