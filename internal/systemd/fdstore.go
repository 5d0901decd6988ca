package systemd

import (
	"errors"
	"fmt"
)

const maxFDName = 255 // bytes

// ErrBusy says that systemd's socket has no room for a message about the store now. Nothing was sent.
var ErrBusy = errors.New("systemd does not read its notification socket")

// StoreFD puts descriptors into systemd's file-descriptor store under one name, as duplicates and in one message: they come back to the
// next main process of the service in LISTEN_FDS and LISTEN_FDNAMES, in no particular order. The caller keeps its own. The store does
// not watch them (FDPOLL=0), so a descriptor that reports an error or a hangup stays in the store, too. The kernel takes 253 at once.
//
// When StoreFD returns nil, systemd gets the descriptors whatever becomes of this process. StoreFD never waits: if the socket
// has no room, it returns ErrBusy, and Writable says when to try again. A caller that is replaced or killed in between thus
// always knows what systemd has.
//
// systemd does not answer. It ignores a descriptor that the store already has, even under another name; to detect that, it
// compares a new descriptor with every other, which takes 1 to 3 ms in a store of thousands.
func (n *Notify) StoreFD(name string, fds ...int) error {
	if err := checkFDName(name); err != nil || n.sender == nil {
		return err
	}
	return n.sender.sendNow("FDSTORE=1\nFDNAME="+name+"\nFDPOLL=0", fds...)
}

// RemoveFD takes every descriptor of this name out of the store, on the same terms as StoreFD. Call it before the descriptor
// is closed: as long as systemd holds a listening socket, its address stays taken.
func (n *Notify) RemoveFD(name string) error {
	if err := checkFDName(name); err != nil || n.sender == nil {
		return err
	}
	return n.sender.sendNow("FDSTOREREMOVE=1\nFDNAME=" + name)
}

// Writable gets a value when a call that returned ErrBusy is worth another try.
func (n *Notify) Writable() <-chan struct{} {
	if n.sender == nil {
		return nil
	}
	return n.sender.writable
}

// checkFDName returns an error for a name that systemd would silently replace.
func checkFDName(name string) error {
	if name == "" || len(name) > maxFDName {
		return fmt.Errorf("cannot store a descriptor under a name of %d bytes: use 1 to %d", len(name), maxFDName)
	}
	for i := range len(name) {
		if c := name[i]; c < ' ' || c > '~' || c == ':' {
			return fmt.Errorf("cannot store a descriptor under the name %q: use printable ASCII without a colon", name)
		}
	}
	return nil
}
