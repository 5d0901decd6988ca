package bind

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestTrialGetsItsAnswer(t *testing.T) {
	must(t, try())
}

// TestBusyMachineIsNoAnswer: a trial that was slow is made again, and what the kernel says is remembered.
func TestBusyMachineIsNoAnswer(t *testing.T) {
	var m means
	calls := 0
	slow := func() error { calls++; return unreadable(1, errDelayed) }
	if err := m.result(slow); !errors.Is(err, errDelayed) || calls != trials {
		t.Errorf("after %d trials: %v", calls, err)
	}
	for _, answer := range []error{unix.EPERM, nil} {
		m, calls = means{}, 0
		try := func() error {
			if calls++; calls < 3 {
				return errSlow
			}
			return answer
		}
		for range 2 {
			if err := m.result(try); !errors.Is(err, answer) || calls != 3 {
				t.Errorf("after %d trials: %v, want %v", calls, err, answer)
			}
		}
	}
}

// forbid lets a system call fail with EPERM, on this thread and in what it forks.
func forbid(t *testing.T, call uint32) {
	t.Helper()
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: dataNumber},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	must(t, unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0,
		uintptr(unsafe.Pointer(&filter))); errno != 0 {
		t.Fatal(errno)
	}
}

func TestTrialSaysThatTheKernelRefusesAFilter(t *testing.T) {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: what is forbidden ends with the thread
		forbid(t, unix.SYS_SECCOMP)
		done <- try()
	}()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "SystemCallFilter= of a unit without seccomp") {
		t.Errorf("it says %v", err)
	}
}
