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

func TestConfigurationThatIsNotWatchedWaitsForHUP(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	m.Write(lab.WebWith("x=y"))
	time.Sleep(600 * time.Millisecond) // time for what must not happen
	m.Never(lab.Says(lab.TrialBegan), lab.Gen(2))
}
