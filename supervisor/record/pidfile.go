package record

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// PIDFile is a file with the PID of this process, locked (flock(2)) for as long as the process lives. The lock belongs
// to the open file, which the PIDFile owns: a process that inherits the descriptor has the lock, too. So an execve
// keeps it, without a moment in which another supervisord could take it, and a child between fork and exec may hold it
// a little longer than its dead parent.
type PIDFile struct{ file *os.File }

// ErrRunning is returned by LockPIDFile when another process holds the file.
var ErrRunning = errors.New("supervisord is already running")

// LockPIDFile locks path and only then writes to it, so that the file of a live supervisor is never touched. It takes
// over a stale file, for whose lock it may wait for a second. It does not touch a file that holds anything but a
// number: Remove would delete it at the end.
func LockPIDFile(path string) (*PIDFile, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o644)
		if err != nil {
			return nil, fmt.Errorf("cannot open pid file: %w", err)
		}
		again, err := lock(f, path)
		if err == nil && !again {
			return &PIDFile{f}, nil
		}
		f.Close() //nolint:errcheck // nothing was written
		if err != nil {
			return nil, fmt.Errorf("pid file %s: %w", path, err)
		}
	}
}

// InheritPIDFile takes over the file that the image before this one has locked; the lock is the descriptor's.
func InheritPIDFile(fd int, path string) *PIDFile { return &PIDFile{os.NewFile(uintptr(fd), path)} }

// FD returns the descriptor, to hand the lock over. It stays the file's.
func (p *PIDFile) FD() int { return int(p.file.Fd()) }

// lock reports whether the file has to be opened again: its owner removed it between our open and our lock.
func lock(f *os.File, path string) (again bool, err error) {
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	if !mine.Mode().IsRegular() {
		return false, errors.New("not a regular file: it is left alone; choose another pid_file")
	}
	if err = flock(f); err == nil {
		if there, err := os.Lstat(path); err != nil || !os.SameFile(mine, there) {
			return true, nil
		}
		err = onlyNumber(f)
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil && mine.Size() == 0 {
		os.Remove(path) //nolint:errcheck // it was made just now
	}
	return false, err
}

// onlyNumber returns an error if f cannot be a pid file: it is neither empty nor one number.
func onlyNumber(f *os.File) error {
	text, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return err
	}
	number := strings.TrimSpace(string(text))
	if _, err := strconv.ParseUint(number, 10, 32); err != nil && len(text) > 0 {
		return errors.New("holds something other than a process ID, so it is left alone: " +
			"choose another pid_file, or remove the file")
	}
	return nil
}

// forkPatience is how long a child of a supervisor that was killed may have the lock: until it executes its command,
// or ends.
const forkPatience = time.Second

// flock locks f. It waits only for a lock that has outlived the process in f.
func flock(f *os.File) error {
	for end := time.After(forkPatience); ; {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		text := make([]byte, 32)
		n, _ := f.ReadAt(text, 0) //nolint:errcheck // the lock says more than the text
		holder := strings.TrimSpace(string(text[:n]))
		running := fmt.Errorf("%w with PID %s", ErrRunning, holder)
		if pid, err := strconv.Atoi(holder); err != nil || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			return running
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-end:
			return running
		}
	}
}

// Remove removes the file and unlocks it, in this order, if the path still leads to it.
func (p *PIDFile) Remove() error {
	defer p.file.Close()
	path := p.file.Name()
	mine, err := p.file.Stat()
	if err != nil {
		return err
	}
	if there, err := os.Lstat(path); err != nil || !os.SameFile(mine, there) {
		return nil // it belongs to another process now
	}
	return os.Remove(path)
}
