package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.org/supervisord/tests/ports"
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
	at := ports.Reserve(t)
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

func TestScriptsInstallGivesTheNameStartServerOnlyWhereNobodyHasIt(t *testing.T) {
	t.Parallel()
	need(t, "sh")
	for _, there := range []bool{false, true} {
		dir := t.TempDir()
		to := filepath.Join(dir, "usr/local/bin/start_server")
		if there {
			must(t, os.MkdirAll(filepath.Dir(to), 0o755))
			must(t, os.WriteFile(to, []byte("precious"), 0o755))
		}
		for _, script := range []string{"install", "install", "uninstall"} {
			c := exec.Command("../scripts/" + script)
			c.Env = append(os.Environ(), "DESTDIR="+dir, "PREFIX=/usr/local", "BINARY="+built.supervisord)
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
