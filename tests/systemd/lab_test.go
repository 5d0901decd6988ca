package systemd_test

import (
	"errors"
	"path/filepath"
	"testing"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/lab/systemd"
)

// suites lists the Debian releases with whose systemd the tests run.
var suites = []string{"bookworm", "trixie"}

func TestMain(m *testing.M) { lab.Main(m) }

// boot boots suite, or skips the test with the reason why this machine cannot. Who calls it closes the lab.
func boot(t testing.TB, suite string) *systemd.Lab {
	t.Helper()
	if testing.Short() || lab.RaceEnabled {
		t.Skip("no systemd lab with -short, and none with -race: what has the race detector is not static")
	}
	l, err := systemd.Boot("./lab", suite)
	if unable, ok := errors.AsType[systemd.UnableError](err); ok {
		t.Skip(unable)
	}
	lab.Must(t, err)
	return l
}

func TestLabLeavesNothingBehind(t *testing.T) {
	for _, suite := range suites {
		l := boot(t, suite)
		root := l.Path("/")
		if _, code, err := l.Try(t.Context(), "systemctl", "--force", "poweroff"); code != 0 || err != nil {
			t.Errorf("%s is not powered off: %d, %v", suite, code, err)
		}
		lab.Must(t, l.Close())
		if lab.Exists(root) {
			t.Errorf("%s is still there", root)
		}
	}
	left, _ := filepath.Glob("/run/supervisord-lab/*")
	for _, dir := range left { // those of other tests have a process of this number
		if !lab.Exists(filepath.Join("/proc", filepath.Base(dir))) && lab.Exists(dir) {
			t.Errorf("left behind: %s", dir)
		}
	}
}
