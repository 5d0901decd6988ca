package bind

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/lab/unit"
)

func TestTrialGetsItsAnswer(t *testing.T) {
	must.Do(t, try())
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

func TestTrialSaysThatTheKernelRefusesAFilter(t *testing.T) {
	var err error
	filter := unit.SystemCall{Number: unix.SYS_SECCOMP, Value: unix.SECCOMP_SET_MODE_FILTER}
	unit.Refusing(t, filter, unix.EPERM, func() { err = try() })
	if err == nil || !strings.Contains(err.Error(), "SystemCallFilter= of a unit without seccomp") {
		t.Errorf("it says %v", err)
	}
}
