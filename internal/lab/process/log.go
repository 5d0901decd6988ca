package process

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// FollowLog returns a Follower of a supervisord that logs as JSON, and the function that it needs for each line and for
// the end of the log. Programs that measure supervisord read its log, because an open stream of events costs it memory,
// CPU time and wake-ups. The updates only have Time, Program, Kind (of a line that is no event its message),
// Generation, Step and Reason.
func FollowLog() (f *Follower, line func(string), end func()) {
	f = &Follower{cancel: func() {}, done: make(chan struct{}), more: make(chan struct{})}
	close(f.done)
	last := ""
	line = func(text string) {
		last = text
		var l struct {
			Time                  time.Time
			Event                 program.ReportKind
			Msg                   string
			Program, Step, Reason string
			Generation            int
		}
		if json.Unmarshal([]byte(text), &l) == nil {
			report := program.Report{Kind: cmp.Or(l.Event, program.ReportKind(l.Msg)), Generation: l.Generation,
				End:    program.End{Step: l.Step},
				Reason: l.Reason}
			f.add(supervisor.Update{Time: l.Time, Program: l.Program, Report: report})
		}
	}
	return f, line, func() { f.end(fmt.Errorf("supervisord has ended: %s", last)) }
}
