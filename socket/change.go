package socket

import (
	"fmt"
	"slices"
)

// ChangeError is a change of a listener that the kernel does not allow as things are. Nothing has changed.
type ChangeError struct {
	Spec   Spec   // as it was wanted
	Key    string // of the listen table
	Why    string
	Remedy string
}

func (e *ChangeError) Error() string {
	return fmt.Sprintf("cannot change %s of %s while it is open: %s: %s", e.Key, e.Spec.Address, e.Why, e.Remedy)
}

// idle is the remedy that is always there: what no process has can be changed in place.
const idle = "`supervisord stop` the program, reload, and start it: clients wait meanwhile"

// mayMove says why a new lane for w, which differs from the others in O_NONBLOCK, cannot be opened beside them.
func (l *listener) mayMove(w Want) error {
	refuse := func(why, remedy string) error { return &ChangeError{w.Spec, "nonblock", why, remedy} }
	newest := l.newest()
	switch {
	case newest.foreign():
		return refuse("its socket is from a socket unit, which others may use", "restart supervisord")
	case w.at.isUnix():
		return refuse("the mode is that of the socket, which the workers have, and a path has one socket", idle)
	case w.groups() || newest.r.groups():
		return refuse("it would need a second group of sockets beside that of reuse_port or per_slot", idle)
	case !w.Together:
		return refuse("its workers are replaced one by one, and the new ones need another socket",
			`set strategy = "all" for this reload, or `+idle)
	case len(l.lanes) > 1:
		return refuse("an old generation still has the socket of the change before", "reload again when that has gone")
	}
	return nil
}

// mayGrow says why ln cannot become as many sockets as w wants.
func (l *listener) mayGrow(ln *lane, w Want) error {
	refuse := func(why, remedy string) error { return &ChangeError{w.Spec, "per_slot", why, remedy} }
	switch {
	case w.sockets() <= len(ln.slots):
		return nil
	case len(l.lanes) > 1 && !w.at.isUnix():
		return refuse("an old generation still has another socket at the address", "reload again when that has gone")
	case slices.ContainsFunc(ln.slots, func(s *sock) bool { return s.foreign && !s.sharesPort() }):
		return refuse("its socket is from a socket unit", "set ReusePort=yes in the unit, and restart it and supervisord")
	}
	return nil
}

// mayAdd says why w cannot be opened beside a listener that has its port: at the same address with another interface, or none,
// or at another address of the same program, where one of the two is on every interface.
func (t *Table) mayAdd(w Want) error {
	refuse := func(key, why string) error {
		return &ChangeError{w.Spec, key, why, "restart supervisord, or take the listener out for one reload: connections are refused meanwhile"}
	}
	for _, l := range t.listeners {
		switch r := l.newest().r; {
		case r.at == w.at && r.Site() != "" && r.Interface != w.Interface && (r.Interface == "" || w.Interface == ""):
			return refuse("interface", "one socket on every interface keeps others from the port")
		case r.at != w.at && r.Program == w.Program && r.Overlaps(w.Resolved):
			return refuse("address", "the socket at "+r.at.String()+" has the port")
		}
	}
	return nil
}
