package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// monotonic is CLOCK_MONOTONIC in nanoseconds, which the workers' stamps use too.
func monotonic() int64 {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) //nolint:errcheck // it cannot fail
	return t.Nano()
}

// cpuOf is what all threads of a process have used, those that ended too, user and system: utime+stime of proc(5), but in
// nanoseconds. A zombie still has it. The clock's number is made from the PID as clock_getcpuclockid(3) does.
func cpuOf(pid int) (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &t); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// vitals is what a process holds.
type vitals struct {
	rss, anon uint64 // bytes: all that is resident, and what of it is its own
	fds       int
	threads   int
	switches  uint64 // of all threads that live: how often one went to sleep, and so was woken
	preempted uint64
}

func vitalsOf(pid int) (vitals, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return vitals{}, err
	}
	v := vitals{rss: field(status, "VmRSS:") << 10, anon: field(status, "RssAnon:") << 10, threads: int(field(status, "Threads:"))}
	fds, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return vitals{}, err
	}
	v.fds = len(fds)
	tasks, err := filepath.Glob(filepath.Join(dir, "task", "*", "status"))
	if err != nil {
		return vitals{}, err
	}
	for _, path := range tasks {
		if text, err := os.ReadFile(path); err == nil { // a thread may end meanwhile
			v.switches += field(text, "\nvoluntary_ctxt_switches:")
			v.preempted += field(text, "nonvoluntary_ctxt_switches:")
		}
	}
	return v, nil
}

// field is the number after a name in a status file of proc(5); 0 where it is not.
func field(status []byte, name string) uint64 {
	_, rest, _ := bytes.Cut(status, []byte(name))
	words := bytes.Fields(rest)
	if len(words) == 0 {
		return 0
	}
	n, _ := strconv.ParseUint(string(words[0]), 10, 64)
	return n
}

// machineLoad is the one-minute load average: what else the machine was doing.
func machineLoad() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	one, _, _ := strings.Cut(string(text), " ")
	return one
}
