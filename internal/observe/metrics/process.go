package metrics

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
)

// process writes what Prometheus' client libraries call the process metrics, and two of Go's.
func process(t *text) {
	t.single("go_goroutines", "gauge", "Goroutines that exist.", float64(runtime.NumGoroutine()))
	t.family("go_info", "gauge", "The version of Go; always 1.")
	t.sample("go_info", 1, "version", runtime.Version())
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		t.single("process_open_fds", "gauge", "Open descriptors.", float64(len(fds)-1)) // without the one that was read
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		t.single("process_max_fds", "gauge", "How many descriptors may be open.", float64(limit.Cur))
	}
	s, err := proc.ReadStat(os.Getpid())
	if err != nil {
		return
	}
	t.single("process_cpu_seconds_total", "counter", "CPU time used, in user and kernel mode.", s.CPU.Seconds())
	t.single("process_resident_memory_bytes", "gauge", "Memory in use.", float64(s.Resident))
	t.single("process_virtual_memory_bytes", "gauge", "Address space in use.", float64(s.Virtual))
	if boot, err := proc.BootTime(); err == nil {
		t.single("process_start_time_seconds", "gauge", "When the process began, since the epoch.", float64(boot.Unix())+s.Began.Seconds())
	}
}
