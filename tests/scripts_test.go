package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// throughScript prepares a master that scripts/run starts, with a configuration that is like the example.
func throughScript(t *testing.T, address string) *master {
	t.Helper()
	need(t, "bash")
	script, err := filepath.Abs("../scripts/run")
	must(t, err)
	m := prepare(t)
	m.via = []string{"sh", "-c", "shift 2; exec bash " + script + ` "$@"`, "sh"} // without the binary and -c
	m.env = os.Environ()                                                         // of whoever may build
	m.write(strings.Replace(web, "127.0.0.1:0", address, 1))
	return m
}

func TestScriptsRunStartsTheExampleAndSaysWhatToTry(t *testing.T) {
	t.Parallel()
	at := vacant(t)
	m := throughScript(t, at)
	m.launch("-c", m.path("config.toml"))
	m.serves(1)
	m.await(contains("curl http://" + at + "/"))
	m.await(contains(fmt.Sprintf("kill -HUP %d ", m.pid())))
	ask(t, at, "/")
	m.reload()
	m.serves(2)
	m.finish() // by a signal to the script, which must reach supervisord
}

func TestScriptsRunSaysWhenThePortIsInUse(t *testing.T) {
	t.Parallel()
	at := occupy(t)
	m := throughScript(t, at)
	m.launch("-c", m.path("config.toml"))
	m.await(contains("listens on " + at + " already"))
	m.ends(1)
}

func TestScriptsAreRightBash(t *testing.T) {
	t.Parallel()
	need(t, "bash")
	for _, script := range []string{"../scripts/test", "../scripts/run", "../.ci/run", "servers/root"} {
		if out, err := exec.Command("bash", "-n", script).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", script, err, out)
		}
		if stat, err := os.Stat(script); err != nil || stat.Mode()&0o111 != 0o111 {
			t.Errorf("%s cannot be executed: %v", script, err)
		}
	}
}
