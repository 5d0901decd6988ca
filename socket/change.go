package socket

import (
	"fmt"
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
