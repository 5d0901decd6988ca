// Package before knows what Go changes in a process before main: the limit of open files, which package syscall raises
// when it is initialized.
//
// It imports nothing that has to be initialized, so that it comes first: Go initializes the packages that wait for no
// other one in the order of their import paths.
package before

import "unsafe"

//go:linkname rawSyscall6 syscall.RawSyscall6
func rawSyscall6(trap, a1, a2, a3, a4, a5, a6 uintptr) (r1, r2, errno uintptr)

// Limit is a struct rlimit64.
type Limit struct{ Soft, Hard uint64 }

const rlimitNofile = 7

// Files is the limit of open files with which the process was started; zero if it is unknown.
var Files = func() (limit Limit) {
	rawSyscall6(sysPrlimit64, 0, rlimitNofile, 0, uintptr(unsafe.Pointer(&limit)), 0, 0)
	return limit
}()
