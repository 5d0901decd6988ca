package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

// twins prepares two supervisords with the same runtime_dir; only the first is started.
func twins(t *testing.T) (first, second *lab.Supervisord) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sv")
	lab.Must(t, err)
	t.Cleanup(func() {
		if left, _ := filepath.Glob(dir + "/*.sock"); len(left) > 0 {
			t.Errorf("%v is left", left)
		}
		os.RemoveAll(dir)
	})
	config := "[supervisor]\nruntime_dir = \"" + dir + "\"\n" + lab.Web
	first, second = lab.Prepare(t), lab.WithOwnBinary(t)
	first.File("config.toml", config)
	second.File("config.toml", config)
	first.Launch("-c", first.Path("config.toml"))
	first.Serves(1)
	first.Until("it answers", func() bool { _, code := first.Ctl("status"); return code == 0 })
	return first, second
}

func TestTwoSupervisordsWithTheSameRuntimeDirectoryAreFoundByTheirConfigurations(t *testing.T) {
	t.Parallel()
	m, other := twins(t)
	other.CtlFails(69, []string{"runs with " + m.Path("config.toml")}, "status")
	other.Launch("-c", other.Path("config.toml"))
	if l := other.Await(lab.Contains("answers there")); l.Level != "warn" {
		t.Errorf("the log says %s", l.Text)
	}
	other.Serves(1)
	for _, one := range []*lab.Supervisord{m, other} {
		if s := one.Status(); s.PID != one.PID() {
			t.Errorf("the answer is from PID %d, want %d", s.PID, one.PID())
		}
	}
	lab.Must(t, os.Symlink(m.Dir, other.Path("link")))
	if out, code := m.Run("status", "-c", other.Path("link/config.toml")); code != 0 ||
		!strings.Contains(out, fmt.Sprint(m.PID())) {
		t.Errorf("through a symlink: exit code %d: %s", code, out)
	}
	m.Finish()
	m.CtlFails(69, []string{"does not answer"}, "status")
}

func TestControlSocketAtAnotherPathSurvivesAnUpgrade(t *testing.T) {
	t.Parallel()
	m, other := twins(t)
	other.Launch("-c", other.Path("config.toml"))
	other.Serves(1)
	m.Finish()
	other.Upgrade(lab.Upgraded)
	if s := other.Status(); s.PID != other.PID() {
		t.Errorf("the answer is from PID %d, want %d", s.PID, other.PID())
	}
}

func TestSecondSupervisordDoesNotTakeTheControlSocketAway(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	other := lab.Prepare(t)
	other.Start("control = \"" + m.Path("run/control.sock") + "\"\n" + lab.Web)
	other.Await(lab.Contains("answers there"))
	other.Serves(1)
	other.Finish()
	if s := m.Status(); s.PID != m.PID() {
		t.Errorf("the answer is from PID %d, want %d", s.PID, m.PID())
	}
}
