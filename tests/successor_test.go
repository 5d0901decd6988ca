package tests

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

func TestAReloadThatFailsIsTriedAgainUntilOneServes(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.WebWith("failif={dir}/bad")+"[program.web.reload]\nretry = \"200ms\"\n")
	m.Serves(1)
	m.File("bad", "")
	m.Reload()
	m.Await(lab.Says(lab.TrialFailed), lab.Gen(2))
	m.Await(lab.Says(lab.ReloadRetry), lab.Gen(2))
	m.Await(lab.Says(lab.TrialFailed), lab.Gen(3))
	if !lab.Alive(m.WorkerPID(1)) {
		t.Error("the worker that serves has ended")
	}
	lab.Must(t, os.Remove(m.Path("bad")))
	served := m.Await(lab.Says(lab.GenerationServes), func(l lab.Entry) bool { return l.Generation > 3 })
	m.Gone(1)
	time.Sleep(500 * time.Millisecond)
	m.Never(lab.Says(lab.TrialBegan), func(l lab.Entry) bool { return l.Generation > served.Generation })
}

func TestReloadEveryReloadsPeriodically(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web+"[program.web.reload]\nevery = \"1s\"\n")
	for generation := 1; generation <= 3; generation++ {
		m.Serves(generation)
	}
	began := m.AwaitN(3, lab.Says(lab.TrialBegan))
	served := m.AwaitN(2, lab.Says(lab.GenerationServes))
	if gap := began[2].Time.Sub(served[1].Time); gap < 900*time.Millisecond {
		t.Errorf("the third generation began %s after the second served", gap)
	}
	if !strings.Contains(began[2].Reason, "1s have passed") {
		t.Errorf("the reason is %q", began[2].Reason)
	}
}

func TestANewGenerationTakesThePlaceOfAWorkerThatDiedWhereThatIsAskedFor(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.File("env/COLOUR", "red\n")
	m.Start(strings.Replace(lab.Web, "[[", "environment_dir = \"{dir}/env\"\n[[", 1) + "[program.web.restart]\ngeneration = \"new\"\n")
	m.Serves(1)
	m.File("env/COLOUR", "blue\n")
	lab.Must(t, syscall.Kill(m.WorkerPID(1), syscall.SIGKILL))
	m.Serves(2)
	if got := lab.Environment(t, m.WorkerPID(2))["COLOUR"]; got != "blue" {
		t.Errorf("the new generation has %q", got)
	}
	m.Gone(1)
}

func TestAWorkerThatIsReplacedGetsTheSignalForThat(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, noting("signal = \"INT\"\nreload_signal = \"QUIT\"\n"))
	m.Serves(1)
	m.Reload()
	m.Gone(1)
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
	if got := m.Read("notes"); got != "1 0 start\n2 0 start\n1 0 QUIT\n2 0 INT\n" {
		t.Errorf("the workers were told %q", got)
	}
}

func TestINTGivesTheWorkersTheSignalForThat(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, noting("signal = \"QUIT\"\nint_signal = \"TERM\"\n"))
	m.Serves(1)
	m.Signal(syscall.SIGINT)
	m.Ends(0)
	if got := m.Read("notes"); got != "1 0 start\n1 0 TERM\n" {
		t.Errorf("the worker was told %q", got)
	}
}

func TestStopWithoutADeadlineWaitsForASecondStop(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, noting("timeout = \"infinity\"\n", "term=ignore"))
	m.Serves(1)
	m.Signal(syscall.SIGTERM)
	m.Await(lab.Says(lab.WorkerTold))
	time.Sleep(500 * time.Millisecond)
	m.Never(lab.Says(lab.WorkerKilled))
	m.Signal(syscall.SIGTERM)
	m.Await(lab.Says(lab.WorkerKilled))
	m.Ends(0)
}

func TestSIGPIPEIsIgnoredWhereThatIsAskedFor(t *testing.T) {
	t.Parallel()
	const pipe = 1 << (syscall.SIGPIPE - 1)
	for _, asked := range []bool{false, true} {
		m := lab.Start(t, fmt.Sprintf("[program.web]\ncommand = [{sleep}]\nlimits.ignore_sigpipe = %v\n", asked))
		m.Serves(1)
		var ignored uint64
		_, err := fmt.Sscanf(lab.ProcStatus(m.WorkerPID(1))["SigIgn"], "%x", &ignored)
		lab.Must(t, err)
		if ignored&pipe != 0 != asked || ignored&^pipe != 0 {
			t.Errorf("asked for %v, the worker ignores %#x", asked, ignored)
		}
	}
}

// statusFile waits until the status file is so.
func statusFile(m *lab.Supervisord, want string) {
	m.T.Helper()
	m.Until(fmt.Sprintf("the status file is %q", want), func() bool {
		text, _ := os.ReadFile(m.Path("web.status"))
		return string(text) == want
	})
}

const withStatusFile = "[program.web]\nstatus_file = \"{dir}/web.status\"\n"

func TestTheStatusFileHasEveryGenerationThatIsReadyOrDrains(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(noting("timeout = \"infinity\"\n", "term=ignore", "hangif={dir}/hang"), "[program.web]\n", withStatusFile, 1))
	m.Serves(1)
	statusFile(m, fmt.Sprintf("1:%d\n", m.WorkerPID(1)))
	m.File("hang", "")
	m.Reload()
	hangs := m.WorkerPID(2)
	time.Sleep(200 * time.Millisecond)
	statusFile(m, fmt.Sprintf("1:%d\n", m.WorkerPID(1)))
	lab.Must(t, os.Remove(m.Path("hang")))
	lab.Must(t, syscall.Kill(hangs, syscall.SIGKILL))
	m.Await(lab.Says(lab.TrialFailed), lab.Gen(2))
	m.Reload()
	m.Serves(3)
	statusFile(m, fmt.Sprintf("1:%d\n3:%d\n", m.WorkerPID(1), m.WorkerPID(3)))
	lab.Must(t, syscall.Kill(m.WorkerPID(1), syscall.SIGKILL))
	statusFile(m, fmt.Sprintf("3:%d\n", m.WorkerPID(3)))
	m.Signal(syscall.SIGTERM)
	m.Await(lab.Says(lab.WorkerTold), lab.Gen(3))
	statusFile(m, fmt.Sprintf("3:%d\n", m.WorkerPID(3)))
	time.Sleep(300 * time.Millisecond) // a second signal that comes sooner is taken for a duplicate
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
	if left, _ := os.ReadDir(m.Dir); len(left) > 0 {
		for _, f := range left {
			if strings.HasPrefix(f.Name(), "web.status") {
				t.Errorf("%s is left", f.Name())
			}
		}
	}
}

func TestStatusFileThatIsNotARegularFileIsLeftAlone(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	lab.Must(t, syscall.Mkfifo(m.Path("web.status"), 0o600))
	m.Start(strings.Replace(lab.Web, "[program.web]\n", withStatusFile, 1))
	m.Serves(1)
	if l := m.Await(lab.Says("cannot write status file")); !strings.Contains(l.Error, "not a regular file") {
		t.Errorf("the error is %q", l.Error)
	}
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
	if stat, err := os.Lstat(m.Path("web.status")); err != nil || stat.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("it is %v, %v", stat, err)
	}
}

func TestAnUpgradedSupervisordKeepsAndRemovesItsStatusFile(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(lab.Web, "[program.web]\n", withStatusFile, 1))
	m.Serves(1)
	statusFile(m, fmt.Sprintf("1:%d\n", m.WorkerPID(1)))
	m.Signal(syscall.SIGUSR2)
	m.Await(lab.Contains("goes on in the place of the image before"))
	m.Reload()
	m.Gone(1)
	statusFile(m, fmt.Sprintf("2:%d\n", m.WorkerPID(2)))
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
	if _, err := os.Stat(m.Path("web.status")); err == nil {
		t.Error("it is left")
	}
}
