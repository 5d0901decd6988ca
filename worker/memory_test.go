package worker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/proc"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/ready"
)

func TestMemoryCountsTheProcessesBelow(t *testing.T) {
	s := start(t, launcher(t), shell(`sleep 100 & echo >&$NOTIFY_FD; wait`))
	must[life.Spawned](s)
	must[life.ReadySaid](s)
	all, err := s.w.Memory(1 << 40)
	own, ownErr := proc.ReadStat(s.w.State().PID)
	if err != nil || ownErr != nil || all <= uint64(own.Resident) || own.Resident == 0 {
		t.Errorf("%d bytes of which %d are its own: %v %v", all, own.Resident, err, ownErr)
	}
	shared, err := s.w.Memory(0)
	if err != nil || shared == 0 || shared >= all {
		t.Errorf("its share is %d of %d: %v", shared, all, err)
	}
	s.end()
	if _, err := s.w.Memory(0); err == nil {
		t.Error("memory of a worker that has ended")
	}
}

func TestProbeReportsWhyAWorkerIsUnhealthy(t *testing.T) {
	s := start(t, launcher(t), shell(`echo >&$NOTIFY_FD; exec sleep 100`))
	must[life.Spawned](s)
	must[life.ReadySaid](s)
	probe := func(script string, within time.Duration) error {
		ctx, cancel := context.WithTimeoutCause(t.Context(), within, errors.New("no answer in time"))
		defer cancel()
		return s.w.Probe(ctx, ready.Check{Method: ready.Exec, Command: []string{"/bin/sh", "-c", script}})
	}
	if err := probe("kill -0 {pid}", 10*time.Second); err != nil {
		t.Error(err)
	}
	if err := probe("echo not well >&2; exit 3", 10*time.Second); err == nil ||
		!strings.Contains(err.Error(), "status 3") {
		t.Errorf("%v", err)
	}
	if err := probe("sleep 100", 50*time.Millisecond); err == nil || err.Error() != "no answer in time" {
		t.Errorf("%v", err)
	}
	s.end()
	if err := probe("true", time.Second); err == nil {
		t.Error("an exited worker counts as healthy")
	}
}

func TestWatchdogVariablesHaveThePIDOfTheWorker(t *testing.T) {
	l := launcher(t)
	spec := role("report", "WATCHDOG_USEC=1", "WATCHDOG_PID=1")
	if got := report(t, l, spec); got["env.WATCHDOG_USEC"] != "" || got["env.WATCHDOG_PID"] != "" {
		t.Errorf("%v", got)
	}
	spec.Watchdog = 30 * time.Second
	if got := report(t, l, spec); got["env.WATCHDOG_USEC"] != "30000000" || got["env.WATCHDOG_PID"] != got["pid"] {
		t.Errorf("%v", got)
	}
}
