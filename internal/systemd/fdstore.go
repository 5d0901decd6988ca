package systemd

import (
	"errors"
	"fmt"
	"strings"
)

const (
	maxRights = 253 // descriptors in one message: the kernel's SCM_MAX_FD
	maxFDName = 255 // bytes

	// maxNames is what LISTEN_FDNAMES may hold: Linux takes no string of the environment, with its NUL, above 32 pages of 4 KiB
	// (execve(2)). Here each name counts with its colon.
	maxNames = 32*4096 - len("LISTEN_FDNAMES=")
)

// ErrStoreFull says that systemd's file-descriptor store cannot take one more descriptor. The error that wraps it says why.
var ErrStoreFull = errors.New("systemd's file-descriptor store is full")

// ErrNamesFull is the ErrStoreFull of names: systemd could not start the service again, because the names of all descriptors
// would not fit into LISTEN_FDNAMES.
var ErrNamesFull = fmt.Errorf("%w: the names of its descriptors would be longer than an environment variable may be; "+
	"use shorter program names or fewer workers", ErrStoreFull)

// StoreFD puts descriptors into systemd's file-descriptor store, all under one name, as duplicates: they come back to the
// next main process of the service in LISTEN_FDS and LISTEN_FDNAMES, in no particular order. The caller keeps its own.
// The store does not look after them (FDPOLL=0), so that one that reports an error or its end stays in it, too.
//
// systemd gives no answer. A descriptor that the store has already is ignored, also under another name; for that systemd
// compares a new one with every other, 1 to 3 ms in a store of thousands.
//
// StoreFD returns ErrStoreFull (wrapped) where the store would have more descriptors than systemd allows, as far as $FDSTORE
// says how many (systemd 254), and ErrNamesFull where the names of all of them, those of socket units included, would become
// too long for the next start: 4,096 names may have 30 bytes each. A name that is stored again counts once.
func (n *Notify) StoreFD(name string, fds ...int) error {
	if err := CheckFDName(name); err != nil || n.queue == nil {
		return err
	}
	return n.queue.store(name, fds)
}

// RemoveFD takes every descriptor of this name out of the store. To be called before the descriptor is closed: as long as
// systemd holds a listening socket its address stays taken.
func (n *Notify) RemoveFD(name string) error {
	if err := CheckFDName(name); err != nil || n.queue == nil {
		return err
	}
	return n.queue.remove(name)
}

// Stored lists the names that the store has, or will have when systemd has read everything that was sent or waits.
func (n *Notify) Stored() []string {
	if n.queue == nil {
		return nil
	}
	return n.queue.stored()
}

// Freeze holds back every message until Thaw, and returns what systemd has, or will have whatever becomes of this process:
// how many descriptors of each name its socket has taken. That is what the next image must be told (Open). Freeze does not
// wait for systemd. Between Freeze and Thaw no other method may be called by the same goroutine.
func (n *Notify) Freeze() map[string]int {
	if n.queue == nil {
		return nil
	}
	n.queue.mu.Lock()
	return n.queue.ledger.sent()
}

// Thaw undoes Freeze.
func (n *Notify) Thaw() {
	if n.queue != nil {
		n.queue.mu.Unlock()
	}
}

// ledger knows what systemd keeps for the next main process of this service: the descriptors in its store, and those of
// socket units. Each name has two counts, because a message may wait.
type ledger struct {
	counts map[string]count
	size   int // of LISTEN_FDNAMES when nothing waits any more
	total  int // of descriptors, likewise
	most   int // descriptors that the store may have; 0: systemd does not say
}

type count struct {
	sent    int // systemd's socket has taken them
	settled int // when nothing waits any more
}

// newLedger begins with what systemd has already.
func newLedger(stored map[string]int, most int) *ledger {
	l := &ledger{counts: map[string]count{}, most: most}
	for name, n := range stored {
		l.counts[name] = count{sent: n}
		l.settle(name, n)
	}
	return l
}

// listed counts the names in LISTEN_FDNAMES.
func listed(names string) map[string]int {
	counts := map[string]int{}
	if names != "" {
		for name := range strings.SplitSeq(names, ":") {
			counts[name]++
		}
	}
	return counts
}

// room returns how many of so many descriptors are new, if they fit.
func (l *ledger) room(name string, descriptors int) (int, error) {
	more := max(descriptors-l.counts[name].settled, 0)
	switch {
	case l.size+more*(len(name)+1) > maxNames:
		return 0, ErrNamesFull
	case l.most > 0 && l.total+more > l.most:
		return 0, fmt.Errorf("%w: the unit has FileDescriptorStoreMax=%d; raise it", ErrStoreFull, l.most)
	}
	return more, nil
}

// settle changes what a name will have when nothing waits any more.
func (l *ledger) settle(name string, by int) {
	c := l.counts[name]
	c.settled += by
	l.size += by * (len(name) + 1)
	l.total += by
	l.put(name, c)
}

// took notes that systemd's socket has taken a message that changes a name by so many. A removal removes all.
func (l *ledger) took(name string, by int) {
	c := l.counts[name]
	c.sent += by
	if by < 0 {
		c.sent = 0
	}
	l.put(name, c)
}

func (l *ledger) put(name string, c count) {
	if c == (count{}) {
		delete(l.counts, name)
		return
	}
	l.counts[name] = c
}

func (l *ledger) sent() map[string]int {
	counts := map[string]int{}
	for name, c := range l.counts {
		if c.sent > 0 {
			counts[name] = c.sent
		}
	}
	return counts
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
