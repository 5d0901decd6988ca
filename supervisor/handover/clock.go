package handover

import (
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/supervisor/program"
)

// clockReading is what two clocks showed when a record was written: the wall clock, which its times use and which can be set, and
// one that cannot be set, which has run since the machine started.
type clockReading struct {
	Wall      time.Time
	Monotonic time.Duration
}

func readClock(now time.Time) clockReading { return clockReading{now.Round(0), monotonic()} }

// monotonic reads CLOCK_MONOTONIC, which stands still while the machine is suspended, as Go's timers do.
func monotonic() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0 // impossible
	}
	return time.Duration(t.Nano())
}

// shows returns what the wall clock of the record would show by now if it had not been set.
func (c clockReading) shows() time.Time {
	return c.Wall.Add(max(0, monotonic()-c.Monotonic)) // less than 0: from before the machine's last start
}

// Rebase puts the times of a program in this record on this process's clock. Deadlines that passed meanwhile are extended a
// little, because no supervisor watched them.
func (r *Record) Rebase(p *program.Program, now time.Time) {
	p.Rebase(r.Clock.shows(), now)
	p.Excuse(now)
}
