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

// mayMove returns why a lane for w, which differs from the others in O_NONBLOCK, cannot be opened beside them.
func (l *listener) mayMove(w Want) error {
	refuse := func(why, remedy string) error { return &ChangeError{w.Spec, "nonblock", why, remedy} }
	switch {
	case l.foreign():
		return refuse("its socket is from a socket unit, which others may use", "restart supervisord")
	case w.at.isUnix():
		return refuse("the mode belongs to the socket, which the workers have, and a path has one socket", whileStopped)
	case w.ReusePort || l.r.ReusePort:
		return refuse("it would need a second socket in a group that other processes may have joined", whileStopped)
	case !w.Together:
		return refuse("its workers are replaced one by one, and the new ones need another socket",
			`set strategy = "all" for this reload, or `+whileStopped)
	}
	return nil
}

// mayGrow returns why ln cannot become as many sockets as w wants.
func (l *listener) mayGrow(ln *lane, w Want) error {
	if w.sockets() <= len(ln.slots) || !slices.ContainsFunc(ln.slots, func(m *sock) bool { return m.foreign && !m.sharesPort() }) {
		return nil
	}
	return &ChangeError{w.Spec, "per_slot", "its socket is from a socket unit", "set ReusePort=yes in the unit, and restart it and supervisord"}
}

// mayAdd returns why w cannot be opened beside a listener that has its port: at the same address with another interface, or none,
// or at another address of the same program, where one of the two is on every interface.
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
