package handover

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/systemd"
	"example.org/supervisord/socket"
	"example.org/supervisord/worker"
)

// FDStore takes descriptors to systemd's file-descriptor store: see systemd.Notify. None of its methods waits.
type FDStore interface {
	StoreFD(name string, fd int) error
	RemoveFD(name string) error
	Writable() <-chan struct{}
}

// Store keeps systemd's file-descriptor store current, so that the death of this process costs nothing: every listening socket,
// every worker's descriptors, and the record in two memfds that are written in turn, so that one of them is always complete. Unless
// its comment says otherwise, a method does nothing for a nil Store, and does not wait.
type Store struct {
	to       FDStore
	log      *zap.Logger
	memfds   [2]int // -1: not made yet
	sequence uint64
	ledger   *ledger
	dirty    bool     // descriptors have come or gone since the lists below were made
	missing  []keptFD // to be stored, in this order
	surplus  []string // to be removed then
	busy     bool     // systemd has no room for the next message
	problem  error    // why the store is not current, although systemd is not busy
	told     string   // the problem that was logged last
}

// NewStore returns a store that is kept by way of to.
func NewStore(to FDStore, log *zap.Logger) *Store {
	return &Store{to: to, log: log, memfds: [2]int{-1, -1}, ledger: newLedger(nil, 0), dirty: true}
}

// Inherit goes on with what was handed over. The next Keep removes everything else that systemd has.
func (s *Store) Inherit(h *Handover) {
	if s == nil {
		return
	}
	for i, name := range []string{recordFirst, recordSecond} {
		if fd, ok := h.memfds[name]; ok {
			s.memfds[i] = fd
		}
	}
	s.sequence, s.ledger, s.dirty = h.sequence, newLedger(h.stored, h.limit), true
}

// Changed records that descriptors have come or gone.
func (s *Store) Changed() {
	if s != nil {
		s.dirty = true
	}
}

// Writable gets a value when systemd, which was busy, may have room again: call Push then.
func (s *Store) Writable() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.to.Writable()
}

// Busy reports whether systemd still has to be told something, and has no room for it.
func (s *Store) Busy() bool { return s != nil && s.busy }

// Keep writes the record, and makes the store agree with it, in this order: new descriptors go in before the record that names
// them is written, and those that are not needed any more come out after the record that knows so. A crash in between can leave a
// surplus descriptor in the store, which is harmless, but never a record of a worker without its descriptor. If systemd is slow,
// the record is ahead of the store: the next supervisord ignores what the record names and the store does not have.
func (s *Store) Keep(src Predecessor) {
	if s == nil {
		return
	}
	if err := s.open(); err != nil {
		s.log.Error("cannot keep the record for the next supervisord", zap.Error(err))
		return
	}
	if s.dirty {
		s.plan(src)
	}
	s.add()
	if err := s.write(recordOf(src)); err != nil {
		s.log.Error("cannot write the record for the next supervisord", zap.Error(err))
		s.surplus, s.dirty = nil, true
		return
	}
	s.remove()
	s.tell()
}

// Push continues after systemd was busy. It does not include what has changed since the last Keep.
func (s *Store) Push() {
	s.add()
	s.remove()
	s.tell()
}

// open makes the two memfds.
func (s *Store) open() (err error) {
	for i, name := range []string{recordFirst, recordSecond} {
		if s.memfds[i] < 0 {
			if s.memfds[i], err = memfd(name, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// records lists the memfds by their names in the store.
func (s *Store) records() map[string]int {
	fds := map[string]int{}
	if s != nil && s.memfds[0] >= 0 {
		fds[recordFirst], fds[recordSecond] = s.memfds[0], s.memfds[1]
	}
	return fds
}

// plan compares what the store should have with what it has.
func (s *Store) plan(src Predecessor) {
	s.dirty, s.missing, s.surplus = false, nil, nil
	wanted := map[string]bool{}
	want := func(d keptFD) {
		wanted[d.name] = true
		if s.ledger.counts[d.name] == 0 {
			s.missing = append(s.missing, d)
		}
	}
	for name, fd := range s.records() {
		want(keptFD{name: name, fd: fd})
	}
	for _, d := range descriptorsOf(src) {
		if !d.foreign && !d.passing() {
			want(d)
		}
	}
	slices.SortFunc(s.missing, func(a, b keptFD) int {
		return cmp.Or(cmp.Compare(rank(a.name), rank(b.name)), cmp.Compare(a.name, b.name))
	})
	for name := range s.ledger.counts {
		if ours(name) && !wanted[name] {
			s.surplus = append(s.surplus, name)
		}
	}
}

// rank is the order in which descriptors go into the store. Without the record the rest is useless. A worker's pidfd comes before
// its other descriptors: by it the next supervisord ends a process that the record does not know.
func rank(name string) int {
	switch {
	case isRecord(name):
		return 0
	case socket.Exported(name):
		return 1
	case strings.HasSuffix(name, "."+worker.FDProcess):
		return 2
	}
	return 3
}

// add stores what is missing. It stops at the first descriptor that is not taken: a store that is full or out of reach is so for all.
// When something has changed since the plan, only a worker can still tell whether it has a descriptor: the number of another one may
// belong to another file by now.
func (s *Store) add() {
	s.busy, s.problem = false, nil
	for len(s.missing) > 0 {
		if s.dirty && s.missing[0].worker.Adoptable == nil {
			s.busy = true
			return
		}
		if err := s.put(s.missing[0]); err != nil {
			s.failed(err)
			return
		}
		s.missing = s.missing[1:]
	}
}

// put stores one descriptor, unless it is closed by now.
func (s *Store) put(d keptFD) error {
	if err := s.ledger.fits(d.name); err != nil {
		return err
	}
	fd, err := d.duplicate()
	if err != nil || fd < 0 {
		return err
	}
	defer unix.Close(fd)
	if err := s.to.StoreFD(d.name, fd); err != nil {
		return err
	}
	s.ledger.count(d.name, 1)
	return nil
}

// failed records why the store is not current. A full store is not tried again until something was removed.
func (s *Store) failed(err error) {
	switch {
	case errors.Is(err, systemd.ErrBusy):
		s.busy = true
	case errors.Is(err, errStoreFull):
		s.problem = err
	default:
		s.problem, s.dirty = err, true
	}
}

// remove takes the surplus out of the store, even while something is missing: perhaps because the store is full.
func (s *Store) remove() {
	if s.dirty || len(s.surplus) == 0 {
		return
	}
	for ; len(s.surplus) > 0; s.surplus = s.surplus[1:] {
		if err := s.to.RemoveFD(s.surplus[0]); err != nil {
			s.failed(err)
			return
		}
		s.ledger.remove(s.surplus[0])
	}
	if len(s.missing) > 0 && !s.busy {
		s.add() // there is room now
	}
}

// tell logs that the store is not current once, and again when the reason changes: the number changes with every worker.
func (s *Store) tell() {
	text := ""
	if s.problem != nil {
		text = s.problem.Error()
	}
	if s.busy || text == s.told {
		return
	}
	s.told = text
	if s.problem == nil {
		s.log.Info("systemd's file-descriptor store is current again")
		return
	}
	s.log.Error("systemd's file-descriptor store is not current; if supervisord dies, the workers concerned end and new ones are started",
		zap.Int("missing", len(s.missing)), zap.Error(s.problem))
}

// write writes the record into the older one of the two memfds.
func (s *Store) write(r *Record) error {
	s.sequence++
	text, err := r.encode(s.sequence)
	if err != nil {
		return err
	}
	return rewrite(s.memfds[s.sequence%2], text)
}

// Settle waits until systemd has room for everything, or returns an error when this much time has passed.
func (s *Store) Settle(within time.Duration) error {
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	for s.Busy() {
		select {
		case <-s.to.Writable():
			s.Push()
		case <-timeout.C:
			return fmt.Errorf("%w (waited %s)", systemd.ErrBusy, within)
		}
	}
	return nil
}

// Empty takes everything out of the store but the sockets, and waits for that as Settle does. systemd drops the sockets when it stops
// the service; when it restarts it, clients wait in their queues for the next supervisord instead of being refused. The records are
// emptied first, without a message: a next supervisord that found one would go on with programs that were stopped.
func (s *Store) Empty(within time.Duration) error {
	if s == nil {
		return nil
	}
	for _, fd := range s.records() {
		rewrite(fd, nil) //nolint:errcheck // the message that follows removes it, too
	}
	s.dirty, s.busy, s.missing, s.surplus = false, false, nil, nil
	for _, name := range slices.Sorted(maps.Keys(s.ledger.counts)) {
		if ours(name) && !socket.Exported(name) {
			s.surplus = append(s.surplus, name)
		}
	}
	s.remove()
	return s.Settle(within)
}
