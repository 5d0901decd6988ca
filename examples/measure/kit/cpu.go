package kit

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Monotonic returns CLOCK_MONOTONIC, which all processes share.
func Monotonic() time.Duration {
	t, _ := clock(unix.CLOCK_MONOTONIC)
	return t
}

// CPU returns what all threads of a process have used, user and system, those that ended included: utime+stime of proc(5), but in
// nanoseconds. A zombie still has it. The number of the clock is made from the PID as clock_getcpuclockid(3) does.
func CPU(pid int) (time.Duration, error) {
	t, err := clock(int32(^pid<<3 | 2))
	if err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return t, nil
}

func clock(number int32) (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(number, &t)
	return time.Duration(t.Nano()), err
}
