package tests

import (
	"os"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// watching is web with watched files.
func watching(paths string) string {
	return strings.Replace(lab.Web, "[[", "watch = "+paths+"\n[[", 1)
}

func TestWatchedFileThatChangesReloadsItsProgramAlone(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.File("app", "1")
	m.Start(watching(`["app"]`) + other)
	m.Await(lab.Says(lab.GenerationServes), lab.Program("web"))
	m.Await(lab.Says(lab.GenerationServes), lab.Program("other"))
	m.File("app", "2")
	m.Await(lab.Says(lab.GenerationServes), lab.Program("web"), lab.Gen(2))
	m.Never(lab.Program("other"), lab.Gen(2))
}

func TestWatchedFileReloadsItsProgramAtEachReplacement(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.File("app", "1")
	m.Start(watching(`["app"]`))
	m.Serves(1)
	for generation := 2; generation <= 3; generation++ {
		m.File("new", strings.Repeat("x", generation))
		lab.Must(t, os.Rename(m.Path("new"), m.Path("app")))
		m.Serves(generation)
	}
}

func TestWatchedDirectoryReloadsItsProgram(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.File("lib/a", "1")
	m.Start(watching(`["lib"]`))
	m.Serves(1)
	m.File("lib/b", "1")
	m.Serves(2)
}

func TestWatchedSymlinkThatIsSwappedReloadsItsProgram(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.File("r1/app", "1")
	m.File("r2/app", "2")
	lab.Must(t, os.Symlink("r1", m.Path("current")))
	m.Start(watching(`["current/app"]`))
	m.Serves(1)
	lab.Must(t, os.Symlink("r2", m.Path("next")))
	lab.Must(t, os.Rename(m.Path("next"), m.Path("current")))
	m.Serves(2)
}

func TestWatchedFileThatIsOnlyTouchedReloadsNothing(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.File("app", "1")
	m.Start(watching(`["app"]`))
	m.Serves(1)
	lab.Must(t, os.Chtimes(m.Path("app"), time.Now(), time.Now().Add(-time.Hour)))
	m.File("app", "1")
	time.Sleep(600 * time.Millisecond) // time for what must not happen
	m.Never(lab.Says(lab.TrialBegan), lab.Gen(2))
}

func TestWatchedConfigurationReloadsWhatChanged(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, "watch = true\n"+lab.Web+other)
	m.Await(lab.Says(lab.GenerationServes), lab.Program("web"))
	m.Await(lab.Says(lab.GenerationServes), lab.Program("other"))
	m.Write("watch = true\n" + lab.Web + strings.Replace(other, "{worker}", `{worker}, "x=y"`, 1))
	m.Await(lab.Says(lab.GenerationServes), lab.Program("other"), lab.Gen(2))
	m.Never(lab.Program("web"), lab.Gen(2))
}

func TestWatchedIncludedFileReloads(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.File("conf.d/a.toml", other)
	m.Start("watch = true\ninclude = [\"conf.d/*.toml\"]\n" + lab.Web)
	m.Await(lab.Says(lab.GenerationServes), lab.Program("other"))
	m.File("conf.d/b.toml", strings.ReplaceAll(other, "other", "third"))
	m.Await(lab.Says(lab.GenerationServes), lab.Program("third"))
}

func TestBrokenWatchedConfigurationLogsOneErrorAndCanBeCorrected(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, "watch = true\n"+lab.Web)
	m.Serves(1)
	m.Write("watch = true\n" + lab.Web + "nonsense = 1\n")
	m.Await(lab.Says(lab.Refused))
	m.Untouched(m.WorkerPID(1))
	m.Write("watch = true\n" + lab.WebWith("x=y"))
	m.Serves(2)
	if n := m.Count(lab.Says(lab.Refused)); n != 1 {
		t.Errorf("it was refused %d times", n)
	}
}

func TestConfigurationThatIsNotWatchedWaitsForHUP(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	m.Write(lab.WebWith("x=y"))
	time.Sleep(600 * time.Millisecond) // time for what must not happen
	m.Never(lab.Says(lab.TrialBegan), lab.Gen(2))
}
