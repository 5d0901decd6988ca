package attack

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

func TestMasterThatWasStoppedDoesNotFailTrialsThatWereReadyInTime(t *testing.T) {
	t.Parallel()
	const programs = 8
	text := ""
	for n := range programs {
		text += strings.ReplaceAll(lab.WebWith("boot=700ms")+"timeout = \"5s\"\n", "program.web",
			fmt.Sprintf("program.web%d", n))
	}
	m := lab.Start(t, text)
	m.AwaitN(programs, lab.Says(lab.GenerationServes))
	m.Reload()
	m.AwaitN(programs, lab.Says(lab.WorkerRuns), lab.Gen(2))
	m.Signal(syscall.SIGSTOP)
	time.Sleep(6 * time.Second) // as on a machine that was suspended or migrated
	m.Signal(syscall.SIGCONT)
	m.AwaitN(programs, lab.Says(lab.GenerationServes), lab.Gen(2))
	m.Never(lab.Says(lab.TrialFailed))
}
