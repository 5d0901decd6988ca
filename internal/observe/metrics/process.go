package metrics

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ticks is the unit of times in /proc/PID/stat: USER_HZ, which is 100 wherever Go runs.
const ticks = 100

// process writes what Prometheus' client libraries call the process metrics, and two of Go's.
func process(t *text) {
	t.family("go_goroutines", "gauge", "Goroutines that exist.")
	t.sample("go_goroutines", float64(runtime.NumGoroutine()))
	t.family("go_info", "gauge", "The version of Go; always 1.")
	t.sample("go_info", 1, "version", runtime.Version())
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		t.family("process_open_fds", "gauge", "Open descriptors.")
		t.sample("process_open_fds", float64(len(fds)-1)) // but for the one that was read
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		t.family("process_max_fds", "gauge", "How many descriptors may be open.")
		t.sample("process_max_fds", float64(limit.Cur))
	}
	if s, err := readStat(); err == nil {
		s.write(t)
	}
}

// stat is a part of /proc/PID/stat, see proc_pid_stat(5).
type stat struct{ user, system, started, virtual, resident float64 }

func readStat() (stat, error) {
	line, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return stat{}, err
	}
	return parseStat(line)
}

func parseStat(line []byte) (s stat, err error) {
	after := bytes.LastIndexByte(line, ')') // the name may have anything in it
	fields := strings.Fields(string(line[after+1:]))
	if after < 0 || len(fields) < 22 {
		return s, errors.New("/proc/self/stat is cut off")
	}
	for i, into := range map[int]*float64{11: &s.user, 12: &s.system, 19: &s.started, 20: &s.virtual, 21: &s.resident} { // the first is field 3
		if *into, err = strconv.ParseFloat(fields[i], 64); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s stat) write(t *text) {
	one := func(name, kind, help string, v float64) {
		t.family(name, kind, help)
		t.sample(name, v)
	}
	one("process_cpu_seconds_total", "counter", "CPU time that was used, in user and in kernel mode.", (s.user+s.system)/ticks)
	one("process_resident_memory_bytes", "gauge", "Memory in use.", s.resident*float64(os.Getpagesize()))
	one("process_virtual_memory_bytes", "gauge", "Address space in use.", s.virtual)
	if boot, err := bootTime(); err == nil {
		one("process_start_time_seconds", "gauge", "When the process began, since the epoch.", boot+s.started/ticks)
	}
}

// bootTime is when the machine began, in seconds since the epoch.
func bootTime() (float64, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(string(text), "\nbtime ")
	if !found {
		return 0, errors.New("/proc/stat has no btime")
	}
	line, _, _ := strings.Cut(rest, "\n")
	return strconv.ParseFloat(line, 64)
}
