package record

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"example.org/supervisord/internal/systemd"
	"example.org/supervisord/socket"
	"example.org/supervisord/worker"
)

// FDStore takes descriptors to systemd's file-descriptor store: see systemd.Notify. None of its methods waits.
type FDStore interface {
	StoreFD(name string, fds ...int) error
	RemoveFD(name string) error
	Writable() <-chan struct{}
}

// Store keeps systemd's file-descriptor store current, so that the death of this process costs nothing: every listening
// socket, every worker's descriptors, and the record. Store compares what there is with what systemd has and what the
// record says. The descriptors stay their owners'; systemd gets duplicates. Unless its comment says otherwise, a method
// belongs to the loop, does nothing for a nil Store, and does not wait.
type Store struct {
	to      FDStore
	log     *zap.Logger
	src     Predecessor // of the last Keep
	written recordFiles
	whole   bool // the next Keep compares and writes everything
	ledger  *ledger
	sockets []socket.Named // for which the queue was made
	queue   queue
	filters map[string]bool // the names of the filters whose workers have ended
	busy    bool            // systemd has no room for the next message: until Writable says otherwise, none is tried
	problem error           // why the store is not current, although systemd is not busy
	told    string          // the problem that was logged last
}

// queue is what systemd has to be told. Additions go before removals, sockets before workers. A queued worker may have
// exited by the time it is sent.
type queue struct {
	sockets []storeEntry
	workers []storeEntry
	waiting map[string]bool // the names in workers
	surplus []string        // names to be removed
	leaving map[string]bool // of workers, among them; true: a worker of a new program has the same name
}

func newQueue() queue { return queue{waiting: map[string]bool{}, leaving: map[string]bool{}} }

// NewStore returns a store that is kept by way of to.
func NewStore(to FDStore, log *zap.Logger) *Store {
	return &Store{
		to: to, log: log, written: newRecordFiles(), whole: true, ledger: newLedger(nil, 0), queue: newQueue(),
		filters: map[string]bool{},
	}
}

// Inherit continues with the store and the record of the previous supervisord. The next Keep removes everything else
// that systemd has.
func (s *Store) Inherit(h *Inheritance) {
	if s == nil {
		return
	}
	s.written.inherit(h)
	s.ledger, s.whole = newLedger(h.stored, h.limit), true
}

// All makes the next Keep compare and write everything.
func (s *Store) All() {
	if s != nil {
		s.whole = true
	}
}

// Writable gets a value when systemd, which was busy, may have room again: call Push then.
func (s *Store) Writable() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.to.Writable()
}

// Busy reports whether systemd has no room for a message that it still has to get.
func (s *Store) Busy() bool { return s != nil && s.busy }

// Keep writes what has changed of these programs into the record, and makes the store agree with the record. A program
// that has come or gone is one of them; the cost does not grow with the number of the others. New descriptors go into
// the store before Keep writes the record that names them, and Keep removes descriptors only after it has written
// the record that does without them. So a crash in between can leave a surplus descriptor in the store, which is
// harmless, but never a record of a worker without its descriptor. If systemd is slow, the record is ahead of the
// store: the next supervisord ignores what the record names and the store does not have.
func (s *Store) Keep(src Predecessor, programs []string) {
	if s == nil {
		return
	}
	s.src = src
	if err := s.written.open(); err != nil {
		s.log.Error("cannot keep the state for the next supervisord", zap.Error(err))
		return
	}
	changes := s.written.compare(src, programs)
	s.plan(changes)
	s.add()
	if err := s.written.write(src, s.whole, changes); err != nil {
		s.log.Error("cannot write the state for the next supervisord", zap.Error(err))
		s.whole = true // and nothing is removed until that is written
		return
	}
	s.whole = false
	s.remove()
	s.tell()
}

// Push continues after systemd was busy. It compares the sockets anew: the number of a socket that waited may belong to
// another file by now.
func (s *Store) Push() {
	s.busy = false
	if s.src != nil {
		s.planSockets()
	}
	s.add()
	s.remove()
	s.tell()
}

// plan finds out which descriptors have come and gone.
func (s *Store) plan(c changes) {
	s.planSockets()
	s.planFilters()
	if s.whole {
		s.planAll()
		return
	}
	for name, workers := range c {
		for _, n := range workers {
			s.planWorker(workerID{name, n})
		}
	}
}

// planSockets compares the sockets that the store should have with those that it has.
func (s *Store) planSockets() {
	sockets := s.src.Sockets()
	if !s.whole && slices.Equal(sockets, s.sockets) {
		return
	}
	s.sockets = sockets
	wanted := map[string]bool{}
	s.queue.sockets = nil
	for _, named := range sockets {
		if named.Foreign {
			continue
		}
		wanted[named.Name] = true
		if s.ledger.counts[named.Name] == 0 {
			s.queue.sockets = append(s.queue.sockets, storeEntry{name: named.Name, fd: named.FD})
		}
	}
	s.queue.surplus = slices.DeleteFunc(s.queue.surplus, socket.Exported)
	for name := range s.ledger.counts {
		if socket.Exported(name) && !wanted[name] {
			s.queue.surplus = append(s.queue.surplus, name)
		}
	}
}

// planAll compares the workers that the store should know with those that it knows.
func (s *Store) planAll() {
	wanted := maps.Clone(s.filters)
	for id := range held(s.src) {
		for _, suffix := range storeSuffixes {
			wanted[workerName(id.program, id.number)+suffix] = true
		}
		s.planWorker(id)
	}
	for name := range s.ledger.counts {
		if ours(name) && !isRecord(name) && !socket.Exported(name) && !wanted[name] {
			s.addSurplus(name)
		}
	}
}

// planWorker compares what the store should have of a worker with what it has. The descriptors that a worker has for
// its life come and go together; so do those that it needs until it is ready, and the notifications of its filter.
func (s *Store) planWorker(id workerID) {
	var h Adoptable
	if p := s.src.Program(id.program); p != nil {
		h, _ = p.Held(id.number)
	}
	for _, suffix := range storeSuffixes {
		wanted := h != nil
		switch {
		case wanted && suffix == startSuffix:
			wanted = !h.State().Ready
		case wanted && suffix == bindSuffix:
			_, wanted = h.Descriptors()[worker.FDBind]
		}
		s.planName(storeEntry{name: workerName(id.program, id.number) + suffix, suffix: suffix, worker: h}, wanted)
	}
}

// planFilters compares the filters whose workers have ended. One comes when a worker goes, before Exited is posted.
func (s *Store) planFilters() {
	before := s.filters
	s.filters = map[string]bool{}
	for _, e := range filtersOf(s.src) {
		s.filters[e.name] = true
		s.planName(e, true)
	}
	for name := range before {
		if !s.filters[name] {
			s.planName(storeEntry{name: name}, false)
		}
	}
}

// planName plans to add what is missing under a name, or to remove what is surplus. It plans each only once.
func (s *Store) planName(e storeEntry, wanted bool) {
	switch stored := s.ledger.counts[e.name] > 0; {
	case !wanted && stored:
		s.addSurplus(e.name)
	case wanted && stored:
		if _, is := s.queue.leaving[e.name]; is {
			s.queue.leaving[e.name] = true
		}
	case wanted && !s.queue.waiting[e.name]:
		s.queue.waiting[e.name] = true
		s.queue.workers = append(s.queue.workers, e)
	}
}

func (s *Store) addSurplus(name string) {
	if _, is := s.queue.leaving[name]; !is {
		s.queue.leaving[name] = false
		s.queue.surplus = append(s.queue.surplus, name)
	}
}

// add stores what is missing. It stops at the first descriptor that systemd does not take: a store that is full or out
// of reach takes no other either.
func (s *Store) add() {
	if s.busy {
		return
	}
	s.problem = nil
	q := &s.queue
	for i, name := range recordNames() {
		if s.ledger.counts[name] > 0 {
			continue
		}
		if err := s.put(name, s.written.memfds[i]); err != nil {
			s.failed(err)
			return
		}
	}
	for ; len(q.sockets) > 0; q.sockets = q.sockets[1:] {
		if err := s.put(q.sockets[0].name, q.sockets[0].fd); err != nil {
			s.failed(err)
			return
		}
	}
	for ; len(q.workers) > 0; q.workers = q.workers[1:] {
		w := q.workers[0]
		if err := s.putWorker(w); err != nil {
			s.failed(err)
			return
		}
		delete(q.waiting, w.name)
	}
}

// put stores descriptors under a name.
func (s *Store) put(name string, fds ...int) error {
	if err := s.ledger.fits(name, len(fds)); err != nil {
		return err
	}
	if err := s.to.StoreFD(name, fds...); err != nil {
		return err
	}
	s.ledger.count(name, len(fds))
	return nil
}

// putWorker stores the descriptors that a worker has now. If the worker has none yet, or none any more, its next turn
// plans it again.
func (s *Store) putWorker(e storeEntry) error {
	fds, err := e.duplicates()
	defer closeAll(fds)
	if err != nil || len(fds) == 0 {
		return err
	}
	return s.put(e.name, fds...)
}

// failed notes why the store is not current. Nothing is added to a full store until something was removed.
func (s *Store) failed(err error) {
	if errors.Is(err, systemd.ErrBusy) {
		s.busy = true
	} else {
		s.problem = err
	}
}

// remove takes surplus descriptors out of the store, even while others are missing: they may be missing because the
// store is full.
func (s *Store) remove() {
	if s.whole || s.busy || len(s.queue.surplus) == 0 {
		return
	}
	for ; len(s.queue.surplus) > 0; s.queue.surplus = s.queue.surplus[1:] {
		name := s.queue.surplus[0]
		if err := s.to.RemoveFD(name); err != nil {
			s.failed(err)
			return
		}
		s.ledger.remove(name)
		again := s.queue.leaving[name]
		delete(s.queue.leaving, name)
		if program, number := workerOf(name); again && number > 0 {
			s.planWorker(workerID{program, number})
		}
	}
	if s.missing() > 0 && !s.busy {
		s.add() // there is room now
	}
}

func (s *Store) missing() int { return len(s.queue.sockets) + len(s.queue.workers) }

// tell logs once that the store is not current, and again when the reason changes; the number of missing descriptors
// changes with every worker and is not a reason.
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
	s.log.Error("systemd's file-descriptor store is not current; "+
		"if supervisord dies, the workers concerned end and new ones are started",
		zap.Int("missing", s.missing()), zap.Error(s.problem))
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

// Empty takes everything out of the store but the sockets, and waits for that as Settle does. systemd drops the
// sockets when it stops the service; when it restarts it, clients wait in their queues for the next supervisord
// instead of being refused. The records are emptied first, without a message: a next supervisord that found one would
// continue with programs that were stopped.
func (s *Store) Empty(within time.Duration) error {
	if s == nil {
		return nil
	}
	s.written.empty()
	s.busy, s.queue, s.whole = false, newQueue(), false
	for _, name := range slices.Sorted(maps.Keys(s.ledger.counts)) {
		if ours(name) && !socket.Exported(name) {
			s.queue.surplus = append(s.queue.surplus, name)
		}
	}
	s.remove()
	return s.Settle(within)
}

// maxNames is what LISTEN_FDNAMES may hold: Linux takes no string of the environment, with its NUL, above 32 pages of
// 4 KiB (execve(2)). Here each name counts with its colon.
const maxNames = 32*4096 - len("LISTEN_FDNAMES=")

// errStoreFull says that systemd's file-descriptor store cannot take one more descriptor. The error that wraps it says
// why.
var errStoreFull = errors.New("systemd's file-descriptor store is full")

// errNamesFull is the errStoreFull of names: systemd could not start the service again, because the names of all
// descriptors would not fit into LISTEN_FDNAMES.
var errNamesFull = fmt.Errorf("%w: the names of its descriptors would be longer than an environment variable may be; "+
	"use shorter program names or fewer workers", errStoreFull)

// ledger knows what systemd keeps for the next main process of this service: the descriptors in its store, and those
// of socket units. It has what systemd's socket has taken, which systemd gets whatever becomes of this process, and
// nothing else.
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

// fits returns an error if the store has no room for n more descriptors of this name.
func (l *ledger) fits(name string, n int) error {
	switch {
	case l.size+n*(len(name)+1) > maxNames:
		return errNamesFull
	case l.limit > 0 && l.total+n > l.limit:
		return fmt.Errorf("%w: the unit has FileDescriptorStoreMax=%d; raise it", errStoreFull, l.limit)
	}
	return nil
}
