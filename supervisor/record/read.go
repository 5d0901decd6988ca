package record

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket"
	"example.org/supervisord/socket/inherit"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/ready"
)

// Inheritance is what this process was started with: sockets, and the record and descriptors of the supervisor before
// it. It owns the descriptors until somebody takes them: Adoption, the socket table, or Drop.
type Inheritance struct {
	Record   *Record          // nil: there are no programs to take over
	Sockets  []inherit.Socket // for the table
	Problems []error          // what is wrong, without preventing a restore
	Upgrade  bool             // by execve, from the image before this one
	GaveBack string           // why a newer image gave its place back to this one; "": none did

	sequence uint64                    // of the newest batch of the record
	newest   string                    // the memfd that has it; "": none
	memfds   map[string]int            // of records in the file-descriptor store
	workers  map[string]map[string]int // the workers' descriptors, by workerName and kind
	useless  []int                     // descriptors of workers that nobody can take
	filters  map[string]int            // by name: those whose worker has ended
	extra    map[string]int            // descriptors for the caller: the pid file, …
	stored   map[string]int            // what systemd has: descriptors of each name
	limit    int                       // FileDescriptorStoreMax=; 0: unknown
}

// Read reads what this process was started with. environ is the environment, as os.Environ returns it, and inherited
// finds the descriptors that it lists, as inherit.Socketed does. Read changes nothing but close-on-exec flags. A list,
// or the record of the image before this one, that cannot be read is an error: the caller decides who continues.
//
// The descriptors arrive as a list of names and numbers, which is read in the same way for every source: a socket
// unit, systemd's store or the image before this one. Only the list itself is found in two places. systemd's is
// LISTEN_FDS and LISTEN_FDNAMES. An image that executes the next one cannot use these: its descriptors would have to
// move to 3, 4, … under a running Go program, and execve(2) takes 128 KiB of names at most. It writes the list into
// the record.
func Read(environ []string, inherited func() ([]inherit.Socket, error)) (*Inheritance, error) {
	h := newInheritance()
	h.limit, _ = strconv.Atoi(getenv(environ, "FDSTORE"))
	h.GaveBack = getenv(environ, failedVariable)
	if value := getenv(environ, handoverVariable); value != "" {
		return h, h.readUpgrade(value)
	}
	found, err := inherited()
	if err != nil {
		return nil, err
	}
	for _, i := range found {
		h.stored[i.Name]++
		h.sort(i)
	}
	if h.Record = h.readNewest(); h.Record != nil {
		h.forget()
		h.unblock()
	}
	return h, nil
}

// ReadRehearsal reads what a process that tries a new binary was started with: a record at this descriptor, and what
// it names.
func ReadRehearsal(fd int) (*Inheritance, error) {
	h := newInheritance()
	return h, h.take(fd)
}

func newInheritance() *Inheritance {
	return &Inheritance{
		memfds: map[string]int{}, workers: map[string]map[string]int{}, filters: map[string]int{},
		extra: map[string]int{}, stored: map[string]int{},
	}
}

func getenv(environ []string, name string) string {
	for _, kv := range slices.Backward(environ) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

func (h *Inheritance) readUpgrade(value string) error {
	fd, err := strconv.Atoi(value)
	if err != nil || fd < 3 {
		return fmt.Errorf("%s=%s is not the number of a descriptor", handoverVariable, value)
	}
	unix.CloseOnExec(fd)
	h.Upgrade = true
	return h.take(fd)
}

// take reads the record of an image that executes this one, or tries it, and takes the descriptors that it lists.
func (h *Inheritance) take(fd int) (err error) {
	if h.Record, h.sequence, err = readRecord(fd); err != nil {
		return err
	}
	for name, fds := range h.Record.Descriptors {
		for _, fd := range fds {
			i, err := inherit.Examine(fd, name)
			if err != nil {
				h.Problems = append(h.Problems, err)
				continue
			}
			h.sort(i)
		}
	}
	h.stored = h.Record.Stored
	h.readNewest() // the store continues with the other one
	return nil
}

// The names of descriptors in a list and in the store: the records', of which there are two, so that one is always
// complete; "w.PROGRAM.WORKER" for those that a worker has for its life, which are marked with their kinds,
// "w.PROGRAM.WORKER.start" for those that it needs until it is ready, and "w.PROGRAM.WORKER.filter" for the
// notifications of its filter, which come last; "f.NAME" for those of a filter whose worker has ended; "x.NAME" for the
// caller's. The table names its sockets.
const (
	recordFirst    = "state.a"
	recordSecond   = "state.b"
	workerFDPrefix = "w."
	startSuffix    = ".start"
	bindSuffix     = ".filter"
	filterPrefix   = "f."
	extraPrefix    = "x."
)

func workerName(program string, number int) string {
	return workerFDPrefix + program + "." + strconv.Itoa(number)
}

// storeSuffixes tell the names of one worker in the store apart; the first is for what it has for its life.
var storeSuffixes = [...]string{"", startSuffix, bindSuffix}

// storeSuffix is that of the name under which a worker's descriptor is in the store.
func storeSuffix(kind string) string {
	switch kind {
	case worker.FDPipe, worker.FDReport:
		return startSuffix
	case worker.FDBind:
		return bindSuffix
	}
	return ""
}

// workerOf returns the worker whose name in the store this is; 0: it is another name.
func workerOf(name string) (program string, number int) {
	for _, suffix := range storeSuffixes[1:] {
		name = strings.TrimSuffix(name, suffix)
	}
	rest, is := strings.CutPrefix(name, workerFDPrefix)
	at := strings.LastIndexByte(rest, '.')
	if !is || at < 0 {
		return "", 0
	}
	number, _ = strconv.Atoi(rest[at+1:])
	return rest[:at], number
}

func recordNames() [2]string { return [...]string{recordFirst, recordSecond} }

func isRecord(name string) bool { return name == recordFirst || name == recordSecond }

// ours reports whether a supervisor put a descriptor of this name into the store, and not a socket unit.
func ours(name string) bool {
	return isRecord(name) || socket.Exported(name) ||
		strings.HasPrefix(name, workerFDPrefix) || strings.HasPrefix(name, filterPrefix) ||
		strings.HasPrefix(name, extraPrefix)
}

// sort puts a descriptor where it belongs, by its name.
func (h *Inheritance) sort(i inherit.Socket) {
	switch {
	case isRecord(i.Name):
		h.memfds[i.Name] = i.FD
	case strings.HasPrefix(i.Name, workerFDPrefix):
		h.sortWorker(i.Name, i.FD)
	case strings.HasPrefix(i.Name, filterPrefix):
		h.filters[strings.TrimPrefix(i.Name, filterPrefix)] = i.FD
	case strings.HasPrefix(i.Name, extraPrefix):
		h.extra[strings.TrimPrefix(i.Name, extraPrefix)] = i.FD
	default:
		h.Sockets = append(h.Sockets, i)
	}
}

// readNewest reads the newer of the two records in the store. If neither can be read, the programs start anew, on the
// sockets that were kept; the workers of the previous supervisor serve until then.
func (h *Inheritance) readNewest() (newest *Record) {
	for _, name := range slices.Sorted(maps.Keys(h.memfds)) {
		switch r, sequence, err := readRecord(h.memfds[name]); {
		case errors.Is(err, errNoRecord): // empty, or the death came while it was being written: the other one is complete
		case err != nil:
			h.Problems = append(h.Problems, err)
		case newest == nil || sequence > h.sequence:
			newest, h.newest, h.sequence = r, name, sequence
		}
	}
	return newest
}

// sortWorker puts a descriptor beside the others of its worker, unless it has no mark, or there is one of its kind.
func (h *Inheritance) sortWorker(name string, fd int) {
	name, kind := workerName(workerOf(name)), kindOf(fd)
	if _, has := h.workers[name][kind]; has || kind == "" {
		h.useless = append(h.useless, fd)
		return
	}
	if h.workers[name] == nil {
		h.workers[name] = map[string]int{}
	}
	h.workers[name][kind] = fd
}

// forget drops the processes of starting workers that were not handed over whole. They were forked just before the
// crash, or systemd was slow. The record is written without regard to that. Orphans ends these processes, and new ones
// are started.
func (h *Inheritance) forget() {
	for _, p := range h.Record.Programs {
		for w := range p.Core.Workers() {
			if w.State == program.Starting && !h.whole(p.Core.Name, w.Number, p.Workers[w.Number]) {
				r := p.Workers[w.Number]
				r.State = worker.State{}
				p.Workers[w.Number] = r
			}
		}
	}
}

// whole reports whether everything was handed over that an adoption needs.
func (h *Inheritance) whole(program string, number int, w WorkerRecord) bool {
	for _, kind := range append([]string{worker.FDProcess}, w.Needs...) {
		if _, has := h.workers[workerName(program, number)][kind]; !has {
			return false
		}
	}
	return true
}

// unblock gives the sockets of a socket unit back the O_NONBLOCK that the workers rely on who live on with them:
// systemd has changed it at the start of this process.
func (h *Inheritance) unblock() {
	for i := range h.Sockets {
		s := &h.Sockets[i]
		if ours(s.Name) || s.Network == "" {
			continue
		}
		s.InUse = true
		if err := unix.SetNonblock(s.FD, slices.Contains(h.Record.NonBlocking, inode(s.FD))); err != nil {
			h.Problems = append(h.Problems, fmt.Errorf("cannot set O_NONBLOCK of the inherited socket %s: %w", s.Address, err))
		}
	}
}

// inode returns that of a socket, which is the same for every descriptor of it; 0: there is none.
func inode(fd int) uint64 {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0
	}
	return st.Ino
}

// Programs reports whether there are programs to take over.
func (h *Inheritance) Programs() bool { return h.Record != nil }

// PIDs lists the worker processes that may be adopted, for worker.Expect.
func (h *Inheritance) PIDs() []int {
	var pids []int
	if h.Record != nil {
		for _, w := range h.Record.workers {
			pids = append(pids, w.PID)
		}
	}
	return pids
}

// Adoption takes the descriptors of a worker out of the Inheritance; the caller owns them then.
func (h *Inheritance) Adoption(program string, number int, w WorkerRecord, spec worker.Spec) worker.Adoption {
	name := workerName(program, number)
	a := worker.Adoption{State: w.State, Descriptors: h.workers[name], Spec: spec}
	delete(h.workers, name)
	return a
}

// workerFDKinds lists the kinds of descriptors that are handed over. Their places are their marks.
func workerFDKinds() []string {
	return []string{worker.FDProcess, worker.FDNotify, worker.FDPipe, worker.FDReport,
		worker.FDStdout, worker.FDStderr, worker.FDBind}
}

// adoptable returns the names of the workers that the record knows as processes.
func (h *Inheritance) adoptable() map[string]bool {
	names := map[string]bool{}
	if h.Record != nil {
		for id := range h.Record.workers {
			names[workerName(id.program, id.number)] = true
		}
	}
	return names
}

// unknown takes the pidfds of processes that the record does not know: forked in the instant in which their supervisor
// died.
func (h *Inheritance) unknown() []int {
	known := h.adoptable()
	var pidfds []int
	for name, fds := range h.workers {
		if fd, has := fds[worker.FDProcess]; has && !known[name] {
			pidfds = append(pidfds, fd)
			if delete(fds, worker.FDProcess); len(fds) == 0 {
				delete(h.workers, name)
			}
		}
	}
	return pidfds
}

// Extra returns a descriptor that was handed over under this name, or -1.
func (h *Inheritance) Extra(name string) int {
	if fd, ok := h.extra[name]; ok {
		return fd
	}
	return -1
}

// Drop gives away the filters of workers that have ended, by name, which is "" for one whose worker no adoption has
// taken, and closes what else no adoption has taken. The store then loses it, too.
func (h *Inheritance) Drop(keepFilter func(name string, fd int)) {
	for name, fd := range h.filters {
		keepFilter(name, fd)
	}
	for _, fds := range h.workers {
		for kind, fd := range fds {
			switch kind {
			case worker.FDBind:
				keepFilter("", fd)
			case worker.FDNotify:
				ready.Discard(fd)
			default:
				unix.Close(fd)
			}
		}
	}
	closeAll(h.useless)
	clear(h.workers)
}
