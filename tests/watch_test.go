package tests

import (
	"os"
	"strings"
	"testing"
	"time"
)

// watching is web with files of its that are watched.
func watching(paths string) string {
	return strings.Replace(web, "[[", "watch = "+paths+"\n[[", 1)
}

func TestAWatchedFileThatChangesReloadsItsProgramAlone(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.file("app", "1")
	m.start(watching(`["app"]`) + other)
	m.await(says(generationServes), program("web"))
	m.await(says(generationServes), program("other"))
	m.file("app", "2")
	m.await(says(generationServes), program("web"), gen(2))
	m.never(program("other"), gen(2))
}

func TestAWatchedFileThatIsReplacedReloadsItsProgramAgainAndAgain(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.file("app", "1")
	m.start(watching(`["app"]`))
	m.serves(1)
	for generation := 2; generation <= 3; generation++ {
		m.file("new", strings.Repeat("x", generation))
		must(t, os.Rename(m.path("new"), m.path("app")))
		m.serves(generation)
	}
}

func TestAWatchedDirectoryReloadsItsProgram(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.file("lib/a", "1")
	m.start(watching(`["lib"]`))
	m.serves(1)
	m.file("lib/b", "1")
	m.serves(2)
}

func TestAWatchedSymlinkThatIsSwappedReloadsItsProgram(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.file("r1/app", "1")
	m.file("r2/app", "2")
	must(t, os.Symlink("r1", m.path("current")))
	m.start(watching(`["current/app"]`))
	m.serves(1)
	must(t, os.Symlink("r2", m.path("next")))
	must(t, os.Rename(m.path("next"), m.path("current")))
	m.serves(2)
}

func TestAWatchedFileThatIsOnlyTouchedReloadsNothing(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.file("app", "1")
	m.start(watching(`["app"]`))
	m.serves(1)
	must(t, os.Chtimes(m.path("app"), time.Now(), time.Now().Add(-time.Hour)))
	m.file("app", "1")
	time.Sleep(600 * time.Millisecond) // for what must not happen
	m.never(says(trialBegan), gen(2))
}

func TestAWatchedConfigurationReloadsWhatChanged(t *testing.T) {
	t.Parallel()
	m := start(t, "watch = true\n"+web+other)
	m.await(says(generationServes), program("web"))
	m.await(says(generationServes), program("other"))
	m.write("watch = true\n" + web + strings.Replace(other, "{worker}", `{worker}, "x=y"`, 1))
	m.await(says(generationServes), program("other"), gen(2))
	m.never(program("web"), gen(2))
}

func TestAWatchedIncludedFileReloads(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.file("conf.d/a.toml", other)
	m.start("watch = true\ninclude = [\"conf.d/*.toml\"]\n" + web)
	m.await(says(generationServes), program("other"))
	m.file("conf.d/b.toml", strings.ReplaceAll(other, "other", "third"))
	m.await(says(generationServes), program("third"))
}

func TestAWatchedConfigurationThatIsBrokenIsOneErrorAndIsMendedLater(t *testing.T) {
	t.Parallel()
	m := start(t, "watch = true\n"+web)
	m.serves(1)
	m.write("watch = true\n" + web + "nonsense = 1\n")
	m.await(says(refused))
	m.untouched(m.worker(1))
	m.write("watch = true\n" + webWith("x=y"))
	m.serves(2)
	if n := m.count(says(refused)); n != 1 {
		t.Errorf("it was refused %d times", n)
	}
}

func TestAConfigurationThatIsNotWatchedWaitsForHUP(t *testing.T) {
	t.Parallel()
	m := start(t, web)
	m.serves(1)
	m.write(webWith("x=y"))
	time.Sleep(600 * time.Millisecond) // for what must not happen
	m.never(says(trialBegan), gen(2))
}
