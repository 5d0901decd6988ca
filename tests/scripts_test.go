package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

// throughScript prepares a master that scripts/run starts, with a configuration that is like the example.
func throughScript(t *testing.T, address string) *lab.Supervisord {
	t.Helper()
	lab.Need(t, "bash")
	script, err := filepath.Abs("../scripts/run")
	lab.Must(t, err)
	m := lab.Prepare(t)
	m.Via = []string{"sh", "-c", "shift 2; exec bash " + script + ` "$@"`, "sh"} // without the binary and -c
	m.Env = os.Environ()                                                         // of whoever may build
	m.Write(strings.Replace(lab.Web, "127.0.0.1:0", address, 1))
	return m
}

func TestScriptsRunStartsTheExampleAndSaysWhatToTry(t *testing.T) {
	t.Parallel()
	at := lab.Reserve(t)
	m := throughScript(t, at)
	m.Launch("-c", m.Path("config.toml"))
	m.Serves(1)
	m.Await(lab.Contains("curl http://" + at + "/"))
	m.Await(lab.Contains(fmt.Sprintf("kill -HUP %d ", m.PID())))
	lab.Ask(t, at, "/")
	m.Reload()
	m.Serves(2)
	m.Finish() // by a signal to the script, which must reach supervisord
}

func TestScriptsRunSaysWhenThePortIsInUse(t *testing.T) {
	t.Parallel()
	at := lab.Occupy(t)
	m := throughScript(t, at)
	m.Launch("-c", m.Path("config.toml"))
	m.Await(lab.Contains("listens on " + at + " already"))
	m.Ends(1)
}

func TestScriptsAreRightBash(t *testing.T) {
	t.Parallel()
	lab.Need(t, "bash")
	for _, script := range []string{"../scripts/test", "../scripts/run", "../scripts/version", "../scripts/set-module-path", "../.ci/run", "servers/root"} {
		if out, err := exec.Command("bash", "-n", script).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", script, err, out)
		}
		if stat, err := os.Stat(script); err != nil || stat.Mode()&0o111 != 0o111 {
			t.Errorf("%s cannot be executed: %v", script, err)
		}
	}
}

func TestScriptsInstallGivesTheNameStartServerOnlyWhereNobodyHasIt(t *testing.T) {
	t.Parallel()
	lab.Need(t, "sh")
	for _, there := range []bool{false, true} {
		dir := t.TempDir()
		to := filepath.Join(dir, "usr/local/bin/start_server")
		if there {
			lab.Must(t, os.MkdirAll(filepath.Dir(to), 0o755))
			lab.Must(t, os.WriteFile(to, []byte("precious"), 0o755))
		}
		for _, script := range []string{"install", "install", "uninstall"} {
			c := exec.Command("../scripts/" + script)
			c.Env = append(os.Environ(), "DESTDIR="+dir, "PREFIX=/usr/local", "BINARY="+lab.Built.Supervisord)
			out, err := c.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", script, err, out)
			}
			switch target, err := os.Readlink(to); {
			case there && strings.HasSuffix(script, "uninstall") && !regular(to), there && err == nil:
				t.Errorf("%s touched the start_server that was there:\n%s", script, out)
			case there && script == "install" && !strings.Contains(string(out), "to switch, ln -sf supervisord"):
				t.Errorf("%s does not say that it left it out:\n%s", script, out)
			case !there && script == "install" && target != "supervisord":
				t.Errorf("%s: it leads to %q, %v\n%s", script, target, err, out)
			case !there && script == "uninstall" && err == nil:
				t.Errorf("uninstall leaves it:\n%s", out)
			}
		}
	}
}

func regular(path string) bool {
	stat, err := os.Lstat(path)
	return err == nil && stat.Mode().IsRegular()
}
