package supervisor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker"
)

// recordVersion is the version of Record. A newer image reads the states of older ones; an older one refuses those of newer ones.
const recordVersion = 1

// Record is what the next image of the supervisor must know, beside the descriptors: after an execve in place, or after a crash.
type Record struct {
	Version  int
	Instance string `json:",omitempty"`
	Settings config.Supervisor
	Files    []string // of the configuration
	Programs []ProgramRecord

	// NonBlocking are the inodes of the socket units' sockets that do not block. systemd sets O_NONBLOCK of its sockets anew at
	// each start of the service, under workers that live on.
	NonBlocking []uint64 `json:",omitempty"`

	// Clock is when this was written.
	Clock *clockReading `json:",omitempty"`

	// Reload was asked for, and its configuration was being read, as the image before this one ended.
	Reload *PendingReload `json:",omitempty"`

	// Orphans are the processes of a supervisor that died which were told to go and have not gone yet.
	Orphans []int `json:",omitempty"`

	// Descriptors says which number has which name, where the image before this one left it by execve.
	// Where systemd's file-descriptor store kept the descriptors, LISTEN_FDNAMES says it.
	Descriptors map[string]int `json:",omitempty"`

	// Exact has the strings that JSON cannot hold, which are changed where they stand.
	Exact []exactString `json:",omitempty"`

	// Stored counts what systemd keeps for the next start, by name: Store.Freeze of the image before this one. What was still
	// waiting to be sent is not in it, and is sent again.
	Stored map[string]int `json:",omitempty"`
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
	Snapshot  *snapshot // nil: it was not prepared yet
	Workers   []WorkerRecord
}

// WorkerRecord is one process.
type WorkerRecord struct {
	Number int
	Told   int // steps of the stop plan that were performed
	worker.State
}

// recordMark begins a state that is written down; the length, a checksum and a sequence number follow on the same line.
const recordMark = "supervisord-record"

// encodeRecord writes a state in the form that decodeRecord reads: one line to know it by, then JSON.
func encodeRecord(s *Record, sequence uint64) ([]byte, error) {
	data, err := json.Marshal(s)
	if err == nil && lossy(data) {
		exact := *s
		exact.Exact = inexact(s)
		data, err = json.Marshal(&exact)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot write the state down: %w", err)
	}
	head := fmt.Sprintf("%s %d %08x %d\n", recordMark, len(data), crc32.ChecksumIEEE(data), sequence)
	return append([]byte(head), data...), nil
}

// errNoRecord says that a file holds no complete state.
var errNoRecord = errors.New("no complete state")

// decodeRecord reads what encodeRecord wrote. It returns errNoRecord (wrapped) for anything that is cut off or damaged, and
// another error for a state that is whole but not for this version.
func decodeRecord(text []byte) (*Record, uint64, error) {
	head, data, found := bytes.Cut(text, []byte("\n"))
	words := strings.Fields(string(head[:min(len(head), 100)]))
	if !found || len(words) != 4 || words[0] != recordMark {
		return nil, 0, fmt.Errorf("%w: it does not begin with %q", errNoRecord, recordMark)
	}
	length, errLength := strconv.Atoi(words[1])
	sequence, errSequence := strconv.ParseUint(words[3], 10, 64)
	if errLength != nil || errSequence != nil || length < 0 || length > len(data) {
		return nil, 0, fmt.Errorf("%w: cut off", errNoRecord)
	}
	data = data[:length]
	if fmt.Sprintf("%08x", crc32.ChecksumIEEE(data)) != words[2] {
		return nil, 0, fmt.Errorf("%w: damaged", errNoRecord)
	}
	var versioned struct{ Version int }
	if err := json.Unmarshal(data, &versioned); err != nil {
		return nil, 0, fmt.Errorf("cannot read the state: %w", err)
	}
	if versioned.Version < 1 || versioned.Version > recordVersion {
		return nil, 0, fmt.Errorf("the state has version %d, and this supervisord reads versions 1 to %d: use the version that wrote it, or a newer one", versioned.Version, recordVersion)
	}
	s := new(Record)
	if err := json.Unmarshal(data, s); err != nil {
		return nil, 0, fmt.Errorf("cannot read the state: %w", err)
	}
	for _, e := range s.Exact {
		e.restore(s) //nolint:errcheck // what this version does not have it need not know
	}
	s.Exact = nil
	return s, sequence, s.check()
}

// check refuses a state that this code could stumble over.
func (s *Record) check() error {
	for _, p := range s.Programs {
		if p.Core == nil || p.Core.Config == nil {
			return errors.New("the state has a program without a configuration")
		}
		if err := p.check(); err != nil {
			return fmt.Errorf("the state of program %s: %w", p.Core.Name, err)
		}
	}
	return nil
}

func (p *ProgramRecord) check() error {
	kept := map[int]bool{}
	for _, g := range p.Generations {
		kept[g.Number] = true
	}
	for _, g := range p.Core.Generations() {
		switch {
		case g.Config == nil:
			return fmt.Errorf("generation %d has no configuration", g.Number)
		case !kept[g.Number]:
			return fmt.Errorf("nothing is known of generation %d", g.Number)
		}
	}
	for w, g := range p.Core.Workers() {
		if w.Slot < 0 || w.Slot >= len(g.Slots) && w.State != program.Stopping {
			return fmt.Errorf("worker %d has slot %d of %d", w.Number, w.Slot, len(g.Slots))
		}
	}
	return nil
}

// pids lists the processes in the state.
func (s *Record) pids() []int {
	var pids []int
	for _, p := range s.Programs {
		for _, g := range p.Generations {
			for _, w := range g.Workers {
				if w.PID > 0 {
					pids = append(pids, w.PID)
				}
			}
		}
	}
	return pids
}

// state is the state of this supervisor now.
func (s *Supervisor) record() *Record {
	s.followClock()
	st := &Record{Version: recordVersion, Instance: s.instance, Settings: s.config, Files: s.sources, NonBlocking: s.nonBlocking(), Clock: readClock(time.Now())}
	for _, name := range slices.Sorted(maps.Keys(s.programs)) {
		p := s.programs[name]
		ps := ProgramRecord{Core: p.core, Listeners: p.listeners, Removed: p.removed, DownSince: p.outage.since}
		for _, cg := range p.core.Generations() {
			ps.Generations = append(ps.Generations, p.generationRecord(cg))
		}
		st.Programs = append(st.Programs, ps)
	}
	for _, o := range s.ending {
		st.Orphans = append(st.Orphans, o.pid)
	}
	return st
}

func (s *Supervisor) nonBlocking() []uint64 {
	var inodes []uint64
	for _, n := range s.table.Export() {
		if !n.Foreign {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(n.FD), unix.F_GETFL, 0)
		if err == nil && flags&unix.O_NONBLOCK != 0 {
			inodes = append(inodes, inode(n.FD))
		}
	}
	return inodes
}

// inode is that of a socket, the same for every descriptor of it; 0: there is none.
func inode(fd int) uint64 {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0
	}
	return st.Ino
}

func (p *runner) generationRecord(cg *program.Generation) GenerationRecord {
	gs := GenerationRecord{Number: cg.Number}
	if g := p.generations[cg.Number]; g != nil { // nil: decided, and not begun yet; without a snapshot a restore prepares it anew
		gs.Listeners, gs.Claims, gs.Snapshot = g.listeners, g.claims, g.snapshot
	}
	for _, w := range cg.Workers {
		ws := WorkerRecord{Number: w.Number, Told: p.told[w.Number]}
		if h := p.workers[w.Number]; h != nil {
			ws.State = h.State()
		}
		gs.Workers = append(gs.Workers, ws)
	}
	return gs
}

// descriptors lists what the next image needs, by the names that it knows them by. Those of workers stay open only as long as
// the launcher is frozen.
func (s *Supervisor) descriptors() map[string]int {
	fds := map[string]int{}
	for _, named := range s.table.Export() {
		fds[named.Name] = named.FD
	}
	for _, p := range s.programs {
		for number, h := range p.workers {
			for kind, fd := range h.Descriptors() {
				fds[workerFD(p.core.Name, number, kind)] = fd
			}
		}
	}
	return fds
}

// lasting is what the file-descriptor store should hold: the state, the sockets but those that a socket unit keeps itself, and
// the workers' descriptors. Left out are those that have served their purpose, the pipe on which a worker has said that it is
// ready, and those that will have in a moment, the connections to einhorn's control socket.
func (s *Supervisor) lasting() map[string]keepable {
	want := map[string]keepable{}
	for name, fd := range s.keeper.files() {
		want[name] = keepable{fd: fd}
	}
	for _, n := range s.table.Export() {
		if !n.Foreign {
			want[n.Name] = keepable{fd: n.FD}
		}
	}
	passing := worker.ControlFDs()[1:]
	for _, p := range s.programs {
		for number, h := range p.workers {
			ready := h.State().Ready
			for kind := range h.Descriptors() {
				if kind == worker.FDPipe && ready || slices.Contains(passing, kind) {
					continue
				}
				want[workerFD(p.core.Name, number, kind)] = keepable{of: h, kind: kind}
			}
		}
	}
	return want
}

// The names of descriptors that are no sockets of the table: "w.PROGRAM.WORKER.KIND" of a worker, "x.NAME" of the caller.
const (
	workerFDPrefix = "w."
	extraPrefix    = "x."
)

var workerFDKinds = append([]string{worker.FDProcess, worker.FDNotify, worker.FDPipe, worker.FDReport, worker.FDStdout, worker.FDStderr, worker.FDControl},
	worker.ControlFDs()...)

func workerFD(program string, number int, kind string) string {
	return workerFDPrefix + program + "." + strconv.Itoa(number) + "." + kind
}

// memfd makes an anonymous file that holds text.
func memfd(name string, text []byte) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("cannot create a memfd: %w", err)
	}
	if err := rewrite(fd, text); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// rewrite replaces what a memfd holds.
func rewrite(fd int, text []byte) error {
	if err := unix.Ftruncate(fd, 0); err != nil {
		return fmt.Errorf("cannot write to a memfd: %w", err)
	}
	for at := 0; at < len(text); {
		n, err := unix.Pwrite(fd, text[at:], int64(at))
		if err != nil {
			return fmt.Errorf("cannot write to a memfd: %w", err)
		}
		at += n
	}
	return nil
}

// maxRecord bounds what is read from a descriptor that claims to hold a state.
const maxRecord = 256 << 20

// readAll reads a memfd from its beginning, whatever its offset is.
func readAll(fd int) ([]byte, error) {
	return io.ReadAll(io.NewSectionReader(preader(fd), 0, maxRecord))
}

// preader reads a descriptor without owning it.
type preader int

func (fd preader) ReadAt(b []byte, at int64) (int, error) {
	n, err := unix.Pread(int(fd), b, at)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return max(n, 0), err
}
