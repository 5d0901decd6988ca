package supervisor

import (
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/supervisor/program"
)

// clockReading is what two clocks showed when a record was written: the one that its times are of, which anybody may set, and
// one that nobody can, since the machine has started.
type clockReading struct {
	Wall      time.Time
	Monotonic time.Duration
}

func readClock(now time.Time) *clockReading { return &clockReading{now.Round(0), monotonic()} }

// monotonic reads CLOCK_MONOTONIC, which stands still while the machine is suspended, as Go's timers do.
func monotonic() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0 // impossible
	}
	return time.Duration(t.Nano())
}

// shows returns what the wall clock of the record would show by now if nobody had set it. A record of an older version does
// not know: then nobody has.
func (c *clockReading) shows(now time.Time) time.Time {
	if c == nil {
		return now.Round(0)
	}
	return c.Wall.Add(max(0, monotonic()-c.Monotonic)) // less than 0: of a time before the machine's last start
}

// rebase puts the times of a record on this process's clock. What became due meanwhile has a moment more: nobody has looked.
func (r *Record) rebase(p *program.Program, now time.Time) {
	p.Rebase(r.Clock.shows(now), now)
	p.Excuse(now)
}

// clockStep is how far the wall clock may be from where the monotonic one has it without anybody having set it.
const clockStep = 10 * time.Millisecond

// followClock moves the times of all programs with the wall clock if that was set: so they are right in a record and a status,
// which have nothing but the wall clock's.
func (s *Supervisor) followClock() {
	now := time.Now()
	if step := now.Round(0).Sub(s.clock.Round(0)) - now.Sub(s.clock); step.Abs() < clockStep {
		return
	}
	s.clock = now
	for _, p := range s.programs {
		p.core.Rebase(now, now)
	}
}
