package tests

import (
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

func TestSecondTERMMeansNow(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.WebWith("term=ignore")+"[program.web.stop]\ntimeout = \"infinity\"\n")
	m.Serves(1)
	m.Signal(syscall.SIGTERM)
	m.Await(lab.Says(lab.WorkerTold))
	time.Sleep(300 * time.Millisecond) // an earlier one counts as a duplicate
	m.Never(lab.Says(lab.WorkerKilled))
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
	m.Await(lab.Says(lab.WorkerKilled))
}
