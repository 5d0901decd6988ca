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
// socket, every worker's descriptors, and the record. The descriptors stay their owners'; systemd gets duplicates,
// which the Store closes. Each Keep goes through these steps, and ends before the one that fails:
//
//	compare what has changed ─► add what is missing ─► write the record ─► remove what is too much
//
// What systemd could not be given makes the next Keep compare everything, and nothing else is remembered of it: a
// worker may have ended meanwhile, or the number of its descriptor may belong to another file. Unless its comment says
// otherwise, a method belongs to the loop, does nothing for a nil Store, and does not wait.
type Store struct {
	to      FDStore
	log     *zap.Logger
	src     Predecessor // of the last Keep
	written recordFiles
	whole   bool // the next Keep compares and writes everything
	ledger  *ledger
	lacks   int             // names that systemd could not be given yet: Keep compares everything once it can
	surplus []string        // names that have to go as soon as the record does without them
	leaving map[string]bool // the same names
	sockets []socket.Named  // as they were compared last
	filters map[string]bool // likewise: the names of the filters whose workers have ended
	busy    bool            // systemd has no room for the next message: until Writable says otherwise, none is tried
	problem error           // why the store is not current, although systemd is not busy
	told    string          // the problem that was logged last
}

// NewStore returns a store that is kept by way of to.
func NewStore(to FDStore, log *zap.Logger) *Store {
	return &Store{
		to: to, log: log, written: newRecordFiles(), whole: true, ledger: newLedger(nil, 0),
		leaving: map[string]bool{}, filters: map[string]bool{},
	}
}

// Inherit continues with the store and the record of the previous supervisord. What belongs to a worker that the record
// does not know goes at once: the next worker has the same number, so the same name, and what systemd had under it
// would pass for that worker's descriptors. The next Keep removes everything else that is too much.
func (s *Store) Inherit(h *Inheritance) {
	if s == nil {
		return
	}
	s.written.inherit(h)
	s.ledger, s.whole = newLedger(h.stored, h.limit), true
	known := h.adoptable()
	for name := range h.stored {
		if program, number := workerOf(name); number > 0 && !known[workerName(program, number)] {
			s.surplus, s.leaving[name] = append(s.surplus, name), true
		}
	}
	s.remove()
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
	all := s.whole || s.lacks > 0 && !s.busy
	if all {
		programs = s.programs()
	}
	changes := s.written.compare(src, programs)
	s.add(s.plan(changes, all))
	if err := s.written.write(src, s.whole, changes); err != nil {
		s.log.Error("cannot write the state for the next supervisord", zap.Error(err))
		s.whole = true // and nothing is removed until that is written
		return
	}
	s.whole = false
	if s.remove() && s.lacks > 0 {
		s.Keep(src, nil) // there is room now
		return
	}
	s.tell()
}

// Push continues after systemd was busy.
func (s *Store) Push() {
	s.busy = false
	if s.src == nil {
		s.remove()
		return
	}
	s.Keep(s.src, s.programs())
}

// programs lists the programs that there are, and those of which the record still says something.
func (s *Store) programs() []string {
	names := s.src.Programs()
	if s.written.log != nil {
		names = slices.AppendSeq(slices.Clip(names), maps.Keys(s.written.log.programs))
	}
	return names
}

// plan compares what the store should have with what it has: of what has changed, or of everything. It returns what is
// missing, sockets before workers, and adds to surplus what is too much.
func (s *Store) plan(c changes, all bool) (missing []storeEntry) {
	compare := func(e storeEntry, wanted bool) {
		stored := s.ledger.counts[e.name] > 0
		switch {
		case wanted && !stored:
			missing = append(missing, e)
		case !wanted && stored && !s.leaving[e.name]:
			s.surplus, s.leaving[e.name] = append(s.surplus, e.name), true
		case wanted && s.leaving[e.name] && e.worker == nil: // the same socket, again
			delete(s.leaving, e.name)
			s.surplus = slices.DeleteFunc(s.surplus, func(name string) bool { return name == e.name })
		case wanted && s.leaving[e.name]: // of another worker, whose program is gone: its removal comes first
			s.lacks++
		}
	}
	if all {
		s.lacks = 0
	}
	s.compareSockets(all, compare)
	s.compareFilters(compare)
	if all {
		s.compareWorkers(compare)
		return missing
	}
	for name, workers := range c {
		for _, n := range workers {
			s.compareWorker(workerID{name, n}, compare)
		}
	}
	return missing
}

// compareWorkers compares what there is of every worker, those included that only the store knows.
func (s *Store) compareWorkers(compare func(e storeEntry, wanted bool)) {
	known := maps.Clone(s.filters)
	for id := range held(s.src) {
		for _, suffix := range storeSuffixes {
			known[workerName(id.program, id.number)+suffix] = true
		}
		s.compareWorker(id, compare)
	}
	for name := range s.ledger.counts {
		if ours(name) && !isRecord(name) && !socket.Exported(name) && !known[name] {
			compare(storeEntry{name: name}, false)
		}
	}
}

// compareSockets compares the sockets, if they have changed or all is set.
func (s *Store) compareSockets(all bool, compare func(e storeEntry, wanted bool)) {
	sockets := s.src.Sockets()
	if !all && slices.Equal(sockets, s.sockets) {
		return
	}
	s.sockets = sockets
	wanted := map[string]bool{}
	for _, named := range sockets {
		if !named.Foreign {
			wanted[named.Name] = true
			compare(storeEntry{name: named.Name, fd: named.FD}, true)
		}
	}
	for name := range s.ledger.counts {
		if socket.Exported(name) && !wanted[name] {
			compare(storeEntry{name: name}, false)
		}
	}
}

// compareWorker compares the descriptors of a worker. Those that it has for its life come and go together; so do those
// that it needs until it is ready, and the notifications of its filter.
func (s *Store) compareWorker(id workerID, compare func(e storeEntry, wanted bool)) {
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
		compare(storeEntry{name: workerName(id.program, id.number) + suffix, suffix: suffix, worker: h}, wanted)
	}
}

// compareFilters compares the filters whose workers have ended. One comes when a worker goes, before Exited is posted.
func (s *Store) compareFilters(compare func(e storeEntry, wanted bool)) {
	before := s.filters
	s.filters = map[string]bool{}
	for _, e := range filtersOf(s.src) {
		s.filters[e.name] = true
		compare(e, true)
	}
	for name := range before {
		if !s.filters[name] {
			compare(storeEntry{name: name}, false)
		}
	}
}

// add stores what is missing, after the records. It stops at the first descriptor that systemd does not take: a store
// that is full or out of reach takes no other either.
func (s *Store) add(missing []storeEntry) {
	s.lacks += len(missing)
	if s.busy {
		return
	}
	s.problem = nil
	for i, name := range recordNames() {
		if s.ledger.counts[name] == 0 && !s.done(s.put(name, s.written.memfds[i])) {
			return
		}
	}
	for _, e := range missing {
		if !s.done(s.putEntry(e)) {
			return
		}
		s.lacks--
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

// putEntry stores the descriptors that there are now. If a worker has none yet, or none any more, its next turn plans
// it again.
func (s *Store) putEntry(e storeEntry) error {
	if e.worker == nil {
		return s.put(e.name, e.fd)
	}
	fds, err := e.duplicates()
	defer closeAll(fds)
	if err != nil || len(fds) == 0 {
		return err
	}
	return s.put(e.name, fds...)
}

// done reports whether systemd has taken a message. If not, done notes why the store is not current.
func (s *Store) done(err error) bool {
	if errors.Is(err, systemd.ErrBusy) {
		s.busy = true
	} else if err != nil {
		s.problem = err
	}
	return err == nil
}

// remove takes surplus descriptors out of the store, even while others are missing: they may be missing because the
// store is full. It reports whether it has taken something out.
func (s *Store) remove() (removed bool) {
	for !s.busy && len(s.surplus) > 0 && s.done(s.to.RemoveFD(s.surplus[0])) {
		s.ledger.remove(s.surplus[0])
		delete(s.leaving, s.surplus[0])
		s.surplus, removed = s.surplus[1:], true
	}
	return removed
}

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
		zap.Int("missing", s.lacks), zap.Error(s.problem))
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
	s.src, s.busy, s.lacks, s.surplus, s.leaving = nil, false, 0, nil, map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(s.ledger.counts)) {
		if ours(name) && !socket.Exported(name) {
			s.surplus = append(s.surplus, name)
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
// of socket units. systemd cannot be asked without waiting for it. The ledger has what systemd's socket has taken,
// which systemd gets whatever becomes of this process, and nothing else. After a death the next one begins with what
// LISTEN_FDNAMES says, after an execve with the ledger of the image before.
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
