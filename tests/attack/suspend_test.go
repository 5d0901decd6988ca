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

func TestConfigurationOnADiskThatHangsDelaysNeitherReplacementsNorTheEnd(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	disk := newDisk(t, m)
	m.Start(lab.Web)
	m.Serves(1)
	disk.Hang()
	defer time.AfterFunc(2*lab.Patience, disk.Resume).Stop() // so that a failing test ends too
	m.Write("include = [\"" + disk.Path("web.toml") + "\"]\n" + lab.Web)
	m.Reload()
	lab.Must(t, syscall.Kill(m.WorkerPID(1), syscall.SIGKILL))
	m.AwaitN(2, lab.Says(lab.WorkerReady))
	m.Finish()
	m.Await(lab.Says(lab.Ends))
	m.Never(lab.Contains("refused")) // the configuration was still being read
}
