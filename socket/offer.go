package socket

import (
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"example.org/supervisord/internal/pattern"
	"example.org/supervisord/socket/inherit"

	"golang.org/x/sys/unix"
)

// Named is a socket under the name that it is handed over with.
type Named struct {
	Name    string // fit for FDNAME=
	FD      int    // still the table's
	Foreign bool   // from a systemd socket unit, which keeps it itself: no need to put it in the store
}

// slotsOfLane is more than a lane can have: in an export name the number of the lane stands in front of that of the slot.
const slotsOfLane = 10_000

// exported is the form of an export name: "s.", what a person can read, then a hash of the key, the slot, and whose it is.
var exported = pattern.Lazy(`^s\.[ -~]*\.([0-9a-f]{16})\.([0-9]{1,7})\.(f|n|[0-9a-f]{16})$`)

// Exported tells whether a name was made by Export.
func Exported(name string) bool { return exported().MatchString(name) }

// Export lists every open socket of the table, in the order of the keys and slots, each under a name that stays the same for
// as long as the socket is open and that Offer understands: for systemd's file-descriptor store, and for an exec of the
// supervisor's next image (whose LISTEN_FDNAMES carries the names).
//
// The name of a socket on disk holds a hash of its inode's identity, because the kernel does not say without privileges which
// inode a unix socket was bound to: so whoever takes it over knows whether clients still find it.
func (t *Table) Export() []Named {
	var all []Named
	for _, key := range t.keys() {
		for _, ln := range t.listeners[key].lanes {
			for slot, s := range ln.slots {
				all = append(all, Named{Name: s.exportName(key, ln.number*slotsOfLane+slot), FD: s.fd, Foreign: s.foreign})
			}
		}
	}
	return all
}

func (t *Table) keys() []string {
	keys := make([]string, 0, len(t.listeners))
	for key := range t.listeners {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func (s *sock) exportName(key string, slot int) string {
	whose := "n"
	switch {
	case s.foreign:
		whose = "f"
	case s.file != (identity{}):
		whose = s.file.hash()
	}
	readable := strings.ReplaceAll(inherit.FDName(key[:min(len(key), 120)]), " ", "_")
	return "s." + readable + "." + hash(key) + "." + strconv.Itoa(slot) + "." + whose
}

func hash(s string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s)) // never fails
	return hex.EncodeToString(h.Sum(nil))
}

func (id identity) hash() string { return hash(fmt.Sprint(id.dev, id.ino, id.born)) }

// offer is an inherited socket that a listener may take.
type offer struct {
	inherit.Socket
	inode uint64 // of the socket, the same for every descriptor of it
	key   string // the hash in an export name; "": not exported
	slot  int
	lane  int
	whose string
	taken bool
}

// Offer gives the table sockets that this process was started with: from a systemd socket unit, the file-descriptor store or
// the image before this one. Update takes them in place of opening new ones: by the name that Export gave, else by the name of
// the listener (as FDName has it), else by the address. They are the table's from now on; Leftover returns what was not wanted.
//
// Call it before the first Update, with the sockets that were meant for listeners and nothing else. A socket of a socket unit
// is used as the unit made it: its path is never removed, and mode and owner are not changed.
func (t *Table) Offer(sockets []inherit.Socket) {
	for _, s := range sockets {
		o := &offer{Socket: s}
		var st unix.Stat_t
		if unix.Fstat(s.FD, &st) == nil {
			o.inode = st.Ino
		}
		if parts := exported().FindStringSubmatch(s.Name); parts != nil {
			o.key, o.whose = parts[1], parts[3]
			number, _ := strconv.Atoi(parts[2]) // digits, by the pattern
			o.lane, o.slot = number/slotsOfLane, number%slotsOfLane
		}
		t.offers = append(t.offers, o)
	}
}

// Leftover returns the sockets that were offered and that nothing has taken, the second descriptors of one socket among them.
// They are the caller's from now on, to close and to take out of the file-descriptor store. The path of a unix socket that the
// supervisor before this one had bound is removed if it still is that socket's.
func (t *Table) Leftover() []inherit.Socket {
	var left []inherit.Socket
	for _, o := range t.offers {
		if len(o.whose) == 16 && !t.has(o.inode) && o.path() != "" {
			_ = unix.Unlink(o.path()) // a path that stays behind is stale, and the next start replaces it
		}
		if t.isExtra(o) {
			// A draining worker may have it still; it must not go on to get its share of the connections.
			(&sock{fd: o.FD}).withdraw()
		}
		left = append(left, o.Socket)
	}
	t.offers = nil
	return left
}

// isExtra tells whether the socket is one beside those that a listener has at its address: of a slot or a lane that is gone.
func (t *Table) isExtra(o *offer) bool {
	if o.key == "" && !o.Ours || o.Network == "unix" || t.has(o.inode) {
		return false
	}
	for key, l := range t.listeners {
		if l.newest().r.at.network == o.Network && t.Address(key) == o.Address {
			return true
		}
	}
	return false
}

// path is where the socket's own inode stands; "": it is not on disk, or something else stands there.
func (o *offer) path() string {
	if o.Network != "unix" || !strings.HasPrefix(o.Address, "/") {
		return ""
	}
	now, _, err := identify(unix.AT_FDCWD, o.Address, 0)
	if err != nil || len(o.whose) == 16 && now.hash() != o.whose {
		return ""
	}
	return o.Address
}

// has tells whether a listener has the socket with this inode.
func (t *Table) has(inode uint64) bool {
	for _, l := range t.listeners {
		for _, s := range l.all() {
			var st unix.Stat_t
			if unix.Fstat(s.fd, &st) == nil && st.Ino == inode {
				return true
			}
		}
	}
	return false
}

// settleOffers forgets the offers that were taken.
func (t *Table) settleOffers() {
	t.offers = slices.DeleteFunc(t.offers, func(o *offer) bool { return o.taken })
}

// offered finds the socket for this slot of r that fits best; nil: there is none. lane is that of a generation which lives and has
// the socket, wherever clients find it; anyLane for who wants any that clients find.
func (t *Table) offered(r Resolved, slot, lane int) *offer {
	var best *offer
	rank := 0
	for _, o := range t.offers {
		n := o.rank(r, slot)
		if lane != anyLane {
			n = o.laneRank(r, slot, lane)
		}
		if n > rank && !t.isTaken(o) {
			best, rank = o, n
		}
	}
	return best
}

const anyLane = -1

// isTaken tells whether another descriptor of the same socket is in use.
func (t *Table) isTaken(o *offer) bool {
	return t.has(o.inode) || slices.ContainsFunc(t.offers, func(other *offer) bool { return other.taken && other.inode == o.inode })
}

// rank says how well the socket fits: 3 by its exported name, 2 by the listener's name, 1 by its address, 0 not at all.
func (o *offer) rank(r Resolved, slot int) int {
	switch {
	case o.taken || !o.Listens && o.key == "" || o.Network != r.at.network:
		return 0
	case o.Network == "unix" && strings.HasPrefix(o.Address, "/") && o.path() == "":
		return 0 // it listens where no client finds it
	case o.isOf(r) && o.slot == slot:
		return 3
	case o.key == "" && r.Name != "" && o.Name == inherit.FDName(r.Name):
		return 2
	case r.at.isBound(o.Address):
		return 1
	}
	return 0
}

// laneRank is rank for a lane of the listener: what a generation has, it keeps.
func (o *offer) laneRank(r Resolved, slot, lane int) int {
	if !o.taken && o.Network == r.at.network && o.isOf(r) && o.slot == slot && o.lane == lane {
		return 4
	}
	return o.rank(r, slot)
}

// isOf tells whether the socket was exported from the listener.
func (o *offer) isOf(r Resolved) bool {
	return o.key != "" && (o.key == hash(r.Key()) || o.key == hash(r.oldKey()))
}

// isBound tells whether a socket that is bound there is what a wants.
func (a bindAddr) isBound(bound string) bool {
	switch {
	case a.isUnix():
		return bound == a.path
	case a.port == 0:
		return false
	case a.dual && a.ip.IsUnspecified() && bound == "0.0.0.0:"+strconv.Itoa(int(a.port)):
		return true // as it is where IPv6 is off
	}
	return a.network+" "+bound == a.String()
}

// adopt makes the offered socket one of r's. One that cannot be made quite what r wants is returned with the error, for those who
// have no choice.
func (o *offer) adopt(r Resolved) (s *sock, back func(), err error) {
	s = &sock{fd: o.FD, foreign: o.key == "" && !o.Ours || o.whose == "f", silent: !o.Listens}
	if path := o.path(); path != "" {
		s.file, _, err = identify(unix.AT_FDCWD, path, 0)
	}
	if s.file == (identity{}) && len(o.whose) == 16 {
		s.file = identity{born: -1} // it had a path, and no inode is this one
	}
	back = func() { o.taken = false }
	if err != nil {
		err = refused(r, err)
	} else {
		err = o.fit(s, r)
	}
	o.taken = true
	return s, back, err
}

// fit gives the socket the options that r wants.
func (o *offer) fit(s *sock, r Resolved) error {
	if err := o.suits(r); err != nil {
		return err
	}
	for _, t := range tunables {
		if !t.fits(r.at) || t.off(r) && (s.foreign || !t.early) {
			continue
		}
		if err := t.set(s, r); err != nil {
			return fmt.Errorf("cannot set %s of the inherited socket %s: %w", t.name, r.at, advise(r, err))
		}
	}
	return nil
}

// suits checks what cannot be changed on a live socket, and sets the mode of one that no worker of ours has yet.
func (o *offer) suits(r Resolved) error {
	// O_NONBLOCK of a socket that a worker has is the worker's: Go, Node and nginx set it, and it must not change under them.
	if o.key == "" && !o.InUse {
		if err := unix.SetNonblock(o.FD, r.NonBlock); err != nil {
			return refused(r, err)
		}
	}
	if !r.PerSlot {
		return nil
	}
	if shared, err := unix.GetsockoptInt(o.FD, unix.SOL_SOCKET, unix.SO_REUSEPORT); err != nil || shared == 0 {
		return fmt.Errorf("cannot use the inherited socket %s for per_slot: set ReusePort=yes in its socket unit, or leave out per_slot", r.at)
	}
	return nil
}
