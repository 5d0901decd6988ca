package worker

import (
	"fmt"
	"maps"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/output"
)

func TestOrphansAreReapedAndNoStatusIsLost(t *testing.T) {
	l := launcher(t)
	const workers = 200
	var wg sync.WaitGroup
	wrong := make(chan string, workers)
	for i := range workers {
		wg.Add(1)
		// The inner shell leaves a process in another session without a parent that waits for it.
		spec := shell(fmt.Sprintf("setsid sleep 0.0%d & exit %d", i%10, i%100))
		spec.Stdout, spec.Stderr = output.Destination{Kind: output.Null}, output.Destination{Kind: output.Null}
		l.Start(spec, func(e life.Event) {
			if x, ok := e.(life.Exited); ok {
				if !x.Known || x.Step != "" || x.Status.ExitStatus() != i%100 {
					wrong <- fmt.Sprintf("%d: %s", i, x)
				}
				wg.Done()
			}
		})
	}
	wg.Wait()
	close(wrong)
	for w := range wrong {
		t.Error(w)
	}
	must.Become(t, "without orphans", noChildren)
}

func TestEndIsNoticedThoughSIGCHLDIsLost(t *testing.T) {
	l := launcher(t)
	signal.Stop(l.chld)
	for range 10 {
		s := started(t, l, shell("exit 3"))
		exits(s, 3)
	}
}

func noChildren() bool {
	var si unix.Siginfo
	return unix.Waitid(unix.P_ALL, 0, &si, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil) == unix.ECHILD
}

func TestSignalBeforeTheCommandRunsReachesTheCommand(t *testing.T) {
	l := launcher(t)
	for i := range 40 {
		sig := []syscall.Signal{syscall.SIGUSR2, syscall.SIGKILL}[i%2]
		s := start(t, l, command("sleep", "100"))
		s.signal(int(sig))
		e := s.next()
		_, runs := e.(life.Spawned)
		if runs {
			e = s.next()
		}
		if x := e.(life.Exited); x.Status.Signal() != sig || runs && x.Step != "" ||
			!runs && x.String() != "killed by SIGKILL before it could run" {
			t.Errorf("step %q: %s", x.Step, x)
		}
	}
}

func TestSignalsThatRaceWithTheEnd(t *testing.T) {
	l := launcher(t)
	var senders sync.WaitGroup
	for range 30 {
		s := start(t, l, shell("exit 0"))
		senders.Go(func() {
			for i := range 200 {
				if err := s.w.Signal(syscall.SIGCONT, i%2 == 0); err != nil {
					t.Error(err)
				}
			}
		})
		s.end()
	}
	senders.Wait()
}

func TestLauncherIsNotClosedOverALivingWorker(t *testing.T) {
	l := launcher(t)
	sleeper(t, l, nil)
	if err := l.Close(); err == nil || !strings.Contains(err.Error(), "1 workers") {
		t.Error(err)
	}
}

// The kernel leaves a child out of the list if one before it is reaped meanwhile.
func TestOrphansAreListedWhileOthersAreReaped(t *testing.T) {
	l := launcher(t)
	said, saidEnd := pipe(t)
	spec := shell(`for i in $(seq 200); do
		(exec 4>&3 3>&-; sleep 0.$((i % 90 + 10)) 4>&- & sleep 1000 4>&- & echo $! >&4)
	done; sleep 1; exec 3>&-; sleep 1000`)
	spec.Sockets = []int{int(saidEnd.Fd())}
	started(t, l, spec)
	saidEnd.Close()
	stay := make(chan int)
	go func() {
		defer close(stay)
		for pid := 0; ; stay <- pid {
			if _, err := fmt.Fscan(said, &pid); err != nil {
				return
			}
		}
	}()
	listed := map[int]bool{}
	for looks, more := 1, true; more || slices.Contains(slices.Collect(maps.Values(listed)), false); looks++ {
		select {
		case pid, ok := <-stay:
			if more = ok; ok {
				listed[pid] = false
			}
		default:
		}
		list := l.orphans()
		for pid, before := range listed {
			listed[pid] = slices.Contains(list, pid)
			if before && !listed[pid] {
				t.Fatalf("look %d: %d was in the list, and is not in that of %d any more", looks, pid, len(list))
			}
		}
	}
}
