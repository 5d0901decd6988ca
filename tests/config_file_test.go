package tests

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"example.org/supervisord/internal/commandline"
	"example.org/supervisord/internal/lab"
)

// TestConfigurationInTheDirectoryIsUsedWithoutC: by the daemon, over an upgrade, and by the commands, which say so on
// stderr.
func TestConfigurationInTheDirectoryIsUsedWithoutC(t *testing.T) {
	t.Parallel()
	if lab.Exists(commandline.Installed) {
		t.Skip(commandline.Installed + " is installed here")
	}
	m := lab.Prepare(t)
	m.Write(lab.Web)
	lab.Must(t, os.Rename(m.Path("config.toml"), m.Path("supervisord.toml")))
	m.Launch()
	m.Serves(1)
	using := "supervisord: using " + m.Path("supervisord.toml") + "\n"
	if out, code := m.Run("reload"); code != 0 || !strings.HasPrefix(out, using) {
		t.Errorf("reload: exit code %d: %s", code, out)
	}
	if out, code := m.Run("check"); code != 0 || out != using+"ok\n" {
		t.Errorf("check: exit code %d: %s", code, out)
	}
	lab.Must(t, os.Chmod(m.Path("supervisord.toml"), 0o666)) // the next image is told the name, and looks for none
	m.Upgrade(lab.Upgraded)
	lab.Must(t, os.Chmod(m.Path("supervisord.toml"), 0o644))
	if out, code := m.Run("status", "-c", "supervisord.toml"); code != 0 || strings.Contains(out, "using") {
		t.Errorf("-c: exit code %d: %s", code, out)
	}
	var st struct{ Config string }
	status := exec.Command(lab.Built.Supervisord, "status", "--json")
	status.Dir, status.Env = m.Dir, m.Environ()
	out, err := status.Output()
	lab.Must(t, err)
	lab.Must(t, json.Unmarshal(out, &st))
	if st.Config != m.Path("supervisord.toml") {
		t.Errorf("it runs %s", st.Config)
	}

	elsewhere := lab.Prepare(t)
	elsewhere.Env = []string{"SUPERVISORD_CONFIG=" + m.Path("supervisord.toml")}
	if out, code := elsewhere.Run("status"); code != 0 ||
		!strings.HasPrefix(out, strings.TrimSpace(using)+", from $SUPERVISORD_CONFIG\n") {
		t.Errorf("SUPERVISORD_CONFIG: exit code %d: %s", code, out)
	}
	lab.Must(t, os.Chmod(m.Path("supervisord.toml"), 0o666))
	for _, command := range []string{"status", "check", "run", "prove"} {
		if out, code := m.Run(command); code != 2 ||
			!strings.Contains(out, "supervisord: not using "+m.Path("supervisord.toml")) {
			t.Errorf("%s with a file that everybody may write: exit code %d: %s", command, code, out)
		}
	}
	m.Signal(syscall.SIGTERM)
	m.Ends(0)
}

func TestMissingConfigurationIsToldWithWhatToDo(t *testing.T) {
	t.Parallel()
	if lab.Exists(commandline.Installed) {
		t.Skip(commandline.Installed + " is installed here")
	}
	m := lab.Prepare(t)
	for _, args := range [][]string{nil, {"run"}, {"check"}} {
		if out, code := m.Run(args...); code != 78 ||
			!strings.Contains(out, "nor ./supervisord.toml: write one with `supervisord init`") {
			t.Errorf("%q: exit code %d: %s", args, code, out)
		}
	}
}
