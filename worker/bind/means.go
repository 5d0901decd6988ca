package bind

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Privileged reports whether this process can filter the calls of its workers without no_new_privs: it has CAP_SYS_ADMIN, or
// no_new_privs itself.
func Privileged() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0 {
		return true
	}
	set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	return err == nil && set == 1
}

// Try returns why this process cannot answer bind(2) of its workers; nil: it can. It tries once, on a thread that ends.
var Try = sync.OnceValue(func() error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the filter and no_new_privs end with the thread
		done <- try()
	}()
	return <-done
})

func try() error {
	if !Privileged() {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("no_new_privs: %w", err)
		}
	}
	program := Filter()
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER,
		uintptr(unsafe.Pointer(&filter)))
	if errno != 0 {
		return explain(errno)
	}
	unix.Close(int(fd))
	return nil
}

// explain adds to the errno of seccomp(2) what to do about it.
func explain(errno error) error {
	switch {
	case errors.Is(errno, unix.EBUSY):
		return fmt.Errorf("%w: the kernel allows one seccomp listener, and supervisord runs below another one (LXD, sysbox, another supervisord)", errno)
	case errors.Is(errno, unix.EACCES):
		return fmt.Errorf("%w: without CAP_SYS_ADMIN it needs no_new_privileges = true, which disables setuid programs such as sudo below the worker", errno)
	}
	return fmt.Errorf("%w: a sandbox forbids seccomp(2), as SystemCallFilter= of a unit without seccomp", errno)
}
