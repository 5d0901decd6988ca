package bind

import (
	"errors"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// machine is what one instruction set that this kernel runs calls the two system calls.
type machine struct {
	arch         uint32
	bind, listen uint32
	socketcall   uint32 // the call that i386 has for both, by its first argument; 0: none
	ignored      uint32 // bits of the number that say nothing about the call
}

// x32Bit marks the calls of x32, whose other numbers are those of x86-64.
const x32Bit = 0x40000000

// The first argument of socketcall(2), linux/net.h.
const (
	socketcallBind   = 2
	socketcallListen = 4
)

// machines are those of this kernel, the own one first.
func machines() []machine {
	if runtime.GOARCH == "arm64" {
		return []machine{{arch: unix.AUDIT_ARCH_AARCH64, bind: 200, listen: 201},
			{arch: unix.AUDIT_ARCH_ARM, bind: 282, listen: 284}}
	}
	return []machine{
		{arch: unix.AUDIT_ARCH_X86_64, bind: 49, listen: 50, ignored: x32Bit},
		{arch: unix.AUDIT_ARCH_I386, bind: 361, listen: 363, socketcall: 102},
	}
}

// The places in struct seccomp_data, seccomp(2).
const (
	dataNumber   = 0
	dataArch     = 4
	dataArgument = 16
)

// For each instruction set the program is, in the words of bpf(4):
//
//	       ld  [4]                  the instruction set; another one: the next block
//	       ld  [0]                  the number of the call; for x86-64 without the bit of x32
//	       jeq #bind, notify
//	       jeq #listen, notify
//	       jne #socketcall, allow   of i386 alone
//	       ld  [16]                 which of the calls behind it
//	       jeq #2, notify; jeq #4, notify
//	allow: ret #ALLOW
//
// Filter returns the program that tells supervisord of bind(2) and listen(2), and allows everything else at once: the
// kernel remembers for which calls it does (Linux 5.11).
func Filter() (program []unix.SockFilter) {
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	answer := func(action uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
	}
	unless := func(value uint32, skipped int) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: uint8(skipped)}
	}
	notify, allow := answer(unix.SECCOMP_RET_USER_NOTIF), answer(unix.SECCOMP_RET_ALLOW)
	for _, m := range machines() {
		body := []unix.SockFilter{load(dataNumber)}
		if m.ignored != 0 {
			body = append(body, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: ^m.ignored})
		}
		body = append(body, unless(m.bind, 1), notify, unless(m.listen, 1), notify)
		if m.socketcall != 0 {
			body = append(body, unless(m.socketcall, 5), load(dataArgument), unless(socketcallBind, 1), notify,
				unless(socketcallListen, 1), notify)
		}
		body = append(body, allow)
		program = append(append(program, load(dataArch), unless(m.arch, len(body))), body...)
	}
	return append(program, allow)
}

// Call is a system call that the filter tells of.
type operation int

const (
	other operation = iota
	bindCall
	listenCall
	socketCall
)

// operationOf says what a call of an instruction set is.
func operationOf(arch uint32, number int32) operation {
	for _, m := range machines() {
		if m.arch != arch {
			continue
		}
		switch uint32(number) &^ m.ignored {
		case m.bind:
			return bindCall
		case m.listen:
			return listenCall
		case m.socketcall:
			return socketCall
		}
	}
	return other
}

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
