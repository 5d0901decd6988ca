package spawn

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// area is memory for the child, which shares it. At its end is the child's stack.
type area struct {
	memory []byte
	used   int
}

const stackSize = 16 << 10 // the child needs less than 1 KiB: its functions are nosplit

func newArea(size int) (*area, error) {
	memory, err := unix.Mmap(-1, 0, size+stackSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
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
