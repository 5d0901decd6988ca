package metrics

import (
	"os"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
)

// process writes what Prometheus' client libraries call the process metrics, and two of Go's.
func process(t *values) {
	t.single("go_goroutines", prometheus.GaugeValue, "Goroutines that exist.", float64(runtime.NumGoroutine()))
	t.family(prometheus.GaugeValue, "The version of Go; always 1.")
	t.sample("go_info", 1, "version", runtime.Version())
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		t.single("process_open_fds", prometheus.GaugeValue, "Open descriptors.", float64(len(fds)-1)) // without the one that was read
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		t.single("process_max_fds", prometheus.GaugeValue, "How many descriptors may be open.", float64(limit.Cur))
	}
	s, err := proc.ReadStat(os.Getpid())
	if err != nil {
		return
	}
	t.single("process_cpu_seconds_total", prometheus.CounterValue, "CPU time used, in user and kernel mode.", s.CPU.Seconds())
	t.single("process_resident_memory_bytes", prometheus.GaugeValue, "Memory in use.", float64(s.Resident))
	t.single("process_virtual_memory_bytes", prometheus.GaugeValue, "Address space in use.", float64(s.Virtual))
	if boot, err := proc.BootTime(); err == nil {
		t.single("process_start_time_seconds", prometheus.GaugeValue, "When the process began, since the epoch.", float64(boot.Unix())+s.Began.Seconds())
	}
}
