package process

import (
	"os/exec"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

func TestFollowLogReadsTheLog(t *testing.T) {
	script := `echo '{"time":"2026-11-22T15:02:53.434035481Z","msg":"generation ` +
		`serves","event":"generation_serves","program":"web","generation":2,"took":"1s"}'; echo 'supervisord: gone wrong' >&2`
	j, line, end := FollowLog()
	c := must.Get(Start(exec.Command("sh", "-c", script), line, nil))(t)
	<-c.EOF
	end()
	u, err := j.Await(t.Context(), 0, func(u *supervisor.Update) bool { return u.Kind == program.GenerationServes })
	if err != nil || u.Program != "web" || u.Generation != 2 || u.Time.Nanosecond() != 434035481 {
		t.Errorf("%+v, %v", u, err)
	}
	_, err = j.Await(t.Context(), 1, func(*supervisor.Update) bool { return false })
	if err == nil || !strings.Contains(err.Error(), "gone wrong") {
		t.Errorf("the error %v does not have the last line of the log", err)
	}
	<-c.Ended
}
