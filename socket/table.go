package socket

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/epoll"
	"example.org/supervisord/socket/inherit"
	"example.org/supervisord/socket/unixpath"
)

// Table owns every listening socket of the supervisor. It belongs to one goroutine.
//
// # Lanes
//
// A lane is what a generation has of a listener: one socket, or several (see below). The sockets of all lanes of an
// internet address are the members of one SO_REUSEPORT group, and a classic BPF program on the group sends each new
// connection to one member. Steer replaces the program, which is atomic.
//
// A listener whose Handover is Steer gives each generation a lane of its own: Hold takes members that nobody has,
// and opens what is missing. The kernel numbers the members of a group in the order in which they began to listen,
// and moves the last one to the place of one that is closed. So the table never closes a member while the listener
// lives, and a member's number never changes. The next generation gets the free ones that new connections go to,
// which a generation that died left, and then the first of the group in which no handshake of an earlier generation
// is under way.
//
// A listener whose Handover is Share gives every generation the same lane. So do unix sockets, UDP, and where
// SO_REUSEPORT cannot be had: see Shared. Where the lane of all cannot become what the configuration wants, because
// O_NONBLOCK belongs to a socket, which its processes share, or because the path of a unix socket is gone, the next
// generation gets another lane than the one before.
//
// # Sockets for each slot
//
// A lane has one socket for each slot with PerSlot, one for all with Single, and else, if no other generation has
// it, one for every SlotsOfSocket slots, or with Rolling one for each slot, SlotsOfSocket at most: of n sockets, slot s
// has socket s modulo n. So a generation can be scaled without new sockets, and its workers are spread evenly over the
// sockets that it has.
//
// Closing a socket resets the connections that wait in it. So the table opens and closes sockets of a lane that
// generations share only where none can be waiting. When the number grows, the new sockets get no connections at
// first; when it shrinks, the last ones get no new ones from Update on, and stay open until every generation that
// knew them has been released.
type Table struct {
	listeners map[string]*listener
	offers    []*offer
	changed   map[string]bool // keys of listeners: see Unowned
	poller    *epoll.Poller   // see Watch
	shutDown  func(key string)
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{listeners: make(map[string]*listener), changed: make(map[string]bool)}
}

// Address returns where a listener is bound: "127.0.0.1:43210" (also when the kernel chose the port), "/run/web.sock",
// "@abstract"; "": there is no listener with this key.
func (t *Table) Address(key string) string {
	if l := t.listeners[key]; l != nil {
		return l.address()
	}
	return ""
}

func (l *listener) address() string {
	_, bound, _ := inherit.Describe(l.members[0].fd) // our own socket has a name
	return bound
}

// FDs returns the descriptors of all sockets of a listener, including those that only older generations have, or none.
// They stay the table's.
func (t *Table) FDs(key string) []int {
	fds := []int{}
	if l := t.listeners[key]; l != nil {
		for _, m := range l.members {
			fds = append(fds, m.fd)
		}
	}
	return fds
}

// Close closes everything and removes the unix sockets that are still ours. New connections go where they went: to
// the socket of a socket unit, if Steer said so, although systemd keeps our sockets open while it restarts the
// service.
func (t *Table) Close() error {
	for _, l := range t.listeners {
		for len(l.probes) > 0 {
			l.probes[0].End()
		}
		for i := len(l.members) - 1; i >= 0; i-- {
			l.members[i].discard()
		}
		l.closeFlows()
	}
	for _, o := range t.offers {
		_ = unix.Close(o.FD)
	}
	*t = *NewTable()
	return nil
}

// Update makes the table hold what the configuration wants: it opens what is new and changes what changed, in place
// (backlog, mode, owner, keep-alive, reuse_port, …). What is no longer wanted closes when no generation holds it.
// Update is all or nothing: it opens what is missing beside what is open, then swaps, and then closes what only the old
// table has. On error it closes what it has opened, and the table is as it was. A change that is impossible while the
// socket is open is a *ChangeError; two wants with one key are an error.
//
// The path of a unix socket that was removed or replaced meanwhile is put back, unless a process uses what is there
// now: see Repair. Where that is impossible another socket is bound; the generations that have the old one keep it.
// See Stranded.
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

// update is an Update, a Hold or a Pause in progress: the next table beside the one that is in force. The kernel has
// what only the next one has, too, but new connections stay where they go until settle.
type update struct {
	table  *Table
	stages []stage     // of an Update
	added  []added     // what only the next table has
	roomy  []*listener // whose sockets were prepared for others at their address

	resuming bool    // see Resume
	problems []error // likewise
}

// stage is one listener as it will be. To stage it is, in this order: to put its path back; to change the options of
// what stays open; to find the socket that its generations will share, or else, for a new listener, the first lane.
// What fails there fails the Update, before anything that clients could notice.
type stage struct {
	want     Want
	listener *listener
	slots    []*sock // what generations will share, or get first; nil: it stays as it is
	shared   bool    // the next generations share a socket
	why      string  // see Shared
}

// added is a new member of a listener.
type added struct {
	*sock
	to    *listener
	offer *offer // as which it came; nil: it was opened
}

// rollBack closes what only the next table has. The one in force is as it was.
func (u *update) rollBack() {
	for _, a := range slices.Backward(u.added) {
		a.to.members = slices.DeleteFunc(a.to.members, func(m *sock) bool { return m == a.sock })
		a.to.unsure = true
		if a.offer != nil {
			a.offer.taken = false
			continue
		}
		if !a.to.r.at.isUnix() {
			a.withdraw() // it must not get its share until it is closed
		}
		a.discard()
	}
	for _, l := range u.roomy {
		l.shareAddress()
		l.unsure = true
		_ = l.apply() // which was so a moment ago
	}
	for _, s := range slices.Backward(u.stages) {
		for _, m := range s.listener.members {
			if m.reachable() {
				_ = m.retune(s.want.Resolved, s.listener.r) // likewise
			}
		}
	}
}

func (u *update) stage(w Want) (err error) {
	l := u.table.listeners[w.Key()]
	if l == nil {
		if err := u.table.mayAdd(w); err != nil {
			return err
		}
		l = &listener{key: w.Key(), r: w.Resolved, table: u.table}
		if w.steered() {
			u.inheritGroup(l, w.Resolved)
			l.closed = len(l.members) > 0 && l.isSilent()
			l.inheritServing()
		}
	}
	damage, err := l.repair(0)
	if err != nil && !errors.Is(err, unixpath.ErrGone) {
		return err
	}
	if err == nil && damage != "" {
		l.damage = damage
	}
	u.stages = append(u.stages, stage{want: w, listener: l})
	s := &u.stages[len(u.stages)-1]
	s.shared, s.why = l.sharing(w.Resolved)
	if err := u.retune(l, w); err != nil {
		return err
	}
	switch {
	case s.shared:
		err = u.share(s)
	case len(l.serving) == 0 || l.left:
		s.slots, err = u.compose(l, w.Resolved, l.withUnit(w.Resolved.sockets(w.Slots), w.Slots))
	}
	if err == nil && !s.shared && w.at.isUDP() {
		err = u.fill(l, w.Resolved, s.slots)
	}
	return err
}

// retune changes the options of what stays open.
func (u *update) retune(l *listener, w Want) error {
	if len(l.members) > 0 && l.r.at.dual != w.at.dual {
		return &ChangeError{w.Spec, "ipv6_only", "it is fixed when the socket is bound", bindAgain}
	}
	if l.flows != nil && w.Handover == Flow && l.r.Flows != w.Flows {
		return &ChangeError{w.Spec, "flows", "the kernel fixes the size of the table when it makes it", bindAgain}
	}
	for _, m := range l.members {
		if !m.reachable() {
			continue
		}
		if err := m.retune(l.r, w.Resolved); err != nil {
			return err
		}
	}
	return nil
}

// compose makes a lane of members that nobody has, and of new ones, with tags that tell whose their connections are.
func (u *update) compose(l *listener, r Resolved, size int) ([]*sock, error) {
	slots, err := u.gather(l, r, size)
	if err == nil {
		l.tagSockets(slots)
	}
	return slots, err
}

// gather takes members that nobody has, then sockets that were offered, and new ones.
func (u *update) gather(l *listener, r Resolved, size int) ([]*sock, error) {
	slots := only(l.free(), (*sock).reachable)
	slots = slots[:min(len(slots), size)]
	if err := l.renew(slots, r); err != nil {
		return nil, refused(r, err)
	}
	if len(slots) == size {
		return slots, nil
	}
	how, err := u.makeRoom(l, r)
	if err != nil {
		return nil, refused(r, err)
	}
	for len(slots) < size {
		m, err := u.obtain(l, r, len(slots), how)
		if err != nil {
			return nil, err
		}
		slots = append(slots, m)
		how.first = false
	}
	return slots, nil
}

// makeRoom prepares the open sockets for others at their address, and returns how to open these.
func (u *update) makeRoom(l *listener, r Resolved) (how opening, err error) {
	shared, _ := l.sharing(r)
	how = opening{shared: !shared || r.groups(), first: true}
	if len(l.members) == 0 {
		return how, nil
	}
	if r.at.isUnix() {
		return opening{silent: true}, nil // settle lets it listen when a generation accepts from it
	}
	u.roomy = append(u.roomy, l)
	for _, m := range l.members {
		if err := m.setReusePort(true); err != nil {
			return how, err
		}
	}
	l.recount() // a socket that has joined is before the new ones
	if l.closed {
		return opening{shared: true, silent: true}, nil
	}
	return opening{shared: true}, l.fence()
}

// obtain takes a socket that was offered for the slot, or opens one, and makes it a member.
func (u *update) obtain(l *listener, r Resolved, slot int, how opening) (*sock, error) {
	if o := u.table.offered(r, slot, u.resuming); o != nil {
		return u.adopt(l, r, o)
	}
	if how.first && how.shared && !r.ReusePort {
		if err := vacant(r); err != nil {
			return nil, err
		}
	}
	return u.fresh(l, r, how)
}

// fresh opens another member.
func (u *update) fresh(l *listener, r Resolved, how opening) (*sock, error) {
	at := l.addressFor(r)
	m, err := open(r, at, how)
	if err != nil {
		return nil, err
	}
	m.wide = at.ip.Is4In6()
	m.number = l.nextNumber()
	in := len(l.group)
	u.enroll(l, r, m, nil)
	if r.at.isTCP() { // of UDP nobody could be asked what came first
		l.joining += len(l.group) - in
	}
	return m, l.protect(how)
}

// enroll makes a socket that was opened, or offered, a member.
func (u *update) enroll(l *listener, r Resolved, m *sock, o *offer) {
	m.readTag(r)
	m.id = socketID(m.fd)
	m.deaf = r.at.isTCP() && !m.foreign && m.isDeaf()
	l.members = append(l.members, m)
	if !r.at.isUnix() && !m.silent(r.at) {
		l.group = append(l.group, m.id)
	}
	u.added = append(u.added, added{m, l, o})
}

// protect keeps connections from a new member, now that there is a group.
func (l *listener) protect(how opening) error {
	if how.silent || l.r.at.isUnix() || len(l.members) != 2 || len(l.serving) == 0 {
		return nil
	}
	return l.fence()
}

// port is the port that the listener is bound to.
func (l *listener) port() uint16 { return l.addressFor(l.r).port }

// addressFor is the address of the next socket: where the first one is bound, when the kernel chose the port or
// IPv6 is off.
func (l *listener) addressFor(r Resolved) bindAddr {
	at := r.at
	if len(l.members) == 0 || at.isUnix() {
		return at
	}
	bound, err := unix.Getsockname(l.members[0].fd)
	if err != nil {
		return at
	}
	if name, ok := inherit.AddrPort(bound); ok {
		at.port = name.Port()
		if at.dual && name.Addr().Is4() {
			at.ip, at.dual = name.Addr(), false
		}
	}
	if l.members[0].wide {
		at.ip, at.dual = netip.AddrFrom16(at.ip.As16()), true
	}
	return at
}

// commit makes the staged listeners the table's. Nothing in it can fail.
func (u *update) commit() {
	for _, l := range u.roomy {
		l.recount()
	}
	known := make(map[string]bool)
	for _, s := range u.stages {
		known[s.want.Key()] = true
		u.table.commit(s)
	}
	for key, l := range u.table.listeners {
		if l.resumed = false; !known[key] {
			l.size = 0
		}
		_ = u.table.settle(l)
	}
	u.table.forgetTaken()
}

func (t *Table) commit(s stage) {
	l, w := s.listener, s.want
	if t.listeners[l.key] == nil {
		t.listeners[l.key] = l
		l.unsure = true
		l.closed = l.closed || l.isSilent()
		l.hushed = l.closed
	}
	l.r, l.size, l.why, l.shared = w.Resolved, w.Resolved.sockets(w.Slots), s.why, nil
	if s.shared {
		l.size, l.shared = 1, s.slots[0]
	}
	if len(l.serving) == 0 || l.left {
		l.serving, l.left = serveAll(s.slots), false
	}
}

// ChangeError is a change of a listener that the kernel does not allow at present. Nothing has changed.
type ChangeError struct {
	Spec   Spec   // as it was wanted
	Key    string // of the listen table
	Why    string
	Remedy string
}

func (e *ChangeError) Error() string {
	return fmt.Sprintf("cannot change %s of %s while it is open: %s: %s", e.Key, e.Spec.Address, e.Why, e.Remedy)
}

// Remedies that always work: what no process has can be changed in place.
const (
	whileStopped = "`supervisord stop` the program, reload, and start it: clients wait meanwhile"
	bindAgain    = "restart supervisord, or remove the listener for one reload: connections are refused meanwhile"
)

// mayAdd returns why w cannot be opened beside a listener that has its port: at the same address with another
// interface, or none, or at another address of the same program, where one of the two is on every interface.
func (t *Table) mayAdd(w Want) error {
	for _, l := range t.listeners {
		switch r := l.r; {
		case r.at == w.at && r.Site() != "" && r.Interface != w.Interface && (r.Interface == "" || w.Interface == ""):
			return &ChangeError{w.Spec, "interface", "a socket on every interface keeps others from the port", bindAgain}
		case r.at != w.at && r.Program == w.Program && r.Overlaps(w.Resolved):
			return &ChangeError{w.Spec, "address", "the socket at " + r.at.String() + " has the port", bindAgain}
		}
	}
	return nil
}
