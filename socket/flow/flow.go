// Package flow keeps every flow of a UDP listener at the generation where it began, for servers that know nothing of
// generations: an eBPF program in the kernel notes for each pair of addresses which generation got its first datagram.
//
// The program is run by the listener's reuseport group. Like the classic programs of package socket it returns the
// index of a member, so a lane is the same in all modes, sockets need not be in a map (which a socket can be in only
// one of), and another supervisord can replace the program at any time. It is a socket filter rather than a program of
// type SK_REUSEPORT for this reason. It needs CAP_BPF and Linux 5.11.
package flow

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Lanes is how many lanes a table has: a power of two.
const Lanes = 256

// parts is how finely a canary's share can be set.
const parts = 1024

// page is the memory that the program reads, and that user space writes, word by word. It is all that a table knows,
// so who has its descriptor has the table.
type page struct {
	// draw has for each part of the new flows the generation that gets them.
	draw [parts]atomic.Uint32
	// live has the generation of each lane, and 0 where there is none. A flow of another generation is forgotten.
	live [Lanes]atomic.Uint32
	// member has the index of each lane's socket in the group.
	member [Lanes]atomic.Uint32
	// seen is when a datagram of the lane has come, in nanoseconds of CLOCK_MONOTONIC_COARSE.
	seen [Lanes]atomic.Uint64
	// last is the greatest number that a generation has had, without its lane. Only user space uses it.
	last atomic.Uint32
	_    uint32
}

// A generation's number here: which use of the lane it is, and the lane.
func generation(use uint32, lane int) uint32 { return use*Lanes + uint32(lane) }

// Flows is the table of flows of one listener, and the program that uses it. Its methods must not be called at the same
// time.
type Flows struct {
	program *ebpf.Program
	memory  *ebpf.Map
	*mapped
}

// mapped is the memory in this process, for as long as anything refers to it.
type mapped struct{ *page }

// New makes a table for this many flows. It has to be sized for churn: where it is full, the flows that have been
// silent for longest are forgotten, and each new pair of addresses takes an entry. The error is ErrPrivilege where the
// process may not.
func New(flows int) (t *Flows, err error) {
	table, err := ebpf.NewMap(&ebpf.MapSpec{Name: "flows", Type: ebpf.LRUHash, KeySize: keySize, ValueSize: 4,
		MaxEntries: uint32(flows)})
	if err != nil {
		return nil, failed(err)
	}
	defer table.Close() // the program has it
	memory, err := ebpf.NewMap(&ebpf.MapSpec{Name: "lanes", Type: ebpf.Array, KeySize: 4,
		ValueSize: uint32(unsafe.Sizeof(page{})), MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE})
	if err != nil {
		return nil, failed(err)
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "flow", Type: ebpf.SocketFilter, License: "MIT",
		Instructions: instructions(table.FD(), memory.FD())})
	if err != nil {
		return nil, errors.Join(failed(err), memory.Close())
	}
	return open(program, memory)
}

// ErrPrivilege says that the kernel does not let this process make a table.
var ErrPrivilege = errors.New("the table of flows needs CAP_BPF")

func failed(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w: %w", ErrPrivilege, unix.EPERM) // the library has a guess of its own
	}
	return fmt.Errorf("cannot make a table of flows: %w", err)
}

func open(program *ebpf.Program, memory *ebpf.Map) (*Flows, error) {
	at, err := unix.MmapPtr(memory.FD(), 0, nil, unsafe.Sizeof(page{}), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot map the lanes of the flows: %w", err), program.Close(), memory.Close())
	}
	m := &mapped{(*page)(at)}
	runtime.AddCleanup(m, func(at unsafe.Pointer) { _ = unix.MunmapPtr(at, unsafe.Sizeof(page{})) }, at)
	return &Flows{program, memory, m}, nil
}

// Adopt makes a Flows of the descriptors that another one had (see FDs), which it takes.
func Adopt(program, memory int) (*Flows, error) {
	p, err := ebpf.NewProgramFromFD(program)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("not the program of flows: %w", err), unix.Close(memory))
	}
	m, err := ebpf.NewMapFromFD(memory)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("not the lanes of the flows: %w", err), p.Close())
	}
	if m.ValueSize() != uint32(unsafe.Sizeof(page{})) {
		return nil, errors.Join(errors.New("the lanes of the flows are of another version"), p.Close(), m.Close())
	}
	return open(p, m)
}

// FDs returns the descriptors of the program and of its memory. They stay the table's. While somebody has them, or a
// socket of the group is open, no flow is forgotten.
func (t *Flows) FDs() (program, memory int) { return t.program.FD(), t.memory.FD() }

// Close closes the descriptors. The program continues in the groups that have it.
func (t *Flows) Close() error { return errors.Join(t.program.Close(), t.memory.Close()) }

// Attach lets the group of this socket use the table, instead of what it did before.
func (t *Flows) Attach(fd int) error {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_EBPF, t.program.FD())
}

// Place tells at which index of the group the socket of a lane is.
func (t *Flows) Place(lane, index int) { t.member[lane].Store(uint32(index)) }

// Begin gives a lane to a new generation: flows that others had there are forgotten.
func (t *Flows) Begin(lane int) { t.live[lane].Store(generation(t.last.Add(1), lane)) }

// End takes a lane from its generation: its flows belong to the one that serves from now on.
func (t *Flows) End(lane int) { t.live[lane].Store(0) }

// Lives reports whether a generation has the lane.
func (t *Flows) Lives(lane int) bool { return t.live[lane].Load() != 0 }

// Lot is the part of the new flows that goes to a lane, relative to the others.
type Lot struct{ Lane, Weight int }

// Steer sends new flows to these lanes, whose generations have begun. The others keep the flows that they have.
func (t *Flows) Steer(shares []Lot) {
	total := 0
	for _, s := range shares {
		total += s.Weight
	}
	part, sum := 0, 0
	for _, s := range shares {
		for sum += s.Weight; part*total < sum*parts; part++ {
			t.draw[part].Store(t.live[s.Lane].Load())
		}
	}
}

// Silence returns a function that tells for how long no datagram has come for a lane, to within 10 ms: all the time
// since boot if none has. The function may be called at any time, also when the table is closed.
func (t *Flows) Silence(lane int) func() time.Duration {
	m := t.mapped
	return func() time.Duration {
		var now unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now) // cannot fail
		return max(0, time.Duration(now.Nano()-int64(m.seen[lane].Load())))
	}
}
