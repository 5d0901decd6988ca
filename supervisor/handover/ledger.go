package handover

import (
	"errors"
	"fmt"
)

// maxNames is what LISTEN_FDNAMES may hold: Linux takes no string of the environment, with its NUL, above 32 pages of 4 KiB
// (execve(2)). Here each name counts with its colon.
const maxNames = 32*4096 - len("LISTEN_FDNAMES=")

// errStoreFull says that systemd's file-descriptor store cannot take one more descriptor. The error that wraps it says why.
var errStoreFull = errors.New("systemd's file-descriptor store is full")

// errNamesFull is the errStoreFull of names: systemd could not start the service again, because the names of all descriptors
// would not fit into LISTEN_FDNAMES.
var errNamesFull = fmt.Errorf("%w: the names of its descriptors would be longer than an environment variable may be; "+
	"use shorter program names or fewer workers", errStoreFull)

// ledger knows what systemd keeps for the next main process of this service: the descriptors in its store, and those of socket
// units. It has what systemd's socket has taken, which systemd gets whatever becomes of this process, and nothing else.
type ledger struct {
	counts map[string]int // descriptors of each name
	size   int            // of LISTEN_FDNAMES
	total  int            // descriptors
	limit  int            // what the store may have; 0: unknown
}

func newLedger(stored map[string]int, limit int) *ledger {
	l := &ledger{counts: map[string]int{}, limit: limit}
	for name, n := range stored {
		l.count(name, n)
	}
	return l
}

func (l *ledger) count(name string, n int) {
	l.counts[name] += n
	l.size += n * (len(name) + 1)
	l.total += n
}

func (l *ledger) remove(name string) {
	l.count(name, -l.counts[name])
	delete(l.counts, name)
}

// fits returns an error if there is no room for n more descriptors of this name.
func (l *ledger) fits(name string, n int) error {
	switch {
	case l.size+n*(len(name)+1) > maxNames:
		return errNamesFull
	case l.limit > 0 && l.total+n > l.limit:
		return fmt.Errorf("%w: the unit has FileDescriptorStoreMax=%d; raise it", errStoreFull, l.limit)
	}
	return nil
}
