package proc

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel shows some files of a process only to a reader that may trace it (PTRACE_MODE_READ_FSCREDS in ptrace(2)):
// fd, fdinfo, environ, smaps_rollup, mem, exe, ns, and syscall of each thread. Root without CAP_SYS_PTRACE, as in most
// containers and under systemd/supervisord.service, may not trace another user's process. But what counts is the
// file-system user of the reading thread (setfsuid(2)), and that is root's to choose. Two kinds of processes still need
// the capability: those that have changed their user without an exec, or called PR_SET_DUMPABLE, and those with
// capabilities that this process lacks.

// AsOwner calls look, which reads such files of a process, on a thread that may: where root has no CAP_SYS_PTRACE, with
// the file-system user and group of the process's owner. Calls may be nested. look must not start a process or leave
// its goroutine, and cannot open what only root may open. For one file there are ReadFile and Readlink.
func AsOwner(pid int, look func()) {
	if os.Geteuid() != 0 || May(unix.CAP_SYS_PTRACE) {
		look()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	undo, _ := actAs(pid)
	defer undo()
	look()
}

// ActAs calls f on a thread with the file-system user and group of a process's owner, or not at all if this thread
// cannot have them. An ordinary user calls f as it is. f is bound as with AsOwner.
func ActAs(pid int, f func()) {
	if os.Geteuid() != 0 {
		f()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	undo, ok := actAs(pid)
	defer undo()
	if ok {
		f()
	}
}

// ReadFile reads a file in the directory of a process as its owner: see AsOwner.
func ReadFile(pid int, name string) (text []byte, err error) {
	AsOwner(pid, func() { text, err = read(Path(pid, name)) })
	return text, err
}

// Readlink reads a link in the directory of a process as its owner: see AsOwner.
func Readlink(pid int, name string) (to string, err error) {
	AsOwner(pid, func() { to, err = os.Readlink(Path(pid, name)) })
	return to, err
}

// actAs gives the calling thread, which must be locked, the file-system identity of a process's owner. ok: the thread
// has that identity, until undo.
func actAs(pid int) (undo func(), ok bool) {
	var owner unix.Stat_t // the effective user and group of a process have its directory, whatever it lets others see
	if unix.Stat(Path(pid, ""), &owner) != nil {
		return func() {}, false
	}
	had := [2]int{unix.Geteuid(), unix.Getegid()}
	if uid, gid, err := fileUser(); err == nil {
		had = [2]int{uid, gid}
	}
	uid, gid := int(owner.Uid), int(owner.Gid)
	if had == [2]int{uid, gid} {
		return func() {}, true
	}
	return func() { SetFileUser(had[0], had[1]) }, SetFileUser(uid, gid)
}

// SetFileUser gives the calling thread, which must be locked, a file-system user and group, and reports whether the
// thread has them then: only root can choose. The kernel takes the change as one of the whole process: nobody but root
// with CAP_SYS_PTRACE may look at this process any more (PR_SET_DUMPABLE), such as the supervisord that takes its
// sockets over, and the thread forgets the signal for the death of its parent (PR_SET_PDEATHSIG). SetFileUser sets both
// again. Threads may do this at the same time: the last one sets them again, too.
func SetFileUser(uid, gid int) bool {
	others := dumpable()
	var death int32
	unix.RawSyscall(unix.SYS_PRCTL, unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&death)), 0)
	unix.Setfsgid(gid) //nolint:errcheck // what the thread has then tells, below
	unix.Setfsuid(uid) //nolint:errcheck // likewise
	if others {
		unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) //nolint:errcheck // it cannot fail
	}
	if death != 0 {
		unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(death), 0, 0, 0) //nolint:errcheck // it cannot fail
	}
	nowUID, nowGID, err := fileUser()
	return err == nil && nowUID == uid && nowGID == gid
}

// fileUser returns the file-system user and group of the calling thread. -1 changes nothing.
func fileUser() (uid, gid int, err error) {
	uid, err1 := unix.SetfsuidRetUid(-1)
	gid, err2 := unix.SetfsgidRetGid(-1)
	return uid, gid, errors.Join(err1, err2)
}

// dumpable reports whether others of this user may look at this process, as it was before the first SetFileUser.
var dumpable = sync.OnceValue(func() bool {
	is, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	return err == nil && is == 1
})
