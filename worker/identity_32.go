//go:build 386 || arm

package worker

import "golang.org/x/sys/unix"

// The calls without 32 in their names take 16 bits on these machines.
const (
	sysSetgroups = unix.SYS_SETGROUPS32
	sysSetresgid = unix.SYS_SETRESGID32
	sysSetresuid = unix.SYS_SETRESUID32
)
