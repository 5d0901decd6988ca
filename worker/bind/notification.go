package bind

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notification is struct seccomp_notif, seccomp_unotify(2).
type notification struct {
	id    uint64
	tid   uint32 // of the thread that calls, in our PID namespace
	flags uint32

	number  int32 // from here on struct seccomp_data
	arch    uint32
	pointer uint64
	args    [6]uint64
}

// notificationResponse is struct seccomp_notif_resp.
type notificationResponse struct {
	id    uint64
	value int64
	errno int32 // negative
	flags uint32
}

// addition is struct seccomp_notif_addfd.
type addition struct {
	id                          uint64
	flags, source, number, mode uint32
}

// control is ioctl(2) on the descriptor of the notifications.
func control(fd int, request uintptr, argument unsafe.Pointer) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(argument))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
			continue
		}
		return errno
	}
}

// receive takes the next call out of the kernel, which then waits for its answer. ENOENT: the caller is gone.
func receive(fd int) (n notification, err error) {
	err = control(fd, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n))
	return n, err
}

// valid reports whether the caller still waits: what was read in /proc about its thread was about it, and about no
// successor.
func (n *notification) valid(fd int) bool {
	return control(fd, unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&n.id)) == nil
}

// pass lets the kernel execute the call.
func (n *notification) pass(fd int) {
	r := notificationResponse{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	control(fd, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r)) //nolint:errcheck // the caller is gone
}

// finish answers the call without executing it: with 0, or an errno.
func (n *notification) finish(fd int, errno unix.Errno) {
	r := notificationResponse{id: n.id, errno: -int32(errno)}
	control(fd, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r)) //nolint:errcheck // the caller is gone
}

// put replaces the descriptor number of the caller by a duplicate of source. The call is not answered:
// SECCOMP_ADDFD_FLAG_SEND would answer it with the number.
func (n *notification) put(fd, source, number int, closeOnExec bool) error {
	a := addition{id: n.id, flags: unix.SECCOMP_ADDFD_FLAG_SETFD, source: uint32(source), number: uint32(number)}
	if closeOnExec {
		a.mode = unix.O_CLOEXEC
	}
	return control(fd, unix.SECCOMP_IOCTL_NOTIF_ADDFD, unsafe.Pointer(&a))
}

// pending reports whether a call waits, and whether some process has the filter.
func pending(fd int) (waits, used bool, err error) {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		_, err = unix.Poll(p, 0)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return p[0].Revents&unix.POLLIN != 0, p[0].Revents&unix.POLLHUP == 0, err
}
