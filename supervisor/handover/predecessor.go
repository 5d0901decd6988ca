package handover

import (
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket"
	"example.org/supervisord/worker"
)

// Predecessor is a running supervisor that is to be handed over.
type Predecessor interface {
	Record() *Record // without its programs, and without what this package adds: the clock, and what belongs to descriptors
	Programs(yield func(Program) bool)
	Program(name string) Program // nil: there is none
	Sockets() []socket.Named
	Workers(yield func(Held) bool)
	Filters() map[string]int // those of workers that have ended, as of worker.Launcher
	DuplicateFilter(name string) (int, error)
}

// Program is one program of a Predecessor.
type Program interface {
	Record() ProgramRecord                  // without its generations
	Generation(number int) GenerationRecord // without its workers
	Worker(number int) WorkerRecord
	Held(number int) Adoptable // nil: the supervisor holds no such worker
}

// Held is a worker that a supervisor holds.
type Held struct {
	Program string
	Number  int
	Adoptable
}

// Adoptable is what the record needs of a worker: see worker.Worker.
type Adoptable interface {
	State() worker.State
	Descriptors() map[string]int // by worker.FD…; the numbers hold while the launcher is frozen
	Duplicate(name string) (int, error)
}

// recordOf returns the head of the record of a supervisor.
func recordOf(src Predecessor) *Record {
	r := src.Record()
	r.Clock = readClock(time.Now())
	r.NonBlocking = nonBlocking(src.Sockets())
	return r
}

// nonBlocking lists the inodes of the sockets of socket units that do not block.
func nonBlocking(sockets []socket.Named) (inodes []uint64) {
	for _, s := range sockets {
		if !s.Foreign {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(s.FD), unix.F_GETFL, 0)
		if err == nil && flags&unix.O_NONBLOCK != 0 {
			inodes = append(inodes, inode(s.FD))
		}
	}
	return inodes
}

// keptFD is a descriptor that the next supervisord needs. That of a worker may be closed at any moment, unless the launcher is frozen.
type keptFD struct {
	name   string
	fd     int
	worker Held // if it is a worker's
	kind   string
}

// leftFilter is a filter whose worker has ended.
type leftFilter struct {
	of   Predecessor
	name string
}

func (f leftFilter) State() worker.State           { return worker.State{} }
func (f leftFilter) Duplicate(string) (int, error) { return f.of.DuplicateFilter(f.name) }

func (f leftFilter) Descriptors() map[string]int {
	if fd, has := f.of.Filters()[f.name]; has {
		return map[string]int{worker.FDBind: fd}
	}
	return nil
}

// descriptorsOf lists everything that the next image needs.
func descriptorsOf(src Predecessor) []keptFD {
	var all []keptFD
	for _, s := range src.Sockets() {
		all = append(all, keptFD{name: s.Name, fd: s.FD})
	}
	for w := range src.Workers {
		for kind, fd := range w.Descriptors() {
			all = append(all, keptFD{name: workerFD(w.Program, w.Number, kind), fd: fd, worker: w, kind: kind})
		}
	}
	for name, fd := range src.Filters() {
		held := Held{Adoptable: leftFilter{src, name}}
		all = append(all, keptFD{name: filterPrefix + name, fd: fd, worker: held, kind: worker.FDBind})
	}
	return all
}

// duplicate returns a descriptor for the caller to close, or -1 if the worker does not have it any more.
func (d keptFD) duplicate() (int, error) {
	if d.worker.Adoptable != nil {
		return d.worker.Duplicate(d.kind)
	}
	return duplicate(d.fd)
}
