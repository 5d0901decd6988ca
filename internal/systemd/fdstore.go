package systemd

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

const (
	maxRights = 253 // descriptors in one message: the kernel's SCM_MAX_FD
	maxFDName = 255 // bytes

	// maxNames is what LISTEN_FDNAMES may hold: Linux takes no string of the environment, with its NUL, above 32 pages of 4 KiB
	// (execve(2)). Here each name counts with its colon.
	maxNames = 32*4096 - len("LISTEN_FDNAMES=")
)

// ErrNamesFull says that systemd must not keep one more descriptor: it could not start the service again, because the names
// of all of them would not fit into LISTEN_FDNAMES.
var ErrNamesFull = errors.New("the names of the descriptors that systemd keeps would be longer than an environment variable may be")

// StoreFD puts descriptors into systemd's file-descriptor store, all under one name, as duplicates: they come back to the
// next main process of the service in LISTEN_FDS and LISTEN_FDNAMES, in no particular order. The caller keeps its own.
// The store does not look after them (FDPOLL=0), so that one that reports an error or its end stays in it, too.
//
// systemd gives no answer: beyond FileDescriptorStoreMax= it logs and drops. A descriptor that the store has already is
// ignored, also under another name; for that it compares a new one with every other, 1 to 3 ms in a store of thousands.
//
// Where the names of all descriptors, those that this process was started with included, become too long for the next
// start, it returns ErrNamesFull: 4,096 names may have 30 bytes each. A name that is stored again counts once.
func (n *Notify) StoreFD(name string, fds ...int) error {
	if err := CheckFDName(name); err != nil {
		return err
	}
	if !n.names.add(name, len(fds)) {
		return fmt.Errorf("cannot store %q: %w", name, ErrNamesFull)
	}
	for some := range slices.Chunk(fds, maxRights) {
		if err := n.send(some, "FDSTORE=1", "FDNAME="+name, "FDPOLL=0"); err != nil {
			return err
		}
	}
	return nil
}

// RemoveFD takes every descriptor of this name out of the store. To be called before the descriptor is closed: as long as
// systemd holds a listening socket its address stays taken.
func (n *Notify) RemoveFD(name string) error {
	if err := CheckFDName(name); err != nil {
		return err
	}
	n.names.remove(name)
	return n.Send("FDSTOREREMOVE=1", "FDNAME="+name)
}

// names knows what LISTEN_FDNAMES of the next start will have.
type names struct {
	mu    sync.Mutex
	count map[string]int
	size  int
}

// newNames begins with what this process was given: systemd still has it.
func newNames(inherited string) *names {
	n := &names{count: map[string]int{}}
	if inherited != "" {
		for name := range strings.SplitSeq(inherited, ":") {
			n.count[name]++
			n.size += len(name) + 1
		}
	}
	return n
}

// add counts so many descriptors of one name, if they fit.
func (n *names) add(name string, descriptors int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	more := max(descriptors-n.count[name], 0)
	if n.size+more*(len(name)+1) > maxNames {
		return false
	}
	n.count[name] += more
	n.size += more * (len(name) + 1)
	return true
}

func (n *names) remove(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.size -= n.count[name] * (len(name) + 1)
	delete(n.count, name)
}

// CheckFDName says what is wrong with a name for the store: systemd would silently use another one.
func CheckFDName(name string) error {
	if name == "" || len(name) > maxFDName {
		return fmt.Errorf("a name of %d bytes for a stored descriptor (1 to %d are allowed)", len(name), maxFDName)
	}
	for i := range len(name) {
		if c := name[i]; c < ' ' || c > '~' || c == ':' {
			return errors.New("the name of a stored descriptor has a byte that is not printable ASCII, or a colon: " + fmt.Sprintf("%q", name))
		}
	}
	return nil
}
