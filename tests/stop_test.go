package tests

import (
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// noting is web with workers that note the signals they get, and a table [program.web.stop].
func noting(stop string, args ...string) string {
	return lab.WebWith(append(args, "note={dir}/notes")...) + "[program.web.stop]\n" + stop
}

func TestWorkerThatIgnoresItsStopSignalIsKilledAtTheTimeout(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, noting("timeout = \"300ms\"\n", "term=ignore"))
	m.Serves(1)
	m.Signal(syscall.SIGTERM)
	told := m.Await(lab.Says(lab.WorkerTold))
	killed := m.Await(lab.Says(lab.WorkerKilled))
	if gap := killed.Time.Sub(told.Time); gap < 290*time.Millisecond || gap > 10*time.Second {
		t.Errorf("it was killed after %v, want 300ms", gap)
	}
	m.Ends(0)
}

func TestStopWithoutADeadlineWaitsForASecondStop(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, noting("timeout = \"infinity\"\n", "term=ignore"))
	m.Serves(1)
	m.Signal(syscall.SIGTERM)
	m.Await(lab.Says(lab.WorkerTold))
	time.Sleep(500 * time.Millisecond)
	m.Never(lab.Says(lab.WorkerKilled))
	m.Signal(syscall.SIGTERM)
	m.Await(lab.Says(lab.WorkerKilled))
	m.Ends(0)
}
