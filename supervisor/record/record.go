package record

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/supervisor/snapshot"
	"example.org/supervisord/worker"
)

// recordVersion is the version of Record. An image reads no other: the next version of a part has another number.
const recordVersion = 10

// Record is what the next supervisord must know besides the descriptors: after an execve in place, or after a death.
type Record struct {
	Instance string `json:",omitempty"`
	Settings config.Settings
	Files    []string        // of the configuration
	Programs []ProgramRecord `json:",omitempty"` // in the order of their names

	// NonBlocking are the inodes of the socket units' non-blocking sockets. systemd changes O_NONBLOCK of its sockets
	// at each start of the service, while workers still use them.
	NonBlocking []uint64 `json:",omitempty"`

	Clock clockReading // when this was written, or as good as: a step of the wall clock writes the whole record anew

	// Reload was asked for, and its configuration was being read, when the image before this one ended.
	Reload *PendingReload `json:",omitempty"`

	// Orphans are the processes of a dead supervisor that were told to stop and have not gone yet.
	Orphans []int `json:",omitempty"`

	// Descriptors are the descriptors that an execve leaves open, by name, and Stored counts what systemd's
	// file-descriptor store has by then, or will have whatever becomes of the new image. They are not in a record for
	// the store, where LISTEN_FDNAMES says both.
	Descriptors map[string][]int `json:",omitempty"`
	Stored      map[string]int   `json:",omitempty"`
}

// ProgramRecord is one program: the state of its core, and what belongs to its generations and workers, by their
// numbers.
type ProgramRecord struct {
	Core        *program.Program
	Listeners   []socket.Resolved // of Core.Config
	Removed     bool              `json:",omitempty"`
	Generations map[int]GenerationRecord
	Workers     map[int]WorkerRecord // those that have, or had, a process

	// Held returns a worker of a supervisor that runs, in place of Workers, or nil; and a number, not 0, that is another
	// one whenever the worker's State or Descriptors may say something else.
	Held func(number int) (w Adoptable, turn int) `json:"-"`
}

// GenerationRecord is what was looked up and opened for one generation. It changes when the generation is prepared,
// and when its sockets are released.
type GenerationRecord struct {
	Lanes    []*socket.Lane     `json:",omitempty"`
	Snapshot *snapshot.Snapshot `json:",omitempty"` // nil: not prepared yet
}

// WorkerRecord is one process.
type WorkerRecord struct {
	// Needs are the kinds of descriptors without which a worker that is not ready cannot be adopted.
	Needs []string `json:",omitempty"`

	worker.State
}

// PendingReload is a reload that the next image has to begin.
type PendingReload struct {
	Reason  string
	AskedBy string `json:",omitempty"`
	All     bool   // every program, also those that have not changed
}

// Predecessor is a supervisor that runs, as the record sees it. Only the supervisor's loop calls this package with one,
// and it changes nothing before the call returns; so what its methods return may be shared with the loop.
type Predecessor interface {
	Head() *Record // without its programs, and without what this package adds: the clock, and what belongs to descriptors
	Sockets() []socket.Named
	Programs() []string                 // their names
	Program(name string) *ProgramRecord // with Held; nil: there is none
	Filters() map[string]Adoptable      // those of workers that have ended, as of worker.Launcher
}

// Adoptable is what the record needs of a worker of a supervisor that runs: see worker.Worker. The worker changes on
// goroutines of the launcher: State and Descriptors are each true at one moment, and may be of two moments.
type Adoptable interface {
	State() worker.State
	Descriptors() map[string]int // by worker.FD…; the numbers hold while the launcher is frozen

	// Duplicate returns a duplicate of one of them, for the caller to close, or -1 if the worker does not have it any
	// more.
	Duplicate(name string) (int, error)
}

// worker returns the record of a worker. A worker that is not known has no process.
func (p *ProgramRecord) worker(number int) WorkerRecord {
	if p.Held == nil {
		return p.Workers[number]
	}
	h, _ := p.Held(number)
	if h == nil {
		return WorkerRecord{}
	}
	r := WorkerRecord{State: h.State()}
	if r.PID > 0 && !r.Ready {
		r.Needs = slices.Sorted(maps.Keys(h.Descriptors()))
		r.State = h.State() // not older than the descriptors: the report ends when the command runs
	}
	return r
}

// headOf returns the head of the record of a supervisor.
func headOf(src Predecessor) *Record {
	r := src.Head()
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

// programsOf yields the programs of a supervisor.
func programsOf(src Predecessor) iter.Seq[*ProgramRecord] {
	return func(yield func(*ProgramRecord) bool) {
		for _, name := range src.Programs() {
			if p := src.Program(name); p != nil && !yield(p) {
				return
			}
		}
	}
}

// held yields the workers that a supervisor holds.
func held(src Predecessor) iter.Seq2[workerID, Adoptable] {
	return func(yield func(workerID, Adoptable) bool) {
		for p := range programsOf(src) {
			for w := range p.Core.Workers() {
				if h, _ := p.Held(w.Number); h != nil && !yield(workerID{p.Core.Name, w.Number}, h) {
					return
				}
			}
		}
	}
}

// workerID is a worker of any program: its number is the program's own.
type workerID struct {
	program string
	number  int
}

// workers calls yield with every worker that has a process.
func (r *Record) workers(yield func(workerID, WorkerRecord) bool) {
	for _, p := range r.Programs {
		for n, w := range p.Workers {
			if w.PID > 0 && !yield(workerID{p.Core.Name, n}, w) {
				return
			}
		}
	}
}

// Lanes lists what the generations that live have of listeners, the serving one's first.
func (r *Record) Lanes() (lanes []*socket.Lane) {
	for _, p := range r.Programs {
		for _, serving := range []bool{true, false} {
			for _, cg := range p.Core.Generations() {
				if g := p.Generations[cg.Number]; g.Snapshot != nil && serving == (cg == p.Core.Serving) {
					lanes = append(lanes, g.Lanes...)
				}
			}
		}
	}
	return lanes
}

// check refuses a record that a restore cannot handle.
func (r *Record) check() error {
	for _, p := range r.Programs {
		if err := p.check(); err != nil {
			return fmt.Errorf("program %s: %w", p.Core.Name, err)
		}
	}
	return nil
}

// check refuses what a record of this package never has: two generations with a number, a worker without its slot.
func (p *ProgramRecord) check() error {
	if p.Core.Config == nil {
		return errors.New("it has no configuration")
	}
	numbers := map[int]bool{}
	for _, g := range p.Core.Generations() {
		switch {
		case numbers[g.Number]:
			return fmt.Errorf("there are two generations %d", g.Number)
		case g.Config == nil:
			return fmt.Errorf("generation %d has no configuration", g.Number)
		}
		numbers[g.Number] = true
		if slices.ContainsFunc(p.Generations[g.Number].Lanes, func(ln *socket.Lane) bool {
			return ln.Listener.Address == (socket.Address{})
		}) {
			return fmt.Errorf("generation %d has a lane of no listener", g.Number)
		}
	}
	for w, g := range p.Core.Workers() {
		scaled := w.State == program.Finishing || w.State == program.Stopping // its slot may be gone before it is
		if w.Slot < 0 || w.Slot >= len(g.Slots) && !scaled {
			return fmt.Errorf("worker %d has slot %d of %d", w.Number, w.Slot, len(g.Slots))
		}
	}
	return nil
}

// storeEntry is what the next supervisord needs under one name in systemd's store, or in the list of an execve: a
// socket, or the descriptors of a worker that come and go together. The socket table or the worker owns them. A worker
// may close one at any moment unless the launcher is frozen: use duplicates.
type storeEntry struct {
	name   string
	fd     int       // of a socket
	worker Adoptable // nil: it is a socket
	suffix string    // of the name of a worker, which says what the descriptors are for
}

// entriesOf lists everything that the next image needs.
func entriesOf(src Predecessor) []storeEntry {
	var all []storeEntry
	for _, s := range src.Sockets() {
		all = append(all, storeEntry{name: s.Name, fd: s.FD})
	}
	for id, h := range held(src) {
		for _, suffix := range storeSuffixes {
			all = append(all, storeEntry{name: workerName(id.program, id.number) + suffix, worker: h, suffix: suffix})
		}
	}
	return append(all, filtersOf(src)...)
}

// filtersOf lists the filters whose workers have ended.
func filtersOf(src Predecessor) (all []storeEntry) {
	for name, f := range src.Filters() {
		all = append(all, storeEntry{name: filterPrefix + name, worker: f, suffix: bindSuffix})
	}
	return all
}

// own returns the descriptors themselves, each marked with its kind. The launcher is frozen.
func (e storeEntry) own() (fds []int, err error) {
	if e.worker == nil {
		return []int{e.fd}, nil
	}
	for kind, fd := range e.worker.Descriptors() {
		if storeSuffix(kind) == e.suffix && err == nil {
			fds, err = append(fds, fd), mark(fd, kind)
		}
	}
	return fds, err
}

// duplicates returns duplicates of the descriptors that there are now, marked likewise, for the caller to close.
func (e storeEntry) duplicates() (fds []int, err error) {
	if e.worker == nil {
		fd, err := duplicate(e.fd)
		if err != nil {
			return nil, err
		}
		return []int{fd}, nil
	}
	if e.suffix == startSuffix && e.worker.State().Ready {
		return nil, nil
	}
	for kind := range e.worker.Descriptors() {
		if storeSuffix(kind) != e.suffix {
			continue
		}
		fd, err := e.worker.Duplicate(kind)
		if err == nil && fd >= 0 {
			fds = append(fds, fd)
			err = mark(fd, kind)
		}
		if err != nil {
			return fds, err
		}
	}
	return fds, nil
}

// mark writes into a descriptor which kind it is: all descriptors of an entry have the same name. The mark is the
// number that F_SETSIG sets. The open file description carries it to every process; it has no effect without O_ASYNC,
// which nothing here sets.
func mark(fd int, kind string) error {
	number := slices.Index(workerFDKinds(), kind) + 1
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETSIG, number); err != nil {
		return fmt.Errorf("cannot mark a descriptor for the next supervisord: %w", err)
	}
	return nil
}

// kindOf returns the kind of a worker's descriptor; "": the descriptor has no mark.
func kindOf(fd int) string {
	number, err := unix.FcntlInt(uintptr(fd), unix.F_GETSIG, 0)
	if kinds := workerFDKinds(); err == nil && number > 0 && number <= len(kinds) {
		return kinds[number-1]
	}
	return ""
}

// clockReading is what two clocks showed when a record was written: the wall clock, which the times in the record use
// and a person can set, and CLOCK_MONOTONIC, which nobody can set.
//
// The times of the state are not instants of CLOCK_BOOTTIME, which would need no Rebase: the timers that wait for them
// run on CLOCK_MONOTONIC, which stands still while the machine is suspended. On CLOCK_BOOTTIME every deadline would
// pass during a suspend, in which no worker could meet it. Within a process a time.Time has both clocks, so that a
// status shows it as it is.
type clockReading struct {
	Wall      time.Time
	Monotonic time.Duration
}

func readClock(now time.Time) clockReading { return clockReading{now.Round(0), monotonic()} }

// monotonic reads CLOCK_MONOTONIC, which stands still while the machine is suspended, as Go's timers do.
func monotonic() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0 // impossible
	}
	return time.Duration(t.Nano())
}

// shows returns what the record's wall clock would show now if nobody had set it.
func (c clockReading) shows() time.Time {
	return c.Wall.Add(max(0, monotonic()-c.Monotonic)) // less than 0: from before the machine's last start
}

// Rebase puts the times of a program in this record on this process's clock. Deadlines that passed meanwhile are
// extended a little, because no supervisor watched them.
func (r *Record) Rebase(p *program.Program, now time.Time) {
	p.Rebase(r.Clock.shows(), now)
	p.Inherit(now)
}
