package systemd_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/lab/systemd"
)

// suites lists the Debian releases with whose systemd the tests run.
var suites = []string{"bookworm", newest}

const newest = "trixie"

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
	locks, _ := filepath.Glob("/run/supervisord-lab/*/lock")
	for _, lock := range locks { // a lab that lives, of another test or in another PID namespace, holds its lock
		if f, err := os.Open(lock); err == nil {
			if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil && lab.Exists(lock) {
				t.Errorf("left behind: %s", filepath.Dir(lock))
			}
			f.Close()
		}
	}
}
