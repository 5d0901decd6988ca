package tests

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

func TestScriptsAreRightBash(t *testing.T) {
	t.Parallel()
	lab.Need(t, "bash")
	for _, script := range []string{"../scripts/test", "../scripts/run", "../scripts/version", "../scripts/package",
		"../scripts/release", "../scripts/set-module-path", "../scripts/fuzz", "../scripts/mutate", "../.ci/run",
		"servers/root"} {
		if out, err := exec.Command("bash", "-n", script).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", script, err, out)
		}
		if stat, err := os.Stat(script); err != nil || stat.Mode()&0o111 != 0o111 {
			t.Errorf("%s cannot be executed: %v", script, err)
		}
	}
}

func TestScriptsFuzzExplainsAWrongArgument(t *testing.T) {
	t.Parallel()
	lab.Need(t, "bash")
	for arguments, problem := range map[string]string{
		"--nonsense":    "fuzz: unknown argument --nonsense\n",
		"--for":         "fuzz: --for : must be a time such as 90s, 10m or 2h\n",
		"--for 10x":     "fuzz: --for 10x: must be",
		"--for 0m":      "fuzz: --for 0m: must be",
		"--parallel 0":  "fuzz: --parallel 0: must be a number of processes\n",
		"--keep --only": "fuzz: --only: must be a regular expression\n",
		"--help":        "",
	} {
		c := exec.Command("../scripts/fuzz", strings.Fields(arguments)...)
		out, _ := c.CombinedOutput()
		code := c.ProcessState.ExitCode()
		if want := min(2*len(problem), 2); code != want || !strings.HasPrefix(string(out), problem) ||
			!strings.Contains(string(out), "\n  scripts/fuzz --for 1h ") {
			t.Errorf("%s: exit status %d: %s", arguments, code, out)
		}
	}
}

// install runs scripts/install or scripts/uninstall with a directory as the root of an empty machine.
func install(t *testing.T, script, dir string, environment ...string) (out string, code int) {
	t.Helper()
	lab.Need(t, "sh")
	c := exec.Command(lab.Root("scripts/" + script))
	c.Env = append(os.Environ(), append([]string{"DESTDIR=" + dir, "PREFIX=/usr/local", "BINARY=" + lab.Built.Supervisord},
		environment...)...)
	raw, err := c.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return string(raw), c.ProcessState.ExitCode()
}

// tree describes every file below a directory.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	lab.Must(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			found[strings.TrimPrefix(path, dir)] = lab.Text(path)
		}
		return err
	}))
	return found
}

// others lists files of other programs called supervisord that install would replace or override.
var others = map[string]string{
	"/usr/local/bin/supervisord": "#!/usr/bin/python3\n" +
		"from supervisor.supervisord import main\n",
	"/usr/bin/supervisord": "#!/usr/bin/python3\n" +
		"from supervisor.supervisord import main\n",
	"/usr/local/lib/systemd/system/supervisord.service": "[Service]\n" +
		"ExecStart=/usr/bin/supervisord -c /etc/supervisord.conf\n",
	"/usr/lib/systemd/system/supervisord.service": "[Service]\n" +
		"ExecStart=/usr/bin/supervisord -c /etc/supervisord.conf\n",
	"/lib/systemd/system/supervisord.service": "[Service]\n" +
		"ExecStart=/usr/bin/supervisord -c /etc/supervisord.conf\n",
	"/etc/init.d/supervisord":                                     "#!/bin/sh\n",
	"/usr/local/share/man/man1/supervisord.1":                     ".TH supervisord 1\n",
	"/usr/local/share/bash-completion/completions/supervisord":    "complete -f supervisord\n",
	"/usr/local/share/zsh/site-functions/_supervisord":            "#compdef supervisord\n",
	"/usr/local/share/fish/vendor_completions.d/supervisord.fish": "complete supervisord\n",
}

// beside makes the root of a machine with all others, and with another start_server.
func beside(t *testing.T) (dir string, before map[string]string) {
	t.Helper()
	dir = t.TempDir()
	for path, text := range others {
		lab.Must(t, os.MkdirAll(filepath.Dir(dir+path), 0o755))
		lab.Must(t, os.WriteFile(dir+path, []byte(text), 0o755))
	}
	lab.Must(t, os.WriteFile(dir+"/usr/local/bin/start_server", []byte("precious"), 0o755))
	return dir, tree(t, dir)
}

// installs is install that must succeed.
func installs(t *testing.T, script, dir string, environment ...string) string {
	t.Helper()
	out, code := install(t, script, dir, environment...)
	if code != 0 {
		t.Fatalf("%s: exit status %d: %s", script, code, out)
	}
	return out
}

func TestInstallRefusesToReplaceOrOverrideAnotherProgram(t *testing.T) {
	t.Parallel()
	dir, before := beside(t)
	out, code := install(t, "install", dir)
	if code != 73 || !strings.Contains(out, "PROGRAM=") || !strings.Contains(out, "PREFIX=") {
		t.Errorf("exit status %d: %s", code, out)
	}
	for path := range others {
		if !strings.Contains(out, "  "+dir+path+"\n") {
			t.Errorf("%s is not listed: %s", path, out)
		}
	}
	if said := installs(t, "uninstall", dir); !strings.Contains(said,
		dir+"/usr/local/bin/supervisord: it belongs to another program") {
		t.Errorf("uninstall says %s", said)
	}
	unchanged(t, dir, before)
}

// unchanged fails unless a directory has these files.
func unchanged(t *testing.T, dir string, before map[string]string) {
	t.Helper()
	if now := tree(t, dir); !maps.Equal(now, before) {
		t.Errorf("the files were %q and are %q", slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(now)))
	}
}

func TestInstallUnderAnotherNameLivesBesidePythonsSupervisor(t *testing.T) {
	t.Parallel()
	dir, before := beside(t)
	if out := installs(t, "install", dir, "PROGRAM=sv-supervisord"); !strings.Contains(out,
		"to switch, ln -sf ../lib/sv-supervisord/start_server") {
		t.Errorf("install does not report that it skipped start_server:\n%s", out)
	}
	now := tree(t, dir)
	for path := range before {
		if now[path] != before[path] {
			t.Errorf("%s was changed", path)
		}
	}
	for path, want := range map[string]string{
		"/usr/local/lib/systemd/system/sv-supervisord.service": "ExecReload=/usr/local/bin/sv-supervisord " +
			"reload -c /etc/supervisord/config.toml\n",
		"/usr/local/share/man/man1/sv-supervisord.1":                     ".B sv\\-supervisord\n",
		"/usr/local/share/bash-completion/completions/sv-supervisord":    "__start_sv-supervisord",
		"/usr/local/share/zsh/site-functions/_sv-supervisord":            "#compdef sv-supervisord\n",
		"/usr/local/share/fish/vendor_completions.d/sv-supervisord.fish": "complete -c sv-supervisord",
		"/usr/local/share/doc/sv-supervisord/sv-supervisord.socket":      "Service=sv-supervisord.service\n",
		"/usr/local/share/doc/sv-supervisord/drop-ins/README.md":         "/etc/systemd/system/sv-supervisord.service.d/",
		"/etc/supervisord/config.toml": "sv-supervisord check && systemctl reload " +
			"sv-supervisord\n",
	} {
		if !strings.Contains(now[path], want) {
			t.Errorf("%s does not contain %q: %.300q", path, want, now[path])
		}
	}
	if unit := now["/usr/local/lib/systemd/system/sv-supervisord.service"]; strings.Contains(unit, "bin/supervisord") ||
		strings.Contains(unit, "system/supervisord.service") {
		t.Errorf("the unit contains the other name:\n%s", unit)
	}
	out, err := exec.Command(dir+"/usr/local/bin/sv-supervisord", "nonsense").CombinedOutput()
	if err == nil || !strings.HasPrefix(string(out), "sv-supervisord: ") {
		t.Errorf("the program says %s", out)
	}
	installs(t, "uninstall", dir, "PROGRAM=sv-supervisord")
	unchanged(t, dir, before)
}

func TestInstallRefusesABinaryOrANameThatCannotBe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	lab.Must(t, os.WriteFile(other, []byte("#!/bin/sh\n"), 0o755))
	for _, environment := range []string{"PROGRAM=a/b", "PROGRAM=start_server", "PROGRAM=supervisord-tools", "PROGRAM=-x",
		"PREFIX=relative", "BINARY=" + other} {
		if out, code := install(t, "install", dir, environment); code != 1 || !strings.HasPrefix(out, "install: ") {
			t.Errorf("%s: exit status %d: %s", environment, code, out)
		}
	}
	if now := tree(t, dir); len(now) != 1 {
		t.Errorf("it has installed %q", slices.Sorted(maps.Keys(now)))
	}
}

func TestInstallAgainReplacesAllButTheConfigurationWhichIsGoodAndHasNoProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	installs(t, "install", dir)
	if to, err := os.Readlink(dir + "/usr/local/bin/start_server"); to != "../lib/supervisord/start_server" {
		t.Errorf("start_server leads to %q, %v", to, err)
	}
	want := tree(t, dir)
	if !strings.Contains(want["/etc/supervisord/config.toml.example"], "[program.hello]") {
		t.Error("the reference is not installed beside the configuration")
	}
	if entries, err := os.ReadDir(dir + "/etc/supervisord/conf.d"); err != nil || len(entries) != 0 {
		t.Errorf("conf.d has %v: %v", entries, err)
	}
	m := lab.Prepare(t)
	out, code := m.Run("check", "-c", dir+"/etc/supervisord/config.toml")
	if code != 0 || !strings.Contains(out, "warning: ") || !strings.Contains(out, "there is no program") ||
		!strings.HasSuffix(out, "\nok\n") {
		t.Errorf("exit code %d: %s", code, out)
	}
	for path, text := range want {
		if path != "/etc/supervisord/config.toml" && path != "/usr/local/bin/start_server" {
			lab.Must(t, os.WriteFile(dir+path, []byte(text+"# older\n"), 0o755))
		}
	}
	lab.Must(t, os.WriteFile(dir+"/etc/supervisord/config.toml", []byte("# mine\n"), 0o644))
	want["/etc/supervisord/config.toml"] = "# mine\n"
	installs(t, "install", dir)
	unchanged(t, dir, want)
	installs(t, "uninstall", dir)
	if lab.Exists(dir + "/usr/local/bin/start_server") {
		t.Error("uninstall leaves start_server")
	}
}
