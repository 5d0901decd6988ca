package supervisor

import (
	"time"
)

// clockStep is how far the wall clock may be from where the monotonic one has it without having been set.
const clockStep = 10 * time.Millisecond

// followClock moves the times of all programs with the wall clock if that was set: so they are right in a record and a status,
// which have nothing but the wall clock's.
func (s *Supervisor) followClock() {
	now := time.Now()
	if step := now.Round(0).Sub(s.clock.Round(0)) - now.Sub(s.clock); step.Abs() < clockStep {
		return
	}
	s.clock = now
	s.store.TouchAll()
	for _, p := range s.programs {
		p.core.Rebase(now, now)
	}
}
