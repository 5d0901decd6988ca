package foreign

import (
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A fork copies the table of descriptors, and the exec after it closes every copy. Network file systems and FUSE write
// out a file whenever one of its descriptors is closed: while they hang, an open file would block the start of every
// process, and an execve in place. So such a file is opened on a thread with its own table (StandApart), which no fork
// copies. Forks and execve happen on the main thread (OnMain).

// local are the file systems on which a close writes nothing. If one is missing here, its files get a thread without
// need: harmless.
var local = []int64{
	unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.TMPFS_MAGIC,
	unix.RAMFS_MAGIC,
	unix.OVERLAYFS_SUPER_MAGIC, unix.PROC_SUPER_MAGIC, unix.DEVPTS_SUPER_MAGIC, unix.MSDOS_SUPER_MAGIC,
	unix.EXFAT_SUPER_MAGIC,
	0x2fc12fc1, // ZFS
	0xca451a4e, // bcachefs
}

// MayHang reports whether files in the directory behind dir may have to be written out when they are closed.
func MayHang(dir int) bool {
	var fs unix.Statfs_t
	err := unix.Fstatfs(dir, &fs)
	return err != nil || !slices.Contains(local, int64(uint32(fs.Type)))
}

// unshareTable gives the calling thread a copy of the table. Containers often allow close_range(2) and forbid
// unshare(2).
func unshareTable() bool {
	const none = 1<<31 - 1 // no descriptor has this number
	return unix.CloseRange(none, none, unix.CLOSE_RANGE_UNSHARE) == nil || unix.Unshare(unix.CLONE_FILES) == nil
}

// mainCalls is where the main thread takes what OnMain is given; nil: it takes nothing.
var mainCalls atomic.Pointer[chan func()]

// LeaveMain calls f on another thread than the main one, which only waits for f, and does what OnMain is given
// meanwhile: StandApart cannot work on the main thread. main must call it.
func LeaveMain(f func() int) int {
	runtime.LockOSThread()
	calls, done := make(chan func()), make(chan int)
	mainCalls.Store(&calls)
	go func() { done <- f() }()
	for {
		select {
		case call := <-calls:
			call()
		case code := <-done:
			return code
		}
	}
}

// OnMain calls f on the main thread, or on the caller's if the program did not begin with LeaveMain. f must not wait
// for anything.
//
// The main thread is the only one that lives as long as the process, also over an execve(2) that it makes itself. The
// kernel takes the thread that forked for the parent of a process: when that thread ends, the process gets its
// PR_SET_PDEATHSIG. And a signal to the process goes to its main thread if that does not block it.
func OnMain(f func()) {
	calls := mainCalls.Load()
	if calls == nil {
		f()
		return
	}
	done := make(chan struct{})
	*calls <- func() {
		defer close(done)
		f()
	}
	<-done
}

// StandApart gives the calling goroutine a thread with its own table of descriptors, until the goroutine ends. The
// table has stdin, stdout, stderr, and what the Go runtime needs on any thread. The end of the thread, also by an
// execve of the process, closes the files that are still open in the table. Where no such table can be made, because a
// seccomp filter forbids it, the thread continues with that of the process; on the main thread, whose table /proc/self
// shows, StandApart does nothing.
func StandApart() error {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		runtime.UnlockOSThread()
		return nil
	}
	if OwnThread(); !unshareTable() {
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

// OpenRegular opens a regular file for reading, and waits for nothing: a FIFO or a device is refused without being
// opened.
func OpenRegular(path string) (*os.File, error) {
	stat, err := os.Stat(path)
	if err == nil {
		err = checkRegular(path, stat.Mode())
	}
	if err != nil {
		return nil, err
	}
	// The path may have been exchanged meanwhile, hence O_NONBLOCK (a FIFO opens at once) and the second check.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	if stat, err = f.Stat(); err == nil {
		err = checkRegular(path, stat.Mode())
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func checkRegular(path string, mode fs.FileMode) error {
	switch {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return fmt.Errorf("read %s: it is a directory, not a file", path)
	}
	return fmt.Errorf("read %s: it is a device, pipe or socket, not a file", path)
}
