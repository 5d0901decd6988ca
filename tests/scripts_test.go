package tests

import (
	"fmt"
	"os"
	"testing"

	"example.org/supervisord/internal/lab"
)

// This test does not run in parallel: scripts/run always builds into the same directory.
func TestScriptsRunStartsTheExampleAndPrintsWhatToTry(t *testing.T) {
	lab.Need(t, "bash")
	m := lab.Prepare(t)
	// without the binary and -c
	m.Via = []string{"sh", "-c", "shift 2; exec bash " + lab.Root("scripts/run") + ` "$@"`, "sh"}
	m.Env = os.Environ() // which go build needs

	busy := lab.Occupy(t)
	m.Write(lab.WebAt(busy))
	m.Launch("-c", m.Path("config.toml"))
	m.AwaitLong(lab.Contains("listens on " + busy + " already"))
	m.Ends(1)

	at := lab.Reserve(t)
	m.Write(lab.WebAt(at))
	m.Launch("-c", m.Path("config.toml"))
	m.AwaitLong(lab.Contains("curl http://" + at + "/"))
	m.Serves(1)
	m.Await(lab.Contains(fmt.Sprintf("kill -HUP %d ", m.PID())))
	lab.Ask(t, at, "/")
	m.Reload()
	m.Serves(2)
	m.Finish() // signals the script, which must pass it on to supervisord
}
