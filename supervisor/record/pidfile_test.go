package record

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// lockedPIDFile is a file with a PID that this process has locked, as a child that a supervisor has forked does.
func lockedPIDFile(t *testing.T, pid int) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "pid"))
	if err == nil {
		_, err = f.WriteString(strconv.Itoa(pid) + "\n")
	}
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func ended(t *testing.T) (pid int) {
	t.Helper()
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

func TestPIDFileOfADeadProcessIsTakenWhenItsLastChildUnlocksIt(t *testing.T) {
	t.Parallel()
	f := lockedPIDFile(t, ended(t))
	time.AfterFunc(50*time.Millisecond, func() { f.Close() })
	p, err := LockPIDFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Remove(); err != nil {
		t.Error(err)
	}
}

func TestPIDFileOfADeadProcessThatStaysLockedIsLeftAlone(t *testing.T) {
	t.Parallel()
	f := lockedPIDFile(t, ended(t))
	began := time.Now()
	if _, err := LockPIDFile(f.Name()); !errors.Is(err, ErrRunning) || time.Since(began) < forkPatience {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

func TestPIDFileOfALivingProcessIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	f := lockedPIDFile(t, os.Getpid())
	began := time.Now()
	if _, err := LockPIDFile(f.Name()); !errors.Is(err, ErrRunning) || time.Since(began) >= forkPatience {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}
