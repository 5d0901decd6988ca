package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/systemd"
	"example.org/supervisord/socket"
	"example.org/supervisord/worker"
)

// Store is systemd's file-descriptor store: what it holds comes back to the next main process of the service. It alone knows
// what it holds: the next image is told what Freeze returned. Only Flush waits.
type Store interface {
	StoreFD(name string, fds ...int) error
	RemoveFD(name string) error
	// Stored lists the names that it has, or will have when systemd has read everything.
	Stored() []string
	// Freeze holds back every message until Thaw, and counts the descriptors of each name that systemd gets in any case.
	Freeze() map[string]int
	Thaw()
	// Flush waits until every message has been sent.
	Flush(context.Context) error
}

// keeper keeps the file-descriptor store current, so that the death of this process is a non-event: every listening socket,
// every worker's descriptors, and the state in two memfds that are written in turn, so that one of them is always whole.
type keeper struct {
	store    Store
	memfds   [2]int // -1: not made yet
	sequence uint64
	dirty    bool   // descriptors have come or gone
	trouble  string // what was said last of a store that is not current; "": it is
}

// keepable is a descriptor that the store should hold. That of a worker may be closed at any moment, so it has no number here.
type keepable struct {
	fd   int
	of   Handle // nil: fd is the loop's own
	kind string // by worker.FD…
}

// duplicate returns a descriptor to send and to close, or -1 if the worker does not have it any more.
func (d keepable) duplicate() (int, error) {
	if d.of != nil {
		return d.of.Duplicate(d.kind)
	}
	return unix.FcntlInt(uintptr(d.fd), unix.F_DUPFD_CLOEXEC, 0)
}

func newKeeper(store Store) *keeper {
	return &keeper{store: store, memfds: [2]int{-1, -1}, dirty: true}
}

// changed notes that descriptors have come or gone. Without a store it does nothing.
func (k *keeper) changed() {
	if k != nil {
		k.dirty = true
	}
}

// inherit goes on with the memfds that were handed over. What else the store has and nobody wants, the next keep removes.
func (k *keeper) inherit(h *Handover) {
	if k == nil {
		return
	}
	for i, name := range []string{stateFirst, stateSecond} {
		if fd, ok := h.memfds[name]; ok {
			k.memfds[i] = fd
		}
	}
	k.sequence = h.sequence
	k.dirty = true
}

// last is the sequence number that was written last: the next image must go on above it, or a later restore would take an
// older record for the newest.
func (k *keeper) last() uint64 {
	if k == nil {
		return 0
	}
	return k.sequence
}

// files lists the memfds by their names in the store.
func (k *keeper) files() map[string]int {
	fds := map[string]int{}
	if k == nil {
		return fds
	}
	for i, name := range []string{stateFirst, stateSecond} {
		if k.memfds[i] >= 0 {
			fds[name] = k.memfds[i]
		}
	}
	return fds
}

// keep writes the state down, and makes the store agree with it, in this order: what is new goes in before the state that
// names it, and what has served its purpose comes out after the state that knows so. A death in between leaves a descriptor
// too many, which is harmless, and never a worker that is waited for where nothing can come from any more.
func (s *Supervisor) keep() {
	k := s.keeper
	if k == nil {
		return
	}
	if err := k.open(); err != nil {
		s.Log.Error("cannot keep the state for the next supervisord", zap.Error(err))
		return
	}
	dirty := k.dirty
	k.dirty = false
	stored := map[string]bool{}
	for _, name := range k.store.Stored() {
		stored[name] = true
	}
	var want map[string]keepable
	var problem trouble
	if dirty {
		want = s.lasting() // before the state: what a worker is done with meanwhile is one descriptor too many
		k.add(want, stored, &problem)
	}
	record := s.record()
	forget(record, stored)
	if err := k.write(record); err != nil {
		s.Log.Error("cannot write the state for the next supervisord", zap.Error(err))
		return
	}
	if dirty {
		k.remove(want, stored, &problem)
		s.tellTrouble(problem)
	}
}

// trouble is why the store is not current.
type trouble struct {
	missing int
	err     error // the first one
}

func (t *trouble) add(missing int, err error) {
	t.missing += missing
	if t.err == nil {
		t.err = err
	}
}

// tellTrouble logs that the store is not current once, and again when the reason changes: the number changes with every worker.
func (s *Supervisor) tellTrouble(t trouble) {
	k := s.keeper
	text := ""
	if t.err != nil {
		text = t.err.Error()
	}
	if text == k.trouble {
		return
	}
	k.trouble = text
	if t.err == nil {
		s.Log.Info("systemd's file-descriptor store is current again")
		return
	}
	s.Log.Error("systemd's file-descriptor store is not current; if supervisord dies, the workers concerned end and new ones are started",
		zap.Int("missing", t.missing), zap.Error(t.err))
}

// forget leaves out of the state the processes that the store does not know: a number alone is nobody's. They were forked
// just now; the next supervisord ends them, and starts others.
func forget(r *Record, stored map[string]bool) {
	for _, p := range r.Programs {
		for _, g := range p.Generations {
			for i, w := range g.Workers {
				if w.PID != 0 && !stored[workerFD(p.Core.Name, w.Number, worker.FDProcess)] {
					g.Workers[i].State = worker.State{}
				}
			}
		}
	}
}

// rank is the order in which descriptors go into the store. Without the state the rest is worth nothing. A pidfd is first of
// its worker's: by it the next supervisord ends a process that the state does not know.
func rank(name string) int {
	switch {
	case name == stateFirst, name == stateSecond:
		return 0
	case socket.Exported(name):
		return 1
	case strings.HasSuffix(name, "."+worker.FDProcess):
		return 2
	}
	return 3
}

// add puts into the store what it does not have yet, and notes that in stored. It stops at the first that is not taken: a
// store that is full or out of reach is so for all.
func (k *keeper) add(want map[string]keepable, stored map[string]bool, t *trouble) {
	var missing []string
	for name := range want {
		if !stored[name] {
			missing = append(missing, name)
		}
	}
	slices.SortFunc(missing, func(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) })
	for i, name := range missing {
		has, err := k.put(name, want[name])
		if err != nil {
			t.add(len(missing)-i, err)
			k.dirty = !errors.Is(err, systemd.ErrStoreFull) // there, nothing helps but that something goes
			return
		}
		stored[name] = has
	}
}

// put stores one descriptor; false: there is none any more.
func (k *keeper) put(name string, d keepable) (bool, error) {
	fd, err := d.duplicate()
	if err != nil || fd < 0 {
		return false, err
	}
	defer unix.Close(fd)
	return true, k.store.StoreFD(name, fd)
}

// remove takes out of the store what is not wanted any more.
func (k *keeper) remove(want map[string]keepable, stored map[string]bool, t *trouble) {
	for name, has := range stored {
		if _, wanted := want[name]; wanted || !has || !ours(name) {
			continue
		}
		if err := k.store.RemoveFD(name); err != nil {
			t.add(0, err)
			k.dirty = true
			return
		}
		k.dirty = k.dirty || t.missing > 0 // there is room now
	}
}

// open makes the two memfds.
func (k *keeper) open() error {
	for i, name := range []string{stateFirst, stateSecond} {
		if k.memfds[i] >= 0 {
			continue
		}
		fd, err := memfd(name, nil)
		if err != nil {
			return err
		}
		k.memfds[i] = fd
	}
	return nil
}

// write writes the state into the older one of the two memfds.
func (k *keeper) write(st *Record) error {
	k.sequence++
	text, err := encodeRecord(st, k.sequence)
	if err != nil {
		return err
	}
	return rewrite(k.memfds[k.sequence%2], text)
}

// empty takes everything out of the store but the sockets. systemd drops these when it stops the service; when it restarts it,
// clients wait in their queues for the next supervisord instead of being refused. The state goes first, without a message: a
// next supervisord that found it would go on with programs that were stopped.
func (k *keeper) empty() {
	if k == nil {
		return
	}
	for _, fd := range k.files() {
		rewrite(fd, nil) //nolint:errcheck // the message that follows removes it, too
	}
	for _, name := range k.store.Stored() {
		if ours(name) && !socket.Exported(name) {
			k.store.RemoveFD(name) //nolint:errcheck // systemd empties the store of a service that has stopped
		}
	}
}

// How long systemd may take to read what it was sent: before an upgrade, in which what waits is sent again by the new image;
// and before this process leaves its workers to the next one, which gets what systemd has. The last one holds up the loop.
const (
	upgradeFlushTimeout = 5 * time.Second
	leaveTimeout        = 60 * time.Second
	lastFlushTimeout    = 2 * time.Second
)

// flushStore waits until systemd has been sent everything.
func flushStore(ctx context.Context, to Store, within time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not within %s", within))
	defer cancel()
	return to.Flush(ctx)
}

// leaveNote says that systemd has everything, or why not.
type leaveNote struct{ err error }

func (leaveNote) note() {}

// askToLeave leaves the workers to the next supervisord as soon as systemd has what that one needs. The loop goes on meanwhile.
func (s *Supervisor) askToLeave() {
	switch {
	case s.stopping, s.leaving:
		return
	case s.keeper == nil:
		s.leave(leaveNote{})
		return
	}
	s.Log.Info("leaving as soon as systemd has the descriptors of the workers")
	s.leaving = true
	s.running.Go(func() { s.put(leaveNote{flushStore(s.ctx, s.Systemd, leaveTimeout)}) })
}

// leave ends the loop as a SIGKILL would, but between two events and with everything written down.
func (s *Supervisor) leave(n leaveNote) {
	if s.stopping {
		return
	}
	if err := s.Launcher.Freeze(freezeTimeout); err != nil {
		s.Log.Error("what workers say now may be lost", zap.Error(err))
	}
	s.keeper.changed()
	s.keep()
	if n.err == nil && s.keeper != nil {
		n.err = flushStore(context.Background(), s.Systemd, lastFlushTimeout)
	}
	if n.err != nil {
		s.Log.Error("leaving before systemd has every descriptor; the workers concerned end and the next supervisord starts new ones", zap.Error(n.err))
	}
	if err := s.restLogs(); err != nil {
		s.Log.Error("output of workers is lost", zap.Error(err))
	}
	s.Log.Info("leaving; the workers go on and wait for the next supervisord")
	s.left = true
}
