package supervisor

import (
	"go.uber.org/zap"

	"example.org/supervisord/socket"
	"example.org/supervisord/worker"
)

// Store is systemd's file-descriptor store: what it holds comes back to the next main process of the service.
type Store interface {
	StoreFD(name string, fds ...int) error
	RemoveFD(name string) error
}

// keeper keeps the file-descriptor store current, so that the death of this process is a non-event: every listening socket,
// every worker's descriptors, and the state in two memfds that are written in turn, so that one of them is always whole.
type keeper struct {
	store    Store
	memfds   [2]int          // -1: not made yet
	stored   map[string]bool // what is in the store
	sequence uint64
	dirty    bool // descriptors have come or gone
}

func newKeeper(store Store) *keeper {
	return &keeper{store: store, memfds: [2]int{-1, -1}, stored: map[string]bool{}, dirty: true}
}

// changed notes that descriptors have come or gone. Without a store it does nothing.
func (k *keeper) changed() {
	if k != nil {
		k.dirty = true
	}
}

// inherit takes over the store as it was found: what is not wanted any more is removed by the next keep.
func (k *keeper) inherit(h *Handover) {
	if k == nil {
		return
	}
	for i, name := range []string{stateFirst, stateSecond} {
		if fd, ok := h.memfds[name]; ok {
			k.memfds[i] = fd
			k.stored[name] = true
		}
	}
	for _, name := range h.stored {
		k.stored[name] = true
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
// too many, which is nothing, and never a worker that is waited for where nothing can come from any more.
func (s *Supervisor) keep() {
	k := s.keeper
	if k == nil {
		return
	}
	if err := k.open(); err != nil {
		s.Log.Error("cannot keep the state for the next supervisord", zap.Error(err))
		return
	}
	failed := func(err error) {
		s.Log.Error("cannot keep systemd's file-descriptor store current; the death of supervisord would lose connections", zap.Error(err))
	}
	dirty := k.dirty
	k.dirty = false
	var want map[string]int
	if dirty {
		want = s.lasting() // before the state: what a worker is done with meanwhile is one descriptor too many
		k.add(want, s.foreign(), failed)
	}
	record := s.record()
	k.forget(record)
	if err := k.write(record); err != nil {
		s.Log.Error("cannot write the state for the next supervisord", zap.Error(err))
		return
	}
	if dirty {
		k.remove(want, failed)
	}
}

// foreign names the sockets that a socket unit keeps itself.
func (s *Supervisor) foreign() map[string]bool {
	names := map[string]bool{}
	for _, n := range s.table.Export() {
		names[n.Name] = n.Foreign
	}
	return names
}

// forget leaves out of the state the processes that the store does not know: a number alone is nobody's. They were forked
// just now; the next supervisord ends them, and starts others.
func (k *keeper) forget(r *Record) {
	for _, p := range r.Programs {
		for _, g := range p.Generations {
			for i, w := range g.Workers {
				if w.PID != 0 && !k.stored[workerFD(p.Core.Name, w.Number, worker.FDProcess)] {
					g.Workers[i].State = worker.State{}
				}
			}
		}
	}
}

// add puts into the store what it does not have yet, except for what it is not to hold.
func (k *keeper) add(want map[string]int, except map[string]bool, failed func(error)) {
	for name, fd := range want {
		if k.stored[name] || except[name] {
			continue
		}
		if err := k.store.StoreFD(name, fd); err != nil {
			failed(err)
			continue
		}
		k.stored[name] = true
	}
}

// remove takes out of the store what is not wanted any more.
func (k *keeper) remove(want map[string]int, failed func(error)) {
	for name := range k.stored {
		if _, ok := want[name]; ok || name == stateFirst || name == stateSecond {
			continue
		}
		if err := k.store.RemoveFD(name); err != nil {
			failed(err)
			continue
		}
		delete(k.stored, name)
	}
}

// open makes the two memfds, and stores them before anything else: without them the rest is worth nothing.
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
		k.stored[name] = true
		if err := k.store.StoreFD(name, fd); err != nil {
			return err
		}
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
// clients wait in their queues for the next supervisord instead of being refused.
func (k *keeper) empty() {
	if k == nil {
		return
	}
	for name := range k.stored {
		if !socket.Exported(name) {
			k.store.RemoveFD(name) //nolint:errcheck // systemd empties the store of a service that has stopped
		}
	}
}
