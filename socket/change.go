package socket

import (
	"fmt"
	"slices"
)

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

// mayMove returns why a new lane for w, which differs from the others in O_NONBLOCK, cannot be opened beside them.
func (l *listener) mayMove(w Want) error {
	refuse := func(why, remedy string) error { return &ChangeError{w.Spec, "nonblock", why, remedy} }
	newest := l.newest()
	switch {
	case newest.foreign():
		return refuse("its socket is from a socket unit, which others may use", "restart supervisord")
	case w.at.isUnix():
		return refuse("the mode belongs to the socket, which the workers have, and a path has one socket", whileStopped)
	case w.groups() || newest.r.groups():
		return refuse("it would need a second group of sockets beside that of reuse_port or per_slot", whileStopped)
	case !w.Together:
		return refuse("its workers are replaced one by one, and the new ones need another socket",
			`set strategy = "all" for this reload, or `+whileStopped)
	case len(l.lanes) > 1:
		return refuse("an old generation still has the socket of the previous change", "reload again when that has gone")
	}
	return nil
}

// mayGrow returns why ln cannot become as many sockets as w wants.
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

// mayAdd returns why w cannot be opened beside a listener that has its port: at the same address with another interface, or none,
// or at another address of the same program, where one of the two is on every interface.
func (t *Table) mayAdd(w Want) error {
	for _, l := range t.listeners {
		switch r := l.newest().r; {
		case r.at == w.at && r.Site() != "" && r.Interface != w.Interface && (r.Interface == "" || w.Interface == ""):
			return &ChangeError{w.Spec, "interface", "a socket on every interface keeps others from the port", bindAgain}
		case r.at != w.at && r.Program == w.Program && r.Overlaps(w.Resolved):
			return &ChangeError{w.Spec, "address", "the socket at " + r.at.String() + " has the port", bindAgain}
		}
	}
	return nil
}
