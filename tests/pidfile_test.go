package tests

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"example.org/supervisord/internal/lab"
)

func TestPIDFileHoldsThePIDAndIsRemovedAtTheEnd(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.PIDFile+lab.Web)
	m.Serves(1)
	if got, want := m.Read("p.pid"), strconv.Itoa(m.PID())+"\n"; got != want {
		t.Errorf("the pid file has %q, want %q", got, want)
	}
	m.Signal(syscall.SIGTERM)
	m.Ends(0) // checks that no pid file is left
}

func TestStalePIDFileIsTakenOver(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.File("p.pid", "1\n")
	m.Start(lab.PIDFile + lab.Web)
	m.Serves(1)
	if got := lab.Number(m.Path("p.pid")); got != m.PID() {
		t.Errorf("the pid file has %d, want %d", got, m.PID())
	}
}

func TestPIDFileInUseIsLeftAloneAndReported(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.PIDFile+lab.Web)
	m.Serves(1)
	out, code := m.Run("-c", m.Path("config.toml"))
	if code != 1 || !strings.Contains(out, strconv.Itoa(m.PID())) {
		t.Errorf("exit code %d, and the PID %d is missing: %s", code, m.PID(), out)
	}
	if got := lab.Number(m.Path("p.pid")); got != m.PID() {
		t.Errorf("the pid file has %d, want %d", got, m.PID())
	}
	lab.Ask(t, m.Address(), "/")
}

func TestPIDFileThatIsNotARegularFileIsLeftAlone(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	lab.Must(t, os.Mkdir(m.Path("p.d"), 0o755))
	m.Write("pid_file = \"{dir}/p.d\"\n" + lab.Web)
	if out, code := m.Run("-c", m.Path("config.toml")); code != 1 || !strings.Contains(out, m.Path("p.d")) {
		t.Errorf("exit code %d: %s", code, out)
	}
	if _, err := os.Stat(m.Path("p.d")); err != nil {
		t.Error(err)
	}
}

func TestForeignPIDFileIsNotRemovedAtTheEnd(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(lab.PIDFile, "p.pid", "pid", 1)+lab.Web)
	m.Serves(1)
	lab.Must(t, os.Remove(m.Path("pid")))
	m.File("pid", "4711\n")
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
	if m.Read("pid") != "4711\n" {
		t.Error("a foreign file was changed")
	}
}

func TestStartThatFailsLeavesNoPIDFile(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Write(lab.PIDFile + strings.Replace(lab.Web, "127.0.0.1:0", lab.Occupy(t), 1))
	m.Launch("-c", m.Path("config.toml"))
	m.Ends(1)
}

func TestReloadKeepsThePIDFile(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.PIDFile+lab.Web)
	m.Serves(1)
	m.Reload()
	m.Serves(2)
	if got := lab.Number(m.Path("p.pid")); got != m.PID() {
		t.Errorf("the pid file has %d, want %d", got, m.PID())
	}
}

// Queue workers and schedulers have no listener whose address would be in use.
func TestSecondSupervisordOfAConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]string{
		"without a listener":       lab.Plain,
		"without a control socket": "control = \"off\"\n" + lab.Plain,
		"with a listener":          lab.Web,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Prepare(t)
			m.Start(config)
			m.Serves(1)
			for range 2 {
				out, code := m.Run("run", "-c", m.Path("config.toml"))
				if code != 1 || !strings.Contains(out, "already running with PID "+strconv.Itoa(m.PID())) {
					t.Errorf("exit code %d: %s", code, out)
				}
			}
		})
	}
}

func TestSupervisordStartsAgainAfterOneThatWasKilled(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Plain)
	m.Serves(1)
	m.Die()
	m.Start(lab.Plain)
	m.Serves(1)
}
