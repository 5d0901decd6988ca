package worker

import (
	"fmt"
	"os/signal"
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
