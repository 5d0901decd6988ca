package handover

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/supervisor/snapshot"
	"example.org/supervisord/worker"
)

// recordVersion is the version of Record. An image reads no other: the next version of a part has another number.
const recordVersion = 5

// Record is what the next supervisord must know, besides the descriptors: after an execve in place, or after a crash.
type Record struct {
	Version  int    `json:",omitempty"`
	Instance string `json:",omitempty"`
	Settings config.Settings
	Files    []string        // of the configuration
	Programs []ProgramRecord `json:",omitempty"`

	// NonBlocking are the inodes of the socket units' non-blocking sockets. systemd changes O_NONBLOCK of its sockets at each start
	// of the service, while workers still use them.
	NonBlocking []uint64 `json:",omitempty"`

	Clock clockReading // when this was written, or as good as: a step of the wall clock writes the whole record anew

	// Reload was asked for, and its configuration was being read, when the image before this one ended.
	Reload *PendingReload `json:",omitempty"`

	// Orphans are the processes of a dead supervisor that were told to stop and have not gone yet.
	Orphans []int `json:",omitempty"`

	// Descriptors are the descriptors that an execve leaves open, by name, and Stored counts what systemd's file-descriptor store
	// has by then, or will have whatever becomes of the new image. They are not in a record for the store, where LISTEN_FDNAMES
	// says both.
	Descriptors map[string]int `json:",omitempty"`
	Stored      map[string]int `json:",omitempty"`
}

// ProgramRecord is one program.
type ProgramRecord struct {
	Core        *program.Program
	Listeners   []socket.Resolved // of Core.Config
	Generations []GenerationRecord
	Removed     bool      `json:",omitempty"`
	DownSince   time.Time `json:",omitzero"` // since when nothing serves
}

// GenerationRecord is what was looked up and opened for one generation.
type GenerationRecord struct {
	Number    int
	Listeners []socket.Resolved
	Claims    []string
	Snapshot  *snapshot.Snapshot // nil: not prepared yet
	Workers   []WorkerRecord
}

// WorkerRecord is one process.
type WorkerRecord struct {
	Number int
	Told   int      // steps of the stop plan that were performed
	Needs  []string `json:",omitempty"` // the kinds of descriptors without which a worker that is not ready cannot be adopted
	worker.State
}

// NewWorkerRecord returns the record of a worker.
func NewWorkerRecord(number, told int, h Adoptable) WorkerRecord {
	r := WorkerRecord{Number: number, Told: told, State: h.State()}
	if r.PID > 0 && !r.Ready {
		r.Needs = slices.Sorted(maps.Keys(h.Descriptors()))
		r.State = h.State() // not older than the descriptors: the report ends when the command runs
	}
	return r
}

// PendingReload is a reload that the next image has to begin.
type PendingReload struct {
	Reason  string
	AskedBy string `json:",omitempty"`
	All     bool   // every program, also those that have not changed
}

// Generation returns the record of a generation, or nil.
func (p *ProgramRecord) Generation(number int) *GenerationRecord {
	for i := range p.Generations {
		if p.Generations[i].Number == number {
			return &p.Generations[i]
		}
	}
	return nil
}

// Worker returns the record of a worker. One that is not known has no process.
func (g *GenerationRecord) Worker(number int) WorkerRecord {
	for _, w := range g.Workers {
		if w.Number == number {
			return w
		}
	}
	return WorkerRecord{Number: number}
}

// workers calls yield with every worker that has a process.
func (r *Record) workers(yield func(program string, w WorkerRecord) bool) {
	for _, p := range r.Programs {
		for _, g := range p.Generations {
			for _, w := range g.Workers {
				if w.PID > 0 && !yield(p.Core.Name, w) {
					return
				}
			}
		}
	}
}

// Held lists what the generations that live have of listeners.
func (r *Record) Held() []socket.Holding {
	var held []socket.Holding
	for _, p := range r.Programs {
		for _, g := range p.Generations {
			if g.Snapshot == nil {
				continue
			}
			serves := p.Core.Serving != nil && p.Core.Serving.Number == g.Number
			for _, l := range g.Listeners {
				held = append(held, socket.Holding{Resolved: l, Claim: socket.ClaimOn(l, g.Claims), Serves: serves})
			}
		}
	}
	return held
}

// head returns the part of the record that belongs to no program.
func (r *Record) head() *Record {
	head := *r
	head.Version, head.Programs = 0, nil
	return &head
}

// check refuses a record that a restore cannot handle.
func (r *Record) check() error {
	for _, p := range r.Programs {
		if p.Core == nil || p.Core.Config == nil {
			return errors.New("a program has no configuration")
		}
		if err := p.check(); err != nil {
			return fmt.Errorf("program %s: %w", p.Core.Name, err)
		}
	}
	return nil
}

func (p *ProgramRecord) check() error {
	for _, g := range p.Core.Generations() {
		switch {
		case g.Config == nil:
			return fmt.Errorf("generation %d has no configuration", g.Number)
		case p.Generation(g.Number) == nil:
			return fmt.Errorf("generation %d has no record", g.Number)
		}
	}
	for w, g := range p.Core.Workers() {
		if w.Slot < 0 || w.Slot >= len(g.Slots) && w.State != program.Stopping {
			return fmt.Errorf("worker %d has slot %d of %d", w.Number, w.Slot, len(g.Slots))
		}
	}
	return nil
}
