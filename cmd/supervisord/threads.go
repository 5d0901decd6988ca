package main

import (
	"os"
	"runtime"
	"strconv"
	"sync"

	"example.org/supervisord/internal/config"
)

// maxProcs is how many threads run Go code at once. Decisions are made by one goroutine, so more only cost memory and threads.
const maxProcs = 4

// spareThreads is how many threads there are beyond those that run Go code: for system calls that block, such as the wait for
// the next event, and reading and writing files.
const spareThreads = 8

// prepareThreads makes the threads that supervisord needs while they can be had. The Go runtime aborts the process when it needs a
// thread and cannot make one, and a worker that forks without end can use up every task of a user, or of a container. Threads that
// exist are used again and never end. The environment variable GOMAXPROCS is obeyed.
func prepareThreads() {
	cpus := config.CPUs() // first: it is what workers = "auto" means
	if n, err := strconv.Atoi(os.Getenv("GOMAXPROCS")); err != nil || n < 1 {
		runtime.GOMAXPROCS(min(cpus, maxProcs))
	}
	makeThreads(runtime.GOMAXPROCS(0) + spareThreads)
}

// makeThreads has n goroutines hold a thread each at the same moment.
func makeThreads(n int) {
	var running, done sync.WaitGroup
	running.Add(n)
	for range n {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			running.Done()
			running.Wait()
		})
	}
	done.Wait()
}
