package process

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"time"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// StartLogged starts cmd, a supervisord that logs as JSON, and returns a Follower of its log. Who measures supervisord reads its log,
// because an open stream of events costs it memory, CPU time and wake-ups. The updates only have the time at which the line was
// read, Program, Kind, Generation, Step and Reason. dead is that of Start.
func StartLogged(cmd *exec.Cmd, dead func()) (*Child, *Follower, error) {
	j := &Follower{cancel: func() {}, done: make(chan struct{}), more: make(chan struct{})}
	close(j.done)
	last := ""
	c, err := Start(cmd, func(line string) {
		last = line
		var l struct {
			Msg                   program.ReportKind
			Program, Step, Reason string
			Generation            int
		}
		if json.Unmarshal([]byte(line), &l) == nil {
			report := program.Report{Kind: l.Msg, Generation: l.Generation, Step: l.Step, Reason: l.Reason}
			j.add(supervisor.Update{Time: time.Now(), Program: l.Program, Report: report})
		}
	}, dead)
	if err != nil {
		return nil, nil, err
	}
	go func() {
		<-c.EOF
		j.end(fmt.Errorf("supervisord has ended: %s", last))
	}()
	return c, j, nil
}
