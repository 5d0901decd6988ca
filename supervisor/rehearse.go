package supervisor

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor/program"
)

// rehearsal is what a new binary is tried with: the record, and duplicates of every descriptor that it is to take over.
type rehearsal struct {
	record []byte
	fds    []int // as the record numbers them, from CheckFD+1 on
}

// rehearsal makes one. Without room for so many more descriptors it has only the record.
func (s *Supervisor) rehearsal() (*rehearsal, error) {
	r := &rehearsal{}
	record := s.record()
	record.Descriptors = map[string]int{}
	for name, d := range s.keepables() {
		fd, err := d.duplicate()
		if err != nil {
			r.close()
			r.fds, record.Descriptors = nil, nil
			break
		}
		if fd >= 0 {
			r.fds = append(r.fds, fd)
			record.Descriptors[name] = CheckFD + len(r.fds)
		}
	}
	var err error
	if r.record, err = encodeRecord(record, 0); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *rehearsal) close() {
	for _, fd := range r.fds {
		unix.Close(fd)
	}
}

// Rehearse reports whether this binary can go on with the record at a descriptor, and with the descriptors that it names, if it
// names any. It does what Restore does as far as that changes nothing: the sockets and the workers are those of a supervisor that
// is running.
func Rehearse(fd int) error {
	text, err := readAll(fd)
	if err != nil {
		return fmt.Errorf("cannot read the record at descriptor %d: %w", fd, err)
	}
	h := newHandover()
	if err := h.decode(text); err != nil {
		return err
	}
	if len(h.problems) > 0 {
		return h.problems[0]
	}
	h.record.ownListeners()
	if len(h.record.Descriptors) > 0 {
		table := socket.NewTable()
		table.Offer(h.sockets)
		if err := table.Rehearse(h.record.held()); err != nil {
			return err
		}
	}
	return h.record.rehearse(h.workers)
}

// rehearse goes through the programs as Restore does, and writes them down again.
func (r *Record) rehearse(fds map[string]int) error {
	table, now := socket.NewTable(), time.Now()
	for _, ps := range r.Programs {
		for _, cg := range ps.Core.Generations() {
			gs := ps.generation(cg.Number)
			if gs.Snapshot == nil {
				continue
			}
			g := &resources{number: cg.Number, listeners: gs.Listeners, claims: gs.Claims, snapshot: gs.Snapshot}
			for _, w := range cg.Workers {
				adoption(ps.Core.Name, gs.worker(w.Number), g.workerSpec(table, cg.Config, w), maps.Clone(fds))
			}
		}
		ps.Core.Step(now, program.Tick{})
		ps.Core.Next(now)
		ps.Core.Summary()
	}
	_, err := encodeRecord(r, 0)
	return err
}

// keepables lists everything that the next image gets.
func (s *Supervisor) keepables() map[string]keepable {
	all := map[string]keepable{}
	for _, n := range s.table.Export() {
		all[n.Name] = keepable{fd: n.FD}
	}
	for _, p := range s.programs {
		for number, h := range p.workers {
			for _, kind := range slices.Sorted(maps.Keys(h.Descriptors())) {
				all[workerFD(p.core.Name, number, kind)] = keepable{of: h, kind: kind}
			}
		}
	}
	return all
}
