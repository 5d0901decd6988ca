package bind

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/proc"
)

// registration is an item of an epoll set that a program made before it bound. Replacing the descriptor removes the
// item, because the item belongs to the file, and nothing would ever wake the server.
type registration struct {
	set    int // a duplicate of the epoll descriptor; -1: this process may not have one
	events uint32
	data   uint64
}

// registrations finds those of a descriptor in the epoll sets of a thread's process. The caller closes the sets.
func registrations(tid, number int) (found []registration) {
	links, _ := proc.Descriptors(tid) //nolint:errcheck // then there are none
	for fd, link := range links {
		if link != "anon_inode:[eventpoll]" {
			continue
		}
		targets, _ := proc.EpollTargets(tid, fd) //nolint:errcheck // likewise
		for _, t := range targets {
			if t.Number == number {
				found = append(found, registration{set: duplicate(tid, fd), events: t.Events, data: t.Data})
			}
		}
	}
	return found
}

// move registers the socket in the epoll sets as the descriptor number: an item's key is its file and its number, so
// the call is made by a thread with a table of descriptors of its own, in which the socket has that number.
func move(socket, number int, found []registration) error {
	events := make([]unix.EpollEvent, len(found))
	top := max(socket, number)
	for i, r := range found {
		if r.set < 0 {
			return errors.New("its epoll set cannot be had: pidfd_getfd(2) is not allowed here")
		}
		top = max(top, r.set)
		events[i] = unix.EpollEvent{Events: r.events, Fd: int32(uint32(r.data)), Pad: int32(uint32(r.data >> 32))}
	}
	done := make(chan unix.Errno, 1)
	go func() {
		foreign.OwnThread()
		done <- register(socket, number, top+1, found, events)
	}()
	if errno := <-done; errno != 0 {
		return fmt.Errorf("its epoll set does not take it: %w", errno)
	}
	return nil
}

// register makes the calls of move. From place on no descriptor is in use. The thread keeps nothing of this process's:
// a worker can keep the lock of its epoll set, and with it the thread. Nor has the thread the descriptors of the Go
// runtime, so nothing here may allocate: a garbage collection would begin on the thread, and look at them. No call
// holds up the others meanwhile.
func register(socket, number, place int, found []registration, events []unix.EpollEvent) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_UNSHARE, unix.CLONE_FILES, 0, 0)
	if errno == 0 {
		_, _, errno = unix.Syscall(unix.SYS_DUP3, uintptr(socket), uintptr(place), unix.O_CLOEXEC)
	}
	for i := 0; i < len(found) && errno == 0; i++ {
		_, _, errno = unix.Syscall(unix.SYS_DUP3, uintptr(found[i].set), uintptr(place+1+i), unix.O_CLOEXEC)
	}
	if errno != 0 {
		return errno
	}
	unix.Syscall(unix.SYS_CLOSE_RANGE, 0, uintptr(place-1), 0)
	unix.Syscall(unix.SYS_CLOSE_RANGE, uintptr(place+1+len(found)), math.MaxUint32, 0)
	_, _, errno = unix.Syscall(unix.SYS_DUP3, uintptr(place), uintptr(number), unix.O_CLOEXEC)
	for i := 0; i < len(found) && errno == 0; i++ {
		_, _, errno = unix.Syscall6(unix.SYS_EPOLL_CTL, uintptr(place+1+i), unix.EPOLL_CTL_ADD, uintptr(number),
			uintptr(unsafe.Pointer(&events[i])), 0, 0)
	}
	return errno
}
