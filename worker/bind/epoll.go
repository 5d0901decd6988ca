package bind

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
)

// registration is an item of an epoll set that a program made before it bound. Replacing the descriptor removes the item, because
// the item belongs to the file, and nothing would ever wake the server.
type registration struct {
	epoll  int // in the program
	events uint32
	data   uint64
}

// registrations finds those of a descriptor in the epoll sets of a thread's process.
func registrations(tid, number int) (found []registration) {
	links, _ := proc.Descriptors(tid) //nolint:errcheck // then there are none
	for fd, link := range links {
		if link != "anon_inode:[eventpoll]" {
			continue
		}
		text, _ := os.ReadFile(proc.Path(tid, "fdinfo/"+strconv.Itoa(fd))) //nolint:errcheck // likewise
		for line := range strings.Lines(string(text)) {
			var target int
			r := registration{epoll: fd}
			n, _ := fmt.Sscanf(line, "tfd: %d events: %x data: %x", &target, &r.events, &r.data) //nolint:errcheck // n says it
			if n == 3 && target == number {
				found = append(found, r)
			}
		}
	}
	return found
}

// move registers the socket in the epoll sets as the descriptor number: an item's key is its file and its number, so the call is
// made by a thread with a table of descriptors of its own, in which the socket has that number.
func move(tid, socket, number int, found []registration) error {
	sets := make([]int, len(found))
	for i, r := range found {
		if sets[i] = duplicate(tid, r.epoll); sets[i] < 0 {
			closeAll(sets[:i])
			return fmt.Errorf("its epoll set cannot be had: pidfd_getfd(2) is not allowed here")
		}
	}
	defer closeAll(sets)
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		done <- register(sets, socket, number, found)
	}()
	return <-done
}

func register(sets []int, socket, number int, found []registration) error {
	if err := unix.Unshare(unix.CLONE_FILES); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	for i := range sets {
		if sets[i] != number {
			continue
		}
		other, err := unix.Dup(sets[i])
		if err != nil {
			return err
		}
		sets[i] = other // closed with the thread's table; the caller's entry is its own number still
		defer func() { sets[i] = number }()
	}
	if socket != number {
		if err := unix.Dup3(socket, number, unix.O_CLOEXEC); err != nil {
			return err
		}
	}
	for i, r := range found {
		e := unix.EpollEvent{Events: r.events, Fd: int32(uint32(r.data)), Pad: int32(uint32(r.data >> 32))}
		if err := unix.EpollCtl(sets[i], unix.EPOLL_CTL_ADD, number, &e); err != nil {
			return fmt.Errorf("epoll_ctl: %w", err)
		}
	}
	return nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
