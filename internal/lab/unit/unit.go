// Package unit has what tests of single packages ask the kernel for: threads that may do less than others, handshakes
// that do not end, a FIFO.
package unit

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
)

// FIFO makes a FIFO without a reader.
func FIFO(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	must.Do(t, unix.Mkfifo(path, 0o600))
	return path
}

// Thread runs f in a thread that ends with it, and never in the main one: /proc/self shows the network namespace of
// that one.
func Thread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		Thread(f)
		runtime.UnlockOSThread()
	}()
	<-done
}

// AsOrdinaryUser runs f in a thread of an ordinary user, or directly if the tests do not run as root.
func AsOrdinaryUser(t testing.TB, f func()) {
	t.Helper()
	var errno unix.Errno
	Thread(func() {
		const nobody = 65534
		if os.Geteuid() == 0 {
			_, _, errno = unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody)
		}
		if errno == 0 {
			f()
		}
	})
	if errno != 0 {
		t.Fatal(errno)
	}
}

// SystemCall is one with this value as the lower half of one of its arguments, from 0.
type SystemCall struct {
	Number, Argument, Value uint32
}

// Refusing runs f in a thread for which, and for what it forks, a system call fails with errno, seccomp(2).
func Refusing(t testing.TB, c SystemCall, errno unix.Errno, f func()) {
	t.Helper()
	load := func(offset uint32) unix.SockFilter { // of struct seccomp_data
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	is := func(value uint32, otherwise uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: otherwise}
	}
	filter := []unix.SockFilter{
		load(0), is(c.Number, 3), load(16 + 8*c.Argument), is(c.Value, 1),
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	var err error
	Thread(func() {
		err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
		}
		if err == nil {
			f()
		}
	})
	if err != nil {
		t.Skip("no seccomp here: ", err)
	}
}

// OnlySYN makes a listening socket drop all but the first segment of each handshake, as if clients were far away: they
// take themselves for connected. Their kernels send the rest again some 200 ms later, after letThrough.
func OnlySYN(t testing.TB, fd int) (letThrough func()) {
	t.Helper()
	const flags, syn = 13, 0x02 // tcp(7): the byte with the flags
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: flags},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: syn, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 16},
		{Code: unix.BPF_RET | unix.BPF_K},
	}
	err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	if errors.Is(err, unix.EPERM) {
		t.Skip("a filter of a TCP socket needs CAP_NET_ADMIN here")
	}
	must.Do(t, err)
	return func() { must.Do(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)) }
}

// BindShared binds a UDP socket with SO_REUSEPORT. If the kernel is to choose the port, no other socket has it: to a
// socket with that option the kernel may give the port of any group of the same user.
func BindShared(t testing.TB, fd int, at unix.Sockaddr) {
	t.Helper()
	must.Do(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
	if at4, is := at.(*unix.SockaddrInet4); is && at4.Port > 0 {
		must.Do(t, unix.Bind(fd, at))
		return
	}
	if at6, is := at.(*unix.SockaddrInet6); is && at6.Port > 0 {
		must.Do(t, unix.Bind(fd, at))
		return
	}
	family := must.Get(unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN))(t)
	chosen := must.Get(unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))(t)
	defer func() { _ = unix.Close(chosen) }()
	must.Do(t, unix.Bind(chosen, at))
	must.Do(t, unix.SetsockoptInt(chosen, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
	must.Do(t, unix.Bind(fd, must.Get(unix.Getsockname(chosen))(t)))
}
