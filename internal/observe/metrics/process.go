package metrics

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
)

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
	if s, err := proc.ReadStat(os.Getpid()); err == nil {
		write(t, s)
	}
}

func write(t *text, s proc.Stat) {
	one := func(name, kind, help string, v float64) {
		t.family(name, kind, help)
		t.sample(name, v)
	}
	one("process_cpu_seconds_total", "counter", "CPU time that was used, in user and in kernel mode.", s.CPU.Seconds())
	one("process_resident_memory_bytes", "gauge", "Memory in use.", float64(s.Resident))
	one("process_virtual_memory_bytes", "gauge", "Address space in use.", float64(s.Virtual))
	if boot, err := proc.BootTime(); err == nil {
		one("process_start_time_seconds", "gauge", "When the process began, since the epoch.", float64(boot.Unix())+s.Began.Seconds())
	}
}
