package tests

import (
	"encoding/json"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"example.org/supervisord/internal/lab"
)

func TestVersionAsJSONDescribesTheBuild(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	head, err := exec.Command("git", "-C", lab.Root(""), "rev-parse", "HEAD").Output()
	if stat, missing := os.Stat(lab.Root(".git")); err != nil || missing != nil || !stat.IsDir() {
		t.Skip("the go command records no commit here: the source is in a worktree or not in a git checkout")
	}
	buildWith(t, m.Path("plain"), "-buildvcs=true")
	out, err := exec.Command(m.Path("plain"), "version", "--json").Output()
	lab.Must(t, err)
	var got map[string]any
	lab.Must(t, json.Unmarshal(out, &got))
	if got["commit"] != strings.TrimSpace(string(head)) || got["platform"] != "linux/"+runtime.GOARCH ||
		got["go"] != runtime.Version() {
		t.Errorf("the output is %s", out)
	}
}

// buildWith builds supervisord with flags of go build.
func buildWith(t *testing.T, to string, flags ...string) {
	t.Helper()
	build := exec.Command("go", append(append([]string{"build", "-o", to}, flags...), "./cmd/supervisord")...)
	build.Dir = lab.Root("")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestVersionFromTheScriptIsInTheLogAndTheStatus(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	script := exec.Command(lab.Root("scripts/version"), "--ldflags")
	script.Env = append(os.Environ(), "VERSION=v7.8.9", "COMMIT=fedcba")
	flags, err := script.Output()
	lab.Must(t, err)
	buildWith(t, m.Path("linked"), "-ldflags", strings.TrimSpace(string(flags)))
	out, err := exec.Command(m.Path("linked"), "version", "--json").Output()
	lab.Must(t, err)
	if !strings.Contains(string(out), `"version": "7.8.9"`) || !strings.Contains(string(out), `"commit": "fedcba"`) {
		t.Errorf("the output is %s", out)
	}
	m.Via = []string{"sh", "-c", "shift; exec " + m.Path("linked") + ` "$@"`, "sh"}
	m.Start(lab.Web)
	m.Serves(1)
	if started := m.Await(lab.Says(lab.Starts)); started.Version != "7.8.9" {
		t.Errorf("the log says %s", started.Text)
	}
	if out := m.CtlOK("status"); !strings.HasPrefix(out, "supervisord 7.8.9, PID ") {
		t.Errorf("the status is %s", out)
	}
}

func TestHelpIsNoWiderThanTheTerminal(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	topics := append(commands(m), "exit-status", "")
	for _, columns := range []string{"", "60"} {
		width := 80
		if columns != "" {
			m.Env = []string{"COLUMNS=" + columns}
			width, _ = strconv.Atoi(columns)
		}
		for _, topic := range topics {
			out, code := m.Run(strings.Fields("help " + topic)...)
			if code != 0 || len(out) < 50 {
				t.Errorf("help %s: exit code %d: %s", topic, code, out)
			}
			examples := false
			for line := range strings.Lines(out) {
				examples = line == "Examples:\n" || examples && line != "\n" // they are commands, which stay whole
				if n := utf8.RuneCountInString(line) - 1; n > width && !examples {
					t.Errorf("help %s has a line of %d columns of %d: %s", topic, n, width, line)
				}
			}
		}
	}
}

func TestLogIsForPeopleOnATerminal(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Write(lab.Web)
	m.Via = lab.TerminalCommand(t)
	m.Launch("-c", m.Path("config.toml"))
	l := m.Await(lab.Contains("generation 1 serves after"))
	if strings.HasPrefix(l.Text, "{") {
		t.Errorf("on a terminal there is JSON: %s", l.Text)
	}
	m.Cmd.Process.Signal(syscall.SIGTERM)
	m.Ends(0)
}
