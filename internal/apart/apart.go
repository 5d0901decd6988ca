// Package apart keeps files on network file systems out of the way of fork(2) and execve(2).
//
// A fork copies the table of descriptors, and the exec after it closes every copy. Network file systems and FUSE write out a file whenever
// a descriptor of it is closed: while they hang, an open file of theirs would hold up the start of every process, and an execve in place.
// Therefore a thread with a table of its own has such a file, which no fork copies.
package apart

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// local are the file systems on which a close writes nothing. A thread too many for one that is missing does no harm.
var local = []int64{
	unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.RAMFS_MAGIC,
	unix.OVERLAYFS_SUPER_MAGIC, unix.PROC_SUPER_MAGIC, unix.DEVPTS_SUPER_MAGIC, unix.MSDOS_SUPER_MAGIC, unix.EXFAT_SUPER_MAGIC,
	0x2fc12fc1, // ZFS
	0xca451a4e, // bcachefs
}

// Needed reports whether files in this folder may have to be written out when they are closed.
func Needed(dir int) bool {
	var fs unix.Statfs_t
	err := unix.Fstatfs(dir, &fs)
	return err != nil || !slices.Contains(local, int64(uint32(fs.Type)))
}

// unshareTable gives the calling thread a copy of the table. Containers often allow close_range(2) and forbid unshare(2).
func unshareTable() bool {
	const none = 1<<31 - 1 // no descriptor has this number
	return unix.CloseRange(none, none, unix.CLOSE_RANGE_UNSHARE) == nil || unix.Unshare(unix.CLONE_FILES) == nil
}

// LeaveMain calls f on another thread than the main one, which does nothing but wait for the end of f: no Begin can fail for being on it.
// main must call it.
func LeaveMain(f func() int) int {
	runtime.LockOSThread()
	done := make(chan int)
	go func() { done <- f() }()
	return <-done
}

// Begin gives the calling goroutine a thread with a table of descriptors of its own, until it ends. Of the descriptors of the process that
// table has stdin, stdout, stderr, and what the Go runtime needs on any thread. Where no such table can be made, because a seccomp
// filter forbids it or this is the main thread, whose table /proc/self shows, the goroutine goes on with that of the process. A file that is open when the thread ends, also by an execve of the process, is
// closed then.
func Begin() error {
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	if unix.Gettid() == unix.Getpid() || !unshareTable() {
		runtime.UnlockOSThread()
		return nil
	}
	const table = "/proc/thread-self/fd/"
	entries, err := os.ReadDir(table)
	if err != nil {
		return fmt.Errorf("cannot list the descriptors of a thread: %w", err)
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 {
			continue
		}
		switch what, _ := os.Readlink(table + e.Name()); what {
		case "anon_inode:[eventpoll]", "anon_inode:[eventfd]":
		default:
			unix.Close(fd) //nolint:errcheck // that of ReadDir is closed already
		}
	}
	return nil
}
