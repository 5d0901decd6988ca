package daemon

import (
	"os"
	"runtime"
	"strconv"
	"sync"

	"example.org/supervisord/internal/config"
)

const (
	// maxProcs is how many threads run Go code at once. One goroutine makes all decisions, so more would only cost memory.
	maxProcs = 4
	// spareThreads is how many threads there are beside those: for system calls that block, or that wait for a CPU: on a busy machine
	// each of the control socket's clients may be in one. A thread costs 30 KB.
	spareThreads = 24
)

// prepareThreads makes the threads that supervisord needs while it can. The Go runtime aborts the process when it needs a thread and
// cannot make one, and a worker that forks without end can use up every task of a user or a container. Existing threads are reused
// and never end. The environment variable GOMAXPROCS is obeyed.
func prepareThreads() {
	cpus := config.CPUs() // before the change: it is what workers = "auto" means
	if n, err := strconv.Atoi(os.Getenv("GOMAXPROCS")); err != nil || n < 1 {
		runtime.GOMAXPROCS(min(cpus, maxProcs))
	}
	n := runtime.GOMAXPROCS(0) + spareThreads
	var running, done sync.WaitGroup
	running.Add(n)
	for range n { // n goroutines hold a thread each at the same moment
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			running.Done()
			running.Wait()
		})
	}
	done.Wait()
}
