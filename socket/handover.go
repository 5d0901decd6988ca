package socket

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/pattern"
	"example.org/supervisord/socket/diag"
	"example.org/supervisord/socket/inherit"
	"example.org/supervisord/socket/unixpath"
)

// Named is a socket under the name with which it is handed over.
type Named struct {
	Name    string // fit for FDNAME=
	FD      int    // still the table's
	Foreign bool   // from a systemd socket unit, which keeps it itself: no need to put it in the store
}

// The names of two sockets of a group, of a unix socket and of the memory of a table of flows:
//
//	s.tcp_127.0.0.1-8080.8c1f0c0de2a1b3d4.0.n
//	s.tcp_127.0.0.1-8080.8c1f0c0de2a1b3d4.1.n
//	s.unix_/run/web.sock.51d0a3f7c2e94b68.0.0f3e5a7799b1c2d4
//	s.udp_0.0.0.0-443.e07a1b2c3d4e5f60.0.m

// exported is the form of an export name: "s.", what a person can read, then a hash of the key, the number of the
// member, and its origin: "f" (foreign), "n" (no path), "w" (see Widen) or a hash of the inode at its path; "p" and "m"
// are the program and the memory of a table of flows.
var exported = pattern.Lazy(`^s\.[ -~]*\.([0-9a-f]{16})\.([0-9]{1,7})\.(f|n|w|p|m|[0-9a-f]{16})$`)

// Exported reports whether Export made the name.
func Exported(name string) bool { return exported().MatchString(name) }

// Export lists every open socket of the table, and the descriptors of its tables of flows, in the order of the keys and
// members, each under a name that stays the same while the socket is open and that Offer understands: for systemd's
// file-descriptor store, and for the supervisor's next image (in LISTEN_FDNAMES).
//
// The name of a socket with a path has a hash of its inode, because the kernel does not tell without privileges
// which inode a unix socket was bound to: so the next supervisor knows whether clients still find it.
func (t *Table) Export() []Named {
	var all []Named
	for _, key := range slices.Sorted(maps.Keys(t.listeners)) {
		for _, m := range t.listeners[key].members {
			all = append(all, Named{Name: m.exportName(key), FD: m.fd, Foreign: m.foreign})
		}
		all = append(all, t.listeners[key].exportFlows()...)
	}
	return all
}

func (s *sock) exportName(key string) string {
	origin := "n"
	switch {
	case s.foreign:
		origin = "f"
	case s.wide:
		origin = "w"
	case s.hasPath():
		origin = s.place.Inode.Mark()
	}
	return exportName(key, s.number, origin)
}

func exportName(key string, number int, origin string) string {
	readable := strings.ReplaceAll(inherit.FDName(key[:min(len(key), 120)]), " ", "_")
	return "s." + readable + "." + hash(key) + "." + strconv.Itoa(number) + "." + origin
}

func hash(s string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s)) // never fails
	return hex.EncodeToString(h.Sum(nil))
}

// offer is an inherited socket that a listener may take. Which ones there are depends on what went before:
//
//	                        name          key     Ours    what becomes of it
//	socket unit             its own       ""      no      foreign: used as the unit made it
//	upgrade, or the store   exported      known   –       the member with the same number
//	orphans of a death      any           ""      yes     strays: one lane, until the next generation serves
//
// The table owns its descriptor from Offer on. What nobody takes goes back to the caller: Unclaimed.
type offer struct {
	inherit.Socket
	id     uint64 // of the socket, the same for every descriptor of it
	key    string // the hash in an export name; "": not exported
	number int    // likewise
	origin string
	inode  unixpath.Inode // to which it was bound, as far as it was found
	taken  bool
}

// socketID identifies a socket, whichever descriptor of it one has.
func socketID(fd int) uint64 {
	var st unix.Stat_t
	_ = unix.Fstat(fd, &st)
	return st.Ino
}

// locate finds the inode of an offered socket by the path to which it was bound: there, or beside it.
func (o *offer) locate() {
	if o.Network != "unix" || !strings.HasPrefix(o.Address, "/") {
		return
	}
	if o.hadPath() {
		o.inode, _ = unixpath.Found(o.Address, func(i unixpath.Inode) bool { return i.Mark() == o.origin })
		return
	}
	if number, err := diag.BoundTo(o.id); err == nil {
		o.inode, _ = unixpath.Found(o.Address, func(i unixpath.Inode) bool { return uint32(i.Number()) == number })
		return
	}
	o.inode, _ = unixpath.At(o.Address) // the kernel does not say
}

// place is where clients find the socket, as far as is known, or may find it again; false: nowhere.
func (o *offer) place() (unixpath.Place, bool) {
	if o.inode == (unixpath.Inode{}) {
		o.locate() // it may be that the file system could not be asked
	}
	p := unixpath.Place{Path: o.Address, Inode: o.inode}
	return p, o.inode != unixpath.Inode{} && p.Reachable()
}

func (o *offer) reachable() bool {
	_, is := o.place()
	return is
}

// hadPath reports whether a supervisor had bound the socket to a path.
func (o *offer) hadPath() bool { return len(o.origin) == 16 }

// Offer gives the table the sockets that this process was started with: from a systemd socket unit, the
// file-descriptor store or the image before this one. Update takes them instead of opening new ones: by the name
// from Export, else by the name of the listener (as FDName writes it), else by the address. The table owns them
// from now on; Unclaimed returns those that no listener took.
//
// Call it before the first Update, with the sockets that were meant for listeners and nothing else. A socket of a
// socket unit is used as the unit made it: its path is never removed, and its mode and owner are not changed.
func (t *Table) Offer(sockets []inherit.Socket) {
	for _, s := range sockets {
		o := &offer{Socket: s, id: socketID(s.FD)}
		if parts := exported().FindStringSubmatch(s.Name); parts != nil {
			o.key, o.origin = parts[1], parts[3]
			o.number, _ = strconv.Atoi(parts[2]) // digits, by the pattern
		}
		o.locate()
		t.offers = append(t.offers, o)
	}
}

// Unclaimed returns the offered sockets that no listener has taken, including further descriptors of taken ones.
// They are the caller's from now on, to close and to take out of the file-descriptor store. It removes the path of
// a unix socket that the supervisor before this one had bound, if it still leads to that socket.
func (t *Table) Unclaimed() []inherit.Socket {
	var left []inherit.Socket
	for _, o := range t.offers {
		if place, is := o.place(); is && o.hadPath() && !t.has(o.id) {
			place.Remove()
		}
		if t.isExtra(o) {
			// A draining worker may still have it; it must not keep getting its share of the connections.
			(&sock{fd: o.FD}).withdraw()
		}
		left = append(left, o.Socket)
	}
	t.offers = nil
	return left
}

// isExtra reports whether the socket is in addition to those of a listener at its address: from a slot or a lane
// that is gone.
func (t *Table) isExtra(o *offer) bool {
	if o.key == "" && !o.Ours || o.Network == "unix" || t.has(o.id) {
		return false
	}
	for key, l := range t.listeners {
		if l.r.at.network == o.Network && t.Address(key) == o.Address {
			return true
		}
	}
	return false
}

// has reports whether a listener has the socket.
func (t *Table) has(id uint64) bool {
	for _, l := range t.listeners {
		if slices.ContainsFunc(l.members, func(m *sock) bool { return m.id == id }) {
			return true
		}
	}
	return false
}

// forgetTaken forgets the offers that were taken.
func (t *Table) forgetTaken() {
	t.offers = slices.DeleteFunc(t.offers, func(o *offer) bool { return o.taken })
}

// offered finds the socket that fits this member of r best; nil: there is none. exactly says that it is for a live
// generation, which keeps its socket even where clients do not find it.
func (t *Table) offered(r Resolved, number int, exactly bool) *offer {
	var best *offer
	rank := 0
	for _, o := range t.offers {
		if n := o.rank(r, number, exactly); n > rank && !t.isTaken(o) {
			best, rank = o, n
		}
	}
	return best
}

// isTaken reports whether another descriptor of the same socket is in use.
func (t *Table) isTaken(o *offer) bool {
	return t.has(o.id) || slices.ContainsFunc(t.offers, func(other *offer) bool { return other.taken && other.id == o.id })
}

// rank says how well the socket fits: 4 by its exported name and number, 3 by its exported name, 2 by the
// listener's name, 1 by its address, 0 not at all.
func (o *offer) rank(r Resolved, number int, exactly bool) int {
	exportedHere := o.isOf(r)
	switch {
	case o.taken || o.Network != r.at.network:
		return 0
	case exportedHere && o.number == number && exactly:
		return 4
	case !o.Listens && o.key == "":
		return 0
	case r.at.onDisk() && !o.reachable():
		return 0
	case exportedHere && o.number == number:
		return 4
	case exportedHere && !r.PerSlot:
		return 3
	case o.key == "" && r.Name != "" && o.Name == inherit.FDName(r.Name):
		return 2
	case r.at.isBound(o.Address):
		return 1
	}
	return 0
}

// isOf reports whether the socket was exported from the listener.
func (o *offer) isOf(r Resolved) bool {
	return o.key != "" && o.key == hash(r.Key())
}

// isBound reports whether a is the address of a socket that the kernel says is bound there.
func (a bindAddr) isBound(bound string) bool {
	switch {
	case a.isUnix():
		return bound == a.path
	case a.port == 0:
		return false
	case a.dual && a.ip.IsUnspecified() && bound == "0.0.0.0:"+strconv.Itoa(int(a.port)):
		return true // IPv6 was off
	}
	return a.network+" "+bound == a.String()
}

// adopt makes an offered socket a member. If it cannot get all options of r, that is an error, unless a live
// generation has it, which uses it as it is.
func (u *update) adopt(l *listener, r Resolved, o *offer) (*sock, error) {
	m := &sock{fd: o.FD, stray: o.age() == 2 && o.InUse, foreign: o.key == "" && !o.Ours || o.origin == "f",
		wide: o.origin == "w"}
	m.number = l.nextNumber()
	if o.key != "" && !slices.ContainsFunc(l.members, func(other *sock) bool { return other.number == o.number }) {
		m.number = o.number
	}
	if m.stray {
		m.number++ // the gap says that the order of the group is not that of the numbers
	}
	var err error
	if place, is := o.place(); is {
		m.place = place
		err = m.place.Note()
	} else if o.hadPath() {
		m.place = unixpath.Place{Path: o.Address, Inode: unixpath.Lost}
	}
	if err = refused(r, err); err == nil {
		err = o.fit(m, r)
	}
	if err == nil || u.resuming {
		o.taken = true
		if err != nil {
			u.problems = append(u.problems, err)
			err = nil
		}
		u.enroll(l, r, m, o)
	}
	return m, err
}

// fit sets the options of r on the socket.
func (o *offer) fit(s *sock, r Resolved) error {
	for _, t := range tunables {
		if !t.fits(r.at) || t.value(r) == t.unset && (s.foreign || !t.early) {
			continue
		}
		if err := t.set(s, r); err != nil {
			return fmt.Errorf("cannot set %s of the inherited socket %s: %w", t.name, r.at, advise(r, err))
		}
	}
	return nil
}

// Resume takes the sockets of live generations, whose lanes are from a record, from those that were offered, and holds
// them: in a new table, before the first Update. It opens what was not offered. A problem with one socket does not keep
// the workers from the others: Resume returns all problems. A listener without any socket is not in the table. New
// connections go to these parts, as with Steer, but at once: until a Steer that follows they could reach a socket that
// has no worker. Where no part is of a listener, they go to its first lane. Those of the listeners with the keys in
// paused wait, as since the Pause of before, without a moment between.
func (t *Table) Resume(lanes []*Lane, serve []Part, paused []string) []error {
	u := &update{table: t, resuming: true}
	for _, ln := range lanes {
		if len(ln.Members) == 0 {
			continue
		}
		l := t.listeners[ln.Listener.Key()]
		if l == nil {
			l = &listener{key: ln.Listener.Key(), r: ln.Listener, table: t}
			l.unsure = true
			u.inheritGroup(l, ln.Listener)
		}
		u.resume(l, ln)
	}
	for l, s := range parted(serve) {
		l.serving = s
	}
	for _, l := range t.listeners {
		l.resumed, l.closed = true, l.isSilent()
		l.hushed = l.closed
		l.doubt()
		if slices.Contains(paused, l.key) && l.mayPark() == nil {
			l.paused = true
			_ = t.park(l) // otherwise settle tries again
		}
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
	group := only(u.table.offers, func(o *offer) bool {
		return o.rank(r, o.number, u.resuming) > 0
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
	if r.at.isUDP() {
		l.recall()
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
// orphaned workers have sockets of it, or a number is missing, because a socket was closed, or the record says so.
func (l *listener) doubt() {
	unsure := slices.ContainsFunc(l.lanes, func(ln *Lane) bool { return ln.Disordered })
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
	strays := only(l.members, func(m *sock) bool { return m.stray })
	all := l.members
	if len(strays) > 0 {
		l.renumber()
		all = strays
	}
	served := only(all, (*sock).marked)
	if len(served) == 0 {
		served = strays
	}
	if len(served) > 0 {
		l.serving = serveAll(served)
	}
	l.deafenOrphans()
}

// renumber numbers the members from 0, where no generation has them.
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
