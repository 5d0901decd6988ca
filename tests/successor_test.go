package tests

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAReloadThatFailsIsTriedAgainUntilOneServes(t *testing.T) {
	t.Parallel()
	m := start(t, webWith("failif={dir}/bad")+"[program.web.reload]\nretry = \"200ms\"\n")
	m.serves(1)
	m.file("bad", "")
	m.reload()
	m.await(says(trialFailed), gen(2))
	m.await(says(reloadRetry), gen(2))
	m.await(says(trialFailed), gen(3))
	if !alive(m.worker(1)) {
		t.Error("the worker that serves has ended")
	}
	must(t, os.Remove(m.path("bad")))
	served := m.await(says(generationServes), func(l line) bool { return l.Generation > 3 })
	m.gone(1)
	time.Sleep(500 * time.Millisecond)
	m.never(says(trialBegan), func(l line) bool { return l.Generation > served.Generation })
}

func TestAReloadComesByItselfWhereEverySaysSo(t *testing.T) {
	t.Parallel()
	m := start(t, web+"[program.web.reload]\nevery = \"1s\"\n")
	for generation := 1; generation <= 3; generation++ {
		m.serves(generation)
	}
	began := m.awaitN(3, says(trialBegan))
	served := m.awaitN(2, says(generationServes))
	if gap := began[2].Time.Sub(served[1].Time); gap < 900*time.Millisecond {
		t.Errorf("the third generation began %s after the second served", gap)
	}
	if !strings.Contains(began[2].Reason, "1s have passed") {
		t.Errorf("the reason is %q", began[2].Reason)
	}
}

func TestANewGenerationTakesThePlaceOfAWorkerThatDiedWhereThatIsAskedFor(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.file("env/COLOUR", "red\n")
	m.start(strings.Replace(web, "[[", "environment_dir = \"{dir}/env\"\n[[", 1) + "[program.web.restart]\ngeneration = \"new\"\n")
	m.serves(1)
	m.file("env/COLOUR", "blue\n")
	must(t, syscall.Kill(m.worker(1), syscall.SIGKILL))
	m.serves(2)
	if got := environment(t, m.worker(2))["COLOUR"]; got != "blue" {
		t.Errorf("the new generation has %q", got)
	}
	m.gone(1)
}

func TestAWorkerThatIsReplacedGetsTheSignalForThat(t *testing.T) {
	t.Parallel()
	m := start(t, noting("signal = \"INT\"\nreload_signal = \"QUIT\"\n"))
	m.serves(1)
	m.reload()
	m.gone(1)
	m.signal(syscall.SIGTERM)
	m.ends(0)
	if got := m.read("notes"); got != "1 0 start\n2 0 start\n1 0 QUIT\n2 0 INT\n" {
		t.Errorf("the workers were told %q", got)
	}
}

func TestINTGivesTheWorkersTheSignalForThat(t *testing.T) {
	t.Parallel()
	m := start(t, noting("signal = \"QUIT\"\nint_signal = \"TERM\"\n"))
	m.serves(1)
	m.signal(syscall.SIGINT)
	m.ends(0)
	if got := m.read("notes"); got != "1 0 start\n1 0 TERM\n" {
		t.Errorf("the worker was told %q", got)
	}
}

func TestAStopWithoutEndWaitsUntilASecondOneSaysNow(t *testing.T) {
	t.Parallel()
	m := start(t, noting("timeout = \"infinity\"\n", "term=ignore"))
	m.serves(1)
	m.signal(syscall.SIGTERM)
	m.await(says(workerTold))
	time.Sleep(500 * time.Millisecond)
	m.never(says(workerKilled))
	m.signal(syscall.SIGTERM)
	m.await(says(workerKilled))
	m.ends(0)
}

func TestSIGPIPEIsIgnoredWhereThatIsAskedFor(t *testing.T) {
	t.Parallel()
	const pipe = 1 << (syscall.SIGPIPE - 1)
	for _, asked := range []bool{false, true} {
		m := start(t, fmt.Sprintf("[program.web]\ncommand = [{sleep}]\nlimits.ignore_sigpipe = %v\n", asked))
		m.serves(1)
		var ignored uint64
		_, err := fmt.Sscanf(status(m.worker(1))["SigIgn"], "%x", &ignored)
		must(t, err)
		if ignored&pipe != 0 != asked || ignored&^pipe != 0 {
			t.Errorf("asked for %v, the worker ignores %#x", asked, ignored)
		}
	}
}

// statusFile waits until the status file is so.
func (m *master) statusFile(want string) {
	m.t.Helper()
	m.until(fmt.Sprintf("the status file is %q", want), func() bool {
		text, _ := os.ReadFile(m.path("web.status"))
		return string(text) == want
	})
}

const withStatusFile = "[program.web]\nstatus_file = \"{dir}/web.status\"\n"

func TestTheStatusFileHasEveryGenerationThatIsReadyOrDrains(t *testing.T) {
	t.Parallel()
	m := start(t, strings.Replace(noting("timeout = \"infinity\"\n", "term=ignore", "hangif={dir}/hang"), "[program.web]\n", withStatusFile, 1))
	m.serves(1)
	m.statusFile(fmt.Sprintf("1:%d\n", m.worker(1)))
	m.file("hang", "")
	m.reload()
	hangs := m.worker(2)
	time.Sleep(200 * time.Millisecond)
	m.statusFile(fmt.Sprintf("1:%d\n", m.worker(1)))
	must(t, os.Remove(m.path("hang")))
	must(t, syscall.Kill(hangs, syscall.SIGKILL))
	m.await(says(trialFailed), gen(2))
	m.reload()
	m.serves(3)
	m.statusFile(fmt.Sprintf("1:%d\n3:%d\n", m.worker(1), m.worker(3)))
	must(t, syscall.Kill(m.worker(1), syscall.SIGKILL))
	m.statusFile(fmt.Sprintf("3:%d\n", m.worker(3)))
	m.signal(syscall.SIGTERM)
	m.await(says(workerTold), gen(3))
	m.statusFile(fmt.Sprintf("3:%d\n", m.worker(3)))
	m.signal(syscall.SIGTERM)
	m.ends(0)
	if left, _ := os.ReadDir(m.dir); len(left) > 0 {
		for _, f := range left {
			if strings.HasPrefix(f.Name(), "web.status") {
				t.Errorf("%s is left", f.Name())
			}
		}
	}
}

func TestAStatusFileThatIsNoFileIsLeftAlone(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	must(t, syscall.Mkfifo(m.path("web.status"), 0o600))
	m.start(strings.Replace(web, "[program.web]\n", withStatusFile, 1))
	m.serves(1)
	if l := m.await(says("cannot write status file")); !strings.Contains(l.Error, "not a regular file") {
		t.Errorf("the error is %q", l.Error)
	}
	m.signal(syscall.SIGTERM)
	m.ends(0)
	if stat, err := os.Lstat(m.path("web.status")); err != nil || stat.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("it is %v, %v", stat, err)
	}
}

func TestAnUpgradedSupervisordKeepsAndRemovesItsStatusFile(t *testing.T) {
	t.Parallel()
	m := start(t, strings.Replace(web, "[program.web]\n", withStatusFile, 1))
	m.serves(1)
	m.statusFile(fmt.Sprintf("1:%d\n", m.worker(1)))
	m.signal(syscall.SIGUSR2)
	m.await(contains("goes on in the place of the image before"))
	m.reload()
	m.gone(1)
	m.statusFile(fmt.Sprintf("2:%d\n", m.worker(2)))
	m.signal(syscall.SIGTERM)
	m.ends(0)
	if _, err := os.Stat(m.path("web.status")); err == nil {
		t.Error("it is left")
	}
}
