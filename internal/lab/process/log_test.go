package process

import (
	"os/exec"
	"strings"
	"testing"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

func TestStartLoggedReadsTheLog(t *testing.T) {
	script := `echo '{"msg":"new generation serves","program":"web","generation":2,"took":"1s"}'; echo 'supervisord: gone wrong' >&2`
	c, j, err := StartLogged(exec.Command("sh", "-c", script), nil)
	if err != nil {
		t.Fatal(err)
	}
	u, err := j.Await(t.Context(), 0, func(u *supervisor.Update) bool { return u.Kind == program.GenerationServes })
	if err != nil || u.Program != "web" || u.Generation != 2 {
		t.Errorf("%+v, %v", u, err)
	}
	_, err = j.Await(t.Context(), 1, func(*supervisor.Update) bool { return false })
	if err == nil || !strings.Contains(err.Error(), "gone wrong") {
		t.Errorf("the error %v does not have the last line of the log", err)
	}
	<-c.Ended
}
