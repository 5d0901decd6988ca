package worker

import (
	"testing"

	"example.org/supervisord/internal/proc"
	"example.org/supervisord/worker/life"
)

func TestMemoryCountsTheProcessesBelow(t *testing.T) {
	s := started(t, launcher(t), shell(`sleep 100 & echo >&$NOTIFY_FD; wait`))
	next[life.ReadySaid](s)
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
