package tests

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

func TestCrashedWorkerIsReplacedFromTheFileOfItsGeneration(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Release(1)
	m.Start(lab.Deployed)
	m.Serves(1)
	file := m.Path("server")
	for _, c := range []struct {
		change func()
		status string
	}{
		{func() {}, ""},
		{func() { m.Release(2) }, "generation 1 runs a file that " + file + " no longer names: reload to run the new one"},
		{func() { lab.Must(t, os.Truncate(file, 4096)) }, "no longer names"}, // as in the middle of a copy
		{func() { lab.Must(t, os.Remove(file)) }, "generation 1 runs a file that is no longer at " + file},
		{func() { m.Release(3) }, "no longer names"},
	} {
		c.change()
		m.Crash(1, 1)
		if out := m.CtlOK("status"); c.status == "" && strings.Contains(out, file) || !strings.Contains(out, c.status) {
			t.Errorf("want %q, the status is %s", c.status, out)
		}
	}
	m.CtlOK("reload")
	if got, _, answer := m.Runs(); got != 3 {
		t.Errorf("after a reload version %d answers: %s", got, answer)
	}
	m.Crash(3, 2)
	if out := m.CtlOK("status"); strings.Contains(out, file) {
		t.Errorf("the status is %s", out)
	}
}

func TestWorkerThatIsAddedRunsTheFileOfItsGeneration(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Release(1)
	m.Start(lab.Deployed)
	m.Serves(1)
	m.Release(2)
	last := m.Last()
	m.CtlOK("scale", "web", "2")
	pid := m.Await(lab.After(last), lab.Says("worker is ready")).PID
	if got := m.Version(pid); got != 1 {
		t.Errorf("version %d runs", got)
	}
}

func TestRolledBackGenerationRunsItsFile(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Release(1)
	m.Start(lab.Deployed + "[program.web.reload]\nkeep = \"1h\"\n")
	m.Serves(1)
	m.Release(2)
	m.CtlOK("reload")
	m.CtlOK("rollback")
	m.Crash(1, 1)
	if out := m.CtlOK("status"); !strings.Contains(out, "generation 1 runs a file that") || strings.Contains(out, "generation 2 runs") {
		t.Errorf("the status is %s", out)
	}
}

func TestFileOfAGenerationSurvivesUpgrades(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	m.Release(1)
	m.Start(lab.Deployed)
	m.Serves(1)
	m.Release(2)
	for range 2 {
		m.Upgrade(lab.Upgraded)
		m.Crash(1, 1)
	}
	m.CtlOK("reload")
	m.Upgrade(lab.Upgraded)
	m.Release(3)
	m.Crash(2, 2)
}

// Without a store the next supervisord starts a generation of its own, which is a deploy.
func TestDeathWithoutAStoreRunsWhatThePathNames(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	at := lab.Reserve(t)
	m.Release(1)
	config := lab.PIDFile + strings.Replace(lab.Deployed, "127.0.0.1:0", at, 1)
	m.Start(config)
	m.Serves(1)
	m.Release(2)
	m.Die()
	m.Start(config)
	m.Serves(1)
	m.Release(3)
	m.Crash(2, 1)
}

func TestScriptKeepsItsInterpreterAndNotItsText(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Release(1)
	interpreter := m.Path("interpreter")
	lab.Must(t, exec.Command("cp", "/bin/sh", interpreter).Run())
	script := func(text string) {
		path := m.File("script.new", "#!"+interpreter+"\n"+text)
		lab.Must(t, os.Chmod(path, 0o755))
		lab.Must(t, os.Rename(path, m.Path("script")))
	}
	script("exec {dir}/server -version old\n")
	m.Start(strings.Replace(lab.Deployed, "{dir}/server", "{dir}/script", 1))
	m.Serves(1)
	lab.Must(t, exec.Command("sh", "-ec", "echo broken > $1.new; chmod +x $1.new; mv $1.new $1", "sh", interpreter).Run())
	m.Crash(1, 1)
	if out := m.CtlOK("status"); !strings.Contains(out, "runs a file that "+interpreter+" no longer names") {
		t.Errorf("the status is %s", out)
	}
	script("exec {dir}/server -version new\n")
	m.Crash(1, 1)
	if _, _, answer := m.Runs(); !strings.Contains(answer, "version=new") {
		t.Errorf("%s answers", answer)
	}
	if out := m.CtlOK("status"); !strings.Contains(out, "generation 1 began before "+m.Path("script")+" changed, and a worker that is started now runs the new one") {
		t.Errorf("the status is %s", out)
	}
}

// The file of a generation is the one that its preflight has left.
func TestPreflightMayBuildTheFile(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Start(lab.Deployed + "[program.web.reload]\npreflight = [\"cp\", {hello}, \"{dir}/server\"]\n")
	m.Serves(1)
	m.Crash(0, 1)
}
