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

// statusFile waits until the status file has this text.
func statusFile(m *lab.Supervisord, want string) {
	m.T.Helper()
	m.Until(fmt.Sprintf("the status file is %q", want), func() bool {
		text, _ := os.ReadFile(m.Path("web.status"))
		return string(text) == want
	})
}

const withStatusFile = "[program.web]\ncompat.status_file = \"{dir}/web.status\"\n"

func TestStatusFileHasEveryGenerationThatIsReadyOrDrains(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(noting("timeout = \"infinity\"\n", "term=ignore", "hangif={dir}/hang"),
		"[program.web]\n", withStatusFile, 1))
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
	time.Sleep(300 * time.Millisecond) // an earlier second signal counts as a duplicate
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

func TestUpgradedSupervisordKeepsAndRemovesItsStatusFile(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(lab.Web, "[program.web]\n", withStatusFile, 1))
	m.Serves(1)
	statusFile(m, fmt.Sprintf("1:%d\n", m.WorkerPID(1)))
	m.Signal(syscall.SIGUSR2)
	m.Await(lab.Contains(lab.Upgraded))
	m.Reload()
	m.Gone(1)
	statusFile(m, fmt.Sprintf("2:%d\n", m.WorkerPID(2)))
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
	if _, err := os.Stat(m.Path("web.status")); err == nil {
		t.Error("it is left")
	}
}
