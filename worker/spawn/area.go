package spawn

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// area is memory outside Go's heap, which the child gets a copy of. At its end is the child's stack.
type area struct {
	memory []byte
	used   int
}

const stackSize = 16 << 10 // the child needs less than 1 KiB: its functions are nosplit

func newArea(size int) (*area, error) {
	memory, err := unix.Mmap(-1, 0, size+stackSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("cannot map %d bytes: %w", size+stackSize, err)
	}
	return &area{memory: memory}, nil
}

func (a *area) close() {
	unix.Munmap(a.memory) //nolint:errcheck // it was mapped
	a.memory = nil
}

// stack returns where the child's stack begins, above some space for the arguments of its first function.
func (a *area) stack() uintptr {
	end := uintptr(unsafe.Pointer(unsafe.SliceData(a.memory))) + uintptr(len(a.memory))
	return end&^15 - 64
}

// room returns zeroed memory for n values, which must not contain pointers out of the area.
func room[T any](a *area, n int) []T {
	size := n * int(unsafe.Sizeof(*new(T)))
	at := a.memory[a.used : a.used+size : len(a.memory)-stackSize]
	a.used += (size + 7) &^ 7
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(at))), n)
}

// text copies a string and ends it with a NUL.
func (a *area) text(s string) []byte {
	text := room[byte](a, len(s)+1)
	copy(text, s)
	return text
}

func address[T any](s []T) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(s))) }

// heapReach is how much of Go's heap leaveHeap finds above the beginning of the 64 MiB in which an object lies (an arena).
const heapReach, arena = 1 << 30, 64 << 20

// leaveHeap makes forks leave out Go's heap, in which object lies: to copy its page tables and, after that, every page that is written costs
// more than all the rest of a fork. The child finds zeros there. Where the heap has grown meanwhile, the kernel copies it.
func (a *area) leaveHeap(object *Launch) {
	begin := uintptr(unsafe.Pointer(object)) &^ (arena - 1)
	unix.Syscall(unix.SYS_MADVISE, begin, heapReach, unix.MADV_WIPEONFORK) //nolint:errcheck // ENOMEM: not all of it is mapped
}
