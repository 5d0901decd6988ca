package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

// throughScript prepares a supervisord that scripts/run starts, with a configuration like the example.
func throughScript(t *testing.T, address string) *lab.Supervisord {
	t.Helper()
	lab.Need(t, "bash")
	script, err := filepath.Abs("../scripts/run")
	lab.Must(t, err)
	m := lab.Prepare(t)
	m.Via = []string{"sh", "-c", "shift 2; exec bash " + script + ` "$@"`, "sh"} // without the binary and -c
	m.Env = os.Environ()                                                         // which go build needs
	m.Write(strings.Replace(lab.Web, "127.0.0.1:0", address, 1))
	return m
}

func TestScriptsRunStartsTheExampleAndPrintsWhatToTry(t *testing.T) {
	t.Parallel()
	at := lab.Reserve(t)
	m := throughScript(t, at)
	m.Launch("-c", m.Path("config.toml"))
	m.AwaitLong(lab.Contains("curl http://" + at + "/"))
	m.Serves(1)
	m.Await(lab.Contains(fmt.Sprintf("kill -HUP %d ", m.PID())))
	lab.Ask(t, at, "/")
	m.Reload()
	m.Serves(2)
	m.Finish() // signals the script, which must pass it on to supervisord
}

// This test does not run in parallel: scripts/run always builds into the same directory.
func TestScriptsRunReportsAPortInUse(t *testing.T) {
	at := lab.Occupy(t)
	m := throughScript(t, at)
	m.Launch("-c", m.Path("config.toml"))
	m.AwaitLong(lab.Contains("listens on " + at + " already"))
	m.Ends(1)
}
