package attack

import (
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

// The descriptor of the executable is in systemd's store, like the workers.
func TestWorkerThatCrashesAfterADeathRunsTheFileOfItsGeneration(t *testing.T) {
	t.Parallel()
	sd, m := newSystemd(t), lab.Prepare(t)
	m.Release(1)
	sd.Launches(m)
	m.Start(lab.Deployed)
	m.Serves(1)
	m.Release(2)
	for range 2 {
		sd.AwaitStored(".exe", 1)
		m.Die()
		sd.Launches(m)
		m.Launch("-c", m.Path("config.toml"))
		m.Await(lab.Says(lab.Adopted))
		m.Crash(1, 1)
		m.Upgrade(lab.Upgraded)
		m.Crash(1, 1)
	}
	m.CtlOK("reload")
	m.Gone(1)
	m.Crash(2, 2)
	sd.AwaitStored(".exe", 1)
}

// As with a store that was full: what is missing is said, and the next reload has it again.
func TestWorkerRunsWhatThePathNamesIfItsFileWasNotHandedOver(t *testing.T) {
	t.Parallel()
	sd, m := newSystemd(t), lab.Prepare(t)
	m.Release(1)
	sd.Launches(m)
	m.Start(lab.Deployed)
	m.Serves(1)
	m.Release(2)
	sd.AwaitStored(".exe", 1)
	m.Die()
	sd.Drop("w.web.1.exe")
	sd.Launches(m)
	m.Launch("-c", m.Path("config.toml"))
	m.Await(lab.Says("workers are started by the path of their command, whatever it names by then"), lab.Contains("was not handed over"))
	m.Crash(2, 1)
	m.Release(3)
	if out := m.CtlOK("status"); !strings.Contains(out, "a worker that is started now runs the new one") {
		t.Errorf("the status is %s", out)
	}
}
