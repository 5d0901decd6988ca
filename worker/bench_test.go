package worker

import (
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/worker/life"
)

func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkThousandWorkers starts 1,000 workers at once, waits until all are ready, and stops them. It reports the CPU
// time, memory and threads of the supervisor.
func BenchmarkThousandWorkers(b *testing.B) {
	const n = 1000
	where := "/dev/shm" // a tmpfs, as /run is: on a disk, creating a thousand socket files is half the cost
	if _, err := os.Stat(where); err != nil {
		where = ""
	}
	dir, err := os.MkdirTemp(where, "w")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := NewLauncher(Setup{Directory: dir})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	for b.Loop() {
		var before, during runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		begin, wall := cpu(), time.Now()
		var ready, ended sync.WaitGroup
		ready.Add(n)
		ended.Add(n)
		workers := make([]*Worker, n)
		for i := range workers {
			spec := shell(`echo >&$NOTIFY_FD; exec sleep 1000`)
			spec.Environment = []string{"PATH=" + os.Getenv("PATH")}
			workers[i] = l.Start(spec, func(e life.Event) {
				switch e.(type) {
				case life.ReadySaid:
					ready.Done()
				case life.Exited:
					ended.Done()
				}
			})
		}
		ready.Wait()
		up, upWall := cpu()-begin, time.Since(wall)
		runtime.GC()
		runtime.ReadMemStats(&during)
		threads, _ := os.ReadDir("/proc/self/task")
		begin = cpu()
		for _, w := range workers {
			w.Signal(syscall.SIGTERM, false)
		}
		ended.Wait()
		b.ReportMetric(float64(up.Microseconds())/n, "cpu-µs/start")
		b.ReportMetric(float64((cpu()-begin).Microseconds())/n, "cpu-µs/stop")
		b.ReportMetric(float64(during.HeapAlloc+during.StackInuse-before.HeapAlloc-before.StackInuse)/n, "B/worker")
		b.ReportMetric(float64(len(threads)), "threads")
		b.ReportMetric(upWall.Seconds()*1000/n, "wall-ms/start")
	}
}
